"""What `specbench run` does once the spec is read: measure, conclude, show, and say how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.layout import REPORT
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.slo import Slo
from specbench_client.cli.live import Live
from specbench_client.cli.show import show
from specbench_client.drive.conclude import conclude
from specbench_client.drive.options import Clock
from specbench_client.errors import EngineFailed, Interrupted
from specbench_client.local.executor import Here, execute, refuse_unusable
from specbench_client.local.place import Place, alone, find_run, new_run, open_results
from specbench_client.store.scratch import scratch_folder
from specbench_client.store.store import Store


@dataclass(frozen=True)
class Wish:
    """What the command line asked for beside the plan. `base_dir`: where relative paths of the spec begin."""

    base_dir: Path
    startup_deadline_s: float
    results: str
    output: str
    keep_text: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    workers: int | None = None
    new: bool = False
    """Beside what was measured already, instead of going on with it."""
    kept: bool = True
    """Whether a run that is finished is shown again. Not of an endpoint: nobody knows what runs behind it by now."""
    slo: Slo | None = None
    """By which goodput is judged."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `failed`: arms whose engine failed; `uri`: the root of its results.

    `finished`: whether it was before, and nothing was measured now.
    """

    plan: Plan
    summary: RunSummary
    failed: Mapping[str, EngineFailed]
    uri: str
    finished: bool

    @property
    def exit(self) -> Exit:
        """The exit code that it has."""
        if self.failed:
            return Exit.ENGINE_FAILED
        return Exit.OK if self.summary.trustworthy else Exit.UNTRUSTWORTHY

    @property
    def report(self) -> str:
        """Where the report lies."""
        return f"{self.uri.rstrip('/')}/{REPORT}"


def measured(plan: Plan, wish: Wish) -> int:
    """Measure what is not measured yet, and show the whole answer. Returns the exit code. Raises BadInput first."""
    outcome = carried_out(plan, wish)
    show(outcome.plan, outcome.summary, wish.output, outcome.uri)
    if outcome.finished:
        created = outcome.summary.created
        click.echo(f"nothing was measured now: this run was finished ({created}); --new measures anew", err=True)
    for arm, error in outcome.failed.items():
        click.echo(f"error: {arm}: {error.reason}: {error}", err=True)
    return outcome.exit


def carried_out(plan: Plan, wish: Wish) -> Outcome:
    """Measure what is not measured yet, and write the answer. Raises BadInput first, NotDurable, Interrupted."""
    results = open_results(wish.results)
    with alone(results, plan, who()):
        place = _place(results, plan, wish)
        refuse_unusable(place, wish.base_dir)
        click.echo(f"results: {place.store.uri()}", err=True)
        finished = place.finished
        failed = _measure(place, wish)
        click.echo("analysing what was measured, and writing the report", err=True)
        summary = conclude(place.plan, place.store, slo=wish.slo)
    return Outcome(place.plan, summary, failed, place.store.uri(), finished)


def _place(results: Store, plan: Plan, wish: Wish) -> Place:
    found = new_run(results, plan) if wish.new else find_run(results, plan)
    return new_run(results, plan) if found.finished and not wish.kept else found


def who() -> str:
    """This process, for whoever meets its lock. Its arguments stay out: a header may hold a key."""
    command = " ".join(Path(word).name for word in sys.argv[:2])
    return f"process {os.getpid()} on {socket.gethostname()} ({command}, since {Clock().wall_text()})"


def _measure(place: Place, wish: Wish) -> dict[str, EngineFailed]:
    with scratch_folder() as work_dir, Live(place.plan, len(place.measured)) as live:
        here = Here(
            base_dir=wish.base_dir,
            work_dir=work_dir,
            startup_deadline_s=wish.startup_deadline_s,
            on_group=live.group,
            on_progress=live.progress,
            keep_text=wish.keep_text,
            headers=wish.headers,
            workers=wish.workers,
        )
        failed = asyncio.run(_until_signalled(place, here))
        for arm, error in failed.items():
            live.failed(arm, error.reason, str(error))
        return failed


async def _until_signalled(place: Place, here: Here) -> dict[str, EngineFailed]:
    """SIGTERM ends a run as orderly as Ctrl-C does: engines are stopped, what was finished is kept."""
    task = asyncio.ensure_future(execute(place, here))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError as cancelled:
        raise Interrupted("what was finished is kept: run the same command again to go on") from cancelled
