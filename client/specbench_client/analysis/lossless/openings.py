"""How answers begin: frequencies of the first token (or word) of arm and baseline, by permutation within prompts.

The statistic is the mean over prompts of an unbiased estimate of Σ (p − q)², the squared distance of two frequency
vectors: 2 P(a ≠ b) − P(a ≠ a′) − P(b ≠ b′), each without bias from counts. Where labels may be exchanged within a
prompt, its permutations are its null distribution, exactly, however few answers a prompt has.

It is told as the share δ of answers that would have to begin with something the baseline never says to be as far apart:
then Σ (p − q)² = δ² (1 + Σ p²). So is the smallest difference that would have been found: δ where the statistic's
expectation lies (z(0.95) + z(0.8)) permutation standard deviations above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from specbench_client.metrics.frame import Values

PERMUTATIONS = 1999
LEVEL, POWER = 0.05, 0.8
ANSWERS_MIN = 2
"""Of each side and prompt: one answer says nothing of its own spread."""


@dataclass(frozen=True)
class Tested:
    """A difference, its p-value, the smallest that would have been found, and how many prompts it rests on."""

    difference: float
    p_value: float
    detectable: float
    prompts: int


def opening_test(mine: pd.DataFrame, base: pd.DataFrame, seed: int) -> Tested | None:
    """Test one against the other. Columns: prompt_id, opening. None where no prompt has two answers of each."""
    rng = np.random.default_rng(seed)
    observed, permuted, alike = list[float](), list[Values](), list[float]()
    for _, ours, theirs in _counts(mine, base):
        observed.append(float(_distance(ours[np.newaxis], theirs[np.newaxis])[0]))
        both = ours + theirs
        drawn = rng.multivariate_hypergeometric(both, int(ours.sum()), size=PERMUTATIONS, method="marginals")
        permuted.append(_distance(drawn, both - drawn))
        alike.append(float((both * (both - 1)).sum() / (both.sum() * (both.sum() - 1))))
    if not observed:
        return None
    value, null = float(np.mean(observed)), np.mean(permuted, axis=0)
    scale = 1 + float(np.mean(alike))
    far = float(special.ndtri(1 - LEVEL) + special.ndtri(POWER)) * float(null.std())
    p_value = (1 + int((null >= value - 1e-12).sum())) / (1 + PERMUTATIONS)
    return Tested(_share(value, scale), p_value, _share(far, scale), len(observed))


def _share(distance: float, scale: float) -> float:
    return float(min(1.0, np.sqrt(max(0.0, distance) / scale)))


def _counts(mine: pd.DataFrame, base: pd.DataFrame) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """By prompt: how often each opening is on either side, where both have enough."""
    sides = [rows.groupby(["prompt_id", "opening"]).size() for rows in (mine, base)]
    table = pd.concat(sides, axis=1, keys=["mine", "base"]).fillna(0).astype(np.int64)
    found = []
    for prompt, rows in table.groupby(level=0):
        ours, theirs = rows["mine"].to_numpy(), rows["base"].to_numpy()
        if min(ours.sum(), theirs.sum()) >= ANSWERS_MIN:
            found.append((str(prompt), ours, theirs))
    return found


def _distance(ours: np.ndarray, theirs: np.ndarray) -> Values:
    """Unbiased Σ (p − q)² of each row of counts."""
    many, others = ours.sum(axis=1), theirs.sum(axis=1)
    within = (ours * (ours - 1)).sum(axis=1) / (many * (many - 1))
    within_base = (theirs * (theirs - 1)).sum(axis=1) / (others * (others - 1))
    return np.asarray(within + within_base - 2 * (ours * theirs).sum(axis=1) / (many * others), dtype=np.float64)
