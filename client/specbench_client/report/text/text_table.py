"""Tables of texts, topics that consist of them, and texts of values; `report.table_renderers` prints them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.documents.figure import Figure
from specbench_client.documents.summary import Cell

DASH = "–"
"""Shown where a value is missing."""


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
    """A line directly below it."""
    optional: Sequence[str] = ()
    """Columns that a terminal may leave out if it is too narrow: the first one first."""


@dataclass(frozen=True)
class Topic:
    """Tables about one subject, and the sentences below them.

    `name`: its anchor in the page; `page`: the documentation that defines its figures; both empty outside a report.
    """

    title: str
    tables: Sequence[TextTable] = ()
    lines: Sequence[str] = ()
    name: str = ""
    page: str = ""


@dataclass(frozen=True)
class Report:
    """Topics with a title. `answer`: a sentence; it is the first line on a terminal, and the title if there is none."""

    topics: Sequence[Topic]
    answer: str = ""
    title: str = ""
    simulated: bool = False


def without_columns(sheet: TextTable, names: Collection[str]) -> TextTable:
    """Return the table without the named columns."""
    kept = [index for index, name in enumerate(sheet.columns) if name not in names]
    rows = [[row[index] for index in kept] for row in sheet.rows]
    return replace(sheet, columns=[sheet.columns[index] for index in kept], rows=rows)


def without_empty_columns(sheet: TextTable) -> TextTable:
    """Return the table without the columns that are empty in every row."""
    columns = zip(sheet.columns, *sheet.rows, strict=True) if sheet.rows else []
    return without_columns(sheet, [name for name, *texts in columns if set(texts) <= {"", DASH}])


def constant_columns(sheet: TextTable, names: Sequence[str]) -> list[str]:
    """Return those of the named columns whose text is the same in every row."""
    indices = {name: list(sheet.columns).index(name) for name in names if name in sheet.columns}
    return [name for name, index in indices.items() if len({row[index] for row in sheet.rows}) == 1]


SIMULATED = "Simulated. These numbers are not a measurement of any engine."


def mark_simulated(title: str, *, simulated: bool) -> str:
    """Return a title, which states whether the result is simulated."""
    return f"{title} (simulated, not a measurement)" if simulated else title


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for people, or a dash."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as `12.3%`, or a dash."""
    return DASH if value is None else f"{value:.{digits}%}"


def figure_text(figure: Figure | None, write: Callable[[float], str] = number, *, bare: str = "") -> str:
    """Return `1.83 [1.76, 1.90]`, or a dash. `bare`: why there is no interval, in its place: `1.83 (2 prompts)`."""
    if figure is None or figure.value is None:
        return DASH
    bounds = figure.interval
    if bounds:
        return f"{write(figure.value)} [{write(bounds.low)}, {write(bounds.high)}]"
    return write(figure.value) + (f" ({bare})" if bare else "")


AT_LEVEL = f"[{100 * LEVEL:g} %]"
"""What a column's title has for the interval behind a value (`with_interval`)."""


def with_interval(figure: Figure | None, digits: int = 2) -> str:
    """Return `1.83 [1.76, 1.90]`; without an interval, the reason in its place: `1.83 (2 prompts: no interval)`."""
    why = (figure.missing if figure else "") or NO_INTERVAL
    return figure_text(figure, partial(number, digits=digits), bare=why)


def cell_place(cell: Cell) -> list[str]:
    """Return arm, workload and load of a cell, the first columns of its row; an invalid cell is marked."""
    return [cell.arm, cell.workload, cell.level.label + ("" if cell.valid else " invalid")]


def csv_fields(name: str, figure: Figure | None) -> dict[str, float | None]:
    """Return a figure as fields of a spreadsheet: its value and its bounds."""
    bounds = figure.interval if figure else None
    return {
        name: figure.value if figure else None,
        f"{name}_low": bounds.low if bounds else None,
        f"{name}_high": bounds.high if bounds else None,
    }
