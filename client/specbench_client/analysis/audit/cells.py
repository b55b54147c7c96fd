"""The cells of one table → rows of quantities and settings, each in our unit; every cell that cannot be read is named.

A number that cannot be of its quantity (a time of 0, a negative rate, a draft length of 2.5) is refused like a word: no
rule can be asked of it, and sums over it would mean nothing. In a column whose heading gives no unit either all cells
give one, or none: else some would be taken for thousandths of what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specbench_api.errors import Problem
from specbench_client.analysis.audit.columns import MAY_BE_ZERO, SETTINGS, TEXTS, TIMES, WHOLE, Column, Name, column
from specbench_client.analysis.audit.document import Row
from specbench_client.analysis.audit.numbers import Told, read
from specbench_client.analysis.audit.units import factor, heading_unit

_VERSION = re.compile(r"(?P<engine>[A-Za-z][\w.-]*?)[ @=v]+(?P<version>\d+(?:\.\d+)+\S*)$")
_REMEDY = "a number, or empty where missing"

Raw = Mapping[str, str]
_Read = tuple[dict[str, str | float], dict[Name, Told]]
"""Settings and values."""


@dataclass(frozen=True)
class Table:
    """A table as text. `facts`: what holds for all rows that do not say otherwise."""

    name: str
    rows: Sequence[Raw]
    facts: Raw = field(default_factory=dict)


@dataclass
class Notes:
    """What is found on the way: cells that cannot be read, columns taken for settings, and columns that say no more.

    `unread`: columns of what was measured, but is not known well enough to be asked of. `doubled`: columns of a
    quantity that an earlier column of the same row tells, each with that column.
    """

    problems: list[Problem] = field(default_factory=list)
    settings: dict[str, None] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)
    doubled: dict[str, str] = field(default_factory=dict)


def rows_of(table: Table, notes: Notes) -> list[Row]:
    """Read a table."""
    columns = {title: column(title) for title in table.facts} | _columns(table.rows)
    facts = _facts(table, columns, notes)
    rows = [_row(table, number, columns, facts, notes) for number in range(1, len(table.rows) + 1)]
    notes.problems += _of_two_units(table, columns)
    return rows


def _columns(rows: Sequence[Raw]) -> dict[str, Column]:
    """What each heading is. Of two columns of words for one thing (`Method`, `Variant`) the second tells rows apart."""
    found: dict[str, Column] = {}
    for title in dict.fromkeys(title for row in rows for title in row):
        kind = column(title)
        taken = kind.name in TEXTS and any(kind.name is other.name for other in found.values())
        found[title] = replace(kind, name=None) if taken else kind
    return found


def _facts(table: Table, columns: Mapping[str, Column], notes: Notes) -> dict[str, _Read]:
    """What holds for all rows that do not say otherwise, by its title; read once, so that it is named once."""
    found: dict[str, _Read] = {title: ({}, {}) for title in table.facts}
    for title, text in table.facts.items():
        _cell(columns[title], text, f"{table.name}, {title}", found[title], notes)
    return found


def _row(table: Table, number: int, columns: Mapping[str, Column], facts: Mapping[str, _Read], notes: Notes) -> Row:
    raw = table.rows[number - 1]
    settings: dict[str, str | float] = {}
    values: dict[Name, Told] = {}
    shared: _Read = {}, {}
    for title, fact in facts.items():
        if title not in raw:
            shared[0].update(fact[0])
            shared[1].update(fact[1])
    told_by: dict[Name, str] = {}
    for title, text in raw.items():
        kind, path = columns[title], f"{table.name}, row {number}, {title}"
        if kind.name in told_by:
            notes.doubled.setdefault(title, told_by[kind.name])
        else:
            told_by |= _cell(kind, text, path, (settings, values), notes)
    return Row(table.name, number, {**shared[0], **settings}, {**shared[1], **values})


def _cell(kind: Column, text: str, path: str, into: _Read, notes: Notes) -> dict[Name, str]:
    """Read one cell into the settings or the values; returns the quantity that it tells, with its column's title."""
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
        told = _number(kind, kind.name, text)
    except ValueError as error:
        notes.problems.append(Problem(path, str(error), _REMEDY))
        return {}
    if told is None:
        return {}
    if kind.name in SETTINGS:
        settings[kind.name] = told.value
    else:
        values[kind.name] = told
    return {kind.name: kind.title}


def _number(kind: Column, name: Name, text: str) -> Told | None:
    """The number in our unit; None where the cell has none. Raises ValueError."""
    found = read(text)
    if found is None:
        return None
    number = found[0].scaled(factor(name, heading_unit(kind), found[1]))
    printed = text.strip()
    if number.value < 0 and name is not Name.COST_REDUCTION:
        raise ValueError(f"{printed!r}: {name} is never negative")
    if number.value == 0 and name not in MAY_BE_ZERO:
        raise ValueError(f"{printed!r}: {name} is never 0")
    if name in WHOLE and number.value != int(number.value):
        raise ValueError(f"{printed!r}: {name} is a whole number")
    return number


def _words(kind: Column, text: str) -> dict[str, str | float]:
    """A setting in words. `vLLM 0.7.3` is an engine and its version."""
    stripped = text.strip().strip("*").strip()
    if not stripped:
        return {}
    found = _VERSION.match(stripped) if kind.name is Name.ENGINE else None
    if found:
        return {Name.ENGINE: found["engine"], Name.ENGINE_VERSION: found["version"]}
    return {kind.name or kind.title: stripped}


def _of_two_units(table: Table, columns: Mapping[str, Column]) -> Iterator[Problem]:
    """Columns of times that give their unit in some cells alone, and not in their heading."""
    for title, kind in columns.items():
        if kind.name not in TIMES or heading_unit(kind):
            continue
        units = [(number, unit) for number, raw in enumerate(table.rows, start=1) for unit in _unit(raw.get(title, ""))]
        bare = [number for number, unit in units if not unit]
        if bare and len(bare) < len(units):
            what = "has no unit, and other cells of its column have one"
            yield Problem(f"{table.name}, row {bare[0]}, {title}", what, f"name it in the heading: {title} (ms)")


def _unit(text: str) -> list[str]:
    """The unit of a cell that has a number; nothing for any other, which is named where it is read."""
    try:
        found = read(text)
    except ValueError:
        return []
    return [] if found is None else [found[1]]
