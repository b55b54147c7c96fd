"""Resampling with the prompt as the unit: first repeats, then prompts.

The same prompts come back in every repeat, so one draw of prompts serves all the repeats of a resample. Drawing them
anew in each repeat would average a prompt's own character away as if it were noise, and give intervals that are too
narrow. Prompts are drawn within their category where every category has at least `STRATUM_MIN` of them: the mix of
categories is the workload's design, not chance. Requests are never drawn: those of one prompt are not independent, and
neither are steps.

A percentile interval from few units is too narrow; it is expanded by t / z × √(n / (n − strata)) (Hesterberg 2015,
"What Teachers Should Know About the Bootstrap", the expanded percentile interval). One prompt or two give no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.statistics.draws import Codes, Draw, sums
from specbench_client.analysis.statistics.draws import draws as draws_of
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.rows import Columns

LEVEL = 0.95
RESAMPLES = 2000
STRATUM_MIN = 5
PROMPTS_MIN = 3
"""Two prompts make three different resamples, or one where they are alike: `[x, x]` would look like certainty."""
FINITE_SHARE = 0.95
"""An interval needs so many of its resamples to have a value; else too little is known to say anything."""

_LEFT_OUT = {
    1: "; one run: the noise between runs is not in it, only that of the prompts",
    2: "; two runs: the noise between runs is hardly in it, and it holds the truth less often than its level says",
}


@dataclass(frozen=True)
class Bounds:
    """An interval on whatever scale its samples had."""

    low: float
    high: float


@dataclass(frozen=True)
class Layout:
    """Which repeat and which prompt each row belongs to, and the stratum of each prompt."""

    repeat_of: Codes
    prompt_of: Codes
    stratum_of: Codes
    repeats: int
    prompts: int
    weight_of: Values | None = None
    """How much more each prompt counts in a figure than it was asked, on any scale; None: as it was asked."""

    @property
    def freedom(self) -> float:
        """Degrees of freedom of chance in prompts: n − strata, and fewer where some prompts count more than others.

        Fewer by as much as Satterthwaite's for Σ v² × variance of a prompt, v its weight, over those for equal weights.
        """
        whole = float(self.prompts - self.strata)
        if self.weight_of is None:
            return whole
        return whole * self._satterthwaite(self.weight_of) / self._satterthwaite(np.ones(self.prompts))

    @property
    def inflation(self) -> float:
        """By how much the standard deviation of resamples is too small: they know each stratum's mean exactly."""
        squares = np.ones(self.prompts) if self.weight_of is None else self.weight_of**2
        sizes = self._sizes
        known = np.bincount(self.stratum_of, squares) * (sizes - 1) / sizes
        return float(np.sqrt(squares.sum() / known.sum()))

    @property
    def _sizes(self) -> Values:
        return np.bincount(self.stratum_of).astype(np.float64)

    def _satterthwaite(self, weights: Values) -> float:
        sizes, squares = self._sizes, weights**2
        return float(squares.sum() ** 2 / (np.bincount(self.stratum_of, squares**2) * sizes / (sizes - 1)).sum())

    @property
    def strata(self) -> int:
        return int(self.stratum_of.max()) + 1 if self.prompts else 0

    @property
    def stratified(self) -> bool:
        return self.strata > 1

    def matrix(self, values: Values) -> Values:
        """Return the sums of a row's value by repeat × prompt."""
        cells = self.repeat_of * self.prompts + self.prompt_of
        sums = np.bincount(cells, weights=values, minlength=self.repeats * self.prompts)
        return np.asarray(sums, dtype=np.float64).reshape(self.repeats, self.prompts)

    def among(self, prompts: Mask) -> Layout:
        """Return the layout of these prompts and their rows alone, with as many repeats as before."""
        rows, numbered = prompts[self.prompt_of], np.cumsum(prompts) - 1
        strata, many = _told_apart(self.stratum_of[prompts]), int(prompts.sum())
        weights = None if self.weight_of is None else self.weight_of[prompts]
        return Layout(self.repeat_of[rows], numbered[self.prompt_of[rows]], strata, self.repeats, many, weights)


def layout_of(rows: Columns) -> Layout:
    """Read the layout from the columns repeat, prompt_id and category."""
    repeat_of, repeats = pd.factorize(rows["repeat"], sort=True)
    prompt_of, prompts = pd.factorize(rows["prompt_id"], sort=True)
    firsts = _firsts(rows["category"], prompt_of, len(prompts))
    strata, _ = pd.factorize(firsts, use_na_sentinel=False)
    stratum_of = _told_apart(np.asarray(strata, dtype=np.intp))
    return Layout(np.asarray(repeat_of), np.asarray(prompt_of), stratum_of, len(repeats), len(prompts))


def _firsts(categories: pd.Series, prompt_of: Codes, prompts: int) -> NDArray[np.object_]:
    """The category of each prompt, the first that is known; None where none is."""
    known = np.flatnonzero(categories.notna().to_numpy(np.bool_) & (prompt_of >= 0))
    told, firsts = np.unique(prompt_of[known], return_index=True)
    found = np.full(prompts, None, dtype=np.object_)
    found[told] = categories.to_numpy(object)[known[firsts]]
    return found


def _told_apart(strata: Codes) -> Codes:
    """The strata, numbered without gaps; one for all where one of them is too small to be drawn within."""
    _, numbered = np.unique(strata, return_inverse=True)
    if strata.size and np.bincount(numbered).min() < STRATUM_MIN:
        return np.zeros(strata.size, dtype=np.intp)
    return np.asarray(numbered, dtype=np.intp)


def draws(layout: Layout, seed: int, resamples: int) -> Iterator[Draw]:
    """Yield blocks of draws: how often each repeat, and each prompt, was drawn in each resample."""
    return draws_of(layout.stratum_of, layout.repeats, seed, resamples)


def resampled_sums(matrices: Sequence[Values], layout: Layout, seed: int) -> Values:
    """Return, for each resample, the sum over each matrix: resamples × matrices. One draw serves all of them."""
    return sums(matrices, layout.stratum_of, seed, RESAMPLES)


def expanded(value: float, samples: Values, layout: Layout) -> Bounds | None:
    """Return the expanded percentile interval about the value, or None where nothing can be said."""
    finite = samples[np.isfinite(samples)]
    if layout.prompts < PROMPTS_MIN or finite.size < FINITE_SHARE * samples.size:
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.percentile(finite, [100 * tail, 100 * (1 - tail)])
    stretch = expansion(layout)
    return Bounds(float(value + (low - value) * stretch), float(value + (high - value) * stretch))


def expansion(layout: Layout) -> float:
    """Return by how much a percentile interval of so few prompts is to be widened; there must be more than strata."""
    upper = 1 - (1 - LEVEL) / 2
    return float(special.stdtrit(layout.freedom, upper) / special.ndtri(upper)) * layout.inflation


def t_bounds(value: float, repeats: Values) -> Bounds | None:
    """Return value ± t × standard error over the repeats' own values, or None for fewer than three."""
    if repeats.size < REPEATS_TO_TELL or not np.isfinite(repeats).all():
        return None
    half = float(special.stdtrit(repeats.size - 1, 1 - (1 - LEVEL) / 2) * repeats.std(ddof=1) / np.sqrt(repeats.size))
    return Bounds(value - half, value + half)


@dataclass(frozen=True)
class Chosen:
    """The wider of two intervals, how it was made, and its degrees of freedom."""

    bounds: Bounds
    method: str
    freedom: float
    over_repeats: bool = False
    """Whether it is the t interval over repeats, and not the bootstrap."""
    runs_error: float = 0.0
    """Standard error through whole repeats, where it was added to that through prompts."""


def wider(prompts: Bounds | None, runs: Bounds | None, layout: Layout) -> Chosen | None:
    """Choose. Without the prompts' interval there is none: runs alone say nothing of other prompts."""
    if prompts is None:
        return None
    if runs is None or runs.high - runs.low <= prompts.high - prompts.low:
        return Chosen(prompts, describe(layout), layout.freedom)
    method = f"t, unit: repeat; over the values of {layout.repeats} repeats; wider than the bootstrap over prompts"
    return Chosen(runs, method, layout.repeats - 1, over_repeats=True)


def describe(layout: Layout) -> str:
    """Say how an interval by `draws` was made."""
    within = " within categories" if layout.stratified else ""
    levels = f"{layout.repeats} repeats, then of " if layout.repeats > 1 else ""
    return (
        f"bootstrap, unit: prompt; {RESAMPLES} resamples of {levels}{layout.prompts} prompts{within},"
        f" expanded percentiles{_LEFT_OUT.get(layout.repeats, '')}"
    )
