"""`specbench-client`: the program of the client Job. One group driven, or the answer made; why it ended is always said.

Exit codes are `specbench_api.outcome.ending.Exit`; a Job ends with 0 when its points have manifests, whatever the
verdict. The termination message is written on every way out, a bug of ours included, since the operator reads nothing
else: the log on stderr is for people.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import signal
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.ending import Exit, Termination
from specbench_api.outcome.layout import run_root
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.errors import BadInput, ClientError, Interrupted
from specbench_client.store.locate import open_store
from specbench_client.store.store import Store

TERMINATION_LOG = Path("/dev/termination-log")
"""Where the kubelet reads; it exists in every container."""
_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Ending:
    """What is known so far, should it end now."""

    measured = 0

    def note(self, progress: Progress) -> None:
        """Keep the number of points that are stored."""
        self.measured = progress.points_done


FOLDER = click.Path(path_type=Path)
PLAN = click.option("--plan", "plan_file", required=True, metavar="FILE", type=FOLDER, help="plan.json of the run.")
RESULTS = click.option(
    "--results", required=True, metavar="URI", help="Root of all results: s3://BUCKET/PREFIX, or a folder."
)
LOG = click.option(
    "--termination-log",
    metavar="PATH",
    expose_value=False,  # taken from the bare arguments: it is needed where they are wrong, too
    help=f"Where to leave, as one line of JSON, how it ended.  [default: {TERMINATION_LOG}, where there is one]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def program() -> None:
    """Measure the points of a plan against an engine that runs, and make the run's answer from what is stored.

    \b
    The operator starts it in pods; by hand it does the same:
      specbench-client drive --plan plan.json --group 0 --attempt 1 --endpoint http://engine:8000 --results s3://bench/runs
      specbench-client report --plan plan.json --results s3://bench/runs

    \b
    Killed at any moment, the same command goes on at the first point that has no manifest.
    S3 comes from the standard environment: AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …

    \b
    Exits: 0 all of it is stored    2 bad input         4 the engine failed
           5 results not durable    130 interrupted     1 a bug of ours
    """  # noqa: D301 -- \b is click's, and must be the real character


@program.command(short_help="Measure what is missing of one engine group.")
@PLAN
@click.option("--group", required=True, type=int, metavar="N", help="Index of the engine group in the plan.")
@click.option("--attempt", required=True, metavar="ID", help="Names this launch of the engine in the results.")
@click.option("--endpoint", required=True, metavar="URL", help="The engine, such as http://engine:8000.")
@RESULTS
@click.option("--spool", metavar="DIR", type=FOLDER, help="Disk on which records wait for S3.  [default: temporary]")
@click.option("--prompts", metavar="DIR", type=FOLDER, default=Path(), help="Where relative paths of prompts begin.")
@LOG
@click.pass_obj
def drive(ending: Ending, /, **given: Any) -> Termination:
    """Measure every point of group N that has no manifest yet.

    \b
      specbench-client drive --plan plan.json --group 0 --attempt 1 --endpoint http://127.0.0.1:8000 --results results
    """  # noqa: D301 -- \b is click's, and must be the real character
    call = _DriveCall(**given)
    plan = read_plan(call.plan_file)
    with ExitStack() as stack:
        spool = call.spool or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specbench-spool-")))
        options = DriveOptions(
            attempt=_new_attempt(call.attempt), spool=spool, base_dir=call.prompts, on_progress=ending.note
        )
        work = drive_group(plan, group_of(plan, call.group), call.endpoint, _run_store(plan, call.results), options)
        result = asyncio.run(_interruptible(work))
    measured, found = len(result.measured), len(result.found)
    message = f"group {call.group}: {measured} points measured, {found} were measured already"
    return Termination(code=Exit.OK, reason="Measured", message=message, measured=measured + found)


@program.command(short_help="Make the run's answer from what is stored.")
@PLAN
@RESULTS
@LOG
def report(plan_file: Path, results: str) -> Termination:
    """Write summary.json, report.html and results.csv from the points that have manifests.

    \b
      specbench-client report --plan plan.json --results s3://bench/runs
    """  # noqa: D301 -- \b is click's, and must be the real character
    from specbench_client.drive.conclude import conclude  # noqa: PLC0415 -- plots and statistics: seconds of imports

    plan = read_plan(plan_file)
    summary = conclude(plan, _run_store(plan, results))
    message = f"{summary.points_measured} of {summary.points_total} points: {summary.verdict}"
    return Termination(code=Exit.OK, reason="Reported", message=message, measured=summary.points_measured)


@dataclass(frozen=True)
class _DriveCall:
    plan_file: Path
    group: int
    attempt: str
    endpoint: str
    results: str
    spool: Path | None
    prompts: Path


def read_plan(file: Path) -> Plan:
    """The plan in a file. Raises BadInput."""
    try:
        return Plan.from_json(file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: give the plan.json of the run", "PlanUnreadable") from error
    except ValidationError as error:
        remedy = "client and operator must be of one version"
        raise BadInput(f"{file}: not a plan of this version: {error}: {remedy}", "PlanUnreadable") from error


def group_of(plan: Plan, index: int) -> EngineGroup:
    """The engine group of this index. Raises BadInput."""
    if not 0 <= index < len(plan.groups):
        raise BadInput(f"--group {index}: the plan has the groups 0 to {len(plan.groups) - 1}")
    return plan.groups[index]


def _run_store(plan: Plan, results: str) -> Store:
    return open_store(results).below(run_root(plan.namespace, plan.name, plan.uid))


def _new_attempt(given: str) -> str:
    """The launch's name with a suffix of this very process: a container that is restarted keeps its arguments."""
    if not _ATTEMPT.fullmatch(given):
        raise BadInput(f"--attempt {given!r}: letters, digits, dots and dashes, at most 64: it names files")
    return f"{given}-{secrets.token_hex(3)}"


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    """The work; SIGTERM and SIGINT cancel it, and it ends with Interrupted once it has cleaned up."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    seen: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        seen.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not seen:
            raise
        raise _interrupted(seen[0]) from None
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _interrupted(number: int) -> Interrupted:
    name = signal.Signals(number).name
    return Interrupted(f"{name}: points with a manifest are kept; the same command goes on at the first without one")


def _raise_interrupted(number: int, _frame: FrameType | None) -> NoReturn:
    raise _interrupted(number)


def main() -> None:
    """Entry point."""
    sys.exit(run_program(sys.argv[1:]))


def run_program(arguments: list[str]) -> int:
    """Run one command line, tell the termination log how it ended, and return the exit code."""
    logging.basicConfig(level=logging.INFO, handlers=[_json_handler()], force=True)
    signal.signal(signal.SIGTERM, _raise_interrupted)
    ending = Ending()
    try:
        result = program.main(args=arguments, prog_name="specbench-client", standalone_mode=False, obj=ending)
    except Exception as error:  # noqa: BLE001 -- the last line of defence; what is not ours is a bug and said to be
        result = ending_of(error, ending.measured)
    except KeyboardInterrupt:
        result = ending_of(_interrupted(signal.SIGINT), ending.measured)
    if not isinstance(result, Termination):
        return int(result or 0)  # --help
    _log.log(logging.ERROR if result.code else logging.INFO, "%s: %s", result.reason, result.message)
    _tell(arguments, result)
    return result.code


def ending_of(error: Exception, measured: int) -> Termination:
    """How the process ends because of an error; the one place where errors get their codes."""
    if isinstance(error, ClientError):
        return Termination(code=error.exit, reason=str(error.reason), message=str(error), measured=measured)
    if isinstance(error, InvalidSpec):
        return Termination(code=Exit.BAD_INPUT, reason="InvalidSpec", message=str(error), measured=measured)
    if isinstance(error, click.ClickException):
        return Termination(code=Exit.BAD_INPUT, reason="BadInput", message=error.format_message(), measured=measured)
    _log.error("a bug of specbench", exc_info=error)
    message = f"{type(error).__name__}: {error}; this is a bug of specbench: please report it with the client's log"
    return Termination(code=Exit.BUG, reason="Bug", message=message, measured=measured)


def _tell(arguments: list[str], ending: Termination) -> None:
    path = termination_log(arguments)
    if path is None:
        return
    try:
        path.write_text(ending.to_message() + "\n")
    except OSError as error:
        _log.error("the termination message cannot be written to %s: %s", path, error.strerror)


def termination_log(arguments: list[str]) -> Path | None:
    """Where to write, read from bare arguments; None where there is no such place."""
    flag = "--termination-log"
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return Path(argument.removeprefix(f"{flag}="))
        if argument == flag and index + 1 < len(arguments):
            return Path(arguments[index + 1])
    return TERMINATION_LOG if TERMINATION_LOG.exists() else None


def _json_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    return handler


class _JsonLines(logging.Formatter):
    """One JSON object a line, for whatever collects the pod's log."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


if __name__ == "__main__":
    main()
