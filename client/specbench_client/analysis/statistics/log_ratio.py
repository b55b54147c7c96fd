"""The log of a product of sums, each to the power of +1 or −1, with an interval that holds prompts and runs.

The interval holds both levels of chance, see `analysis.statistics.levels`: which prompts were asked, and, from three
repeats on, what the machine did in whole runs (requests that run together share steps, so prompts alone understate the
noise). A t interval over the repeats' own logs is taken where it is wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.statistics.bootstrap import LEVEL, Chosen, Layout, layout_of
from specbench_client.analysis.statistics.levels import Levels, interval, resampled
from specbench_client.metrics.frame import Values


@dataclass(frozen=True)
class LogRatio:
    """A log ratio and what its uncertainty was made of."""

    value: float
    prompts: int
    """Different prompts that it rests on."""
    samples: Values
    """Of each resample, spread about the value as chance in prompts is; not finite where one drew nothing."""
    repeats: Values
    """Which repeats there are."""
    runs: Values
    """Of each of these repeats alone."""
    chosen: Chosen | None
    """The interval that is reported, on the log; None where none can be given."""

    @property
    def told(self) -> bool:
        """Whether the interval holds what runs do, so that something may be claimed."""
        return self.chosen is not None and self.repeats.size >= REPEATS_TO_TELL

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of `the ratio is 1`, that belongs to the interval; None where nothing may be claimed."""
        if self.chosen is None or not self.told:
            return None
        reach = self.value - self.chosen.bounds.low if self.value > 0 else self.chosen.bounds.high - self.value
        if reach <= 0:
            return 1.0 if self.value == 0 else 0.0
        critical = special.stdtrit(self.chosen.freedom, 1 - (1 - LEVEL) / 2)
        return float(2 * special.stdtr(self.chosen.freedom, -critical * abs(self.value) / reach))

    def figure(self, definition: str, unit: str = "ratio", scale: float = 1.0) -> Figure:
        """As a figure on its own scale: scale × exp(log)."""
        return Figure(
            value=float(np.exp(self.value)) * scale,
            unit=unit,
            definition=definition,
            n=self.prompts,
            interval=exponential(self.chosen, scale) if self.chosen else None,
            source="both",
        )


def exponential(chosen: Chosen, scale: float = 1.0) -> FigureInterval:
    """Return an interval that was made on the log, on the figure's own scale: scale × exp(log)."""
    low, high = (float(np.exp(bound)) * scale for bound in (chosen.bounds.low, chosen.bounds.high))
    method = f"{chosen.method}, on the log ratio"
    return FigureInterval(low=low, high=high, level=LEVEL, method=method, freedom=float(chosen.freedom))


@dataclass(frozen=True)
class Laid:
    """Sums of some rows by repeat and prompt, of which one log ratio or several are made from one draw."""

    layout: Layout
    repeats: Values
    """Which repeats there are."""
    matrices: Mapping[str, Values]
    """Repeats × prompts, by the part's name."""
    seed: int

    @classmethod
    def of(cls, rows: pd.DataFrame, parts: Iterable[tuple[str, Values]], seed: int) -> Laid:
        """`rows`: repeat, prompt_id, category. `parts`: one number a row each, complete; one is held at a time."""
        layout = layout_of(rows)
        laid = {name: layout.matrix(values) for name, values in parts}
        return cls(layout, np.unique(rows["repeat"].to_numpy(np.float64)), laid, seed)

    def log_ratio(self, signs: Mapping[str, int]) -> LogRatio | None:
        """Return Σ sign × log(Σ part) over the parts that have a sign; None where a sum is not positive."""
        laid, signed = [self.matrices[name] for name in signs], list(signs.values())
        sums = np.array([matrix.sum() for matrix in laid])
        if (sums <= 0).any():
            return None
        value = float(_log(sums, signed))
        samples = _log(np.stack([self._drawn[name] for name in signs], axis=1), signed)
        runs = _log(np.stack([matrix.sum(axis=1) for matrix in laid], axis=1), signed)
        chosen = interval(Levels(value, samples, _influence(laid, signed), runs), self.layout)
        spread = value + (samples - value) * self.layout.inflation if chosen else samples
        return LogRatio(value, self.layout.prompts, spread, self.repeats, runs, chosen)

    @cached_property
    def _drawn(self) -> Mapping[str, Values]:
        """The sum of each part in every resample."""
        sums = resampled(list(self.matrices.values()), self.layout, self.seed)
        return dict(zip(self.matrices, sums.T, strict=True))


def log_ratio(rows: pd.DataFrame, parts: Sequence[Values], signs: Sequence[int], seed: int) -> LogRatio | None:
    """Return Σ sign × log(Σ part) over the rows; None without rows, or where a sum is not positive.

    `rows`: repeat, prompt_id, category. `parts`: one number a row each, complete.
    """
    if not len(rows):
        return None
    names = [f"{index}" for index in range(len(parts))]
    laid = Laid.of(rows, zip(names, parts, strict=True), seed)
    return laid.log_ratio(dict(zip(names, signs, strict=True)))


def _influence(laid: Sequence[Values], signs: Sequence[int]) -> Values:
    """How much each repeat × prompt moves the log; each part alone moves its own logarithm."""
    moved = [sign * matrix / matrix.sum() for sign, matrix in zip(signs, laid, strict=True)]
    return np.asarray(np.sum(moved, axis=0), dtype=np.float64)


def _log(sums: Values, signs: Sequence[int]) -> Values:
    """Over the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(sums) * np.array(signs)).sum(axis=-1), dtype=np.float64)
