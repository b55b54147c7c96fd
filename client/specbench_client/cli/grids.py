"""A table of plain rows for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def grid(heading: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The table; no heading where it is empty."""
    table = Table(title=heading or None, title_justify="left")
    for name in titles:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    return table
