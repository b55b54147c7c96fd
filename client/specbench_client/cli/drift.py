"""`specbench analyze drift`: whether acceptance has changed since a reference. The exit code is the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbench_api.outcome.termination import Exit
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN, FiniteRange
from specbench_client.cli.output import PLOT, ResultConsole, print_output, write_plot
from specbench_client.cli.run_selection import select_run
from specbench_client.errors import BadInput

if TYPE_CHECKING:
    from specbench_client.analysis.drift.request_log import RequestLog


@click.command()
@click.argument("reference", metavar="REFERENCE")
@click.argument("current", metavar="CURRENT")
@click.option("--arm", help="For a stored run: the drafter.")
@click.option("--workload", help="For a stored run: the workload.")
@click.option("--load", help="For a stored run: the load, as shown in tables: 8, or 2.5/s.")
@click.option("--window", type=click.IntRange(min=1), default=200, show_default=True, help="Requests per window.")
@click.option(
    "--window-seconds",
    type=FiniteRange(min=0, min_open=True),
    help="Length of a window in seconds, instead of --window.",
)
@click.option(
    "--run-length",
    type=FiniteRange(min=100, max=1e6),
    help="Average number of requests between two false alarms.  [default: 20 times the length of CURRENT]",
)
@OUTPUT_MARKDOWN
@LATEST
@PLOT
def drift(reference: str, current: str, *, output: str, plot: Path | None, **options: Any) -> int:
    """Check whether acceptance in CURRENT still equals that in REFERENCE. Exit code 0: no change found; 3: alarm.

    \b
      specbench analyze drift results/monday results/tuesday --arm eagle3 --load 8
      specbench analyze drift reference.jsonl yesterday.jsonl --window-seconds 3600
      specbench analyze drift s3://bench/runs/team/llama/3f2c… yesterday.jsonl --run-length 100000 --output json

    Each argument is a stored run, or a JSONL log with one request per line: steps, accepted_tokens and, if known,
    drafted_tokens, category, time (RFC 3339, or seconds since 1970) and prompt_id. EWMA and CUSUM charts detect a
    lasting shift; their limits come from the reference. The change is then split into two parts: a different mix of
    categories (traffic), and different acceptance within categories (drafter).

    How to read the result and what to do about it: docs/research/drift.md. Prometheus rules:
    examples/monitoring/drift.rules.yaml.
    """
    from specbench_client.analysis.drift.report import DriftOptions, drift_report  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.report.text.trends import drift_markdown, drift_topic  # noqa: PLC0415

    logs = [_requests(location, options) for location in (reference, current)]
    chart = DriftOptions(options["window"], options["window_seconds"], options["run_length"])
    report = drift_report(logs[0], logs[1], chart)
    if plot:
        from specbench_client.report.plots.figures import drift_windows  # noqa: PLC0415  matplotlib takes seconds to import

        write_plot(plot, f"Acceptance length of {current} against {reference}", drift_windows(report))

    def print_text(console: ResultConsole) -> None:
        console.print_line(report.headline)
        topic = drift_topic(report)
        console.print_tables(topic.tables, topic.lines)

    print_output(output, report, text=print_text, markdown=lambda: drift_markdown(report))
    return Exit.UNTRUSTWORTHY if report.alarm else Exit.OK


def _requests(location: str, options: dict[str, Any]) -> RequestLog:
    from specbench_client.stored_runs.drift_requests import CellFilter, requests_from_log, requests_from_run  # noqa: PLC0415

    path = Path(location)
    if path.is_file():
        return requests_from_log(path)
    if "://" not in location and not path.exists():
        raise BadInput(f"{location}: no such file or folder: give a JSONL log, or the results of a run")
    cells = CellFilter(options["arm"], options["workload"], options["load"])
    return requests_from_run(select_run(location, latest=options["latest"]), cells)
