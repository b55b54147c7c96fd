"""Permutation tests within prompts: how answers begin, and how long they are.

The statistic for openings (first tokens, or first words) is the mean over prompts of an unbiased estimate of Σ (p −
q)², the squared distance of two frequency vectors: 2 P(a ≠ b) − P(a ≠ a′) − P(b ≠ b′), each estimated without bias from
counts. If labels are exchangeable within a prompt, its permutations are the exact null distribution, however few
answers a prompt has.

It is reported as the share δ of answers that would have to begin with something that the baseline never begins with, to
be equally distant: then Σ (p − q)² = δ² (1 + Σ p²). The smallest detectable difference is the δ for which the
statistic's expectation is (z(0.95) + z(0.8)) permutation standard deviations above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from specbench_client.metrics.tidy_frame import Values

OPENING_PERMUTATIONS = 1999
LEVEL, POWER = 0.05, 0.8
ANSWERS_MIN = 2
"""Minimum per side and prompt: one answer contains no information on its own variation."""


@dataclass(frozen=True)
class PermutationTest:
    """A difference, its p-value, the smallest detectable difference, and the number of prompts."""

    difference: float
    p_value: float
    detectable: float
    prompts: int


def opening_test(mine: pd.DataFrame, base: pd.DataFrame, seed: int) -> PermutationTest | None:
    """Compare openings, given the columns prompt_id and opening; None if no prompt has two answers on each side."""
    rng = np.random.default_rng(seed)
    observed, permuted, alike = list[float](), list[Values](), list[float]()
    for _, ours, theirs in _counts(mine, base):
        observed.append(float(_distance(ours[np.newaxis], theirs[np.newaxis])[0]))
        both = ours + theirs
        drawn = rng.multivariate_hypergeometric(both, int(ours.sum()), size=OPENING_PERMUTATIONS, method="marginals")
        permuted.append(_distance(drawn, both - drawn))
        alike.append(float((both * (both - 1)).sum() / (both.sum() * (both.sum() - 1))))
    if not observed:
        return None
    value, null = float(np.mean(observed)), np.mean(permuted, axis=0)
    scale = 1 + float(np.mean(alike))
    far = float(special.ndtri(1 - LEVEL) + special.ndtri(POWER)) * float(null.std())
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + OPENING_PERMUTATIONS)
    return PermutationTest(_share(value, scale), p_value, _share(far, scale), len(observed))


def _share(distance: float, scale: float) -> float:
    return float(min(1.0, np.sqrt(max(0.0, distance) / scale)))


def _counts(mine: pd.DataFrame, base: pd.DataFrame) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """By prompt, how often each opening occurs on either side, shape (openings,), if both have enough answers."""
    sides = [rows.groupby(["prompt_id", "opening"]).size() for rows in (mine, base)]
    table = pd.concat(sides, axis=1, keys=["mine", "base"]).fillna(0).astype(np.int64)
    found = []
    for prompt, rows in table.groupby(level=0):
        ours, theirs = rows["mine"].to_numpy(), rows["base"].to_numpy()
        if min(ours.sum(), theirs.sum()) >= ANSWERS_MIN:
            found.append((str(prompt), ours, theirs))
    return found


def _distance(ours: np.ndarray, theirs: np.ndarray) -> Values:
    """Unbiased Σ (p − q)² of each row of counts, shape (rows,)."""
    many, others = ours.sum(axis=1), theirs.sum(axis=1)
    within = (ours * (ours - 1)).sum(axis=1) / (many * (many - 1))
    within_base = (theirs * (theirs - 1)).sum(axis=1) / (others * (others - 1))
    return np.asarray(within + within_base - 2 * (ours * theirs).sum(axis=1) / (many * others), dtype=np.float64)


# The test for lengths uses the Kolmogorov-Smirnov statistic, the largest difference of two distributions. All prompts
# have equal weight: each distribution is the mean over prompts of the distribution of their answers. Labels are
# permuted within prompts, so that differences between prompts do not affect the p-value.

LENGTH_PERMUTATIONS = 999
ANSWERS_MOST = 20_000
"""Maximum number of answers permuted; of more, an equal number of each prompt's first ones is used."""


def length_test(mine: pd.DataFrame, base: pd.DataFrame, seed: int) -> PermutationTest | None:
    """Compare lengths, given the columns prompt_id and tokens; None if no prompt has answers on both sides."""
    rows = pd.concat([mine.assign(mine=True), base.assign(mine=False)], ignore_index=True)[
        ["prompt_id", "tokens", "mine"]
    ]
    rows = _thinned(rows[rows["tokens"].notna()])
    sides = rows.groupby("prompt_id")["mine"].transform("nunique")
    rows = rows[(sides == 2).to_numpy(bool)].sort_values(["prompt_id", "mine"], kind="stable").reset_index(drop=True)
    if rows.empty:
        return None
    prompts = pd.factorize(rows["prompt_id"])[0]
    sizes = rows.groupby(["prompt_id", "mine"])["tokens"].transform("size").to_numpy(float)
    count = int(prompts.max()) + 1
    weights = np.where(rows["mine"].to_numpy(bool), 1.0, -1.0) / sizes / count
    lengths = rows["tokens"].to_numpy(float)
    order = np.argsort(lengths, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(lengths[order]) > 0, True))
    value = float(np.abs(_differences(weights[np.newaxis], order, ends)).max())
    null, spread = _permuted(weights, prompts, (order, ends), seed)
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + LENGTH_PERMUTATIONS)
    detectable = float(np.quantile(null, 1 - LEVEL)) + float(special.ndtri(POWER)) * spread
    return PermutationTest(value, p_value, min(1.0, detectable), count)


def _permuted(
    weights: Values, prompts: np.ndarray, order_and_ends: tuple[np.ndarray, np.ndarray], seed: int
) -> tuple[Values, float]:
    """The statistic of each permutation, shape (permutations,), and the difference's largest standard deviation."""
    rng = np.random.default_rng(seed)
    found, moments = np.empty(LENGTH_PERMUTATIONS), np.zeros(order_and_ends[1].size)
    for index in range(LENGTH_PERMUTATIONS):
        shuffled = np.empty_like(weights)
        shuffled[np.argsort(prompts + rng.random(prompts.size))] = weights  # sorted by prompt
        differences = _differences(shuffled[np.newaxis], *order_and_ends)[0]
        found[index] = np.abs(differences).max()
        moments += differences**2
    return found, float(np.sqrt((moments / LENGTH_PERMUTATIONS).max()))


def _differences(weights: Values, order: np.ndarray, ends: np.ndarray) -> Values:
    """Difference of the two distributions at the end of each run of equal lengths, shape (..., runs)."""
    return np.asarray(np.cumsum(weights[:, order], axis=1)[:, ends], dtype=np.float64)


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    if len(rows) <= ANSWERS_MOST:
        return rows
    each = max(2, ANSWERS_MOST // max(1, int(rows["prompt_id"].nunique()) * 2))
    return rows[(rows.groupby(["prompt_id", "mine"]).cumcount() < each).to_numpy(bool)]
