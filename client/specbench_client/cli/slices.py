"""`specbench slices`: where in the answers, contexts, lengths and turns a drafter accepts much and where little."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
from pydantic import ValidationError

from specbench_api.outcome.layout import SUMMARY
from specbench_api.outcome.summary import RunSummary
from specbench_client.cli.consoles import Page, page
from specbench_client.cli.plots import PLOT, write_plot
from specbench_client.cli.runs import run_store
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results
from specbench_client.report.slices import DIMENSIONS, Dimension, slices_dimensions, slices_markdown

_MADE_ANEW = "`specbench report … --recompute` makes it anew from the records"


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option(
    "--by", "dimensions", multiple=True, type=click.Choice(list(DIMENSIONS)), help="Only this.  [default: all]"
)
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm.  [default: all]")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Of several runs, the newest.")
@PLOT
def slices(
    where: str, dimensions: tuple[str, ...], arms: tuple[str, ...], output: str, plot: Path | None, *, latest: bool
) -> None:
    """Show the steps and requests of a run by where they stand, each class with its acceptance length and interval.

    \b
      specbench slices specbench-results --latest
      specbench slices specbench-results --latest --by position --by length --arm eagle3
      specbench slices specbench-results --latest --arm eagle3 --plot answers.html     a line a request, by position
      specbench slices s3://bench-results/llama33/runs/bench/llama33-70b/3f2c… --output markdown

    What the classes are, and why one is missing, stands in docs/slices.md.
    """
    summary = _chosen(_summary(where, latest=latest), arms, where)
    if plot:
        _draw(plot, summary)
    wanted = dimensions or tuple(DIMENSIONS)
    if output == "json":
        rows = [
            {"arm": cell.arm, "workload": cell.workload, "level": cell.level.to_dict(), "slices": cell.slices.to_dict()}
            for cell in summary.cells
            if cell.slices
        ]
        click.echo(json.dumps({"name": summary.name, "simulated": summary.simulated, "cells": rows}, indent=2))
    elif output == "markdown":
        click.echo(slices_markdown(summary, wanted), nl=False)
    else:
        console = page()
        for each in slices_dimensions(summary, wanted):
            _print(console, each, simulated=summary.simulated)


def _draw(plot: Path, summary: RunSummary) -> None:
    from specbench_client.report.plots.picture import Picture  # noqa: PLC0415  matplotlib: seconds of imports
    from specbench_client.report.plots.sections.requests import by_request  # noqa: PLC0415

    drawn = by_request(summary)
    told = [("Acceptance along each answer, at the lightest load", drawn)] if drawn else []
    otherwise = f"no step of these arms can be placed, or the answer is older: {_MADE_ANEW}"
    write_plot(plot, Picture(summary.name, told, summary.simulated), otherwise)


def _summary(where: str, *, latest: bool) -> RunSummary:
    store = run_store(open_results(where), where, latest=latest)
    try:
        return RunSummary.from_json(store.get(SUMMARY) or b"")
    except ValidationError as error:
        raise BadInput(f"{store.uri(SUMMARY)}: no answer, or a damaged one: {_MADE_ANEW}") from error


def _chosen(summary: RunSummary, arms: tuple[str, ...], where: str) -> RunSummary:
    """The summary with these arms alone. Raises BadInput: an arm that is not there, or no slices."""
    known = dict.fromkeys(cell.arm for cell in summary.cells)
    strangers = [arm for arm in arms if arm not in known]
    if strangers:
        raise BadInput(f"--arm {strangers[0]}: {where} has the arms {', '.join(known)}")
    cells = [cell for cell in summary.cells if not arms or cell.arm in arms]
    if not any(cell.slices for cell in cells):
        raise BadInput(f"{where}: its answer was made before slices were kept: {_MADE_ANEW}")
    return summary.model_copy(update={"cells": cells})


def _print(console: Page, told: Dimension, *, simulated: bool) -> None:
    title = told.sheet.title + (" (simulated, not a measurement)" if simulated else "")
    if told.sheet.rows:
        console.sheet(replace(told.sheet, title=title))
    else:
        console.print(told.sheet.title)
    for line in told.missing:
        console.print(f"  {line}")
