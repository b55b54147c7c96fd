"""A run's answer on the terminal: the table, the findings with what to do, and where the rest lies."""

from __future__ import annotations

import click

from specbench_api.outcome.layout import REPORT
from specbench_api.outcome.summary import RunSummary
from specbench_client.cli.consoles import Page
from specbench_client.report.findings import MEASURE_AGAIN, place_of
from specbench_client.report.tables import rich_table

STDOUT_WIDTH_WHEN_PIPED = 160


def show(summary: RunSummary, output: str, uri: str) -> None:
    """Print the answer: one JSON document, or a table for people."""
    if output == "json":
        click.echo(summary.to_json(), nl=False)
        return
    console = Page()
    if not console.is_terminal:
        console = Page(width=STDOUT_WIDTH_WHEN_PIPED)
    if summary.cells:
        console.print(rich_table(summary))
    else:
        console.print(f"{summary.name}: {summary.verdict}", highlight=False, markup=False, soft_wrap=True)
    said: set[tuple[str, str | None]] = set()
    for finding in summary.findings:
        if (finding.check, finding.arm) not in said:
            said.add((finding.check, finding.arm))
            text = f"{finding.severity:>8}  {finding.check}: {place_of(finding)}{finding.message}"
            console.print(text, highlight=False, markup=False)
    if summary.cells and not summary.trustworthy:
        console.print(f"   again  {MEASURE_AGAIN}", highlight=False, markup=False)
    console.print(f"report: {uri.rstrip('/')}/{REPORT}", highlight=False, markup=False, soft_wrap=True)
