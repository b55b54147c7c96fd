"""Bootstrap with the prompt as the unit: first repeats are resampled, then prompts.

The same prompts are sent in every repeat, so one draw of prompts is used for all the repeats of a resample. Drawing
them separately in each repeat would average out differences between prompts as if they were noise, and give intervals
that are too narrow. Prompts are drawn within their category if every category has at least `STRATUM_MIN` of them: the
mix of categories is the workload's design, not chance. Requests and steps are never drawn, because those of one prompt
are not independent.

A percentile interval from few units is too narrow; it is expanded by t / z × √(n / (n − strata)) (Hesterberg 2015,
"What Teachers Should Know About the Bootstrap", the expanded percentile interval). One or two prompts give no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specbench_client.analysis.statistics.level import LEVEL, TAIL, Z, t_quantile
from specbench_client.documents.figure import counted
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.numpy_columns import Mask, Values

# All figures of a cell use the same draws, which follow from the seed and the layout. So they are drawn once and
# cached, with one byte per unit and resample, unless there are too many. A sum over a resample is a matrix product with
# these counts. Both are computed in pieces, so that at most `PIECE_VALUES` numbers are widened to 8 bytes at a time.

Codes = NDArray[np.intp]
DrawCounts = NDArray[np.uint8]
"""Shape (resamples, units): how often each was drawn. The mean is 1, so a count never reaches 256."""
ResampleDraw = tuple[DrawCounts, DrawCounts]
"""How often each repeat, and each prompt, was drawn, over the same resamples."""

BLOCK_VALUES = 4_000_000
"""Counts per block of draws. It determines the order of random numbers, and so the draws themselves."""
PIECE_VALUES = 500_000
"""Counts that are widened to 8 bytes at a time: some MB."""
CACHED_VALUES = 24_000_000
"""Maximum number of cached counts, of one byte each; beyond it they are drawn again for each figure."""


def draw_resamples(strata: Codes, repeats: int, seed: int, resamples: int) -> Iterator[ResampleDraw]:
    """Yield blocks of draws of the repeats, and of prompts within their strata; `strata` has the shape (prompts,)."""
    rng = np.random.default_rng(seed)
    block = max(1, min(resamples, BLOCK_VALUES // max(1, strata.size)))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        prompts = np.zeros((size, strata.size), dtype=np.uint8)
        for stratum in range(int(strata.max(initial=-1)) + 1):
            members = np.flatnonzero(strata == stratum)
            prompts[:, members] = draw_counts(rng, members.size, size)
        yield draw_counts(rng, repeats, size), prompts


def draw_counts(rng: np.random.Generator, units: int, size: int) -> DrawCounts:
    """Return how often each unit is drawn with replacement, `size` times over; shape (size, units)."""
    counts = np.empty((size, units), dtype=np.uint8)
    for start, stop in _pieces(size, units):
        rows = np.arange(stop - start)[:, np.newaxis] * units
        picks = (rng.integers(0, units, size=(stop - start, units)) + rows).ravel()
        counts[start:stop] = np.bincount(picks, minlength=(stop - start) * units).reshape(-1, units)
    return counts


def draw_and_sum(matrices: Sequence[Values], strata: Codes, seed: int, resamples: int) -> Values:
    """Return the sum over each (repeats, prompts) matrix in each resample, shape (resamples, matrices)."""
    repeats = matrices[0].shape[0]
    flat = np.concatenate(matrices)
    return np.concatenate(
        [_block_sums(block, flat, len(matrices)) for block in _blocks(strata, repeats, seed, resamples)]
    )


def _blocks(strata: Codes, repeats: int, seed: int, resamples: int) -> Iterator[ResampleDraw]:
    if strata.size * resamples > CACHED_VALUES:
        return draw_resamples(strata, repeats, seed, resamples)
    return iter(_cached_draws(strata.tobytes(), repeats, seed, resamples))


@lru_cache(maxsize=2)
def _cached_draws(strata: bytes, repeats: int, seed: int, resamples: int) -> tuple[ResampleDraw, ...]:
    return tuple(draw_resamples(np.frombuffer(strata, dtype=np.intp), repeats, seed, resamples))


def _block_sums(block: ResampleDraw, flat: Values, matrices: int) -> Values:
    """Sums of one block; `flat` are the rows of all matrices, (matrices × repeats, prompts)."""
    repeats, prompts = block
    sums = np.empty((len(prompts), matrices))
    for start, stop in _pieces(*prompts.shape):
        each = (prompts[start:stop].astype(np.float64) @ flat.T).reshape(stop - start, matrices, -1)
        sums[start:stop] = (each * repeats[start:stop, np.newaxis, :]).sum(axis=2)
    return sums


def _pieces(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield row ranges with at most `PIECE_VALUES` numbers, but at least one row."""
    step = max(1, PIECE_VALUES // max(1, columns))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


RESAMPLES = 2000
STRATUM_MIN = 5
PROMPTS_MIN = 3
"""Two prompts give three different resamples, or only one if they are equal: `[x, x]` would look like certainty."""
NO_INTERVAL = "no interval"
FINITE_SHARE = 0.95
"""An interval requires this share of its resamples to have a value."""

_LIMITATIONS = {
    1: "; one repeat: it includes the variation between prompts, but not that between runs",
    2: "; two repeats: it hardly includes the variation between runs, and covers the true value less often than"
    f" {LEVEL:.0%}",
}


def why_no_interval(prompts: int) -> str:
    """Return why no interval could be computed over so many prompts: `2 prompts: no interval`."""
    return f"{counted(prompts, 'prompt')}: {NO_INTERVAL}" if prompts < PROMPTS_MIN else NO_INTERVAL


@dataclass(frozen=True)
class IntervalBounds:
    """An interval on the scale of its samples."""

    low: float
    high: float


@dataclass(frozen=True)
class ResamplingLayout:
    """What is drawn: repeats, and prompts within strata. `stratum_of`: the stratum of each prompt, shape (prompts,)."""

    stratum_of: Codes
    repeats: int
    prompts: int
    weight_of: Values | None = None
    """Weight of each prompt relative to how often it was sent, shape (prompts,), on any scale; None for equal."""
    turns: Values | None = None
    """+1 or −1 for the order of the arms in each repeat, shape (repeats,); None if it is not known or never changes."""
    anytime: bool = False
    """Whether the number of repeats may depend on their values, so that only a confidence sequence is valid."""
    launches: bool = False
    """Whether each repeat has launches of its own."""

    @property
    def runs_freedom(self) -> int:
        """Degrees of freedom of the variation between repeats."""
        return runs_freedom(self.repeats, self.turns)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the prompts' variation: n − strata, and fewer if prompts have different weights.

        The reduction is Satterthwaite's number for Σ v² × variance of a prompt with weights v, relative to
        equal weights.
        """
        whole = float(self.prompts - self.strata)
        if self.weight_of is None:
            return whole
        return whole * self._satterthwaite(self.weight_of) / self._satterthwaite(np.ones(self.prompts))

    @property
    def inflation(self) -> float:
        """Factor that corrects the resamples' standard deviation, since resampling fixes each stratum's mean.

        1 if every stratum has a single prompt: how prompts vary is then unknown.
        """
        squares = np.ones(self.prompts) if self.weight_of is None else self.weight_of**2
        sizes = self._sizes
        known = np.bincount(self.stratum_of, squares) * (sizes - 1) / sizes
        return float(np.sqrt(squares.sum() / known.sum())) if known.any() else 1.0

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

    def among(self, prompts: Mask) -> ResamplingLayout:
        """Return the layout of the prompts selected by a mask, shape (prompts,), with the same number of repeats."""
        weights = None if self.weight_of is None else self.weight_of[prompts]
        strata = number_strata(self.stratum_of[prompts])
        return ResamplingLayout(
            strata, self.repeats, int(prompts.sum()), weights, self.turns, self.anytime, self.launches
        )


def number_strata(strata: Codes) -> Codes:
    """Number the strata without gaps; use a single stratum if one of them is too small to draw within."""
    _, numbered = np.unique(strata, return_inverse=True)
    if strata.size and np.bincount(numbered).min() < STRATUM_MIN:
        return np.zeros(strata.size, dtype=np.intp)
    return np.asarray(numbered, dtype=np.intp)


def two_level_sums(matrices: Sequence[Values], layout: ResamplingLayout, seed: int) -> Values:
    """Return the sum over each matrix in each resample, shape (resamples, matrices), from common draws.

    Repeats are drawn as well as prompts.
    """
    return draw_and_sum(matrices, layout.stratum_of, seed, RESAMPLES)


def expanded_percentiles(value: float, samples: Values, layout: ResamplingLayout) -> IntervalBounds | None:
    """Return the expanded percentile interval of the value, or None if there are too few prompts or finite samples."""
    finite = samples[np.isfinite(samples)]
    if layout.prompts < PROMPTS_MIN or finite.size < FINITE_SHARE * samples.size:
        return None
    low, high = np.percentile(finite, [100 * TAIL, 100 * (1 - TAIL)])
    stretch = expansion_factor(layout)
    return IntervalBounds(float(value + (low - value) * stretch), float(value + (high - value) * stretch))


def expansion_factor(layout: ResamplingLayout) -> float:
    """Return the factor by which a percentile interval is widened; there must be more prompts than strata."""
    return t_quantile(layout.freedom) / Z * layout.inflation


def is_balanced(turns: Values | None) -> bool:
    """Return whether both orders of the arms are equally frequent, at least twice each (see `deviations`)."""
    return turns is not None and turns.size >= 4 and not turns.sum()


def runs_freedom(repeats: int, turns: Values | None) -> int:
    """Return the degrees of freedom between repeats: the effect of their order (`deviations`) costs one."""
    return repeats - (2 if is_balanced(turns) else 1)


def runs_variance(repeats: Values, turns: Values | None) -> float:
    """Return the variance of a single repeat's value; `repeats` has the shape (repeats,)."""
    return float((deviations(repeats, turns) ** 2).sum()) / runs_freedom(repeats.size, turns)


def order_note(turns: Values | None) -> str:
    """Return what an interval's method says about the order of the arms; empty if its effect was not removed."""
    return ", without the drift between their two orders" if is_balanced(turns) else ""


def deviations(repeats: Values, turns: Values | None) -> Values:
    """Return how much each repeat's value deviates from their mean, shape (repeats,).

    If the arms change their order between repeats (ABBA), a drift of the machine moves the values up and down in turn.
    It cancels in the mean, but would look like noise. So it is estimated, which costs a degree of freedom, and removed:
    the period effect of a crossover trial (Jones and Kenward 2014, "Design and Analysis of Cross-Over Trials").
    """
    found = repeats - repeats.mean()
    if turns is None or not is_balanced(turns):
        return np.asarray(found, dtype=np.float64)
    return np.asarray(found - turns * (turns * found).mean(), dtype=np.float64)


def t_bounds(value: float, repeats: Values, turns: Values | None = None) -> IntervalBounds | None:
    """Return value ± t × standard error over the values of single repeats, or None for fewer than three repeats."""
    if repeats.size < MIN_REPEATS_TO_COMPARE or not np.isfinite(repeats).all():
        return None
    quantile = t_quantile(runs_freedom(repeats.size, turns))
    half = float(quantile * np.sqrt(runs_variance(repeats, turns) / repeats.size))
    return IntervalBounds(value - half, value + half)


@dataclass(frozen=True)
class ChosenInterval:
    """The wider of two intervals, how it was computed, and its degrees of freedom."""

    bounds: IntervalBounds
    method: str
    freedom: float
    over_repeats: bool = False
    """Whether it is the t interval over repeats, not the bootstrap interval."""
    runs_error: float = 0.0
    """Standard error between whole repeats, if it was added to that between prompts."""
    runs_share: float | None = None
    """`FigureInterval.runs_share`; None if the parts were not separated."""


def wider_interval(
    prompts: IntervalBounds | None, runs: IntervalBounds | None, layout: ResamplingLayout
) -> ChosenInterval | None:
    """Choose the wider interval; None without the prompts' one, as repeats do not generalise to other prompts."""
    if prompts is None:
        return None
    if runs is None or runs.high - runs.low <= prompts.high - prompts.low:
        return ChosenInterval(prompts, describe_bootstrap(layout), layout.freedom)
    return interval_over_repeats(runs, layout, "wider than the bootstrap over prompts")


def interval_over_repeats(runs: IntervalBounds, layout: ResamplingLayout, reason: str) -> ChosenInterval:
    """Return the t interval over the values of single repeats, with the reason for its choice."""
    method = f"t, unit: repeat; over the values of {layout.repeats} repeats{order_note(layout.turns)}; {reason}"
    return ChosenInterval(runs, method, layout.runs_freedom, over_repeats=True)


def describe_bootstrap(layout: ResamplingLayout) -> str:
    """Describe how a bootstrap interval over this layout is computed."""
    within = " within categories" if layout.stratified else ""
    levels = f"{layout.repeats} repeats, then of " if layout.repeats > 1 else ""
    return (
        f"bootstrap, unit: prompt; {RESAMPLES} resamples of {levels}{layout.prompts} prompts{within},"
        f" expanded percentiles{_LIMITATIONS.get(layout.repeats, '')}"
    )
