"""The log of a product of sums, each to the power of +1 or −1, with a two-level interval.

The interval includes the variation between prompts and, from three repeats on, that between whole runs, see
`analysis.statistics.intervals`. (Requests that run at the same time share steps, so prompts alone understate the
noise.) A t interval over the repeats' own logs is used if it is wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import MIN_REPEATS_TO_COMPARE
from specbench_client.analysis.statistics.bootstrap import LEVEL, ChosenInterval
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    ratio_influence,
    resample_sums,
    value_and_interval,
)
from specbench_client.analysis.statistics.p_values import interval_p_value
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout
from specbench_client.columns import Values


@dataclass(frozen=True)
class LogRatio:
    """A log ratio with the data of its uncertainty."""

    value: float
    prompts: int
    """Number of different prompts."""
    samples: Values
    """The log ratio in each resample, shape (resamples,); not finite where a resample drew nothing."""
    repeats: Values
    """The numbers of the repeats, shape (repeats,)."""
    runs: Values
    """The log ratio in each single repeat, shape (repeats,)."""
    chosen: ChosenInterval | None
    """The reported interval, on the log scale; None if there is none."""
    turns: Values | None = None
    """The order of the arms in each repeat, see `ResamplingLayout.turns`."""
    anytime: bool = False
    """Whether the interval is valid although the measurement stopped because of it."""

    @property
    def supports_claim(self) -> bool:
        """Whether the interval includes the variation between runs, so that a claim is possible."""
        return self.chosen is not None and self.repeats.size >= MIN_REPEATS_TO_COMPARE

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of "the ratio is 1" that matches the interval; None if no claim is possible."""
        if self.chosen is None or not self.supports_claim:
            return None
        if self.anytime:
            return anytime_p_value(self.runs, self.turns)
        return interval_p_value(self.value, self.chosen.bounds, self.chosen.freedom)

    def figure(self, definition: str, unit: str = "ratio", scale: float = 1.0) -> Figure:
        """Return the figure on its own scale: scale × exp(log)."""
        return Figure(
            value=float(np.exp(self.value)) * scale,
            unit=unit,
            definition=f"{definition}; geometric mean over repeats" if self.anytime else definition,
            n=self.prompts,
            interval=exponentiated_interval(self.chosen, scale) if self.chosen else None,
            source="both",
        )


def exponentiated_interval(chosen: ChosenInterval, scale: float = 1.0) -> FigureInterval:
    """Convert an interval on the log scale to the figure's scale: scale × exp(log)."""
    low, high = (float(np.exp(bound)) * scale for bound in (chosen.bounds.low, chosen.bounds.high))
    method = f"{chosen.method}, on the log ratio"
    return FigureInterval(low=low, high=high, level=LEVEL, method=method, freedom=float(chosen.freedom))


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

    def log_ratio(self, signs: Mapping[str, int]) -> LogRatio | None:
        """Return Σ sign × log(Σ part) over the parts that have a sign; None if a sum is not positive."""
        matrices, signed = [self.matrices[name] for name in signs], list(signs.values())
        sums = np.array([matrix.sum() for matrix in matrices])
        if (sums <= 0).any():
            return None
        value = float(log_of_product(sums, signed))
        samples = log_of_product(np.stack([self._drawn[name] for name in signs], axis=1), signed)
        runs = log_of_product(np.stack([matrix.sum(axis=1) for matrix in matrices], axis=1), signed)
        return self._reported(ResampledFigure(value, samples, _influence(matrices, signed), runs))

    def ratio(self, over: str, under: str) -> ResampledFigure:
        """Return Σ over / Σ under of two parts, with its resamples and influences."""
        first, second = self.matrices[over], self.matrices[under]
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = self._drawn[over] / self._drawn[under]
            repeats = first.sum(axis=1) / second.sum(axis=1)
        return ResampledFigure(float(first.sum() / second.sum()), samples, ratio_influence(first, second), repeats)

    def _reported(self, figure: ResampledFigure) -> LogRatio:
        value, layout = figure.value, self.layout
        reported, chosen = value_and_interval(figure, layout)
        spread = reported + (figure.samples - value) * layout.inflation if chosen else figure.samples
        numbers = layout.repeat_numbers
        return LogRatio(reported, layout.prompts, spread, numbers, figure.repeats, chosen, layout.turns, layout.anytime)

    @cached_property
    def _drawn(self) -> Mapping[str, Values]:
        """The sum of each part in every resample, shape (resamples,)."""
        sums = resample_sums(list(self.matrices.values()), self.layout, self.seed)
        return dict(zip(self.matrices, sums.T, strict=True))


def log_ratio(sums: CellSums, signs: Sequence[int], seed: int) -> LogRatio | None:
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
