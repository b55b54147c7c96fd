"""A table of plain rows for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from specbench_client.cli.consoles import Page
from specbench_client.cli.show import STDOUT_WIDTH_WHEN_PIPED


def page() -> Page:
    """A console as wide as the terminal; where there is none, wide enough for a table."""
    console = Page()
    return console if console.is_terminal else Page(width=STDOUT_WIDTH_WHEN_PIPED)


def grid(heading: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The table; no heading where it is empty."""
    table = Table(title=heading or None, title_justify="left")
    for name in titles:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    return table
