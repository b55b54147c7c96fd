"""`specbench compare`: two stored results beside each other."""

from __future__ import annotations

import click

from specbench_client.cli.consoles import Page
from specbench_client.cli.runs import run_store
from specbench_client.cli.show import STDOUT_WIDTH_WHEN_PIPED
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results

LINES = 8
"""Cells that a refusal names."""


@click.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def compare(before: str, after: str, output: str, *, latest: bool) -> None:
    """Compare two stored results, cell by cell, AFTER over BEFORE: each a run's root or a results root.

    Requests that both results answered are paired by prompt. What else differs (engine, GPU, arguments) is listed;
    other prompts, sampling or limits of the answers are refused.

    \b
      specbench compare results/monday results/tuesday
      specbench compare s3://bench/runs/team/llama/3f2c… s3://bench/runs/team/llama/8a01… --output markdown
    """
    from specbench_client.drive.compared import compare_stores  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.report.compared import comparison_markdown, comparison_table, lines_below  # noqa: PLC0415

    stores = [run_store(open_results(where), where, latest=latest) for where in (before, after)]
    found = compare_stores(stores[0], stores[1])
    if not found.cells:
        why = "; ".join(found.refused) or "no cell (arm × workload × load) could be compared"
        differing = [f"{each.place}: {each.message}" for each in found.uncompared[:LINES]]
        raise BadInput("\n".join([why, *differing]), "NotComparable")
    if output == "json":
        click.echo(found.to_json(), nl=False)
    elif output == "markdown":
        click.echo(comparison_markdown(found), nl=False)
    else:
        console = Page() if Page().is_terminal else Page(width=STDOUT_WIDTH_WHEN_PIPED)
        console.print(comparison_table(found))
        for line in [*lines_below(found.differences, found.uncompared), *found.limits]:
            console.print(line, highlight=False, markup=False)
