"""Selects prompts: by column filters, a number of prompts, and the weights of a mix of sources. Pure.

A number of prompts is spread evenly over the categories.

Without a seed, the first prompts of each category are taken. With a seed, those whose SHA-256 of seed and id is
smallest. The draw therefore depends neither on the order of rows or categories nor on a library's random generator, and
a file that was sorted or extended keeps most of its selection.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import Any

from specbench_api.spec.dataset import Dataset, Entropy, Member, Selection
from specbench_client.errors import BadInput
from specbench_client.workload.row_parsing import Prompt


def select_subset(prompts: Sequence[Prompt], selection: Selection) -> list[Prompt]:
    """Return `count` prompts in file order; all if it is not set. Raises BadInput."""
    count = selection.count
    if count is None:
        return list(prompts)
    if count > len(prompts):
        remedy = "lower count; to send prompts more than once, raise load.requests"
        raise BadInput(f"{selection.where}: count is {count}, but there are only {len(prompts)} prompts: {remedy}")
    return [prompts[place] for place in sorted(islice(round_robin(prompts, selection.seed), count))]


def round_robin(prompts: Sequence[Prompt], seed: int | None) -> Iterable[int]:
    """Yield the indices of prompts, one of each category in turn."""
    by_category: dict[str | None, list[int]] = defaultdict(list)
    for place, prompt in enumerate(prompts):
        by_category[prompt.category].append(place)
    turns = list(by_category)
    if seed is not None:
        turns.sort(
            key=lambda category: _sort_key(seed, category or "")
        )  # which category gets one more must not depend on file order
        for places in by_category.values():
            places.sort(key=lambda place: _sort_key(seed, prompts[place].id))
    rounds = zip_longest(*(by_category[category] for category in turns))
    return (place for place in chain.from_iterable(rounds) if place is not None)


def _sort_key(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


_TIERS = {
    Entropy.LOW: ("low_entropy",),
    Entropy.MIXED: ("mixed", "mixed_entropy"),
    Entropy.HIGH: ("high_entropy",),
}
"""Entropy tier → names of the categories in SPEED-Bench's throughput configs."""
_SHOWN = 20


@dataclass(frozen=True)
class RowFilter:
    """A filter on one column. `label`: the column's name in error messages."""

    column: str
    values: tuple[str, ...]
    label: str

    def keeps(self, columns: Mapping[str, Any]) -> bool:
        """Return whether the row passes the filter."""
        value = columns.get(self.column)
        return value is not None and str(value) in self.values

    def raise_if_unknown(self, rows: Sequence[Mapping[str, Any]], where: str) -> None:
        """Raise BadInput for a value that no row has: a typing error would otherwise silently select fewer prompts."""
        found = (columns.get(self.column) for columns in rows)
        known = list(dict.fromkeys(str(value) for value in found if value is not None))
        unknown = [value for value in self.values if value not in known]
        if not unknown:
            return
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        available = ", ".join(known[:_SHOWN]) + more if known else f"none, because no row has a column {self.column}"
        raise BadInput(f"{where}: no row has the {self.label} {unknown[0]!r}; available: {available}")


def declared_filters(selection: Selection) -> list[RowFilter]:
    """Return the filters of a declaration; a row must pass all of them."""
    declared = (
        ("category", selection.categories, "category"),
        ("sub_category", selection.sub_categories, "sub-category"),
        ("difficulty", selection.difficulty, "difficulty"),
        ("language", selection.languages, "language"),
    )
    return [RowFilter(column, tuple(values), label) for column, values, label in declared if values is not None]


def filtered_places(rows: Sequence[Mapping[str, Any]], selection: Selection) -> list[int]:
    """Return the indices of the rows that pass every filter, in order. Raises BadInput for a value that no row has."""
    filters = declared_filters(selection)
    for each in filters:
        each.raise_if_unknown(rows, selection.where)
    places = [place for place, columns in enumerate(rows) if all(each.keeps(columns) for each in filters)]
    return [place for place in places if selection.entropy is None or _has_entropy(rows[place], selection)]


def _has_entropy(columns: Mapping[str, Any], selection: Selection) -> bool:
    tiers = [name for tier in selection.entropy or () for name in _TIERS[tier]]
    return str(columns.get("category")) in tiers


# The members of a mix are interleaved by weight: at each position the member that is furthest behind its share comes
# next, the first one declared on a tie. A run that ends early has therefore measured nearly the same mix as a complete
# one.


def mix_prompts(dataset: Dataset, prompts: Mapping[str, Sequence[Prompt]]) -> list[Prompt]:
    """Return `count` prompts, or without `count` all prompts until the first member runs out. Raises BadInput.

    `prompts` maps a member's name to its prompts. The member's name becomes a prompt's category and prefixes its id.
    """
    members = dataset.members or []
    taken: list[Prompt] = []
    sources = {member.name: iter(prompts[member.name]) for member in members}
    for member in islice(turns_of(members), dataset.count):
        prompt = next(sources[member.name], None)
        if prompt is None:
            if dataset.count is None:
                break
            raise BadInput(_too_few(member, members, dataset.count, len(prompts[member.name])))
        taken.append(replace(prompt, id=f"{member.name}/{prompt.id}", category=member.name))
    _raise_if_absent(members, taken)
    return taken


def _raise_if_absent(members: Sequence[Member], taken: Sequence[Prompt]) -> None:
    """Raise BadInput for a member without a single prompt in the mix: it would be missing from all results."""
    there = {prompt.category for prompt in taken}
    absent = [member.name for member in members if member.name not in there]
    if absent:
        remedy = "raise its weight or count, or provide more prompts for the other members"
        raise BadInput(f"members[{absent[0]}]: none of its prompts fits into a mix of {len(taken)}: {remedy}")


def turns_of(members: Sequence[Member]) -> Iterator[Member]:
    """Yield members in the order of their turns, endlessly."""
    whole = sum(member.weight for member in members)
    had = [0] * len(members)
    place = 0
    while True:
        place += 1
        lag = [member.weight * place - whole * count for member, count in zip(members, had, strict=True)]
        chosen = lag.index(max(lag))
        had[chosen] += 1
        yield members[chosen]


def _too_few(member: Member, members: Sequence[Member], count: int, available: int) -> str:
    needed = sum(each.name == member.name for each in islice(turns_of(members), count))
    return (
        f"members[{member.name}]: a mix of {count} needs {needed} of its prompts, but there are only {available}:"
        " lower count or its weight; without count the mix ends when the first member runs out"
    )
