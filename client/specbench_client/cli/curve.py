"""`specbench analyze curve`: speed-up and acceptance of a stored run against one axis."""

from __future__ import annotations

import click

from specbench_client.cli.options import LATEST, output_option
from specbench_client.cli.output import ResultConsole, print_output
from specbench_client.cli.run_selection import select_run
from specbench_client.errors import BadInput

AXES = ["temperature", "draft-tokens", "input-tokens", "output-tokens", "concurrency"]
LINES_MAX = 8
"""Excluded cells that an error message lists."""
REMEDY = "`specbench report` shows the findings of the run, and what to do about them"


@click.command()
@click.argument("where", metavar="DIR-or-URI")
@click.option("--by", type=click.Choice(AXES), required=True, help="The axis that the curves are drawn against.")
@output_option("text", "json", "csv", "markdown")
@LATEST
def curve(where: str, by: str, output: str, *, latest: bool) -> None:
    """Draw speed-up and acceptance length of a run against one axis, and report where the speed-up falls to 1.

    \b
      specbench analyze curve specbench-results --latest --by concurrency
      specbench analyze curve specbench-results --latest --by draft-tokens
      specbench analyze curve s3://bench/runs/team/llama/3f2c… --by temperature --output csv

    One curve has the cells that are equal in everything but the axis: loads, arms that differ in their draft length
    alone, or workloads that differ in temperature, prompts or output limits alone.

    How curves and their intervals are computed: docs/research/curve.md.
    """
    from specbench_client.analysis.curves.build import build_curves  # noqa: PLC0415  scipy takes seconds to import
    from specbench_client.report.text.curves import (  # noqa: PLC0415
        curve_notes,
        curve_table,
        curves_csv,
        curves_markdown,
    )

    found = build_curves(by, select_run(where, latest=latest).require_summary())
    if not found.curves:
        remedy = [REMEDY] if found.left_out else []
        raise BadInput("\n".join(["no curve can be drawn", *found.left_out[:LINES_MAX], *remedy]), "NothingToDraw")

    def print_text(console: ResultConsole) -> None:
        console.print_tables([curve_table(found, each) for each in found.curves], curve_notes(found))

    print_output(output, found, text=print_text, csv=lambda: curves_csv(found), markdown=lambda: curves_markdown(found))
