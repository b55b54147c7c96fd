"""Breakdowns of steps: acceptance length by class of position, context or part, with intervals over prompts.

All classes of a dimension use common draws of prompts. Prompts without a step in a class are part of the draw but of no
sum, because the number of drawn prompts that reach a class is random too. The interval is computed as for every other
ratio (`analysis.statistics.intervals`; a class with all steps has the interval of the cell's acceptance length), and is
expanded by the number of prompts that do reach the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specbench_api.outcome.breakdown import BreakdownSlice
from specbench_api.outcome.figure import Figure
from specbench_client.analysis.estimates.figures import SampleRows, clipped_interval
from specbench_client.analysis.statistics.bootstrap import ResamplingLayout
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    ratio_influence,
    resample_sums,
    two_level_interval,
)
from specbench_client.metrics.acceptance import EMITTED_POOLED, limit_to_drafts
from specbench_client.metrics.record_lists import REASONING, expand_classes
from specbench_client.metrics.rows import Columns, iter_pieces
from specbench_client.metrics.tidy_frame import Mask, Values, numbers, step_walks

# Steps are summed one piece of the rows at a time, to bound memory. The sums are integers, so they do not depend on how
# the rows are split.

Codes = NDArray[np.integer]
Dimension = Literal["position", "context", "part"]


@dataclass(frozen=True)
class StepPlaces:
    """Located steps, one entry per row and class, shape (entries,); see `metrics.record_lists`.

    `row` is the row's index in the cell.
    """

    row: Codes
    position: Codes
    context: Codes
    part: Codes
    steps: Codes
    tokens: Codes

    def of(self, dimension: Dimension) -> Codes:
        """Return the class of each entry in a dimension, shape (entries,)."""
        return {"position": self.position, "context": self.context, "part": self.part}[dimension]


@dataclass(frozen=True)
class PlacedSteps:
    """The located steps of steady tidy rows. `mask` is a mask, shape (rows,); None selects all rows."""

    rows: Columns
    mask: Mask | None = None

    def pieces(self) -> Iterator[StepPlaces]:
        """Yield the steps of one piece of the rows at a time."""
        start = 0
        for piece in iter_pieces(self.rows):
            size = len(piece)
            selected = (
                _rows_with_steps(piece)
                if self.mask is None
                else _rows_with_steps(piece) & self.mask[start : start + size]
            )
            yield _step_places(piece, selected, start)
            start += size

    def among(self, mask: Mask) -> PlacedSteps:
        """Return the steps of the rows selected by a mask over all rows."""
        return PlacedSteps(self.rows, mask)

    @cached_property
    def share(self) -> float | None:
        """Share of the rows with reported steps whose steps could be located; None if no row has them."""
        each = [(_rows_with_steps(piece), step_walks(piece).known) for piece in iter_pieces(self.rows)]
        total = sum(int(reported.sum()) for reported, _ in each)
        return sum(int((reported & located).sum()) for reported, located in each) / total if total else None

    @cached_property
    def has_reasoning(self) -> bool:
        """Whether any step is part of the reasoning."""
        return any(bool((piece.part == REASONING).any()) for piece in self.pieces())


def _rows_with_steps(rows: Columns) -> Mask:
    """Mask, shape (rows,), of the rows with reported steps and an acceptance that was not rejected."""
    reported: Mask = (numbers(rows, "steps") >= 1) & rows["acceptance_source"].notna().to_numpy(np.bool_)
    return reported


def _step_places(rows: Columns, selected: Mask, start: int) -> StepPlaces:
    """The steps of the rows selected by a mask; `start` is the index in the cell of the first row."""
    walks = step_walks(rows)
    codes, steps, tokens = (field[selected[walks.owner]] for field in walks.fields)
    return StepPlaces(walks.owner[selected[walks.owner]] + start, *expand_classes(codes), steps, tokens)


DEFINITION = "Acceptance length of the steps of this class: tokens emitted by these steps / number of these steps"


@dataclass(frozen=True)
class BreakdownClass:
    """One class of a dimension: its code in `StepPlaces`, its label, and its bounds if it is a range of tokens."""

    code: int
    label: str
    low: int | None = None
    high: int | None = None


def token_classes(lows: Sequence[int]) -> list[BreakdownClass]:
    """Return classes with these lower bounds, each up to the next one."""
    highs = [low - 1 for low in lows[1:]]
    closed = [
        BreakdownClass(code, token_range(low, high), low, high)
        for code, (low, high) in enumerate(zip(lows, highs, strict=False))
    ]
    return [*closed, BreakdownClass(len(lows) - 1, token_range(lows[-1], None), lows[-1])]


def token_range(low: int, high: int | None) -> str:
    """Format a range of tokens: `64–127`, `13,000 and more`."""
    return f"{low:,} and more" if high is None else f"{low:,}–{high:,}" if high > low else f"{low:,}"


def breakdown_by_place(
    sample: SampleRows, steps: PlacedSteps, dimension: Dimension, classes: Sequence[BreakdownClass], drafts: int
) -> list[BreakdownSlice]:
    """Return a slice for every class of this dimension that has any steps."""
    sums_by_code = _summed(sample.layout, steps, dimension, classes)
    found, sums = [each for each in classes if each.code in sums_by_code], list(sums_by_code.values())
    if not found:
        return []
    samples: Sequence[Values] = [np.empty((0, 2))] * len(found)
    if sample.seed is not None:
        matrices = [matrix for each in sums for matrix in (each.tokens, each.steps)]
        drawn = resample_sums(matrices, sample.layout, sample.seed)
        samples = [drawn[:, 2 * index : 2 * index + 2] for index in range(len(found))]
    together = zip(found, sums, samples, strict=True)
    return [_slice(sample, each, summed, draws, drafts) for each, summed, draws in together]


@dataclass(frozen=True)
class _ClassSums:
    """Tokens and steps of one class, shape (repeats, prompts), and the number of requests with any."""

    tokens: Values
    steps: Values
    requests: int

    @property
    def prompts(self) -> Mask:
        reached: Mask = self.steps.sum(axis=0) > 0
        return reached

    def resampled(self, value: float, draws: Values) -> ResampledFigure:
        """Return tokens / steps with its resamples, and influences of the prompts that reach the class.

        `draws` are both sums in each resample, shape (resamples, 2).
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            samples, repeats = draws[:, 0] / draws[:, 1], self.tokens.sum(axis=1) / self.steps.sum(axis=1)
        reached = self.prompts
        return ResampledFigure(
            value, samples, ratio_influence(self.tokens[:, reached], self.steps[:, reached]), repeats
        )

    def __add__(self, other: _ClassSums) -> _ClassSums:
        return _ClassSums(self.tokens + other.tokens, self.steps + other.steps, self.requests + other.requests)


def _summed(
    layout: ResamplingLayout, steps: PlacedSteps, dimension: Dimension, classes: Sequence[BreakdownClass]
) -> dict[int, _ClassSums]:
    """The sums of each class that has any steps, by its code and in the order of the classes."""
    found: dict[int, _ClassSums] = {}
    for piece in steps.pieces():
        codes = piece.of(dimension)
        for each in classes:
            mask = codes == each.code
            if mask.any():
                more = _sums_of(layout, piece, mask)
                found[each.code] = found[each.code] + more if each.code in found else more
    return {each.code: found[each.code] for each in classes if each.code in found}


def _sums_of(layout: ResamplingLayout, piece: StepPlaces, mask: Mask) -> _ClassSums:
    rows = piece.row[mask]
    cells = layout.repeat_of[rows] * layout.prompts + layout.prompt_of[rows]
    shape = layout.repeats, layout.prompts
    tokens, steps = (
        np.bincount(cells, column[mask].astype(np.float64), shape[0] * shape[1]).astype(np.float64).reshape(shape)
        for column in (piece.tokens, piece.steps)
    )
    return _ClassSums(tokens, steps, int(np.unique(rows).size))


def _slice(sample: SampleRows, each: BreakdownClass, sums: _ClassSums, draws: Values, drafts: int) -> BreakdownSlice:
    value, prompts = float(sums.tokens.sum() / sums.steps.sum()), int(sums.prompts.sum())
    (ratio,) = limit_to_drafts([EMITTED_POOLED], drafts)
    chosen = two_level_interval(sums.resampled(value, draws), sample.layout.among(sums.prompts)) if draws.size else None
    figure = Figure(
        value=value,
        unit=ratio.unit,
        definition=DEFINITION,
        n=prompts,
        interval=clipped_interval(chosen, value, ratio) if chosen else None,
        source=sample.source(ratio.origin),
    )
    return BreakdownSlice(
        label=each.label,
        low=each.low,
        high=each.high,
        steps=round(sums.steps.sum()),
        requests=sums.requests,
        prompts=prompts,
        figures={ratio.name: figure},
    )
