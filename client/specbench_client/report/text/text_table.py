"""A table of texts, which is printed on a terminal, as Markdown and in report.html."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Literal

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell
from specbench_client.analysis.statistics.bootstrap import PROMPTS_MIN
from specbench_client.visible_text import spreadsheet_text, visible

DASH = "–"
"""Shown where a value is missing."""
WORD_MIN = 12
"""Characters that a column of sentences needs at least, where columns of numbers keep their lines whole."""
_FRAME = 3
"""Characters that a terminal's table needs for the frame of each column."""
_LINK = re.compile(r"\][(\[:]")
_BLOCK_START = re.compile(r"^(?:\d+(?=[.)](?:\s|$))|(?=[#>=]|[-+](?:\s|$|-)))")
"""What could begin a heading, quotation, list, underline or rule at the start of a line."""
_LONE = re.compile(r"(?<!\w)_|_(?!\w)")
"""An underscore that may begin or end emphasis; one within a word does neither."""


@dataclass(frozen=True)
class TextTable:
    """Titles and rows of texts. Columns in `words` are aligned left; the others are numbers, aligned right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[str]
    styles: Sequence[str] = ()
    """A style of rich for each row, empty for none; without any, all are plain. For terminals only."""
    caption: str = ""
    """A line directly below it, on terminals only."""
    optional: Sequence[str] = ()
    """Columns that a terminal may leave out if it is too narrow: the first one first."""


def constant_columns(sheet: TextTable, names: Sequence[str]) -> list[str]:
    """Return those of the named columns whose text is the same in every row."""
    indices = {name: list(sheet.columns).index(name) for name in names if name in sheet.columns}
    return [name for name, index in indices.items() if len({row[index] for row in sheet.rows}) == 1]


def fit_columns(sheet: TextTable, width: int) -> tuple[TextTable, list[str]]:
    """Drop optional columns until every line fits; return the table that is left and the names of those columns."""
    dropped: list[str] = []
    for name in sheet.optional:
        if _fits(sheet, width):
            break
        if name in sheet.columns:
            at = list(sheet.columns).index(name)
            sheet = replace(
                sheet,
                columns=[*sheet.columns[:at], *sheet.columns[at + 1 :]],
                rows=[[*row[:at], *row[at + 1 :]] for row in sheet.rows],
            )
            dropped.append(name)
    return sheet, dropped


def rich_table(sheet: TextTable, width: int) -> Table:
    """Return the table for a terminal of `width` characters.

    Optional columns are dropped if it is too narrow, and named below the table. If the others still do not fit, their
    texts are folded: nothing is cut.
    """
    sheet, dropped = fit_columns(sheet, width)
    whole = _fits(sheet, width)
    names = ", ".join(" ".join(name.split()) for name in dropped)
    note = f"Not shown in {width} columns: {names}." if dropped else ""
    below = "\n".join(line for line in (sheet.caption, note) if line)
    caption = Text(below, style="table.caption") if below else None
    title = Text(sheet.title, style="table.title") if sheet.title else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in sheet.columns:
        numeric = name not in sheet.words
        side: JustifyMethod = "right" if numeric else "left"
        table.add_column(Text(name), justify=side, overflow="fold", no_wrap=whole and numeric)
    for row, style in zip(sheet.rows, sheet.styles or [""] * len(sheet.rows), strict=True):
        table.add_row(*(Text(cell) for cell in row), style=style)
    return table


def markdown_table(sheet: TextTable) -> list[str]:
    """Return lines of Markdown, without the title; missing values are dashes."""
    rule = "|" + "|".join("---" if name in sheet.words else "---:" for name in sheet.columns) + "|"
    cells = [sheet.columns, *sheet.rows]
    head, *rows = ["| " + " | ".join(escape_markdown(cell) or DASH for cell in row) + " |" for row in cells]
    return [head, rule, *rows]


def markdown_section(sheet: TextTable) -> str:
    """Return Markdown with the title above the table."""
    return "\n".join([f"**{escape_markdown(sheet.title)}**", "", *markdown_table(sheet), ""])


def escape_markdown(text: str) -> str:
    """Escape Markdown in a text and return it as one line: names come from files that anybody may have written.

    Brackets are escaped only where they could make a link, so that intervals stay readable in the source.
    """
    text = visible(text)
    for character in "\\`*|" + ("[]" if _LINK.search(text) else ""):
        text = text.replace(character, f"\\{character}")
    return " ".join(_LONE.sub(r"\\_", text).replace("~~", r"\~\~").replace("<", "&lt;").split())


def markdown_sentence(text: str) -> str:
    """Return a sentence as one line of Markdown that cannot begin a block; text between backticks stays code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        line = escape_markdown(text)
    else:
        pieces = [markdown_code(part) if at % 2 else _escaped_part(part) for at, part in enumerate(parts)]
        line = " ".join("".join(pieces).split())
    return _BLOCK_START.sub(r"\g<0>\\", line)


def _escaped_part(part: str) -> str:
    """Escape a part of a line; spaces at its ends separate it from its neighbours."""
    head, tail = part[:1].isspace() * " ", part[-1:].isspace() * " "
    return f"{head}{escape_markdown(part)}{tail}" if part.strip() else head


def markdown_code(text: str) -> str:
    """Return a text as a code span on one line; backticks, which would end it, become apostrophes."""
    return "`" + " ".join(visible(text).replace("`", "'").split()) + "`" if text.strip() else ""


def spreadsheet(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV; no text in it is evaluated as a formula. Numbers stay numbers, missing values are empty."""
    safe = [{spreadsheet_text(name): _spreadsheet_cell(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in safe for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(safe)
    return text.getvalue()


def _spreadsheet_cell(value: object) -> object:
    if isinstance(value, float) and isnan(value):
        return None
    return spreadsheet_text(value) if isinstance(value, str) else value


def _fits(sheet: TextTable, width: int) -> bool:
    """Whether every number fits on one line, no word must be broken and sentences have some room."""
    lines = [sheet.columns, *sheet.rows]
    needed = []
    for index, name in enumerate(sheet.columns):
        longest = max(_longest(row[index]) for row in lines)
        word = max((cell_len(each) for row in lines for each in row[index].split()), default=0)
        needed.append(max(min(longest, WORD_MIN), word) if name in sheet.words else longest)
    return sum(needed) + _FRAME * len(needed) + 1 <= width


def _longest(text: str) -> int:
    """Characters of its longest line."""
    return max(map(cell_len, text.split("\n")))


SIMULATED = "Simulated. These numbers are not a measurement of any engine."


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for people, or a dash."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def with_interval(figure: Figure | None, digits: int = 2, *, unit: Literal["prompt", "repeat"] = "prompt") -> str:
    """Return `1.83 [1.76, 1.90]`; without an interval, the reason in its place: `1.83 (2 prompts: no interval)`.

    `unit`: the sampling unit that `figure.n` counts. It is the repeat for rates of the whole engine.
    """
    if figure is None or figure.value is None:
        return DASH
    bounds = figure.interval
    tail = (
        f" [{number(bounds.low, digits)}, {number(bounds.high, digits)}]" if bounds else f" ({_why_bare(figure, unit)})"
    )
    return number(figure.value, digits) + tail


def compared_text(cell: Cell, figure: Figure | None) -> str:
    """Return a comparison; with too few repeats without its interval, which does not cover run-to-run variation."""
    if not cell.too_few_repeats or figure is None or figure.value is None:
        return with_interval(figure)
    return f"{number(figure.value)} ({cell.too_few_repeats})"


def csv_fields(name: str, figure: Figure | None, *, bounded: bool = True) -> dict[str, float | None]:
    """Return a figure as fields of a spreadsheet: its value and its bounds; these are left empty if not `bounded`."""
    bounds = figure.interval if figure and bounded else None
    return {
        name: figure.value if figure else None,
        f"{name}_low": bounds.low if bounds else None,
        f"{name}_high": bounds.high if bounds else None,
    }


def _why_bare(figure: Figure, unit: str) -> str:
    """Return why a figure has no interval, as far as its sample size explains it."""
    if unit == "prompt" and figure.n >= PROMPTS_MIN:
        return "no interval"
    return f"{figure.n} {unit}{'s' if figure.n != 1 else ''}: no interval"
