"""Measures the similarity of prompts, selects the least similar subset, and reports how it compares with a random one.

Pure: the embeddings are unit vectors, which the caller provides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from specbench_api.api_model import ApiModel
from specbench_client.dataset.prompt_entries import NO_CATEGORY, PromptEntry
from specbench_client.errors import BadInput

Vectors = npt.NDArray[np.float32]
"""Unit vectors, shape (prompts, dimensions), so that a dot product is a cosine."""


def unit_vectors(raw: npt.NDArray[np.floating], ids: Sequence[str]) -> Vectors:
    """Divide each row by its length, in float32; in place if `raw` is float32 already.

    Raises BadInput with the prompt's id if a row is not finite or is all zeros.
    """
    vectors = np.require(raw, np.float32, ["C_CONTIGUOUS", "WRITEABLE"])
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if wrong.size:
        problem = "is all zeros" if lengths[wrong[0]] == 0 else "contains a number that is not finite"
        raise BadInput(f"the embedding of {ids[wrong[0]]!r} {problem}: embed it again, or remove the prompt")
    vectors /= lengths[:, None]
    return vectors


# The mean cosine over all pairs is computed without forming the pairs: with unit vectors v and their sum s, the sum of
# cos(i, j) over all pairs i < j is (|s|² - n) / 2, which takes n additions instead of n² / 2 products. SPEED-Bench
# (arXiv 2604.09557) reports this mean for the prompts of a category.


class RandomSimilarity(ApiModel):
    """Mean similarity of equally many random prompts: mean, 2.5th and 97.5th percentile over the draws."""

    mean: float
    low: float
    high: float
    draws: int


def mean_similarity(vectors: Vectors) -> float | None:
    """Return the mean cosine over all pairs of rows, in float64; None for fewer than two rows."""
    count = len(vectors)
    if count < 2:
        return None
    total = vectors.sum(axis=0, dtype=np.float64)
    squares = np.einsum("ij,ij->", vectors, vectors, dtype=np.float64)
    return float(total @ total - squares) / (count * (count - 1))


def random_subset_similarity(vectors: Vectors, count: int, draws: int, seed: int) -> RandomSimilarity | None:
    """Return the mean similarity of `count` rows drawn without replacement, over `draws` draws; None if count < 2."""
    if count < 2 or draws < 1:
        return None
    generator = np.random.default_rng(seed)
    found = [
        mean_similarity(vectors[generator.choice(len(vectors), size=count, replace=False)]) or 0.0 for _ in range(draws)
    ]
    low, high = np.percentile(found, [2.5, 97.5])
    return RandomSimilarity(mean=float(np.mean(found)), low=float(low), high=float(high), draws=draws)


# Greedy selection takes the prompt that is least similar to those already taken. `load[i]`, the sum of cosines between
# prompt i and the taken prompts, is updated by one matrix-vector product per step: N × d products, N numbers of memory.

TIE_TOLERANCE = 1e-5
"""Sums of cosines that differ by less are a tie, and the lower row wins. float32 products differ by about 1e-6 between
linear algebra libraries, which must not change the selection."""


def first_minimum(values: npt.NDArray[np.float64]) -> int:
    """Return the lowest index of all values within `TIE_TOLERANCE` of the minimum."""
    return int(np.flatnonzero(values <= values.min() + TIE_TOLERANCE)[0])


def dot_products(vectors: Vectors, with_vector: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the dot product of each row with the vector, computed in float32 and returned in float64 for sums."""
    return (vectors @ with_vector.astype(np.float32)).astype(np.float64)


def select_greedily(vectors: Vectors, count: int) -> list[int]:
    """Return the indices of `count` rows in the order of selection. `count` is at most the number of rows.

    The first is the row least similar to all rows together.
    """
    load = dot_products(vectors, vectors.sum(axis=0, dtype=np.float64))
    chosen: list[int] = []
    for _ in range(count):
        following = first_minimum(load)
        if not chosen:
            load[:] = 0.0
        chosen.append(following)
        load += dot_products(vectors, vectors[following])
        load[chosen] = np.inf
    return chosen


# Local search swaps members for outsiders as long as a single swap reduces the similarity of the set.
#
# With s the sum of the members' vectors and load[i] = v_i · s, swapping member a for outsider b changes the sum over
# pairs by load[b] - load[a] + |v_a|² - v_a · v_b. No cosine exceeds 1, so only outsiders with load[b] < load[a] can
# help, and products with v_a are needed only for those: usually a few per cent of the candidates.
#
# Swaps are proposed from float32 values and decided in float64, so a swap never increases the sum. The search
# terminates, because the sum decreases each time and there are finitely many sets. The result is optimal under single
# swaps: its sum over pairs is at most min(k, n - k) above the optimum's, which follows from adding the inequalities of
# all pairs (a, b) of the symmetric difference.

LEAST_GAIN = 1e-9
"""Minimum reduction of the sum over pairs for a swap; float64 sums are exact to about 1e-12."""


def refine_by_swaps(vectors: Vectors, chosen: Sequence[int]) -> tuple[list[int], int]:
    """Return the members after swapping until no single swap helps, ascending, and the number of swaps.

    Deterministic: members are tried in row order, and of equally good outsiders the lower row is taken.
    """
    inside = np.zeros(len(vectors), dtype=bool)
    inside[list(chosen)] = True
    total = vectors[inside].sum(axis=0, dtype=np.float64)
    swaps, before = 0, -1
    while swaps != before:
        before = swaps
        load = dot_products(vectors, total)  # removes the rounding errors of earlier swaps
        for leaving in np.flatnonzero(inside):
            outsiders = np.flatnonzero(~inside & (load < load[leaving]))
            if not outsiders.size:
                continue
            changes = load[outsiders] - dot_products(vectors[outsiders], vectors[leaving])
            coming = outsiders[first_minimum(changes)]
            difference = vectors[coming].astype(np.float64) - vectors[leaving]
            if (vectors[leaving] - total) @ difference <= LEAST_GAIN:
                continue
            total += difference
            load += dot_products(vectors, difference)
            inside[[leaving, coming]] = False, True
            swaps += 1
    return np.flatnonzero(inside).tolist(), swaps


ALL = "all"


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
    entries: Sequence[PromptEntry], vectors: Vectors, request: SelectionRequest, embeddings: str
) -> tuple[list[PromptEntry], SelectionReport]:
    """Return the selected entries in file order, and the report.

    The selection does not depend on file order: ties are broken by id. Raises BadInput for a category with too few.
    """
    order = sorted(range(len(entries)), key=lambda row: entries[row].id)
    by_id = vectors[order]
    picked = [
        select_diverse_group(by_id, group, request)
        for group in _groups([entries[row] for row in order], request).items()
    ]
    selected = sorted(row for rows, _ in picked for row in rows)
    groups = [group for _, group in picked]
    report = SelectionReport(
        embeddings=embeddings,
        dimensions=vectors.shape[1],
        by=request.by,
        count=request.count,
        seed=request.seed,
        candidates=len(vectors),
        selected=len(selected),
        groups=groups,
        mean_random=_mean([group.random.mean if group.random else None for group in groups]),
        mean_greedy=_mean([group.greedy for group in groups]),
        mean_refined=_mean([group.refined for group in groups]),
        overall=mean_similarity(by_id[selected]),
        overall_random=random_subset_similarity(by_id, len(selected), request.draws, request.seed),
    )
    return [entries[place] for place in sorted(order[row] for row in selected)], report


def select_diverse_group(
    vectors: Vectors, group: tuple[str, Sequence[int]], request: SelectionRequest
) -> tuple[list[int], GroupSelection]:
    """Select `request.count` rows of a group, or all of a smaller one.

    `group`: name, and row indices in order of prompt ids. Returns the selected row indices, ascending, and the report.
    """
    name, rows = group
    count = min(request.count, len(rows))
    own = vectors[np.asarray(rows)]
    greedy = select_greedily(own, count)
    members, swaps = refine_by_swaps(own, greedy)
    return [rows[member] for member in members], GroupSelection(
        category=name,
        candidates=len(rows),
        selected=count,
        random=random_subset_similarity(own, count, request.draws, request.seed),
        greedy=mean_similarity(own[greedy]),
        refined=mean_similarity(own[members]),
        swaps=swaps,
    )


def _groups(entries: Sequence[PromptEntry], request: SelectionRequest) -> dict[str, Sequence[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for row, entry in enumerate(entries):
        category = NO_CATEGORY if entry.category is None else entry.category
        found[ALL if request.by == "all" else category].append(row)
    short = [f"{name} ({len(rows)})" for name, rows in sorted(found.items()) if len(rows) < request.count]
    if short and not request.fewer:
        raise BadInput(
            f"--count {request.count}: too few prompts in {', '.join(short)}: "
            "lower --count, or take all available prompts with --allow-fewer"
        )
    return {name: found[name] for name in sorted(found)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
