"""How long answers are: Kolmogorov and Smirnov's largest difference of two distributions, by permutation in prompts.

Each prompt weighs alike: the distributions compared are means over prompts of its answers' own. Labels are exchanged
within prompts, so that what prompts differ by is in no p-value.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from specbench_client.analysis.lossless.openings import LEVEL, POWER, Tested
from specbench_client.metrics.frame import Values

PERMUTATIONS = 999
ANSWERS_MOST = 20_000
"""Answers that are permuted; of more, so many of each prompt's first as make that."""


def length_test(mine: pd.DataFrame, base: pd.DataFrame, seed: int) -> Tested | None:
    """Test one against the other. Columns: prompt_id, tokens. None where no prompt has answers of both."""
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
    value = float(np.abs(_steps(weights[np.newaxis], order, ends)).max())
    null, spread = _permuted(weights, prompts, (order, ends), seed)
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + PERMUTATIONS)
    detectable = float(np.quantile(null, 1 - LEVEL)) + float(special.ndtri(POWER)) * spread
    return Tested(value, p_value, min(1.0, detectable), count)


def _permuted(
    weights: Values, prompts: np.ndarray, places: tuple[np.ndarray, np.ndarray], seed: int
) -> tuple[Values, float]:
    """The statistic of each permutation, and the standard deviation of the difference where that is largest."""
    rng = np.random.default_rng(seed)
    found, moments = np.empty(PERMUTATIONS), np.zeros(places[1].size)
    for index in range(PERMUTATIONS):
        shuffled = np.empty_like(weights)
        shuffled[np.argsort(prompts + rng.random(prompts.size))] = weights  # rows of a prompt stand together
        steps = _steps(shuffled[np.newaxis], *places)[0]
        found[index] = np.abs(steps).max()
        moments += steps**2
    return found, float(np.sqrt((moments / PERMUTATIONS).max()))


def _steps(weights: Values, order: np.ndarray, ends: np.ndarray) -> Values:
    """Difference of the two distributions at the end of each run of equal lengths."""
    return np.asarray(np.cumsum(weights[:, order], axis=1)[:, ends], dtype=np.float64)


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    if len(rows) <= ANSWERS_MOST:
        return rows
    each = max(2, ANSWERS_MOST // max(1, int(rows["prompt_id"].nunique()) * 2))
    return rows[(rows.groupby(["prompt_id", "mine"]).cumcount() < each).to_numpy(bool)]
