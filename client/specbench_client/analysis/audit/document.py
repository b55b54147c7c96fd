"""Rows with their quantities and settings; which row is whose baseline; rows that differ in one setting alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specbench_api.spec.drafter import Method
from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.numbers import Told, exactly

_BASELINES = re.compile(r"(?:none|base(?:line)?|no(?:rmal)?|without|w/?o|off|autoregressive|ar)\b.*", re.IGNORECASE)
_METHODS = (
    (r"eagle\W?3", Method.EAGLE3),
    (r"eagle", Method.EAGLE),
    (r"medusa", Method.MEDUSA),
    (r"n\W?gram|prompt.?lookup|\bpld\b", Method.NGRAM),
    (r"suffix", Method.SUFFIX),
    (r"mtp|nextn", Method.MTP),
    (r"lookahead", Method.LOOKAHEAD),
    (r"vanilla|draft", Method.DRAFT_MODEL),
)
_UNEVEN = (Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD)
"""Drafters that propose fewer than k tokens, or none, where they find nothing."""


@dataclass(frozen=True)
class Row:
    """One row: what was chosen, and what was measured. `number` counts from 1 in its table."""

    table: str
    number: int
    settings: Mapping[str, str | float]
    values: Mapping[Name, Told]
    apart: frozenset[str] = frozenset()
    """Settings that tell it from other rows of its table."""

    def get(self, name: Name) -> Told | None:
        """A quantity; None where the table does not tell it."""
        return self.values.get(name)

    @property
    def drafts(self) -> Told | None:
        """Draft tokens a step."""
        told = self.settings.get(Name.DRAFT_LENGTH)
        return exactly(told) if isinstance(told, float) else None

    @property
    def concurrency(self) -> float | None:
        """Concurrent streams."""
        told = self.settings.get(Name.CONCURRENCY)
        return told if isinstance(told, float) else None

    @property
    def label(self) -> str:
        """For a line: what tells it from its neighbours."""
        shown = [
            f"{value}"
            if name == Name.METHOD
            else f"{name}={value:g}"
            if isinstance(value, float)
            else f"{name}={value}"
            for name, value in self.settings.items()
            if name in self.apart
        ]
        return ", ".join(shown) or f"row {self.number}"

    @property
    def is_baseline(self) -> bool:
        """Whether nothing is drafted in it."""
        method = self.settings.get(Name.METHOD)
        if isinstance(method, str):
            return bool(_BASELINES.fullmatch(method.strip()))
        return self.settings.get(Name.DRAFT_LENGTH) == 0

    @property
    def method(self) -> Method | None:
        """The method as we call it; None where its name says nothing to us."""
        told = str(self.settings.get(Name.METHOD, ""))
        return next((method for pattern, method in _METHODS if re.search(pattern, told, re.IGNORECASE)), None)

    @property
    def uneven(self) -> bool:
        """Whether its drafter proposes k tokens in some steps only."""
        return self.method in _UNEVEN

    def settings_but(self, *names: Name) -> dict[str, str | float]:
        """Its settings without these."""
        return {name: value for name, value in self.settings.items() if name not in names}


def labelled(rows: Sequence[Row]) -> list[Row]:
    """The rows of one table, each knowing what tells it from the others."""
    names = {name for row in rows for name in row.settings}
    apart = frozenset(name for name in names if len({row.settings.get(name) for row in rows}) > 1)
    return [replace(row, apart=apart or frozenset({Name.METHOD, Name.DRAFT_LENGTH, Name.CONCURRENCY})) for row in rows]


@dataclass(frozen=True)
class Document:
    """Tables of one publication.

    `settings`: columns that were taken for settings because they are no quantity. `doubled`: columns that were not read
    because another one tells the same quantity, each with that one. `unread`: columns of another statistic than median
    or mean, or of a latency of nobody knows what.
    """

    source: str
    tables: Mapping[str, Sequence[Row]]
    settings: tuple[str, ...] = field(default=())
    doubled: tuple[tuple[str, str], ...] = field(default=())
    unread: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> list[Row]:
        """All rows of all tables."""
        return [row for rows in self.tables.values() for row in rows]

    def baseline_of(self, row: Row) -> Row | None:
        """The baseline under the same settings: of its own table, else of another one that states the same."""
        here = [each for each in self.tables[row.table] if each.is_baseline]
        elsewhere = [each for each in self.rows if each.is_baseline and each.table != row.table]
        return next((each for each in (*here, *elsewhere) if _agree(each, row)), None)

    def sweeps(self, over: Name) -> Iterator[list[Row]]:
        """Rows of one table that differ in this setting alone, in its order; the baseline is not among them."""
        for rows in self.tables.values():
            groups: dict[str, list[Row]] = {}
            for row in rows:
                if not row.is_baseline and isinstance(row.settings.get(over), float):
                    groups.setdefault(repr(sorted(row.settings_but(over).items())), []).append(row)
            for group in groups.values():
                if len(group) > 1:
                    yield sorted(group, key=lambda row: float(row.settings[over]))


def _agree(baseline: Row, row: Row) -> bool:
    """Whether no setting that both state differs, but for what a baseline does not have."""
    apart = (Name.METHOD, Name.DRAFT_LENGTH)
    mine, its = baseline.settings_but(*apart), row.settings_but(*apart)
    return all(mine[name] == its[name] for name in mine.keys() & its.keys())
