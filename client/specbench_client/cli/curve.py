"""`specbench analyze curve`: speed-up and acceptance of several stored runs against one axis."""

from __future__ import annotations

import click

from specbench_client.cli.options import FiniteNumber, output_option
from specbench_client.cli.output import ResultConsole, print_output
from specbench_client.documents.curves import CurveAnswerBasis, Curves
from specbench_client.errors import BadInput
from specbench_client.local.local_runs import open_results

AXES = ["temperature", "draft-tokens", "input-tokens", "output-tokens", "concurrency"]
WHOLE = ("draft-tokens", "concurrency")
"""Axes whose values are whole numbers, so nothing is interpolated between neighbours."""
LINES_MAX = 8
"""Excluded runs that an error message lists."""
REMEDY = "`specbench report` shows the findings of each run, and what to do about them"


@click.command()
@click.argument("where", metavar="WHERE...", nargs=-1, required=True)
@click.option("--by", type=click.Choice(AXES), required=True, help="The axis that the curves are drawn against.")
@click.option(
    "--at",
    type=FiniteNumber(),
    multiple=True,
    metavar="X",
    help="Also print the curves' values at X, which must be within the measured range. Repeatable.",
)
@output_option("text", "json", "csv", "markdown")
def curve(where: tuple[str, ...], by: str, at: tuple[float, ...], output: str) -> None:
    """Plot speed-up and acceptance length of stored runs against one axis, and report where the speed-up falls to 1.

    \b
      specbench analyze curve results --by temperature
      specbench analyze curve results --by draft-tokens --at 4            between measured values: interpolated
      specbench analyze curve s3://bench/short s3://bench/long --by input-tokens --output csv
      specbench analyze curve results/runs/local/smollm2/0190… --by concurrency

    WHERE is the root of a run, or a results root, of which every run is used. Runs that are equal in everything but the
    axis (model, engine, hardware, drafter, prompts, …) form one curve; other runs form curves of their own, labelled
    with what differs. Of equal runs, only the newest counts.

    How curves and their intervals are computed: docs/research/curve.md.
    """
    for value in at:
        _check_axis_value(by, value)
    from specbench_client.report.text.curves import (  # noqa: PLC0415  scipy takes seconds to import
        curve_notes,
        curve_table,
        curves_csv,
        curves_markdown,
    )
    from specbench_client.stored_runs.results import curves_over_stores  # noqa: PLC0415

    found = curves_over_stores([open_results(root) for root in where], by, at)
    _require_curves(found)

    def print_text(console: ResultConsole) -> None:
        console.print_tables([curve_table(found, each) for each in found.curves], curve_notes(found))

    print_output(output, found, text=print_text, csv=lambda: curves_csv(found), markdown=lambda: curves_markdown(found))


def _check_axis_value(by: str, value: float) -> None:
    """Raise BadInput if no curve can have this value on its axis."""
    if by in WHOLE and value != round(value):
        raise BadInput(f"--at {value:g}: {by} is a whole number: give {round(value)}")
    if not 0 <= value < float("inf") or (value == 0 and by != "temperature"):
        raise BadInput(f"--at {value:g}: not a possible value of {by}: give a number above 0")


def _require_curves(found: Curves) -> None:
    """Raise BadInput if there is no curve, or if no curve reaches one of the values of --at."""
    if not found.curves:
        lines = [f"{each.what}: {each.reason}" for each in found.left_out[:LINES_MAX]]
        raise BadInput("\n".join(["no curve can be drawn", *lines, *([REMEDY] if lines else [])]), "NothingToDraw")
    for answers in zip(*(each.predictions for each in found.curves), strict=True):
        if all(each.basis is CurveAnswerBasis.REFUSED for each in answers):
            raise BadInput(f"--at {answers[0].message}", "OutsideOfWhatWasMeasured")
