"""Which rows a declaration asks for: by category, sub-category, entropy tier, difficulty and language. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench_api.spec.dataset import Entropy, Selection
from specbench_client.errors import BadInput

_TIERS = {
    Entropy.LOW: ("low_entropy",),
    Entropy.MIXED: ("mixed", "mixed_entropy"),
    Entropy.HIGH: ("high_entropy",),
}
"""How SPEED-Bench's throughput configs call their categories."""
_SHOWN = 20


@dataclass(frozen=True)
class Filter:
    """One column and the values that are asked for. `word`: what a value is called."""

    column: str
    wanted: tuple[str, ...]
    word: str

    def keeps(self, columns: Mapping[str, Any]) -> bool:
        """Whether the row is asked for."""
        value = columns.get(self.column)
        return value is not None and str(value) in self.wanted

    def refuse_unknown(self, rows: Sequence[Mapping[str, Any]], where: str) -> None:
        """A value that no row has is a slip of the pen, and would silently measure less. Raises BadInput."""
        found = (columns.get(self.column) for columns in rows)
        known = list(dict.fromkeys(str(value) for value in found if value is not None))
        unknown = [value for value in self.wanted if value not in known]
        if not unknown:
            return
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        there = ", ".join(known[:_SHOWN]) + more if known else f"none: its rows have no {self.column}"
        raise BadInput(f"{where}: has no {self.word} {unknown[0]!r}; there are: {there}")


def filters_of(selection: Selection) -> list[Filter]:
    """Those that were declared; a row must pass all of them."""
    asked = (
        ("category", selection.categories, "category"),
        ("sub_category", selection.sub_categories, "sub-category"),
        ("difficulty", selection.difficulty, "difficulty"),
        ("language", selection.languages, "language"),
    )
    return [Filter(column, tuple(wanted), word) for column, wanted, word in asked if wanted is not None]


def kept(rows: Sequence[Mapping[str, Any]], selection: Selection) -> list[int]:
    """Places of the rows that pass every filter, in order. Raises BadInput for a value that no row has."""
    filters = filters_of(selection)
    for each in filters:
        each.refuse_unknown(rows, selection.where)
    places = [place for place, columns in enumerate(rows) if all(each.keeps(columns) for each in filters)]
    return [place for place in places if selection.entropy is None or _of_tier(rows[place], selection)]


def _of_tier(columns: Mapping[str, Any], selection: Selection) -> bool:
    tiers = [name for tier in selection.entropy or () for name in _TIERS[tier]]
    return str(columns.get("category")) in tiers
