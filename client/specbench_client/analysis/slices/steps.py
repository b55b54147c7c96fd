"""Slices of steps: acceptance length by class of place, with intervals by the prompt.

One draw of prompts serves all classes of a dimension. Prompts that have no step in a class are part of the draw and of
no sum: how many of the drawn prompts reach a class is chance, too. The interval (`analysis.statistics.levels`, as of
every other ratio: a class that holds all steps has the interval of the cell's own acceptance length) is expanded by the
number of prompts that do reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.slices import Slice
from specbench_client.analysis.estimates.figures import Sample, within
from specbench_client.analysis.slices.places import Dimension, Places, Steps
from specbench_client.analysis.statistics.bootstrap import Layout
from specbench_client.analysis.statistics.levels import Levels, interval, ratio_influence, resampled
from specbench_client.metrics.acceptance import EMITTED_POOLED, limited
from specbench_client.metrics.frame import Mask, Values

DEFINITION = "Acceptance length of the steps of this class: tokens that they emitted / these steps"


@dataclass(frozen=True)
class Class:
    """One class of a dimension: its label, its bounds where it is a range of tokens, and its number in `Places`."""

    code: int
    label: str
    low: int | None = None
    high: int | None = None


def ranges(lows: Sequence[int]) -> list[Class]:
    """Return the classes that begin at these numbers, each up to the next."""
    highs = [low - 1 for low in lows[1:]]
    closed = [
        Class(code, span(low, high), low, high) for code, (low, high) in enumerate(zip(lows, highs, strict=False))
    ]
    return [*closed, Class(len(lows) - 1, span(lows[-1], None), lows[-1])]


def span(low: int, high: int | None) -> str:
    """Return a range of tokens in words: `64–127`, `13,000 and more`."""
    return f"{low:,} and more" if high is None else f"{low:,}–{high:,}" if high > low else f"{low:,}"


def by_place(sample: Sample, steps: Steps, dimension: Dimension, classes: Sequence[Class], drafts: int) -> list[Slice]:
    """Return the slice of every class of this dimension that any step is in."""
    told = _summed(sample.layout, steps, dimension, classes)
    found, sums = [each for each in classes if each.code in told], list(told.values())
    if not found:
        return []
    samples: Sequence[Values] = [np.empty((0, 2))] * len(found)
    if sample.seed is not None:
        matrices = [matrix for each in sums for matrix in (each.tokens, each.steps)]
        drawn = resampled(matrices, sample.layout, sample.seed)
        samples = [drawn[:, 2 * index : 2 * index + 2] for index in range(len(found))]
    together = zip(found, sums, samples, strict=True)
    return [_slice(sample, each, summed, draws, drafts) for each, summed, draws in together]


@dataclass(frozen=True)
class _Sums:
    """Tokens and steps of one class by repeat × prompt, and how many requests have any."""

    tokens: Values
    steps: Values
    requests: int

    @property
    def prompts(self) -> Mask:
        reached: Mask = self.steps.sum(axis=0) > 0
        return reached

    def levels(self, value: float, draws: Values) -> Levels:
        """Of tokens over steps; influences of the prompts that reach the class. `draws`: both sums of each resample."""
        with np.errstate(divide="ignore", invalid="ignore"):
            samples, repeats = draws[:, 0] / draws[:, 1], self.tokens.sum(axis=1) / self.steps.sum(axis=1)
        reached = self.prompts
        return Levels(value, samples, ratio_influence(self.tokens[:, reached], self.steps[:, reached]), repeats)

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(self.tokens + other.tokens, self.steps + other.steps, self.requests + other.requests)


def _summed(layout: Layout, steps: Steps, dimension: Dimension, classes: Sequence[Class]) -> dict[int, _Sums]:
    """The sums of each class that any step is in, by its number and in the order of the classes."""
    found: dict[int, _Sums] = {}
    for piece in steps.pieces():
        codes = piece.of(dimension)
        for each in classes:
            mine = codes == each.code
            if mine.any():
                more = _sums_of(layout, piece, mine)
                found[each.code] = found[each.code] + more if each.code in found else more
    return {each.code: found[each.code] for each in classes if each.code in found}


def _sums_of(layout: Layout, piece: Places, mine: Mask) -> _Sums:
    rows = piece.row[mine]
    cells = layout.repeat_of[rows] * layout.prompts + layout.prompt_of[rows]
    shape = layout.repeats, layout.prompts
    tokens, steps = (
        np.bincount(cells, column[mine].astype(np.float64), shape[0] * shape[1]).astype(np.float64).reshape(shape)
        for column in (piece.tokens, piece.steps)
    )
    return _Sums(tokens, steps, int(np.unique(rows).size))


def _slice(sample: Sample, each: Class, sums: _Sums, draws: Values, drafts: int) -> Slice:
    value, prompts = float(sums.tokens.sum() / sums.steps.sum()), int(sums.prompts.sum())
    (ratio,) = limited([EMITTED_POOLED], drafts)
    chosen = interval(sums.levels(value, draws), sample.layout.among(sums.prompts)) if draws.size else None
    figure = Figure(
        value=value,
        unit=ratio.unit,
        definition=DEFINITION,
        n=prompts,
        interval=within(chosen, value, ratio) if chosen else None,
        source=sample.source(ratio.origin),
    )
    return Slice(
        label=each.label,
        low=each.low,
        high=each.high,
        steps=round(sums.steps.sum()),
        requests=sums.requests,
        prompts=prompts,
        figures={ratio.name: figure},
    )
