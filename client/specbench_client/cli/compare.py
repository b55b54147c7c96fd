"""`specbench compare`: two stored results beside each other, or one beside published tables."""

from __future__ import annotations

import json

import click

from specbench_api.outcome.published import PublishedComparison, PublishedTable
from specbench_client.cli.consoles import page
from specbench_client.cli.runs import run_store
from specbench_client.errors import BadInput
from specbench_client.local.place import open_results

LINES = 8
"""Cells that a refusal names."""
REMEDY = "what must be alike, and what may differ: docs/gate.md; cells go by their names of arm, workload and load"


@click.command()
@click.argument("before", metavar="BEFORE", required=False)
@click.argument("after", metavar="AFTER", required=False)
@click.option(
    "--published",
    metavar="NAME",
    help="Show BEFORE alone beside a published table: its name, all, or list to see which there are.",
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)
@click.option("--latest", is_flag=True, help="Where a results root holds several runs, the newest.")
def compare(before: str | None, after: str | None, published: str | None, output: str, *, latest: bool) -> None:
    """Compare two stored results, cell by cell, AFTER over BEFORE: each a run's root or a results root.

    Requests that both results answered are paired by prompt. What else differs (engine, GPU, arguments) is listed;
    other prompts, sampling or limits of the answers are refused.

    \b
      specbench compare results/monday results/tuesday
      specbench compare s3://bench/runs/team/llama/3f2c… s3://bench/runs/team/llama/8a01… --output markdown
      specbench compare results/monday --published illusion-batch
      specbench compare --published list
    """
    if published is not None:
        _beside_published(before, after, published, output, latest=latest)
        return
    if before is None or after is None:
        raise click.UsageError("give two results, BEFORE and AFTER; or one and --published NAME")
    from specbench_client.drive.compared import compare_stores  # noqa: PLC0415  statistics: seconds of imports
    from specbench_client.report.compared import comparison_markdown, comparison_sheet, lines_below  # noqa: PLC0415

    stores = [run_store(open_results(where), where, latest=latest) for where in (before, after)]
    found = compare_stores(stores[0], stores[1])
    if not found.cells:
        why = "; ".join(found.refused) or "no cell (arm × workload × load) could be compared"
        differing = [f"{each.place}: {each.message}" for each in found.uncompared[:LINES]]
        raise BadInput("\n".join([why, *differing, REMEDY]), "NotComparable")
    if output == "json":
        click.echo(found.to_json(), nl=False)
    elif output == "markdown":
        click.echo(comparison_markdown(found), nl=False)
    else:
        console = page()
        console.sheet(comparison_sheet(found))
        for line in [*lines_below(found.differences, found.uncompared), *found.limits]:
            console.print(line)


def _beside_published(where: str | None, after: str | None, name: str, output: str, *, latest: bool) -> None:
    from specbench_client.analysis.published.nearest import beside  # noqa: PLC0415  as above
    from specbench_client.analysis.published.tables import LIST, TABLES, named  # noqa: PLC0415
    from specbench_client.drive.compared import read_answer  # noqa: PLC0415

    if name == LIST:
        if where is not None:
            raise click.UsageError("--published list compares nothing: leave the results out")
        _deliver_list([table.told for table in TABLES.values()], output)
        return
    tables = named(name)
    if where is None or after is not None:
        raise click.UsageError("give one result beside --published NAME")
    store = run_store(open_results(where), where, latest=latest)
    plan, summary = read_answer(store)
    _deliver_published(beside(plan, summary, store.uri(), tables), output)


def _deliver_list(tables: list[PublishedTable], output: str) -> None:
    from specbench_client.report.published import tables_sheet  # noqa: PLC0415  as above
    from specbench_client.report.sheets import markdown_table  # noqa: PLC0415

    if output == "json":
        click.echo(json.dumps([table.to_dict() for table in tables], indent=2))
    elif output == "markdown":
        click.echo("\n".join(markdown_table(tables_sheet(tables))))
    else:
        console = page()
        console.sheet(tables_sheet(tables))


def _deliver_published(found: PublishedComparison, output: str) -> None:
    from specbench_client.report.published import (  # noqa: PLC0415  as above
        published_lines,
        published_markdown,
        published_sheet,
    )

    if output == "json":
        click.echo(found.to_json(), nl=False)
    elif output == "markdown":
        click.echo(published_markdown(found), nl=False)
    else:
        console = page()
        if found.rows:
            console.sheet(published_sheet(found))
        for line in published_lines(found):
            console.print(line)
