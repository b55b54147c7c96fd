"""A run's answer on the terminal: the table, each check's findings with what to do, and where the rest lies."""

from __future__ import annotations

import click

from specbench_api.outcome.layout import REPORT
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.cli.consoles import page
from specbench_client.report.crossover import crossover_lines
from specbench_client.report.findings import grouped, measure_again
from specbench_client.report.holds import holds_line
from specbench_client.report.tables import cells_sheet


def show(plan: Plan, summary: RunSummary, output: str, uri: str) -> None:
    """Print the answer: one JSON document, or a table for people."""
    if output == "json":
        click.echo(summary.to_json(), nl=False)
        return
    console = page()
    if summary.cells:
        console.sheet(cells_sheet(summary))
    else:
        console.print(f"{summary.name}: {summary.verdict}", soft_wrap=True)
    for line in crossover_lines(summary):
        console.print(f"   pays   {line}")
    if summary.cells:
        console.print(f"  holds   {holds_line(plan, summary)}")
    if summary.cells and summary.recommendation is not None:
        console.print(f"  decide  {summary.recommendation.sentence}")
    for group in grouped(summary.findings):
        said = f"{group.severity:>8}  {group.check}: {group.messages[0]}{group.more}"
        console.print(said)
        if group.remedy:
            console.print(f"   to do  {group.remedy}")
    if summary.cells and not summary.trustworthy:
        console.print(f"   again  {measure_again(plan)}")
    console.print(f"report: {uri.rstrip('/')}/{REPORT}", soft_wrap=True)
