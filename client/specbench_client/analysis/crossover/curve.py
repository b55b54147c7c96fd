"""A curve of straight lines between measured places: where it passes through 0, and what it is if it only falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from specbench_client.metrics.frame import Values


@dataclass(frozen=True)
class Passage:
    """One place at which a curve passes through 0."""

    at: float
    falls: bool


def passages(x: Values, y: Values) -> list[Passage]:
    """Every place at which the curve changes sides, in order; 0 itself is on the lower side."""
    turns = np.flatnonzero((y[:-1] > 0) != (y[1:] > 0))
    return [
        Passage(float(x[left] + (x[left + 1] - x[left]) * y[left] / (y[left] - y[left + 1])), bool(y[left] > 0))
        for left in turns
    ]


def first_fall(x: Values, curves: Values) -> Values:
    """Return for each curve (curves × places) where it first comes down to 0.

    −inf where it begins at or below 0, +inf where it never comes down.
    """
    below = curves <= 0
    here = np.argmax(below, axis=1)
    before = np.maximum(here - 1, 0)
    rows = np.arange(len(curves))
    upper, lower = curves[rows, before], curves[rows, here]
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x[before] + (x[here] - x[before]) * upper / (upper - lower)
    return np.where(~below.any(axis=1), np.inf, np.where(below[:, 0], -np.inf, at))


def fallen(curves: Values, weights: Values) -> Values:
    """Return the nearest curves (curves × places) that never rise: weighted least squares (isotonic regression)."""
    rising = (np.diff(curves, axis=1) > 0).any(axis=1)
    found = curves.copy()
    for row in np.flatnonzero(rising):
        found[row] = optimize.isotonic_regression(curves[row], weights=weights, increasing=False).x
    return found
