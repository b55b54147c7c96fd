"""`specbench compare`: two stored results, cell by cell."""

from __future__ import annotations

import click

from specbench_client.analysis.compare.comparison import comparison
from specbench_client.cli.options import LATEST, OUTPUT_MARKDOWN
from specbench_client.cli.output import print_output
from specbench_client.cli.run_selection import select_run
from specbench_client.documents.comparison import Comparison
from specbench_client.drive.options import SystemClock
from specbench_client.errors import EvidenceInsufficient
from specbench_client.report.text.comparison import comparison_markdown, comparison_notes, comparison_table
from specbench_client.stored_runs.run import Run

LINES_MAX = 8
"""Cells that an error message lists."""
REMEDY = (
    'cells are matched by arm, workload and load; "Compare two results" in the docs lists what must be equal and what'
    " may differ"
)


@click.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@OUTPUT_MARKDOWN
@LATEST
def compare(before: str, after: str, output: str, *, latest: bool) -> None:
    """Compare two stored results cell by cell, as ratios AFTER / BEFORE.

    \b
      specbench compare results/monday results/tuesday
      specbench compare s3://bench/runs/team/llama/3f2c… s3://bench/runs/team/llama/8a01… --output markdown

    Each result is the root of a run, or a results root. Requests that both results contain are paired by prompt. Other
    differences (engine, GPU, arguments) are listed. Results with different prompts, sampling or answer limits cannot be
    compared: the exit code is 3.
    """
    found = compare_cells(*(select_run(where, latest=latest, ended=True) for where in (before, after)))
    notes = [*comparison_notes(found.differences, found.uncompared), *found.limits]
    print_output(
        output,
        found,
        text=lambda console: console.print_tables([comparison_table(found)], notes),
        markdown=lambda: comparison_markdown(found),
    )


def compare_cells(before: Run, after: Run) -> Comparison:
    """Compare two stored results. Raises BadInput, EvidenceInsufficient(NotComparable) if no cell can be compared."""
    found = comparison(before.require_summary(), after.require_summary(), SystemClock().wall_text())
    if not found.cells:
        why = "; ".join(found.refused) or "no cell (arm × workload × load) could be compared"
        differing = [f"{each.place}: {each.message}" for each in found.uncompared[:LINES_MAX]]
        raise EvidenceInsufficient("\n".join([why, *differing, REMEDY]), "NotComparable")
    return found
