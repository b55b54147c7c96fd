"""Breakdowns of a cell's steps and requests by position, context, part, length and turn, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specbench_client.analysis.estimates.cell_figures import (
    SampleRows,
    figure_interval,
    ratio_figures,
)
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    ratio_influence,
    resample_sums,
    two_level_interval,
)
from specbench_client.analysis.statistics.percentiles import percentiles_of
from specbench_client.analysis.statistics.row_layout import RowLayout
from specbench_client.documents.breakdown import Breakdown, BreakdownSlice, LengthClass, RequestDistribution
from specbench_client.documents.figure import Figure
from specbench_client.metrics import acceptance, time_per_token
from specbench_client.metrics.acceptance import EMITTED_POOLED, limit_to_drafts
from specbench_client.metrics.chunks_and_steps import ANSWER, CONTEXTS, POSITIONS, REASONING, expand_classes
from specbench_client.metrics.latency import TTFT_MS
from specbench_client.metrics.metric_types import RatioMetric, mean_metric
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import any_known, numbers, piecewise, steady_rows
from specbench_client.numpy_columns import Mask, Values

# All classes of a dimension use common draws of prompts. Prompts without a step in a class are part of the draw but of
# no sum, because the number of drawn prompts that reach a class is random too. The interval is computed as for every
# other ratio (`analysis.statistics.intervals`; a class with all steps has the interval of the cell's acceptance
# length), and is expanded by the number of prompts that do reach the class.

# Steps are summed one piece of the rows at a time, to bound memory. The sums are integers, so they do not depend on how
# the rows are split.

Codes = NDArray[np.integer]
Dimension = Literal["position", "context", "part"]


@dataclass(frozen=True)
class StepPlaces:
    """Located steps, one entry per row and class, shape (entries,); see `metrics.chunks_and_steps`.

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

    rows: Table
    mask: Mask | None = None

    def pieces(self) -> Iterator[StepPlaces]:
        """Yield the steps of one piece of the rows at a time."""
        start = 0
        for piece in self.rows.pieces():
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
        each = [(_rows_with_steps(piece), piece.known("walk")) for piece in self.rows.pieces()]
        total = sum(int(reported.sum()) for reported, _ in each)
        return sum(int((reported & located).sum()) for reported, located in each) / total if total else None

    @cached_property
    def has_reasoning(self) -> bool:
        """Whether any step is part of the reasoning."""
        return any(bool((piece.part == REASONING).any()) for piece in self.pieces())


def _rows_with_steps(rows: Table) -> Mask:
    """Mask, shape (rows,), of the rows with reported steps and an acceptance that was not rejected."""
    return (numbers(rows, "steps") >= 1) & rows.known("acceptance_source")


def _step_places(rows: Table, selected: Mask, start: int) -> StepPlaces:
    """The steps of the rows selected by a mask; `start` is the index in the cell of the first row."""
    walks = rows.lists("walk")
    codes, steps, tokens = (field[selected[walks.owner]] for field in walks.entries.T)
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
    highs = [*(low - 1 for low in lows[1:]), None]
    return [
        BreakdownClass(code, token_range(low, high), low, high)
        for code, (low, high) in enumerate(zip(lows, highs, strict=True))
    ]


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
    layout: RowLayout, steps: PlacedSteps, dimension: Dimension, classes: Sequence[BreakdownClass]
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


def _sums_of(layout: RowLayout, piece: StepPlaces, mask: Mask) -> _ClassSums:
    rows = piece.row[mask]
    cells, shape = layout.cell_of[rows], layout.shape
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
        interval=figure_interval(chosen) if chosen else None,
        source=sample.source(ratio.origin),
    ).within(ratio.lowest, ratio.highest)
    return BreakdownSlice(
        label=each.label,
        low=each.low,
        high=each.high,
        steps=round(sums.steps.sum()),
        requests=sums.requests,
        prompts=prompts,
        figures={ratio.name: figure},
    )


RATIOS = (
    acceptance.EMITTED_POOLED,
    acceptance.VERIFIED_POOLED,
    acceptance.ACCEPTANCE_RATE,
    time_per_token.TPOT_MS_POOLED,
)
"""Figures of each class."""
TURN_RATIOS = (*RATIOS, mean_metric(TTFT_MS))
"""Figures of each turn: what a later turn waits for depends on the prompt cache."""
TURNS_MAX = 16
"""Maximum number of classes of turns; later turns are combined in the last."""
LITERATURE = (1, 4_000, 8_000, 13_000)
"""Lowest number of output tokens of each class, as in figure 6 of "Speculative Decoding: Performance or Illusion?"."""
CLASS_PROMPTS_MIN = 3
"""Minimum number of prompts for a class to have an interval."""
BY_LITERATURE = "below 4,000 output tokens, to 7,999, to 12,999, and more, as in the literature"
BY_QUARTILE = (
    "quartiles of the output tokens of this cell's requests, because its answers are too short for the literature's"
    " classes"
    " (below 4,000 tokens, to 7,999, to 12,999, and more)"
)


def request_breakdown(
    sample: SampleRows, mask: Mask, each: BreakdownClass, drafts: int, ratios: Sequence[RatioMetric] = RATIOS
) -> BreakdownSlice:
    """Return the slice of the rows selected by a mask, shape (rows,), of which there is at least one."""
    rows = sample.rows.among(mask)
    return BreakdownSlice(
        label=each.label,
        low=each.low,
        high=each.high,
        steps=round(sum(float(np.nansum(numbers(piece, "steps"))) for piece in rows.pieces())),
        requests=len(rows),
        prompts=sample.layout.prompts_of(mask),
        figures=ratio_figures(SampleRows(rows, sample.seed), acceptance.limit_to_drafts(ratios, drafts)),
    )


def breakdown_by_turn(sample: SampleRows, drafts: int) -> list[BreakdownSlice]:
    """Return a slice for each turn, or none if there are only first turns."""
    turns = np.minimum(numbers(sample.rows, "turn"), TURNS_MAX - 1).astype(np.int8)
    found = [int(turn) for turn in np.unique(turns)]
    if len(found) < 2:
        return []
    labels = {TURNS_MAX - 1: f"turn {TURNS_MAX} and later"}
    classes = [BreakdownClass(turn, labels.get(turn, f"turn {turn + 1}")) for turn in found]
    return [request_breakdown(sample, turns == each.code, each, drafts, TURN_RATIOS) for each in classes]


def length_classes(sample: SampleRows) -> tuple[list[BreakdownClass], str]:
    """Return the classes of output tokens that contain rows, and how they were chosen; none if there is only one.

    They are the literature's if two of these have enough prompts for an interval, else the rows' own quartiles.
    """
    tokens = numbers(sample.rows, "tokens")
    classes = _occupied_classes(LITERATURE, tokens)
    counts = [sample.layout.prompts_of(_inside(tokens, each)) for each in classes]
    if sum(count >= CLASS_PROMPTS_MIN for count in counts) >= 2:
        return classes, BY_LITERATURE
    known = tokens[tokens >= 1]
    if not known.size:
        return [], ""
    quartiles = np.floor(percentiles_of(known, [25, 50, 75])).astype(int) + 1
    lows = (1, *(int(low) for low in np.unique(quartiles)))
    return _occupied_classes(lows, tokens), BY_QUARTILE


def _inside(tokens: Values, each: BreakdownClass) -> Mask:
    """Return a mask, shape (rows,), of the rows whose number of output tokens is in the class."""
    inside: Mask = (tokens >= (each.low or 0)) & (tokens <= (np.inf if each.high is None else each.high))
    return inside


def spread_by_request(sample: SampleRows) -> RequestDistribution | None:
    """Return the distribution over requests of the emitted acceptance length; None if no request reports steps."""
    metric = acceptance.EMITTED_MEAN
    values = piecewise(sample.rows, lambda piece: metric.parts(piece)[0])
    known: Mask = ~np.isnan(values)
    values = values if known.all() else values[known]
    if not values.size:
        return None
    low, lower, median, upper, high, *deciles = percentiles_of(values, [0, 25, 50, 75, 100, *range(10, 100, 10)])
    return RequestDistribution(
        unit=metric.unit,
        definition="Acceptance length, emitted, of one request: (tokens − 1) / steps",
        n=int(values.size),
        prompts=sample.layout.prompts_of(known),
        source=sample.source(metric.origin),
        minimum=low,
        lower_quartile=lower,
        median=median,
        upper_quartile=upper,
        maximum=high,
        deciles=deciles,
    )


def _occupied_classes(lows: tuple[int, ...], tokens: Values) -> list[BreakdownClass]:
    """Return the classes with these lower bounds that contain any rows; none if one of them contains all."""
    occupied = [each for each in token_classes(lows) if _inside(tokens, each).any()]
    return occupied if len(occupied) > 1 else []


_POSITIONS, _CONTEXTS = token_classes(POSITIONS), token_classes(CONTEXTS)
_PARTS = [BreakdownClass(REASONING, "reasoning"), BreakdownClass(ANSWER, "answer")]

NO_DRAFTS = "no steps of a drafter are reported: the arm has no drafter, or its engine does not report them"
NOT_LOCATED = (
    "the engine reports how many steps an answer had but not where they are: it lists no steps, or only those with"
    " drafts, and its chunks are not one step each"
)
NO_PROMPT_TOKENS = "the engine does not report the number of prompt tokens"
NO_REASONING = (
    "no answer has reasoning that the engine marks as such, in chunks with token counts: start the engine with its"
    " reasoning parser"
)
NO_TOKENS = "neither engine nor client counted the tokens of an answer"
ONE_LENGTH = "at least three in four answers have the same length, which may be the limit output.maxTokens"
NO_TURNS = "every request is the first turn of its conversation"


def breakdown_of_cell(rows: Table, seed: int | None, drafts: int) -> Breakdown:
    """Compute all breakdowns of the tidy rows of a cell, over all its repeats.

    `seed` is that of the intervals; without one there are none. `drafts` is the maximum number of draft tokens per
    step, 0 if it is not known.
    """
    sample = SampleRows(steady_rows(rows), seed)
    located = PlacedSteps(sample.rows)
    has_reasoning = located.has_reasoning
    classes, how = length_classes(sample)
    found = Breakdown(
        acceptance_by_request=spread_by_request(sample),
        by_position=breakdown_by_place(sample, located, "position", _POSITIONS, drafts),
        by_context=breakdown_by_place(sample, located, "context", _CONTEXTS, drafts),
        by_length=[_of_length(sample, located, each, drafts) for each in classes],
        length_classes=how if classes else "",
        by_turn=breakdown_by_turn(sample, drafts),
        by_part=breakdown_by_place(sample, located, "part", _PARTS, drafts) if has_reasoning else [],
        placed_share=located.share,
    )
    return found.model_copy(update={"missing": _missing(found, sample.rows)})


def _of_length(sample: SampleRows, located: PlacedSteps, each: BreakdownClass, drafts: int) -> LengthClass:
    mask = _inside(numbers(sample.rows, "tokens"), each)
    steps: list[BreakdownSlice] = breakdown_by_place(sample, located.among(mask), "position", _POSITIONS, drafts)
    return LengthClass(whole=request_breakdown(sample, mask, each, drafts), by_position=steps)


def _missing(found: Breakdown, rows: Table) -> dict[str, str]:
    unplaced = NO_DRAFTS if found.placed_share is None else NOT_LOCATED
    no_tokens = not any_known(rows, "tokens")
    reasons = {
        "acceptance_by_request": "" if found.acceptance_by_request else NO_DRAFTS,
        "by_position": "" if found.by_position else unplaced,
        "by_context": "" if found.by_context else NO_PROMPT_TOKENS if found.by_position else unplaced,
        "by_length": "" if found.by_length else NO_TOKENS if no_tokens else ONE_LENGTH,
        "by_turn": "" if found.by_turn else NO_TURNS,
        "by_part": "" if found.by_part else NO_REASONING if found.by_position else unplaced,
    }
    return {name: reason for name, reason in reasons.items() if reason}
