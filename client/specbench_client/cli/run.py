"""`specbench run`: execute a SpecBenchRun on this machine."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path

import click

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.expand import expand
from specbench_api.spec.run import SpecBenchRun
from specbench_client.cli.live import Live
from specbench_client.cli.options import DEFAULT_RESULTS, FILE, OUTPUT, SET
from specbench_client.cli.reading import read_run_file
from specbench_client.cli.show import show
from specbench_client.drive.conclude import conclude
from specbench_client.errors import EngineFailed, Interrupted
from specbench_client.local.executor import Here, execute
from specbench_client.local.place import Place, find_run, open_results


@click.command()
@FILE
@SET
@OUTPUT
@click.option("--results", default=DEFAULT_RESULTS, show_default=True, metavar="DIR-or-URI", help="Where results go.")
@click.option("--keep-text", is_flag=True, help="Keep the answers' texts in the records.")
def run(file: Path, settings: tuple[str, ...], output: str, results: str, *, keep_text: bool) -> int:
    """Measure FILE here: the same plan, the same points and the same layout of results as on a cluster.

    What is measured already (same spec, same results folder) is not measured again: interrupt it and run it again.

    \b
      specbench run examples/local-simulator.yaml
      specbench run run.yaml --results s3://bench-results/try --set spec.load.repeats=5
    """
    wanted = read_run_file(file, settings)
    place = find_run(open_results(results), expand(wanted))
    click.echo(f"results: {place.store.uri()}", err=True)
    failed = _measure(wanted, place, file, keep_text=keep_text)
    summary = conclude(place.plan, place.store)
    show(summary, output, place.store.uri())
    return _exit(summary, failed)


def _measure(wanted: SpecBenchRun, place: Place, file: Path, *, keep_text: bool) -> dict[str, EngineFailed]:
    with (
        tempfile.TemporaryDirectory(prefix="specbench-", ignore_cleanup_errors=True) as work_dir,
        Live(place.plan, len(place.measured)) as live,
    ):
        here = Here(
            base_dir=file.resolve().parent,
            work_dir=Path(work_dir),
            startup_deadline_s=wanted.spec.startup_deadline_seconds,
            on_group=live.group,
            on_progress=live.progress,
            keep_text=keep_text,
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


def _exit(summary: RunSummary, failed: dict[str, EngineFailed]) -> int:
    if failed:
        return Exit.ENGINE_FAILED
    return Exit.OK if summary.trustworthy else Exit.UNTRUSTWORTHY
