"""A table of texts: the one form of every table that is printed, for a terminal, as Markdown and for the page."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

DASH = "–"
"""What is missing."""
WORD_MIN = 12
"""Characters that a column of words keeps where columns of numbers keep their lines whole."""
_FRAME = 3
"""Characters that a terminal's table takes beside each column."""
_LINK = re.compile(r"\][(\[:]")
_LONE = re.compile(r"(?<!\w)_|_(?!\w)")
"""An underscore that may begin or end emphasis; one within a word does neither."""


@dataclass(frozen=True)
class Sheet:
    """Titles and rows of texts. Columns named in `words` stand on the left; the others hold numbers, on the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[str]
    styles: Sequence[str] = ()
    """A style of rich for each row, empty for none; without any, all are plain. A terminal's alone."""
    caption: str = ""
    """What stands right below it on a terminal."""


def rich_sheet(sheet: Sheet, width: int) -> Table:
    """For a terminal of so many characters. Nothing is cut: numbers that do not fit in a line each are folded."""
    whole = _fits(sheet, width)
    caption = Text(sheet.caption, style="table.caption") if sheet.caption else None
    title = Text(sheet.title, style="table.title") if sheet.title else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in sheet.columns:
        numeric = name not in sheet.words
        side: JustifyMethod = "right" if numeric else "left"
        table.add_column(Text(name), justify=side, overflow="fold", no_wrap=whole and numeric)
    for row, style in zip(sheet.rows, sheet.styles or [""] * len(sheet.rows), strict=True):
        table.add_row(*(Text(cell) for cell in row), style=style)
    return table


def markdown_table(sheet: Sheet) -> list[str]:
    """As lines of Markdown, without its title; what is missing is a dash."""
    rule = "|" + "|".join("---" if name in sheet.words else "---:" for name in sheet.columns) + "|"
    told = [sheet.columns, *sheet.rows]
    head, *rows = ["| " + " | ".join(escaped(cell) or DASH for cell in row) + " |" for row in told]
    return [head, rule, *rows]


def markdown_sheet(sheet: Sheet) -> str:
    """As Markdown, under its title."""
    return "\n".join([f"**{escaped(sheet.title)}**", "", *markdown_table(sheet), ""])


def escaped(text: str) -> str:
    """Text that can be no Markdown of its own, in one line: names come from files that anybody may have written.

    Brackets stand as they are unless they could make a link, so that intervals stay readable in the source.
    """
    for character in "\\`*|" + ("[]" if _LINK.search(text) else ""):
        text = text.replace(character, f"\\{character}")
    return " ".join(_LONE.sub(r"\\_", text).replace("~~", r"\~\~").replace("<", "&lt;").split())


def _fits(sheet: Sheet, width: int) -> bool:
    """Whether every number can have a line to itself, and the words still have some room."""
    widths = [max(_longest(row[index]) for row in [sheet.columns, *sheet.rows]) for index in range(len(sheet.columns))]
    needed = [
        min(each, WORD_MIN) if name in sheet.words else each for name, each in zip(sheet.columns, widths, strict=True)
    ]
    return sum(needed) + _FRAME * len(needed) + 1 <= width


def _longest(text: str) -> int:
    """Characters of its longest line."""
    return max(map(cell_len, text.split("\n")))
