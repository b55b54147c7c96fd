"""The commands of `specbench-client`, and how one command line ends: exit code, termination message, log.

Exit codes are `specbench_api.outcome.exit_codes.Exit`; a Job exits with 0 when its points have manifests, whatever the
results. The termination message is always written, also after a bug, since the operator reads nothing else. The log on
stderr is for users: one JSON object per line, for the collector of the pod's log, and never parsed by specbench.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import GATE, PLAN_DIGEST_VARIABLE, run_root
from specbench_api.outcome.provenance import HOST_FACTS_VARIABLE, HostFacts
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.canonical import digest
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.engine import flaw_of
from specbench_api.spec.gate import GATE_VARIABLE, GateRequest
from specbench_api.spec.slo import SLO_VARIABLE, Slo
from specbench_client.drive.group import CLAIM_PATIENCE_S, drive_group
from specbench_client.drive.options import ClientOptions, DriveOptions
from specbench_client.errors import BadInput, ClientError, Interrupted
from specbench_client.job.termination import (
    TERMINATION_LOG,
    StopRequested,
    TerminationWriter,
    raise_stop_requested,
    termination_log,
)
from specbench_client.known_secrets import api_key_header, without_secrets
from specbench_client.store.locations import open_baseline, open_store
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.store import Store, check_s3_server

T = TypeVar("T")


FOLDER = click.Path(path_type=Path)
PLAN = click.option("--plan", "plan_file", required=True, metavar="FILE", type=FOLDER, help="plan.json of the run.")
RESULTS = click.option(
    "--results", required=True, metavar="URI", help="Root of all results: s3://BUCKET/PREFIX, or a folder."
)
LOG = click.option(
    "--termination-log",
    metavar="PATH",
    expose_value=False,  # Read from the raw arguments, because it is also needed if they are invalid.
    help=f"File for the termination message, one line of JSON.  [default: {TERMINATION_LOG}, if it exists]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def program() -> None:
    """Measure the points of a plan against a running engine, and write the run's report from the stored points.

    \b
    The operator starts it in pods; it can be run by hand too:
      specbench-client drive --plan plan.json --group 0 --attempt 1 --endpoint http://engine:8000 --results s3://bench/runs
      specbench-client report --plan plan.json --results s3://bench/runs

    \b
    After a kill, the same command continues with the first point that has no manifest.
    S3 comes from the standard environment: AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …

    \b
    Exit codes: 0 everything is stored    2 bad input         4 the engine failed
                5 results not stored      130 interrupted     1 a bug
    """  # noqa: D301 -- \b is click's, and must be the real character


@program.command(short_help="Measure the missing points of one engine group.")
@PLAN
@click.option("--group", required=True, type=int, metavar="N", help="Index of the engine group in the plan.")
@click.option("--attempt", required=True, metavar="ID", help="Name of this launch of the engine in the results.")
@click.option("--endpoint", required=True, metavar="URL", help="The engine, such as http://engine:8000.")
@RESULTS
@click.option("--prompts", metavar="DIR", type=FOLDER, default=Path(), help="Folder of relative paths of prompts.")
@click.option(
    "--place",
    metavar="JSON",
    envvar=HOST_FACTS_VARIABLE,
    show_envvar=True,
    help="Facts of the engine's node, from the operator; stored with the results.",
)
@LOG
@click.pass_obj
def drive(
    termination: TerminationWriter,
    /,
    *,
    plan_file: Path,
    group: int,
    attempt: str,
    endpoint: str,
    results: str,
    prompts: Path,
    place: str | None,
) -> Termination:
    """Measure every point of group N that has no manifest.

    \b
      specbench-client drive --plan plan.json --group 0 --attempt 1 --endpoint http://127.0.0.1:8000 --results results
    """  # noqa: D301 -- \b is click's, and must be the real character
    plan = read_plan(plan_file)
    new_attempt = _new_attempt(attempt)
    engine_group, store = _engine_group_at(plan, group), _open_run_store(plan, results)
    if flaw := flaw_of(endpoint):
        raise BadInput(f"--endpoint {flaw}")
    host_facts = HostFacts()
    if place is not None:
        host_facts = _parse_document(HostFacts.from_untrusted_json, place, "--place: not the place of an engine")
    check_s3_server(RetryingStore(open_store(results), RetryPolicy(CLAIM_PATIENCE_S)))
    options = DriveOptions(
        attempt=new_attempt,
        base_dir=prompts,
        place=host_facts,
        client=ClientOptions(headers=api_key_header() if plan.engine.is_external else {}),
    )
    result = asyncio.run(_interruptible(drive_group(plan, engine_group, endpoint, store, options), termination))
    measured, found = len(result.measured), len(result.found)
    message = f"group {group}: {measured} points measured, {found} were already measured"
    return Termination(code=Exit.OK, reason="Measured", message=message)


@program.command(short_help="Write the run's report from the stored points.")
@PLAN
@RESULTS
@click.option(
    "--slo",
    metavar="JSON",
    envvar=SLO_VARIABLE,
    show_envvar=True,
    help="The run's spec.slo, the targets of goodput.",
)
@LOG
def report(plan_file: Path, results: str, slo: str | None) -> Termination:
    """Write summary.json, report.html and results.csv from the points that have manifests.

    \b
      specbench-client report --plan plan.json --results s3://bench/runs
    """  # noqa: D301 -- \b is click's, and must be the real character
    from specbench_client.stored_runs.write_results import conclude  # noqa: PLC0415 -- plots and statistics: seconds of imports

    plan = read_plan(plan_file)
    targets = None if slo is None else _parse_document(Slo.from_json, slo, "--slo: not targets")
    store = _open_run_store(plan, results)
    summary = conclude(plan, store, slo=targets)
    message = f"{summary.points_measured} of {summary.points_total} points: {summary.headline}"
    return Termination(code=Exit.OK, reason="Reported", message=message)


@program.command(short_help="Evaluate the run's gate against an earlier result.")
@click.option("--results", required=True, metavar="URI", help="Root of the run's own results: s3://…, or a folder.")
@click.option(
    "--request",
    required=True,
    metavar="JSON",
    envvar=GATE_VARIABLE,
    show_envvar=True,
    help="The gate and the location of its baseline, from the operator.",
)
@LOG
def gate(results: str, request: str) -> Termination:
    """Write gate.json next to the run's summary. Exits with 0 also if the gate fails: the operator reports that.

    \b
      specbench-client gate --results s3://bench/runs/team/llama/8a01…
    """  # noqa: D301 -- \b is click's, and must be the real character
    from specbench_client.stored_runs.gate import gate_runs  # noqa: PLC0415 -- as above
    from specbench_client.stored_runs.run import Run  # noqa: PLC0415

    gate_request = _parse_document(GateRequest.from_json, request, "--request: not a gate")
    before, store = (
        RetryingStore(each, RetryPolicy()) for each in (open_baseline(gate_request.baseline), open_store(results))
    )
    gate_report = gate_runs(gate_request, Run(before), Run(store))
    store.replace(GATE, gate_report.to_json().encode())
    return Termination(code=Exit.OK, reason=str(gate_report.reason), message=gate_report.message)


async def _interruptible(work: Coroutine[Any, Any, T], termination: TerminationWriter) -> T:
    """Run a coroutine; a signal cancels it, and StopRequested is raised after its clean-up."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        loop.call_soon_threadsafe(task.cancel)

    with termination.on_signal(stop):
        try:
            return await task
        except asyncio.CancelledError:
            if not signals:
                raise
            raise StopRequested(signals[0]) from None


# Parsing of arguments: all functions raise BadInput for invalid values.

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REMEDY = "use the client of the version that wrote it"


def read_plan(file: Path) -> Plan:
    """Read the plan from a file. The environment may contain its digest."""
    try:
        data = file.read_bytes()
        plan = Plan.from_json(data)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}: give the plan.json of the run", "PlanUnreadable") from error
    except ValidationError as error:
        raise BadInput(f"{file}: not a plan of this version: {error}: {_REMEDY}", "PlanUnreadable") from error
    found = digest(data.decode())
    if os.environ.get(PLAN_DIGEST_VARIABLE, found) != found:
        raise BadInput(
            f"{file} is not the plan for which this client was created: find out who changed its ConfigMap", "OtherPlan"
        )
    return plan


def _engine_group_at(plan: Plan, index: int) -> EngineGroup:
    """Return the engine group with this index."""
    if not 0 <= index < len(plan.groups):
        raise BadInput(f"--group {index}: the plan has the groups 0 to {len(plan.groups) - 1}")
    return plan.groups[index]


def _open_run_store(plan: Plan, results: str) -> Store:
    """Return the store of the run below the root of all results."""
    return open_store(results).below(run_root(plan.namespace, plan.name, plan.uid))


def _new_attempt(given: str) -> str:
    """Return the launch's name with a random suffix, because a restarted container has the same arguments."""
    if not _ATTEMPT.fullmatch(given):
        raise BadInput(f"--attempt {given!r} is not valid in file names: give at most 64 letters, digits, dots, dashes")
    return f"{given}-{secrets.token_hex(3)}"


def _parse_document(parse: Callable[[bytes], T], given: str, refused: str) -> T:
    try:
        return parse(given.encode())
    except ValueError as error:
        raise BadInput(f"{refused}: {error}: {_REMEDY}") from error


def log_as_json() -> None:
    """Configure logging as JSON lines on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


_log = logging.getLogger(__name__)


def run_program(arguments: list[str], termination: TerminationWriter | None = None) -> int:
    """Run one command line, write the termination message, and return the exit code."""
    log_as_json()
    termination = termination or TerminationWriter(termination_log(arguments))
    with termination.on_signal(lambda _: None):  # The command has ended: there is nothing to stop.
        result = _result(arguments, termination)
        if not isinstance(result, Termination):
            return result  # --help
        _log.log(logging.ERROR if result.code else logging.INFO, "%s: %s", result.reason, result.message)
        try:
            termination.write(result.to_message(), result.code)
        except OSError as error:
            _log.error("the termination message cannot be written to %s: %s", termination.path, error.strerror)
    return result.code


def _result(arguments: list[str], termination: TerminationWriter) -> Termination | int:
    failure: Exception
    try:
        with termination.on_signal(raise_stop_requested):
            result = program.main(args=arguments, prog_name="specbench-client", standalone_mode=False, obj=termination)
            return result if isinstance(result, Termination) else int(result or 0)
    except StopRequested as stopped:
        failure = Interrupted(str(stopped))
    except Exception as error:  # noqa: BLE001 -- any other exception is a bug and reported as one
        failure = error
    return termination_of(failure)


def termination_of(error: Exception) -> Termination:
    """Return the exit code and termination message of an error, without secrets."""
    code, reason, message = _outcome_of(error)
    return Termination(code=code, reason=reason, message=without_secrets(message))


def _outcome_of(error: Exception) -> tuple[Exit, str, str]:
    """Exit code, reason and message of an error."""
    if isinstance(error, ClientError):
        return error.exit, str(error.reason), str(error)
    if isinstance(error, InvalidSpec):
        return Exit.BAD_INPUT, "InvalidSpec", str(error)
    if isinstance(error, click.ClickException):
        return Exit.BAD_INPUT, "BadInput", error.format_message()
    _log.error("a bug in specbench", exc_info=error)
    message = f"{type(error).__name__}: {error}; this is a bug in specbench: please report it with the client's log"
    return Exit.BUG, "Bug", message
