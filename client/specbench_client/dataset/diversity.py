"""Measures the similarity of prompts, selects the least similar subset, and reports how it compares with a random one.

Pure: the embeddings are unit vectors, which the caller provides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from specbench_api.api_model import ApiModel
from specbench_client.dataset.prompt_entries import NO_CATEGORY, PromptEntry
from specbench_client.errors import BadInput

Vectors = npt.NDArray[np.float32]
"""Unit vectors, shape (prompts, dimensions), so that a dot product is a cosine."""
_ROWS_AT_ONCE = 4096


def unit_vectors(raw: npt.NDArray[np.floating], ids: list[str]) -> Vectors:
    """Divide each row by its length, in float32; in place if `raw` is float32 already.

    Raises BadInput with the prompt's id if a row is not finite or is all zeros.
    """
    vectors = np.ascontiguousarray(raw, dtype=np.float32)
    if not vectors.flags.writeable:
        vectors = vectors.copy()
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        part = vectors[start : start + _ROWS_AT_ONCE]
        lengths = np.linalg.norm(part.astype(np.float64), axis=1)
        wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
        if wrong.size:
            row = int(wrong[0])
            problem = "is all zeros" if lengths[row] == 0 else "contains a number that is not finite"
            raise BadInput(f"the embedding of {ids[start + row]!r} {problem}: embed it again, or remove the prompt")
        part /= lengths[:, None]
    return vectors


# The mean cosine over all pairs is computed without forming the pairs: with unit vectors v and their sum s, the sum of
# cos(i, j) over all pairs i < j is (|s|² - n) / 2, which takes n additions instead of n² / 2 products. SPEED-Bench
# (arXiv 2604.09557) reports this mean for the prompts of a category.

_ROWS_PER_SLICE = 4096


class RandomSimilarity(ApiModel):
    """Mean similarity of equally many random prompts: mean, 2.5th and 97.5th percentile over the draws."""

    mean: float
    low: float
    high: float
    draws: int


def pair_sum(vectors: Vectors) -> float:
    """Return the sum of the cosines of all pairs of rows, in float64; 0 for fewer than two rows."""
    total, squares = vector_sum(vectors), 0.0
    for start in range(0, len(vectors), _ROWS_PER_SLICE):
        part = vectors[start : start + _ROWS_PER_SLICE].astype(np.float64)
        squares += float(np.einsum("ij,ij->", part, part))
    return (float(total @ total) - squares) / 2


def vector_sum(vectors: Vectors) -> npt.NDArray[np.float64]:
    """Return the sum of all rows in float64, computed in slices to avoid a float64 copy of the matrix."""
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), _ROWS_PER_SLICE):
        total += vectors[start : start + _ROWS_PER_SLICE].sum(axis=0, dtype=np.float64)
    return total


def mean_similarity(vectors: Vectors) -> float | None:
    """Return the mean cosine over all pairs of rows; None for fewer than two rows."""
    count = len(vectors)
    return pair_sum(vectors) / (count * (count - 1) / 2) if count > 1 else None


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


def select_greedily(vectors: Vectors, count: int) -> list[int]:
    """Return the indices of `count` rows in the order of selection. `count` is at most the number of rows.

    The first is the row least similar to all rows together.
    """
    load = dot_products(vectors, vector_sum(vectors))
    chosen: list[int] = []
    for _ in range(count):
        following = first_minimum(load)
        if not chosen:
            load[:] = 0.0
        chosen.append(following)
        load += dot_products(vectors, vectors[following])
        load[chosen] = np.inf
    return chosen


def dot_products(vectors: Vectors, with_vector: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the dot product of each row with the vector, computed in float32 and returned in float64 for sums."""
    return (vectors @ with_vector.astype(np.float32)).astype(np.float64)


# Local-swap refinement swaps members for outsiders as long as a single swap reduces the similarity of the set.
#
# With s the sum of the members' vectors and load[i] = v_i · s, swapping member a for outsider b changes the sum over
# pairs by load[b] - load[a] + |v_a|² - v_a · v_b. No cosine exceeds 1, so only outsiders with load[b] < load[a] can
# help, and products with v_a are needed only for those: usually a few per cent of the candidates.
#
# Swaps are proposed from float32 values and decided in float64, so a swap never increases the sum. The refinement
# terminates, because the sum decreases each time and there are finitely many sets. The result is optimal under single
# swaps: its sum over pairs is at most min(k, n - k) above the optimum's, which follows from adding the inequalities of
# all pairs (a, b) of the symmetric difference.

MOST_SWEEPS = 50
LEAST_GAIN = 1e-9
"""Minimum reduction of the sum over pairs for a swap; float64 sums are exact to about 1e-12."""
_GATHER_BELOW = 0.2
"""Share of rows below which copying them together is cheaper than multiplying all rows."""


@dataclass(frozen=True, slots=True)
class RefinedSelection:
    """The members, the number of swaps, and whether no single swap can improve the set further."""

    members: tuple[int, ...]
    swaps: int
    settled: bool


class _SwapState:
    """The state of the refinement: the members, their sum in float64, and the load of every row."""

    def __init__(self, vectors: Vectors, members: Sequence[int]) -> None:
        self.vectors = vectors
        self.members = sorted(members)
        self.inside = np.zeros(len(vectors), dtype=bool)
        self.inside[self.members] = True
        self.total = vector_sum(vectors[self.members])
        self.load = dot_products(vectors, self.total)

    def gain(self, leaving: int, coming: int) -> float:
        """Return by how much the swap reduces the sum over pairs, in float64."""
        out, into = self.vectors[leaving].astype(np.float64), self.vectors[coming].astype(np.float64)
        without = self.total - out
        return float(without @ out - without @ into)

    def exchange(self, leaving: int, coming: int) -> None:
        difference = self.vectors[coming].astype(np.float64) - self.vectors[leaving]
        self.total += difference
        self.load += dot_products(self.vectors, difference)
        self.inside[[leaving, coming]] = False, True
        self.members.remove(leaving)
        self.members.append(coming)

    def best_for(self, leaving: int) -> int | None:
        """Return the outsider that reduces the sum most in place of `leaving`; None if no outsider can."""
        candidates = np.flatnonzero(~self.inside & (self.load < self.load[leaving]))
        if not candidates.size:
            return None
        return int(candidates[first_minimum(self.load[candidates] - self._products(candidates, leaving))])

    def _products(self, rows: npt.NDArray[np.intp], leaving: int) -> npt.NDArray[np.float64]:
        if rows.size < _GATHER_BELOW * len(self.vectors):
            return dot_products(self.vectors[rows], self.vectors[leaving])
        return dot_products(self.vectors, self.vectors[leaving])[rows]


def refine_by_swaps(
    vectors: Vectors,
    chosen: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
    sweeps: int = MOST_SWEEPS,
) -> RefinedSelection:
    """Swap until no single swap helps, or `sweeps` sweeps over the members are done.

    `progress` is called after each sweep with its number and the swaps so far. Deterministic: members are tried in row
    order, and of equally good outsiders the lower row is taken.
    """
    state, swaps = _SwapState(vectors, chosen), 0
    for sweep in range(1, sweeps + 1):
        done = _sweep(state)
        swaps += done
        if progress:
            progress(sweep, swaps)
        if not done:
            return RefinedSelection(tuple(sorted(state.members)), swaps, settled=True)
    return RefinedSelection(tuple(sorted(state.members)), swaps, settled=False)


def _sweep(state: _SwapState) -> int:
    """Try every member once and return the number of swaps."""
    state.load = dot_products(state.vectors, state.total)  # removes the rounding errors of earlier swaps
    done = 0
    for leaving in sorted(state.members):
        coming = state.best_for(leaving)
        if coming is not None and state.gain(leaving, coming) > LEAST_GAIN:
            state.exchange(leaving, coming)
            done += 1
    return done


SelectionProgress = Callable[[str, int, int], None]
"""Called with the group, the sweep, and the swaps so far."""


def _rows(vectors: Vectors, rows: Sequence[int]) -> Vectors:
    """Return these rows, without copying the matrix if they are all of it."""
    everything = len(rows) == len(vectors) and np.array_equal(rows, np.arange(len(vectors)))
    return vectors if everything else vectors[np.asarray(rows, dtype=np.intp)]


def stack_vectors(vectors: Sequence[npt.NDArray[np.float32]], origin: str) -> npt.NDArray[np.float32]:
    """Stack vectors into shape (vectors, dimensions). Raises BadInput if their lengths differ."""
    sizes = sorted({vector.shape for vector in vectors})
    if len(sizes) > 1:
        shown = " and ".join(str(size[0]) if len(size) == 1 else str(size) for size in sizes[:2])
        raise BadInput(
            f"{origin}: embeddings have {shown} dimensions, so they are of two models: give another folder with --cache"
        )
    matrix = np.empty((len(vectors), *(sizes[0] if sizes else (0,))), dtype=np.float32)
    for row, vector in enumerate(vectors):
        matrix[row] = vector
    return matrix


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


def select_diverse_group(
    vectors: Vectors,
    group: tuple[str, Sequence[int]],
    request: SelectionRequest,
    progress: SelectionProgress | None = None,
) -> tuple[list[int], GroupSelection]:
    """Select `request.count` rows of a group, or all of a smaller one.

    `group`: name, and row indices in order of prompt ids. Returns the selected row indices, ascending, and the report.
    """
    name, rows = group
    count = min(request.count, len(rows))
    own = _rows(vectors, rows)
    first = select_greedily(own, count)
    refined = refine_by_swaps(own, first, (lambda sweep, swaps: progress(name, sweep, swaps)) if progress else None)
    return [int(rows[member]) for member in refined.members], GroupSelection(
        category=name,
        candidates=len(rows),
        selected=count,
        random=random_subset_similarity(own, count, request.draws, request.seed),
        greedy=mean_similarity(own[first]),
        refined=mean_similarity(own[list(refined.members)]),
        swaps=refined.swaps,
        settled=refined.settled,
    )


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
    picked = [select_diverse_group(by_id, group, request, progress) for group in groups.items()]
    selected = sorted(row for rows, _ in picked for row in rows)
    report = _report(by_id, [group for _, group in picked], selected, request, embeddings)
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
    groups: list[GroupSelection],
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
        groups=groups,
        mean_random=_mean([group.random.mean if group.random else None for group in groups]),
        mean_greedy=_mean([group.greedy for group in groups]),
        mean_refined=_mean([group.refined for group in groups]),
        overall=mean_similarity(vectors[list(selected)]),
        overall_random=random_subset_similarity(vectors, len(selected), request.draws, request.seed),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
