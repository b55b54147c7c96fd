"""How alike the prompts of a set are: the mean cosine over all pairs, without ever forming the pairs.

With unit vectors v and their sum s, the sum over all pairs i < j of cos(i, j) is (|s|² - n) / 2. So n prompts cost
n additions instead of n² / 2 products. (SPEED-Bench, arXiv 2604.09557, reports this mean for a category's prompts.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench_client.dataset.diversity.vectors import Vectors

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Drawn:
    """Mean similarity of subsets drawn at random: the mean over the draws, and what 95 % of them lie between."""

    mean: float
    low: float
    high: float
    draws: int


def pair_sum(vectors: Vectors) -> float:
    """Sum of the cosines of all pairs of rows; 0 for fewer than two. Summed in float64."""
    total, squares = vector_sum(vectors), 0.0
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        part = vectors[start : start + _ROWS_AT_ONCE].astype(np.float64)
        squares += float(np.einsum("ij,ij->", part, part))
    return (float(total @ total) - squares) / 2


def vector_sum(vectors: Vectors) -> npt.NDArray[np.float64]:
    """Sum of all rows in float64, in slices, so that no second copy of the whole is made."""
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        total += vectors[start : start + _ROWS_AT_ONCE].sum(axis=0, dtype=np.float64)
    return total


def mean_similarity(vectors: Vectors) -> float | None:
    """Mean cosine over all pairs of rows; None for fewer than two, which have no pair."""
    count = len(vectors)
    return pair_sum(vectors) / (count * (count - 1) / 2) if count > 1 else None


def drawn_similarity(vectors: Vectors, count: int, draws: int, seed: int) -> Drawn | None:
    """Mean similarity of `count` rows drawn without replacement, over so many draws; None for fewer than two rows."""
    if count < 2 or draws < 1:
        return None
    generator = np.random.default_rng(seed)
    found = [
        mean_similarity(vectors[generator.choice(len(vectors), size=count, replace=False)]) or 0.0 for _ in range(draws)
    ]
    low, high = np.percentile(found, [2.5, 97.5])
    return Drawn(float(np.mean(found)), float(low), float(high), draws)
