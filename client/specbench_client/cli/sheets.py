"""Tables of text with lines below them, printed in the format that was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import click

from specbench_api.model import ApiModel
from specbench_client.cli.consoles import page
from specbench_client.report.sheets import Sheet, markdown_sheet

FORMAT = click.option(
    "--output", "-o", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True, help="Format."
)


def print_sheets(report: ApiModel, sheets: Sequence[Sheet], lines: Sequence[str], output: str) -> None:
    """Print a report: as its own document, as Markdown, or for a terminal."""
    if output == "json":
        click.echo(report.to_json(), nl=False)
    elif output == "markdown":
        click.echo("\n".join([*map(markdown_sheet, sheets), *(f"- {line}" for line in lines)]))
    else:
        console = page()
        for sheet in sheets:
            console.sheet(sheet)
        for line in lines:
            console.print(line, soft_wrap=True)
