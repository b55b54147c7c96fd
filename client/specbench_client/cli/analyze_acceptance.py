"""`specbench analyze breakdown` and `drift`: where drafts are accepted, and whether that has changed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbench_api.outcome.exit_codes import Exit
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN
from specbench_client.cli.output import ResultConsole, print_output, print_report
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.value_types import Choice, FiniteRange
from specbench_client.documents.breakdown import Breakdown
from specbench_client.documents.summary import RunSummary
from specbench_client.errors import BadInput
from specbench_client.report.table_renderers import markdown_report
from specbench_client.report.text.breakdown import DIMENSIONS, breakdown_topics, ends_topic
from specbench_client.report.text.text_table import Report, Topic, mark_simulated

if TYPE_CHECKING:
    from specbench_client.analysis.drift.request_log import RequestLog


_NOTHING = Breakdown()


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--by",
    "dimensions",
    multiple=True,
    type=Choice(list(DIMENSIONS)),
    help="Show the classes of this dimension. Repeatable.  [default: first and last of all]",
)
@click.option("--all", "show_all", is_flag=True, help="Show the classes of every dimension.")
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Show only this arm. Repeatable.  [default: all]")
@OUTPUT_MARKDOWN
@LATEST
def breakdown(
    where: str, dimensions: tuple[str, ...], arms: tuple[str, ...], output: str, *, show_all: bool, latest: bool
) -> None:
    """Break acceptance down by position, context, answer length, turn and reasoning.

    \b
      specbench analyze breakdown specbench-results --latest
      specbench analyze breakdown specbench-results --latest --by position --by length --arm eagle3
      specbench analyze breakdown s3://bench-results/llama33/runs/bench/llama33-70b/3f2c… --output markdown

    Shows the acceptance length of the first and last class, with a confidence interval; --by and --all show every
    class. Details: docs, "Breakdown".
    """
    summary = _of_arms(select_run(where, latest=latest, ended=True).require_summary().summary, arms, where)
    shown = tuple(DIMENSIONS) if show_all else dimensions
    topics = breakdown_topics(summary, shown) if shown else [ends_topic(summary)]

    def print_text(console: ResultConsole) -> None:
        for each in topics:
            _print(console, each, simulated=summary.simulated)

    report = Report(topics, title=summary.name, simulated=summary.simulated)
    print_output(output, _document(summary), text=print_text, markdown=lambda: markdown_report(report))


def _document(summary: RunSummary) -> dict[str, object]:
    cells = [
        {
            "arm": cell.arm,
            "workload": cell.workload,
            "level": cell.level.to_dict(),
            "breakdown": cell.breakdown.to_dict(),
        }
        for cell in summary.cells
        if cell.breakdown != _NOTHING
    ]
    return {"name": summary.name, "simulated": summary.simulated, "cells": cells}


def _of_arms(summary: RunSummary, arms: tuple[str, ...], where: str) -> RunSummary:
    """Return the summary with these arms only. Raises BadInput for an unknown arm, or if no cell has a breakdown."""
    known = dict.fromkeys(cell.arm for cell in summary.cells)
    unknown = [arm for arm in arms if arm not in known]
    if unknown:
        raise BadInput(f"--arm {unknown[0]}: no such arm in {where}: give one of {', '.join(known)}")
    cells = [cell for cell in summary.cells if not arms or cell.arm in arms]
    if not any(cell.breakdown != _NOTHING for cell in cells):
        raise BadInput(
            f"{where}: no cell has a breakdown: compute it again from the records with `specbench report"
            f" {shlex.quote(where)} --recompute`"
        )
    return summary.model_copy(update={"cells": cells})


def _print(console: ResultConsole, topic: Topic, *, simulated: bool) -> None:
    for table in topic.tables:
        if table.rows:
            console.print_table(replace(table, title=mark_simulated(table.title, simulated=simulated)))
        else:
            console.print(table.title)
    for line in topic.lines:
        console.print(f"  {line}")


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
def drift(reference: str, current: str, *, output: str, **options: Any) -> int:
    """Check whether acceptance in CURRENT still equals that in REFERENCE. Exit code 0: no change found; 3: alarm.

    \b
      specbench analyze drift results/monday results/tuesday --arm eagle3 --load 8
      specbench analyze drift reference.jsonl yesterday.jsonl --window-seconds 3600
      specbench analyze drift s3://bench/runs/team/llama/3f2c… yesterday.jsonl --run-length 100000 --output json

    Each argument is a stored run, or a JSONL log with one request per line: steps, accepted_tokens and, if known,
    drafted_tokens, category, time (RFC 3339, or seconds since 1970) and prompt_id. EWMA and CUSUM charts detect a
    lasting shift; their limits come from the reference. The change is then split into two parts: a different mix of
    categories (traffic), and different acceptance within categories (drafter).

    Details and rules for Prometheus: docs, "Drift of acceptance in production".
    """
    from specbench_client.analysis.drift.comparison import DriftOptions, drift_report  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.report.text.trends import drift_report_text  # noqa: PLC0415

    logs = [_requests(location, options) for location in (reference, current)]
    chart = DriftOptions(options["window"], options["window_seconds"], options["run_length"])
    report = drift_report(logs[0], logs[1], chart)

    print_report(output, report, drift_report_text(report))
    return Exit.UNTRUSTWORTHY if report.alarm else Exit.OK


def _requests(location: str, options: dict[str, Any]) -> RequestLog:
    from specbench_client.stored_runs.drift_requests import requests_from_log, requests_from_run  # noqa: PLC0415

    path = Path(location)
    if path.is_file():
        return requests_from_log(path)
    run = select_run(location, latest=options["latest"], ended=True)
    return requests_from_run(run, options["arm"], options["workload"], options["load"])
