"""A table of texts, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Sheet:
    """Titles and rows. The first `left` columns hold words; the others hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


def rich_sheet(sheet: Sheet) -> Table:
    """For a terminal."""
    table = Table(title=sheet.title, title_justify="left")
    for index, name in enumerate(sheet.columns):
        side: JustifyMethod = "left" if index < sheet.left else "right"
        table.add_column(name, justify=side, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def markdown_sheet(sheet: Sheet) -> str:
    """As Markdown, under its title."""
    rule = "|" + "|".join("---" if index < sheet.left else "---:" for index in range(len(sheet.columns))) + "|"
    rows = ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in [sheet.columns, *sheet.rows]]
    return "\n".join([f"**{_plain(sheet.title)}**", "", rows[0], rule, *rows[1:], ""])


def _plain(text: str) -> str:
    """Text that can be no Markdown of its own: names come from files that anybody may have written."""
    for character in "\\`*_[]|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("<", "&lt;").split())
