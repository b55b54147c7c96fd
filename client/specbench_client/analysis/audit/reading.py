"""Reads a document from CSV, Markdown or JSON. The line above a Markdown table is its name.

JSON is `{"source": …, "facts": {…}, "tables": [{"name": …, "facts": {…}, "rows": [{…}]}]}`, or a list of rows. Facts
apply to all rows that do not have the column themselves: what a paper states in its text and not in its table.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specbench_api.errors import InvalidSpec, Problem
from specbench_client.analysis.audit.columns import (
    MAY_BE_ZERO,
    SETTINGS,
    TEXTS,
    TIMES,
    WHOLE,
    HeadingColumn,
    Quantity,
    heading_unit,
    read_heading,
    unit_factor,
)
from specbench_client.analysis.audit.document import AuditDocument, AuditRow, with_labels
from specbench_client.analysis.audit.printed_numbers import PrintedNumber, read_number
from specbench_client.bounded_json import parse_json

# Every cell that cannot be read is reported. A number that its quantity cannot have (a time of 0, a negative rate, a
# draft length of 2.5) is rejected like a word, because no rule applies to it. In a column without a unit in its heading
# either all cells have one or none: otherwise some would be read a thousand times too small.

_VERSION = re.compile(r"(?P<engine>[A-Za-z][\w.-]*?)[ @=v]+(?P<version>\d+(?:\.\d+)+\S*)$")
_REMEDY = "give a number, or leave the cell empty if it is missing"

RawRow = Mapping[str, str]
_Read = tuple[dict[str, str | float], dict[Quantity, PrintedNumber]]
"""Settings and values."""


@dataclass(frozen=True)
class RawTable:
    """A table as text. `facts`: values of all rows that do not have the column themselves."""

    name: str
    rows: Sequence[RawRow]
    facts: RawRow = field(default_factory=dict)


@dataclass
class ReadingNotes:
    """What is noted while a document is read: cells that cannot be read, columns used as settings, and skipped columns.

    `unread`: measured columns that are too ambiguous to check. `doubled`: columns of a quantity that an earlier column
    of the same row already has, each with that column.
    """

    problems: list[Problem] = field(default_factory=list)
    settings: dict[str, None] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)
    doubled: dict[str, str] = field(default_factory=dict)


def table_rows(table: RawTable, notes: ReadingNotes) -> list[AuditRow]:
    """Read the rows of a table; problems are added to `notes`."""
    columns = {title: read_heading(title) for title in table.facts} | _columns(table.rows)
    facts = _read_facts(table, columns, notes)
    rows = [_row(table, number, columns, facts, notes) for number in range(1, len(table.rows) + 1)]
    notes.problems += _of_two_units(table, columns)
    return rows


def _columns(rows: Sequence[RawRow]) -> dict[str, HeadingColumn]:
    """Read the headings. Of two text columns for one setting (`Method`, `Variant`), the second is a new setting."""
    found: dict[str, HeadingColumn] = {}
    for title in dict.fromkeys(title for row in rows for title in row):
        kind = read_heading(title)
        taken = kind.name in TEXTS and any(kind.name is other.name for other in found.values())
        found[title] = replace(kind, name=None) if taken else kind
    return found


def _read_facts(table: RawTable, columns: Mapping[str, HeadingColumn], notes: ReadingNotes) -> dict[str, _Read]:
    """Read the facts of a table by title, once per table, so that each problem is reported once."""
    found: dict[str, _Read] = {title: ({}, {}) for title in table.facts}
    for title, text in table.facts.items():
        _cell(columns[title], text, f"{table.name}, {title}", found[title], notes)
    return found


def _row(
    table: RawTable, number: int, columns: Mapping[str, HeadingColumn], facts: Mapping[str, _Read], notes: ReadingNotes
) -> AuditRow:
    raw = table.rows[number - 1]
    settings: dict[str, str | float] = {}
    values: dict[Quantity, PrintedNumber] = {}
    shared: _Read = {}, {}
    for title, fact in facts.items():
        if title not in raw:
            shared[0].update(fact[0])
            shared[1].update(fact[1])
    column_of: dict[Quantity, str] = {}
    for title, text in raw.items():
        kind, path = columns[title], f"{table.name}, row {number}, {title}"
        if kind.name in column_of:
            notes.doubled.setdefault(title, column_of[kind.name])
        else:
            column_of |= _cell(kind, text, path, (settings, values), notes)
    return AuditRow(table.name, number, {**shared[0], **settings}, {**shared[1], **values})


def _cell(kind: HeadingColumn, text: str, path: str, into: _Read, notes: ReadingNotes) -> dict[Quantity, str]:
    """Read one cell into the settings or the values; returns its quantity with the title of its column."""
    settings, values = into
    if kind.unread:
        notes.unread.setdefault(kind.title)
        return {}
    if kind.name is None or kind.name in TEXTS:
        if kind.name is None:
            notes.settings.setdefault(kind.title)
        settings |= _words(kind, text)
        return {}
    try:
        number = _number(kind, kind.name, text)
    except ValueError as error:
        notes.problems.append(Problem(path, str(error), _REMEDY))
        return {}
    if number is None:
        return {}
    if kind.name in SETTINGS:
        settings[kind.name] = number.value
    else:
        values[kind.name] = number
    return {kind.name: kind.title}


def _number(kind: HeadingColumn, name: Quantity, text: str) -> PrintedNumber | None:
    """Return the number in specbench's unit; None if the cell is empty. Raises ValueError."""
    found = read_number(text)
    if found is None:
        return None
    number = found[0].scaled(unit_factor(name, heading_unit(kind), found[1]))
    printed = text.strip()
    if number.value < 0 and name is not Quantity.COST_REDUCTION:
        raise ValueError(f"{printed!r}: {name} is never negative")
    if number.value == 0 and name not in MAY_BE_ZERO:
        raise ValueError(f"{printed!r}: {name} is never 0")
    if name in WHOLE and number.value != int(number.value):
        raise ValueError(f"{printed!r}: {name} is a whole number")
    return number


def _words(kind: HeadingColumn, text: str) -> dict[str, str | float]:
    """Read a setting as text. `vLLM 0.7.3` is an engine and its version."""
    stripped = text.strip().strip("*").strip()
    if not stripped:
        return {}
    found = _VERSION.match(stripped) if kind.name is Quantity.ENGINE else None
    if found:
        return {Quantity.ENGINE: found["engine"], Quantity.ENGINE_VERSION: found["version"]}
    return {kind.name or kind.title: stripped}


def _of_two_units(table: RawTable, columns: Mapping[str, HeadingColumn]) -> Iterator[Problem]:
    """Yield a problem for each column of times with units in some cells only, and none in the heading."""
    for title, kind in columns.items():
        if kind.name not in TIMES or heading_unit(kind):
            continue
        units = [(number, unit) for number, raw in enumerate(table.rows, start=1) for unit in _unit(raw.get(title, ""))]
        bare = [number for number, unit in units if not unit]
        if bare and len(bare) < len(units):
            what = "has no unit, but other cells of its column have one"
            yield Problem(f"{table.name}, row {bare[0]}, {title}", what, f"add the unit to the heading: {title} (ms)")


def _unit(text: str) -> list[str]:
    """Return the unit of a cell with a number; an empty list for other cells, whose problems are reported elsewhere."""
    try:
        found = read_number(text)
    except ValueError:
        return []
    return [] if found is None else [found[1]]


_RULE = re.compile(r"^\|?[\s:|-]+\|?$")


def read_document(text: str, name: str, facts: RawRow) -> AuditDocument:
    """Read a document. `name`: file name, whose suffix may give the format. Raises InvalidSpec with every bad cell."""
    notes = ReadingNotes()
    source, tables = _tables(text, name, notes)
    complete = [replace(table, facts={**facts, **table.facts}) for table in tables]
    found = {table.name: with_labels(table_rows(table, notes)) for table in complete}
    if not any(found.values()):
        remedy = "give CSV, JSON or a Markdown table with a heading line"
        notes.problems.append(Problem(name, "contains no table", remedy))
    if notes.problems:
        raise InvalidSpec(notes.problems)
    return AuditDocument(source, found, tuple(notes.settings), tuple(notes.doubled.items()), tuple(notes.unread))


def _tables(text: str, name: str, notes: ReadingNotes) -> tuple[str, list[RawTable]]:
    if name.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        return _of_json(text, name)
    if re.search(r"^\s*\|.*\|\s*$", text, re.MULTILINE):
        return name, _of_markdown(text, notes)
    lines = [line for line in csv.reader(io.StringIO(text)) if line]
    return name, [RawTable(name, _under(lines[0], lines[1:], name, notes))] if lines else []


def _under(head: Sequence[str], lines: Sequence[Sequence[str]], name: str, notes: ReadingNotes) -> list[RawRow]:
    """Return each row's cells by heading. A row with more cells than headings is a problem: a cell would be lost."""
    titles = [title.strip() for title in head]
    twice = sorted({title for title in titles if title and titles.count(title) > 1})
    notes.problems += [
        Problem(f"{name}, {title}", "two columns have this heading", "give each its own heading") for title in twice
    ]
    for number, cells in enumerate(lines, start=1):
        if any(cell.strip() for cell in cells[len(titles) :]):
            what = f"has {len(cells)} cells under {len(titles)} headings"
            notes.problems.append(Problem(f"{name}, row {number}", what, "quote a comma, write a bar as \\|"))
    return [{title: cell for title, cell in zip(titles, cells, strict=False) if title} for cells in lines]


def _of_markdown(text: str, notes: ReadingNotes) -> list[RawTable]:
    tables: list[RawTable] = []
    title, head, rows = "table", list[str](), list[list[str]]()
    for line in [*text.splitlines(), ""]:
        if line.strip().startswith("|"):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", _between_bars(line))]
            if not head:
                head = cells
            elif not _RULE.match(line.strip()):
                rows.append(cells)
            continue
        if rows:
            name = _unused(title, tables)
            tables.append(RawTable(name, _under(head, rows, name, notes)))
        head, rows = [], []
        title = line.lstrip("# ").strip() or title
    return tables


def _between_bars(line: str) -> str:
    """Return the line without the bars at its ends; a cell may be empty, and a bar at the end may be escaped."""
    return re.sub(r"(?<!\\)\|$", "", line.strip().removeprefix("|"))


def _unused(title: str, tables: Sequence[RawTable]) -> str:
    """Return a name that no earlier table has."""
    taken = sum(table.name == title or table.name.startswith(f"{title} (") for table in tables)
    return f"{title} ({taken + 1})" if taken else title


def _of_json(text: str, name: str) -> tuple[str, list[RawTable]]:
    try:
        data = parse_json(text)
    except ValueError as error:
        raise InvalidSpec([Problem(name, f"is not valid JSON: {error}")]) from error
    if isinstance(data, list):
        data = {"tables": [{"name": name, "rows": data}]}
    if not isinstance(data, dict) or not isinstance(data.get("tables"), list):
        raise InvalidSpec([Problem(name, "has no list `tables`", '{"tables": [{"name": "…", "rows": [{…}]}]}')])
    shared = _facts(data, name)
    tables: list[RawTable] = []
    for index, each in enumerate(data["tables"]):
        table = _json_table(f"{name}: tables[{index}]", each, shared)
        tables.append(replace(table, name=_unused(table.name, tables)))
    return str(data.get("source", name)), tables


def _json_table(path: str, table: Any, shared: RawRow) -> RawTable:
    rows = table.get("rows") if isinstance(table, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidSpec([Problem(path, "has no list `rows` of objects")])
    facts = {**shared, **_facts(table, path)}
    return RawTable(str(table.get("name", path)), [_texts(row) for row in rows], facts)


def _facts(data: Mapping[str, Any], path: str) -> dict[str, str]:
    facts = data.get("facts", {})
    if not isinstance(facts, dict):
        raise InvalidSpec([Problem(f"{path}: facts", "is not an object", '"facts": {"engine": "vLLM 0.11.1"}')])
    return _texts(facts)


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in row.items()}
