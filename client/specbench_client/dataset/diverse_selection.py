"""Selects a diverse subset of a prompt file, and reports how much less similar it is than a random subset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specbench_api.model import ApiModel
from specbench_client.dataset.diversity import (
    DiverseGroup,
    RandomDraws,
    SelectionProgress,
    Vectors,
    mean_similarity,
    random_subset_similarity,
    select_diverse_groups,
)
from specbench_client.dataset.prompt_entries import NO_CATEGORY, PromptEntry
from specbench_client.errors import BadInput

ALL = "all"


class RandomSimilarity(ApiModel):
    """Mean similarity of equally many random prompts: mean, 2.5th and 97.5th percentile over the draws."""

    mean: float
    low: float
    high: float
    draws: int


class GroupSelection(ApiModel):
    """The selection of one category, or of all prompts. Similarities are the mean cosine over all pairs of prompts."""

    category: str
    candidates: int
    selected: int
    random: RandomSimilarity | None = None
    greedy: float | None = None
    """Similarity after greedy selection."""
    refined: float | None = None
    """Similarity after local swaps, which is that of the selected prompts."""
    swaps: int
    settled: bool
    """Whether no single swap can reduce the similarity further."""


class SelectionReport(ApiModel):
    """The result of `specbench dataset select`. Similarities are missing for fewer than two prompts."""

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
    """Means over the groups of the similarity within each group, as in SPEED-Bench; groups of one are excluded."""
    overall: float | None = None
    """Mean cosine over all pairs of selected prompts."""
    overall_random: RandomSimilarity | None = None
    """The same for equally many prompts drawn from all candidates."""


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """What to select: `count` prompts of each category, or of all together, compared with `draws` random subsets."""

    count: int
    by: Literal["category", "all"] = "category"
    fewer: bool = False
    seed: int = 0
    draws: int = 100


def select_diverse(
    entries: Sequence[PromptEntry],
    vectors: Vectors,
    request: SelectionRequest,
    embeddings: str,
    progress: SelectionProgress | None = None,
) -> tuple[list[PromptEntry], SelectionReport]:
    """Return the selected entries in file order, and the report.

    The selection does not depend on file order: ties are broken by id. Raises BadInput for a category with too few.
    """
    order = sorted(range(len(entries)), key=lambda row: entries[row].id)
    by_id = vectors if order == list(range(len(entries))) else vectors[order]
    groups = _groups([entries[row] for row in order], request)
    picked = select_diverse_groups(by_id, groups, request.count, RandomDraws(request.draws, request.seed), progress)
    selected = sorted(row for group in picked for row in group.rows)
    report = _report(by_id, picked, selected, request, embeddings)
    return [entries[place] for place in sorted(order[row] for row in selected)], report


def _groups(entries: Sequence[PromptEntry], request: SelectionRequest) -> dict[str, Sequence[int]]:
    if request.by == "all":
        groups: dict[str, Sequence[int]] = {ALL: range(len(entries))}
    else:
        found: dict[str, list[int]] = defaultdict(list)
        for row, entry in enumerate(entries):
            found[NO_CATEGORY if entry.category is None else entry.category].append(row)
        groups = {name: found[name] for name in sorted(found)}
    short = [f"{name} {len(rows)}" for name, rows in groups.items() if len(rows) < request.count]
    if short and not request.fewer:
        raise BadInput(
            f"--count {request.count}: too few prompts in {', '.join(short)}: "
            "lower --count, or take all available prompts with --allow-fewer"
        )
    return groups


def _report(
    vectors: Vectors,
    picked: Sequence[DiverseGroup],
    selected: Sequence[int],
    request: SelectionRequest,
    embeddings: str,
) -> SelectionReport:
    return SelectionReport(
        embeddings=embeddings,
        dimensions=vectors.shape[1],
        by=request.by,
        count=request.count,
        seed=request.seed,
        candidates=len(vectors),
        selected=len(selected),
        groups=[_group(group) for group in picked],
        mean_random=_mean([group.random.mean if group.random else None for group in picked]),
        mean_greedy=_mean([group.greedy for group in picked]),
        mean_refined=_mean([group.selected for group in picked]),
        overall=mean_similarity(vectors[list(selected)]),
        overall_random=_random_similarity(vectors, len(selected), request),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _random_similarity(vectors: Vectors, count: int, request: SelectionRequest) -> RandomSimilarity | None:
    drawn = random_subset_similarity(vectors, count, request.draws, request.seed)
    return RandomSimilarity(mean=drawn.mean, low=drawn.low, high=drawn.high, draws=drawn.draws) if drawn else None


def _group(group: DiverseGroup) -> GroupSelection:
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
