"""Renderers of tables and topics: for a terminal, as Markdown and as CSV; `html` has the page's."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isnan

from rich.cells import cell_len
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from specbench_client.report.text.text_table import (
    DASH,
    SIMULATED,
    Report,
    TextTable,
    Topic,
    without_columns,
    without_empty_columns,
)
from specbench_client.visible_text import spreadsheet_text, visible

WORD_MIN = 12
"""Characters that a column of sentences needs at least, where columns of numbers keep their lines whole."""
SENTENCE_WIDTH = 50
"""Characters of a column of sentences at most: longer lines are hard to read, and make the table too wide."""
_FRAME = 3
"""Characters that a terminal's table needs for the frame of each column."""
_LINK = re.compile(r"\][(\[:]")
_BLOCK_START = re.compile(r"^(?:\d+(?=[.)](?:\s|$))|(?=[#>=]|[-+](?:\s|$|-)))")
"""What could begin a heading, quotation, list, underline or rule at the start of a line."""
_LONE = re.compile(r"(?<!\w)_|_(?!\w)")
"""An underscore that may begin or end emphasis; one within a word does neither."""


def fit_columns(sheet: TextTable, width: int) -> tuple[TextTable, list[str]]:
    """Drop optional columns until every line fits; return the table that is left and the names of those columns."""
    dropped: list[str] = []
    for name in sheet.optional:
        if _fits(sheet, width):
            break
        if name in sheet.columns:
            sheet = without_columns(sheet, [name])
            dropped.append(name)
    return sheet, dropped


def rich_table(sheet: TextTable, width: int) -> Group:
    """Return the table for a terminal of `width` characters, its title above it and its caption below.

    Optional columns are dropped if it is too narrow, and named below the table. If the others still do not fit, their
    texts are folded: nothing is cut.
    """
    sheet, dropped = fit_columns(without_empty_columns(sheet), width)
    whole = _fits(sheet, width)
    names = ", ".join(" ".join(name.split()) for name in dropped)
    note = f"Not shown in {width} columns: {names}." if dropped else ""
    below = "\n".join(line for line in (sheet.caption, note) if line)
    table = Table()
    for name in sheet.columns:
        numeric = name not in sheet.words
        side: JustifyMethod = "right" if numeric else "left"
        longest = None if numeric else SENTENCE_WIDTH
        table.add_column(Text(name), justify=side, overflow="fold", no_wrap=whole and numeric, max_width=longest)
    for row, style in zip(sheet.rows, sheet.styles or [""] * len(sheet.rows), strict=True):
        table.add_row(*(Text(cell) for cell in row), style=style)
    # A title or caption of the table itself would be folded at the width of the table.
    title, caption = Text(sheet.title, style="table.title"), Text(below, style="table.caption")
    return Group(*(part for part in (title, table, caption) if part))


def markdown_table(sheet: TextTable) -> list[str]:
    """Return lines of Markdown, without the title; missing values are dashes."""
    sheet = without_empty_columns(sheet)
    rule = "|" + "|".join("---" if name in sheet.words else "---:" for name in sheet.columns) + "|"
    cells = [sheet.columns, *sheet.rows]
    head, *rows = ["| " + " | ".join(escape_markdown(cell) or DASH for cell in row) + " |" for row in cells]
    return [head, rule, *rows]


def _markdown_topics(topics: Iterable[Topic]) -> list[str]:
    """Return lines of Markdown: each topic's title, its tables that have rows, and its sentences as a list."""
    lines = list[str]()
    for topic in topics:
        tables = [table for table in topic.tables if table.rows]
        if topic.title and (tables or topic.lines):
            lines += [f"## {escape_markdown(topic.title)}", ""]
        for table in tables:
            if table.title not in ("", topic.title):
                lines += [f"**{escape_markdown(table.title)}**", ""]
            lines += [*markdown_table(table), ""]
            lines += [markdown_sentence(table.caption), ""] if table.caption else []
        lines += [*(f"- {markdown_sentence(line)}" for line in topic.lines), *([""] if topic.lines else [])]
    return lines


def markdown_report(report: Report) -> str:
    """Return a report as Markdown; a simulated result is marked."""
    heading = report.title or report.answer
    lines = [f"# {markdown_sentence(heading)}", ""] if heading else []
    lines += [f"> **{SIMULATED}**", ""] if report.simulated else []
    lines += [f"**{markdown_sentence(report.answer)}**", ""] if report.title and report.answer else []
    return "\n".join([*lines, *_markdown_topics(report.topics)])


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
        longest = max(cell_len(line) for row in lines for line in row[index].split("\n"))
        word = max((cell_len(each) for row in lines for each in row[index].split()), default=0)
        needed.append(max(min(longest, WORD_MIN), word) if name in sheet.words else longest)
    return sum(needed) + _FRAME * len(needed) + 1 <= width
