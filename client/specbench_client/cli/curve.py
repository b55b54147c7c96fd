"""`specbench analyze curve`: speed-up and acceptance of a stored run against one axis."""

from __future__ import annotations

import click

from specbench_client.cli.options import LATEST, FiniteNumber, output_option
from specbench_client.cli.output import ResultConsole, print_output
from specbench_client.cli.run_selection import select_run
from specbench_client.documents.curves import CurveAnswerBasis, Curves
from specbench_client.errors import BadInput

AXES = ["temperature", "draft-tokens", "input-tokens", "output-tokens", "concurrency"]
WHOLE = ("draft-tokens", "concurrency")
"""Axes whose values are whole numbers, so nothing is interpolated between neighbours."""
LINES_MAX = 8
"""Excluded cells that an error message lists."""
REMEDY = "`specbench report` shows the findings of the run, and what to do about them"


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option("--by", type=click.Choice(AXES), required=True, help="The axis that the curves are drawn against.")
@click.option(
    "--at",
    type=FiniteNumber(),
    multiple=True,
    metavar="X",
    help="Also print the curves' values at X, which must be within the measured range. Repeatable.",
)
@output_option("text", "json", "csv", "markdown")
@LATEST
def curve(where: str, by: str, at: tuple[float, ...], output: str, *, latest: bool) -> None:
    """Draw speed-up and acceptance length of a run against one axis, and report where the speed-up falls to 1.

    \b
      specbench analyze curve specbench-results --latest --by concurrency
      specbench analyze curve specbench-results --latest --by draft-tokens --at 4     also at 4, interpolated
      specbench analyze curve s3://bench/runs/team/llama/3f2c… --by temperature --output csv

    One curve has the cells that are equal in everything but the axis: loads, arms that differ in their draft length
    alone, or workloads that differ in temperature, prompts or output limits alone.

    How curves and their intervals are computed: docs/research/curve.md.
    """
    for value in at:
        _check_axis_value(by, value)
    from specbench_client.analysis.curves.build import build_curves  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.report.text.curves import (  # noqa: PLC0415
        curve_notes,
        curve_table,
        curves_csv,
        curves_markdown,
    )
    from specbench_client.stored_runs.results import read_result  # noqa: PLC0415

    found = build_curves(by, read_result(select_run(where, latest=latest)), at)
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
        lines = found.left_out[:LINES_MAX]
        raise BadInput("\n".join(["no curve can be drawn", *lines, *([REMEDY] if lines else [])]), "NothingToDraw")
    for answers in zip(*(each.predictions for each in found.curves), strict=True):
        if all(each.basis is CurveAnswerBasis.REFUSED for each in answers):
            raise BadInput(f"--at {answers[0].message}", "OutsideOfWhatWasMeasured")
