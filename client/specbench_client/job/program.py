"""The commands of `specbench-client`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from specbench_api.outcome.ending import Exit, Termination
from specbench_api.outcome.gate import GATE_VARIABLE
from specbench_api.outcome.launched import PLACE_VARIABLE
from specbench_api.spec.slo import SLO_VARIABLE
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.job.account import Account
from specbench_client.job.given import (
    engine_address,
    gate_of,
    group_of,
    new_attempt,
    place_of,
    read_plan,
    run_store,
    slo_of,
)
from specbench_client.job.last_words import TERMINATION_LOG, LastWords, Stopped
from specbench_client.store.locate import open_store
from specbench_client.store.scratch import scratch_folder

T = TypeVar("T")


@dataclass(frozen=True)
class Site:
    """What a command is given beside its arguments."""

    words: LastWords
    account: Account


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
@click.option(
    "--place",
    metavar="JSON",
    envvar=PLACE_VARIABLE,
    show_envvar=True,
    help="Where the engine runs, as the operator saw it; it is kept with the results.",
)
@LOG
@click.pass_obj
def drive(site: Site, /, **given: Any) -> Termination:
    """Measure every point of group N that has no manifest yet.

    \b
      specbench-client drive --plan plan.json --group 0 --attempt 1 --endpoint http://127.0.0.1:8000 --results results
    """  # noqa: D301 -- \b is click's, and must be the real character
    call = _DriveCall(**given)
    plan, attempt = read_plan(call.plan_file), new_attempt(call.attempt)
    group, store = group_of(plan, call.group), run_store(plan, call.results)
    endpoint, place = engine_address(call.endpoint), place_of(call.place)
    site.account.follow(store, [point.hash for point in group.points])
    with ExitStack() as stack:
        spool = call.spool or stack.enter_context(scratch_folder())
        options = DriveOptions(
            attempt=attempt, spool=spool, base_dir=call.prompts, on_progress=site.account.note, place=place
        )
        result = asyncio.run(_interruptible(drive_group(plan, group, endpoint, store, options), site.words))
    measured, found = len(result.measured), len(result.found)
    message = f"group {call.group}: {measured} points measured, {found} were measured already"
    return Termination(code=Exit.OK, reason="Measured", message=message, measured=measured + found)


@program.command(short_help="Make the run's answer from what is stored.")
@PLAN
@RESULTS
@click.option(
    "--slo",
    metavar="JSON",
    envvar=SLO_VARIABLE,
    show_envvar=True,
    help="The run's spec.slo, by which goodput is judged.",
)
@LOG
@click.pass_obj
def report(site: Site, /, plan_file: Path, results: str, slo: str | None) -> Termination:
    """Write summary.json, report.html and results.csv from the points that have manifests.

    \b
      specbench-client report --plan plan.json --results s3://bench/runs
    """  # noqa: D301 -- \b is click's, and must be the real character
    from specbench_client.drive.conclude import conclude  # noqa: PLC0415 -- plots and statistics: seconds of imports

    plan, targets = read_plan(plan_file), slo_of(slo)
    store = run_store(plan, results)
    site.account.follow(store, [point.hash for point in plan.points])
    summary = conclude(plan, store, slo=targets)
    message = f"{summary.points_measured} of {summary.points_total} points: {summary.verdict}"
    return Termination(code=Exit.OK, reason="Reported", message=message, measured=summary.points_measured)


@program.command(short_help="Evaluate the run's gate against an earlier result.")
@click.option("--results", required=True, metavar="URI", help="Root of the run's own results: s3://…, or a folder.")
@click.option(
    "--asked",
    required=True,
    metavar="JSON",
    envvar=GATE_VARIABLE,
    show_envvar=True,
    help="The gate, and where its baseline lies, as the operator found it.",
)
@LOG
@click.pass_obj
def gate(site: Site, /, results: str, asked: str) -> Termination:  # noqa: ARG001 -- nothing is measured to account for
    """Write gate.json beside the run's summary. It ends with 0 whatever the verdict: that is the operator's to tell.

    \b
      specbench-client gate --results s3://bench/runs/team/llama/8a01…
    """  # noqa: D301 -- \b is click's, and must be the real character
    from specbench_client.drive.compared import gate_stores, keep_gate  # noqa: PLC0415 -- as above

    wanted, after = gate_of(asked), open_store(results)
    told = gate_stores(wanted, open_store(wanted.baseline), after)
    keep_gate(told, after)
    return Termination(code=Exit.OK, reason=str(told.reason), message=told.message)


@dataclass(frozen=True)
class _DriveCall:
    plan_file: Path
    group: int
    attempt: str
    endpoint: str
    results: str
    spool: Path | None
    prompts: Path
    place: str | None


async def _interruptible(work: Coroutine[Any, Any, T], words: LastWords) -> T:
    """The work; a signal cancels it, and it ends with Stopped once it has cleaned up."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    seen: list[int] = []

    def stop(number: int) -> None:
        seen.append(number)
        loop.call_soon_threadsafe(task.cancel)

    with words.stopping_by(stop):
        try:
            return await task
        except asyncio.CancelledError:
            if not seen:
                raise
            raise Stopped(seen[0]) from None
