"""Effects: ratios on the log scale, with their intervals and p-values.

Every comparison is one: a speed-up over the baseline, an acceptance length needed to break even, a change between two
results, the gain of an arm. An effect has one interval, at `LEVEL`; a bound at another one-sided level is value ± t ×
standard error, and p-values invert the same formula, so a test rejects exactly if the bound does.

The interval of a product of sums, each to the power of +1 or −1, includes the variation between prompts and, from three
repeats on, that between whole runs, see `analysis.statistics.intervals`. (Requests that run at the same time share
steps, so prompts alone understate the noise.) A t interval over the repeats' own logs is used if it is wider.

The intervals of two figures from different requests are combined by MOVER (Zou and Donner 2008, "Construction of
confidence limits about effect measures: a general approach", Statistics in Medicine 27): the distance of each bound
from its value is its error, and the squares of errors are added. The gains of two arms over one baseline share that
baseline's noise, so the interval of their quotient is too wide rather than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from specbench_client.analysis.statistics.bootstrap import (
    ChosenInterval,
    IntervalBounds,
    ResamplingLayout,
    expanded_percentiles,
    why_no_interval,
)
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    ratio_influence,
    resample_sums,
    value_and_interval,
)
from specbench_client.analysis.statistics.level import LEVEL, t_quantile
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.numpy_columns import Values

MOVER = "MOVER on the log scale from the two intervals"


@dataclass(frozen=True)
class EffectDraws:
    """What joint replicates of several effects are drawn from (`analysis.curves.crossover`)."""

    samples: Values
    """The log ratio in each resample, shape (resamples,); not finite where a resample drew nothing."""
    repeats: Values
    """The numbers of the repeats, shape (repeats,)."""
    runs: Values
    """The log ratio in each single repeat, shape (repeats,)."""
    turns: Values | None
    """The order of the arms in each repeat, see `ResamplingLayout.turns`."""


@dataclass(frozen=True)
class Effect:
    """A log ratio with its interval and its sample size."""

    value: float
    units: int
    """Number of different prompts, or of repeats if these are the unit."""
    repeats: int
    """Number of repeats; of two results, the smaller one."""
    chosen: ChosenInterval | None = None
    """The interval on the log scale; None if there is none."""
    draws: EffectDraws | None = None
    """None for effects that were not computed from the requests of one run."""
    anytime: bool = False
    """Whether the interval is valid although the measurement stopped because of it."""
    anytime_p: float | None = None
    """The p-value that matches the confidence sequence over repeats; None without one."""
    prompts: IntervalBounds | None = None
    """Beside a confidence sequence: the interval over prompts alone, about the same value."""
    pooled: bool = False
    """Whether fewer repeats support a claim, because other arms' launches show how much launches differ."""
    launches: bool = False
    """Whether each repeat has launches of its own."""
    run_variance: float | None = None
    """Of two results: s1² + s2² of the repeats' own logs if repeats determine the interval; None if prompts do."""

    @property
    def supports_claim(self) -> bool:
        """Whether the interval includes the variation between runs, so that a claim is possible."""
        return self.chosen is not None and not self.too_few_repeats

    @property
    def too_few_repeats(self) -> str:
        """Why the repeats are too few for a claim; empty if they are not."""
        return "" if self.pooled else too_few_repeats(self.repeats)

    @property
    def missing(self) -> str:
        """Why the comparison is shown without an interval; empty if it has one."""
        return "" if self.supports_claim else self.too_few_repeats or why_no_interval(self.units)

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of "the ratio is 1" that matches the interval; None if no claim is possible."""
        if self.chosen is None or not self.supports_claim:
            return None
        of_bounds = min(1.0, 2 * min(self.p_below(0.0), self.p_above(0.0)))
        if self.anytime_p is None:
            return of_bounds
        return self.anytime_p if self.chosen.over_repeats else max(self.anytime_p, of_bounds)

    def with_errors(self, below: float, above: float, freedom: float, method: str) -> Effect:
        """Return the effect with the t interval of standard errors towards smaller and larger values."""
        critical = t_quantile(freedom)
        bounds = IntervalBounds(self.value - critical * below, self.value + critical * above)
        return replace(self, chosen=ChosenInterval(bounds, method, freedom))

    def low(self, confidence: float) -> float:
        """Return the one-sided lower bound; the effect must have an interval."""
        below, _, freedom = self._errors
        return self.value - float(scipy.special.stdtrit(freedom, confidence)) * below

    def high(self, confidence: float) -> float:
        """Return the one-sided upper bound; the effect must have an interval."""
        _, above, freedom = self._errors
        return self.value + float(scipy.special.stdtrit(freedom, confidence)) * above

    def p_below(self, limit: float) -> float:
        """One-sided p-value of "the true value is at the limit or above"; small if it is below."""
        _, above, freedom = self._errors
        return _p_value(limit - self.value, above, freedom)

    def p_above(self, limit: float) -> float:
        """One-sided p-value of "the true value is at the limit or below"; small if it is above."""
        below, _, freedom = self._errors
        return _p_value(self.value - limit, below, freedom)

    @property
    def distances(self) -> tuple[float, float]:
        """Distances of the lower and the upper bound from the value; infinite without an interval."""
        if self.chosen is None:
            return math.inf, math.inf
        return self.value - self.chosen.bounds.low, self.chosen.bounds.high - self.value

    @property
    def _errors(self) -> tuple[float, float, float]:
        """Standard errors towards smaller and larger values, which differ if it is skewed, and their freedom."""
        assert self.chosen is not None
        below, above = self.distances
        critical = t_quantile(self.chosen.freedom)
        return below / critical, above / critical, self.chosen.freedom

    def inverted(self) -> Effect:
        """Return the effect of the inverse ratio, without draws."""
        chosen = self.chosen
        if chosen is not None:
            chosen = replace(chosen, bounds=IntervalBounds(-chosen.bounds.high, -chosen.bounds.low))
        return replace(self, value=-self.value, chosen=chosen, draws=None, prompts=None)

    def interval(self, scale: float = 1.0) -> FigureInterval | None:
        """Return the interval on the figure's own scale: scale × exp(log)."""
        if self.chosen is None:
            return None
        low, high = (float(np.exp(bound)) * scale for bound in (self.chosen.bounds.low, self.chosen.bounds.high))
        method = f"{self.chosen.method}, on the log ratio"
        share = self.chosen.runs_share
        return FigureInterval(
            low=low,
            high=high,
            level=LEVEL,
            method=method,
            freedom=float(self.chosen.freedom),
            runs_share=share,
            runs=None if share is None else "launches" if self.launches else "repeats",
        )

    def figure(self, definition: str, unit: str = "ratio", scale: float = 1.0) -> Figure:
        """Return the figure on its own scale: scale × exp(log); it has an interval if that supports a claim."""
        return Figure(
            value=float(np.exp(self.value)) * scale,
            unit=unit,
            definition=f"{definition}; geometric mean over repeats" if self.anytime else definition,
            n=self.units,
            interval=self.interval(scale) if self.supports_claim else None,
            missing=self.missing,
            source="both",
        )


def _p_value(distance: float, error: float, freedom: float) -> float:
    if error <= 0:  # no noise at all, as in a simulation
        return 0.0 if distance > 0 else 1.0
    return float(scipy.special.stdtr(freedom, -distance / error))


# Products of sums over the requests of one run.


@dataclass(frozen=True)
class LogRatioInputs:
    """Sums of rows by repeat and prompt, from which several log ratios are computed with common draws."""

    layout: RowLayout
    matrices: Mapping[str, Values]
    """Sums of each part, shape (repeats, prompts), by its name."""
    seed: int

    @classmethod
    def of(cls, names: Iterable[str], sums: CellSums, seed: int) -> LogRatioInputs:
        """Build the inputs from the sums of the named parts, over the rows that have all of them."""
        layout, matrices = sums.among_known()
        return cls(layout, dict(zip(names, matrices, strict=True)), seed)

    def log_ratio(self, signs: Mapping[str, int]) -> Effect | None:
        """Return Σ sign × log(Σ part) over the parts that have a sign; None if a sum is not positive."""
        matrices, signed = [self.matrices[name] for name in signs], list(signs.values())
        sums = np.array([matrix.sum() for matrix in matrices])
        if (sums <= 0).any():
            return None
        value = float(log_of_product(sums, signed))
        samples = log_of_product(np.stack([self._drawn[name] for name in signs], axis=1), signed)
        runs = log_of_product(np.stack([matrix.sum(axis=1) for matrix in matrices], axis=1), signed)
        figure = ResampledFigure(value, samples, _influence(matrices, signed), runs)
        return resampled_effect(figure, self.layout, self.layout.repeat_numbers)

    def ratio(self, over: str, under: str) -> ResampledFigure:
        """Return Σ over / Σ under of two parts, with its resamples and influences."""
        first, second = self.matrices[over], self.matrices[under]
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = self._drawn[over] / self._drawn[under]
            repeats = first.sum(axis=1) / second.sum(axis=1)
        return ResampledFigure(float(first.sum() / second.sum()), samples, ratio_influence(first, second), repeats)

    @cached_property
    def _drawn(self) -> Mapping[str, Values]:
        """The sum of each part in every resample, shape (resamples,)."""
        sums = resample_sums(list(self.matrices.values()), self.layout, self.seed)
        return dict(zip(self.matrices, sums.T, strict=True))


def resampled_effect(figure: ResampledFigure, layout: ResamplingLayout, repeats: Values | None = None) -> Effect:
    """Return the effect of a log ratio with its resamples. `repeats`: their numbers, where not 0, 1 and so on."""
    value, chosen = value_and_interval(figure, layout)
    samples = value + (figure.samples - figure.value) * layout.inflation if chosen else figure.samples
    numbers = np.arange(layout.repeats, dtype=np.float64) if repeats is None else repeats
    draws = EffectDraws(samples, numbers, figure.repeats, layout.turns)
    effect = Effect(value, layout.prompts, layout.repeats, chosen, draws, layout.anytime, launches=layout.launches)
    if not layout.anytime:
        return effect
    prompts = expanded_percentiles(figure.value, figure.samples, layout)
    moved = prompts and IntervalBounds(*(bound - figure.value + value for bound in (prompts.low, prompts.high)))
    return replace(effect, anytime_p=anytime_p_value(figure.repeats, layout.turns) if chosen else None, prompts=moved)


def log_ratio(sums: CellSums, signs: Sequence[int], seed: int) -> Effect | None:
    """Return Σ sign × log(Σ part) over the rows with all parts; None without rows, or if a sum is not positive."""
    names = [f"{index}" for index in range(len(signs))]
    return LogRatioInputs.of(names, sums, seed).log_ratio(dict(zip(names, signs, strict=True)))


def _influence(matrices: Sequence[Values], signs: Sequence[int]) -> Values:
    """Influence of each (repeat, prompt) on the log ratio: that of each part on its own logarithm, summed."""
    moved = [sign * matrix / matrix.sum() for sign, matrix in zip(signs, matrices, strict=True)]
    return np.asarray(np.sum(moved, axis=0), dtype=np.float64)


def log_of_product(sums: Values, signs: Sequence[int]) -> Values:
    """Return Σ sign × log(sum) over the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(sums) * np.array(signs)).sum(axis=-1), dtype=np.float64)


# Effects of figures in documents.


def figure_effect(figure: Figure | None, repeats: int) -> Effect | None:
    """Return a figure as an effect; None if it has no positive value.

    The degrees of freedom of an interval that has none are n − 1, at least 1.
    """
    if figure is None or figure.value is None or figure.value <= 0:
        return None
    value, interval, chosen = math.log(figure.value), figure.interval, None
    if interval is not None:
        low = math.log(interval.low) if interval.low > 0 else -math.inf
        high = math.log(interval.high) if interval.high > 0 else -math.inf  # math.log(inf) is inf
        freedom = figure.n - 1 if interval.freedom is None else interval.freedom
        bounds = IntervalBounds(min(low, value), max(high, value))
        chosen = ChosenInterval(bounds, interval.method, max(1.0, freedom))
    # Comparisons have no interval where their repeats are too few.
    return Effect(value, figure.n, repeats, chosen, pooled=chosen is not None)


def combined_distances(over: Effect, under: Effect) -> tuple[float, float]:
    """Return the distances of the bounds of a quotient from its value, by MOVER."""
    (over_below, over_above), (under_below, under_above) = over.distances, under.distances
    return math.hypot(over_below, under_above), math.hypot(over_above, under_below)


def figure_ratio(over: Figure, under: Figure, definition: str) -> Figure | None:
    """Return the ratio of two figures that share no pairs; None if either has no positive value."""
    top, bottom = figure_effect(over, 0), figure_effect(under, 0)
    if top is None or bottom is None:
        return None
    value, (below, above) = top.value - bottom.value, combined_distances(top, bottom)
    bounds = None
    if math.isfinite(below) and math.isfinite(above):
        bounds = FigureInterval(low=math.exp(value - below), high=math.exp(value + above), level=LEVEL, method=MOVER)
    source = over.source if over.source == under.source else "both"
    n = min(over.n, under.n)
    missing = over.missing or under.missing
    return Figure(
        value=math.exp(value),
        unit="ratio",
        definition=definition,
        n=n,
        interval=bounds,
        missing=missing if bounds is None else "",
        source=source,
    )


def is_larger(better: Figure, other: Figure) -> bool:
    """Whether one gain is significantly larger than the other, both over the same baseline."""
    ratio = figure_ratio(better, other, "")
    return ratio is not None and ratio.interval is not None and ratio.interval.low > 1


def map_figure(figure: Figure, change: Callable[[float], float], unit: str, definition: str) -> Figure:
    """Return a monotone function of a figure, applied to its value and to its bounds."""
    if figure.value is None:
        return Figure(unit=unit, definition=definition, n=0, missing=figure.missing, source=figure.source)
    bounds, interval = figure.interval, None
    if bounds is not None and bounds.low > 0:  # the function may be undefined at 0 and below
        low, high = sorted((change(bounds.low), change(bounds.high)))
        interval = bounds.model_copy(update={"low": low, "high": high})
    return figure.model_copy(
        update={"value": change(figure.value), "unit": unit, "definition": definition, "interval": interval}
    )
