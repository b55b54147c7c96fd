"""The least similar prompts of each group, with what chance and greed alone would have given, as an ablation has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_client.dataset.diversity.greedy import greedy
from specbench_client.dataset.diversity.similarity import Drawn, drawn_similarity, mean_similarity
from specbench_client.dataset.diversity.swaps import refine
from specbench_client.dataset.diversity.vectors import Vectors

Told = Callable[[str, int, int], None]
"""Progress: the group, the sweep, and the exchanges so far."""


@dataclass(frozen=True, slots=True)
class Picked:
    """One group's selection. `rows` index the whole matrix, ascending; similarities of fewer than two rows are None."""

    group: str
    candidates: int
    rows: tuple[int, ...]
    random: Drawn | None
    greedy: float | None
    selected: float | None
    swaps: int
    settled: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many random subsets to compare with, and their seed."""

    draws: int
    seed: int


def pick(
    vectors: Vectors,
    groups: Mapping[str, Sequence[int]],
    count: int,
    comparison: Comparison,
    told: Told | None = None,
) -> list[Picked]:
    """Select `count` rows of each group, or all of a smaller one. `groups` names rows of `vectors`, in order of ids."""
    return [_one(vectors, (name, rows), count, comparison, told) for name, rows in groups.items()]


def _one(
    vectors: Vectors, group: tuple[str, Sequence[int]], most: int, comparison: Comparison, told: Told | None
) -> Picked:
    name, rows = group
    count = min(most, len(rows))
    own = _rows(vectors, rows)
    first = greedy(own, count)
    refined = refine(own, first, (lambda sweep, swaps: told(name, sweep, swaps)) if told else None)
    return Picked(
        group=name,
        candidates=len(rows),
        rows=tuple(int(rows[member]) for member in refined.members),
        random=drawn_similarity(own, count, comparison.draws, comparison.seed),
        greedy=mean_similarity(own[first]),
        selected=mean_similarity(own[list(refined.members)]),
        swaps=refined.swaps,
        settled=refined.settled,
    )


def _rows(vectors: Vectors, rows: Sequence[int]) -> Vectors:
    """These rows; the matrix itself where they are all of it, for a copy is as large as the matrix."""
    everything = len(rows) == len(vectors) and np.array_equal(rows, np.arange(len(vectors)))
    return vectors if everything else vectors[np.asarray(rows, dtype=np.intp)]
