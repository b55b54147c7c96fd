"""A diverse subset of a prompts file, with the figures that say what the selection was worth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specbench_api.model import ApiModel
from specbench_client.dataset.diversity.selection import Comparison, Picked, Told, pick
from specbench_client.dataset.diversity.similarity import drawn_similarity, mean_similarity
from specbench_client.dataset.diversity.vectors import Vectors
from specbench_client.dataset.entries import Entry
from specbench_client.errors import BadInput

ALL = "all"
NO_CATEGORY = "(no category)"


class RandomSimilarity(ApiModel):
    """Mean similarity of as many prompts drawn at random: mean, 2.5th and 97.5th percentile of the draws."""

    mean: float
    low: float
    high: float
    draws: int


class GroupSelection(ApiModel):
    """What was selected of one category, or of all. Similarities: mean cosine over all pairs of its prompts."""

    category: str
    candidates: int
    selected: int
    random: RandomSimilarity | None = None
    greedy: float | None = None
    """Greedy selection alone."""
    refined: float | None = None
    """After local swaps: what was selected."""
    swaps: int
    settled: bool
    """Whether no single exchange would have made the set less alike."""


class SelectionReport(ApiModel):
    """What `specbench dataset select` did. Missing similarities: fewer than two prompts have no pair."""

    schema_version: Literal["specbench.io/selection/v1"] = "specbench.io/selection/v1"
    embeddings: str
    dimensions: int
    by: Literal["category", "all"]
    count: int
    seed: int
    candidates: int
    selected: int
    groups: list[GroupSelection]
    mean_random: float | None = None
    mean_greedy: float | None = None
    mean_refined: float | None = None
    """Means over the groups of the similarity within each, as SPEED-Bench reports it; groups of one are not in them."""
    overall: float | None = None
    """Mean cosine over all pairs of everything selected."""
    overall_random: RandomSimilarity | None = None
    """The same for as many prompts drawn from all candidates."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What to select: so many of each category, or of all together. `draws` random subsets are the comparison."""

    count: int
    by: Literal["category", "all"] = "category"
    fewer: bool = False
    seed: int = 0
    draws: int = 100


def select_diverse(
    entries: Sequence[Entry], vectors: Vectors, ask: Ask, embeddings: str, told: Told | None = None
) -> tuple[list[Entry], SelectionReport]:
    """The entries selected, in the file's order, and the report.

    The order of the file does not matter for what is selected: equally good prompts are told apart by their ids.
    Raises BadInput where a category has too few prompts.
    """
    order = sorted(range(len(entries)), key=lambda row: entries[row].id)
    by_id = vectors if order == list(range(len(entries))) else vectors[order]
    groups = _groups([entries[row] for row in order], ask)
    picked = pick(by_id, groups, ask.count, Comparison(ask.draws, ask.seed), told)
    kept = sorted(row for group in picked for row in group.rows)
    report = _report(by_id, picked, kept, ask, embeddings)
    return [entries[place] for place in sorted(order[row] for row in kept)], report


def _groups(entries: Sequence[Entry], ask: Ask) -> dict[str, Sequence[int]]:
    if ask.by == "all":
        groups: dict[str, Sequence[int]] = {ALL: range(len(entries))}
    else:
        found: dict[str, list[int]] = defaultdict(list)
        for row, entry in enumerate(entries):
            found[NO_CATEGORY if entry.category is None else entry.category].append(row)
        groups = {name: found[name] for name in sorted(found)}
    short = [f"{name} {len(rows)}" for name, rows in groups.items() if len(rows) < ask.count]
    if short and not ask.fewer:
        raise BadInput(
            f"--count {ask.count}: too few prompts in {', '.join(short)}: "
            "lower it, or take all that there are with --allow-fewer"
        )
    return groups


def _report(
    vectors: Vectors, picked: Sequence[Picked], kept: Sequence[int], ask: Ask, embeddings: str
) -> SelectionReport:
    return SelectionReport(
        embeddings=embeddings,
        dimensions=vectors.shape[1],
        by=ask.by,
        count=ask.count,
        seed=ask.seed,
        candidates=len(vectors),
        selected=len(kept),
        groups=[_group(group) for group in picked],
        mean_random=_mean([group.random.mean if group.random else None for group in picked]),
        mean_greedy=_mean([group.greedy for group in picked]),
        mean_refined=_mean([group.selected for group in picked]),
        overall=mean_similarity(vectors[list(kept)]),
        overall_random=_drawn(vectors, len(kept), ask),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _drawn(vectors: Vectors, count: int, ask: Ask) -> RandomSimilarity | None:
    drawn = drawn_similarity(vectors, count, ask.draws, ask.seed)
    return RandomSimilarity(mean=drawn.mean, low=drawn.low, high=drawn.high, draws=drawn.draws) if drawn else None


def _group(group: Picked) -> GroupSelection:
    drawn = group.random
    return GroupSelection(
        category=group.group,
        candidates=group.candidates,
        selected=len(group.rows),
        random=RandomSimilarity(mean=drawn.mean, low=drawn.low, high=drawn.high, draws=drawn.draws) if drawn else None,
        greedy=group.greedy,
        refined=group.selected,
        swaps=group.swaps,
        settled=group.settled,
    )
