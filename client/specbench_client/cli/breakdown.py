"""`specbench analyze breakdown`: acceptance by position, context length, answer length and turn."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from specbench_api.outcome.breakdown import Breakdown
from specbench_api.outcome.summary import RunSummary
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN
from specbench_client.cli.output import ResultConsole, result_console
from specbench_client.cli.run_selection import select_run
from specbench_client.cli.streams import echo_document, echo_json
from specbench_client.errors import BadInput
from specbench_client.report.renderers import markdown_document
from specbench_client.report.text.breakdown import DIMENSIONS, breakdown_topics
from specbench_client.report.text.text_table import Topic, mark_simulated

RECOMPUTE = "compute it again from the records with `specbench report … --recompute`"
_NOTHING = Breakdown()


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--by",
    "dimensions",
    multiple=True,
    type=click.Choice(list(DIMENSIONS)),
    help="Show only this dimension. Repeatable.  [default: all]",
)
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Show only this arm. Repeatable.  [default: all]")
@OUTPUT_MARKDOWN
@LATEST
def breakdown(where: str, dimensions: tuple[str, ...], arms: tuple[str, ...], output: str, *, latest: bool) -> None:
    """Break acceptance down by position, context, answer length, conversation turn and reasoning.

    \b
      specbench analyze breakdown specbench-results --latest
      specbench analyze breakdown specbench-results --latest --by position --by length --arm eagle3
      specbench analyze breakdown s3://bench-results/llama33/runs/bench/llama33-70b/3f2c… --output markdown

    Each class has its acceptance length with a confidence interval. What the classes are, and why one may be missing:
    docs/research/breakdown.md.
    """
    summary = _of_arms(_summary(where, latest=latest), arms, where)
    topics = breakdown_topics(summary, dimensions or tuple(DIMENSIONS))
    if output == "json":
        echo_json(json.dumps(_document(summary), indent=2))
    elif output == "markdown":
        echo_document(markdown_document(summary.name, topics, simulated=summary.simulated))
    else:
        console = result_console()
        for each in topics:
            _print(console, each, simulated=summary.simulated)


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


def _summary(where: str, *, latest: bool) -> RunSummary:
    store = select_run(where, latest=latest)
    from specbench_client.stored_runs.results import read_plan_and_summary  # noqa: PLC0415  scipy takes seconds to import

    return read_plan_and_summary(store)[1]


def _of_arms(summary: RunSummary, arms: tuple[str, ...], where: str) -> RunSummary:
    """Return the summary with these arms only. Raises BadInput for an unknown arm, or if no cell has a breakdown."""
    known = dict.fromkeys(cell.arm for cell in summary.cells)
    unknown = [arm for arm in arms if arm not in known]
    if unknown:
        raise BadInput(f"--arm {unknown[0]}: no such arm in {where}: give one of {', '.join(known)}")
    cells = [cell for cell in summary.cells if not arms or cell.arm in arms]
    if not any(cell.breakdown != _NOTHING for cell in cells):
        raise BadInput(f"{where}: no cell has a breakdown: {RECOMPUTE}")
    return summary.model_copy(update={"cells": cells})


def _print(console: ResultConsole, topic: Topic, *, simulated: bool) -> None:
    for table in topic.tables:
        if table.rows:
            console.print_table(replace(table, title=mark_simulated(table.title, simulated=simulated)))
        else:
            console.print(table.title)
    for line in topic.lines:
        console.print(f"  {line}")
