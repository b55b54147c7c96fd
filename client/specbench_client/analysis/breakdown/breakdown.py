"""Breakdowns of whole requests, by turn and by the length of the answer, and all breakdowns of a cell."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.breakdown import Breakdown, BreakdownSlice, LengthClass, RequestDistribution
from specbench_client.analysis.breakdown.steps import (
    BreakdownClass,
    PlacedSteps,
    breakdown_by_place,
    token_classes,
    token_range,
)
from specbench_client.analysis.estimates.figures import SampleRows, ratio_figures
from specbench_client.metrics import acceptance, decode_speed
from specbench_client.metrics.record_lists import ANSWER, CONTEXTS, POSITIONS, REASONING
from specbench_client.metrics.rows import Columns, Rows, select_rows
from specbench_client.metrics.tidy_frame import Mask, Values, numbers, steady_rows

RATIOS = (
    acceptance.EMITTED_POOLED,
    acceptance.VERIFIED_POOLED,
    acceptance.ACCEPTANCE_RATE,
    decode_speed.TPOT_MS_POOLED,
)
"""Figures of each class."""
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


def request_breakdown(sample: SampleRows, mask: Mask, each: BreakdownClass, drafts: int) -> BreakdownSlice:
    """Return the slice of the rows selected by a mask, shape (rows,), of which there is at least one."""
    rows = select_rows(sample.rows, mask)
    steps = numbers(rows, "steps")
    return BreakdownSlice(
        label=each.label,
        low=each.low,
        high=each.high,
        steps=round(np.nansum(steps)),
        requests=len(rows),
        prompts=int(rows["prompt_id"].nunique()),
        figures=ratio_figures(SampleRows(rows, sample.seed), acceptance.limit_to_drafts(RATIOS, drafts)),
    )


def breakdown_by_turn(sample: SampleRows, drafts: int) -> list[BreakdownSlice]:
    """Return a slice for each turn, or none if there are only first turns."""
    turns = np.minimum(numbers(sample.rows, "turn"), TURNS_MAX - 1)
    found = [int(turn) for turn in np.unique(turns)]
    if len(found) < 2:
        return []
    labels = {TURNS_MAX - 1: f"turn {TURNS_MAX} and later"}
    classes = [BreakdownClass(turn, labels.get(turn, f"turn {turn + 1}")) for turn in found]
    return [request_breakdown(sample, turns == each.code, each, drafts) for each in classes]


def length_classes(rows: Columns) -> tuple[list[BreakdownClass], str]:
    """Return the classes of output tokens that contain rows, and how they were chosen; none if there is only one.

    They are the literature's if two of these have enough prompts for an interval, else the rows' own quartiles.
    """
    tokens = numbers(rows, "tokens")
    known = ~np.isnan(tokens) & (tokens >= 1)
    of_class = np.searchsorted(LITERATURE, tokens[known], side="right")
    prompts = rows["prompt_id"][known]
    counts = [prompts[of_class == each].nunique() for each in np.unique(of_class)]
    if sum(count >= CLASS_PROMPTS_MIN for count in counts) >= 2:
        return _occupied_classes(LITERATURE, tokens[known]), BY_LITERATURE
    if not known.any():
        return [], ""
    quartiles = np.floor(np.percentile(tokens[known], [25, 50, 75])).astype(int) + 1
    lows = (1, *(int(low) for low in np.unique(quartiles)))
    return _occupied_classes(lows, tokens[known]), BY_QUARTILE


def rows_in_class(rows: Columns, each: BreakdownClass) -> Mask:
    """Return a mask, shape (rows,), of the rows whose number of output tokens is in the class."""
    tokens = numbers(rows, "tokens")
    inside: Mask = (tokens >= (each.low or 0)) & (tokens <= (np.inf if each.high is None else each.high))
    return inside


def spread_by_request(sample: SampleRows) -> RequestDistribution | None:
    """Return the distribution over requests of the emitted acceptance length; None if no request reports steps."""
    metric = acceptance.EMITTED_MEAN
    parts = metric.of(sample.rows)
    values = parts.over[parts.known]
    if not values.size:
        return None
    low, lower, median, upper, high = (float(value) for value in np.percentile(values, [0, 25, 50, 75, 100]))
    return RequestDistribution(
        unit=metric.unit,
        definition="Acceptance length, emitted, of one request: (tokens − 1) / steps",
        n=int(values.size),
        prompts=sample.prompts(parts.known),
        source=sample.source(metric.origin),
        minimum=low,
        lower_quartile=lower,
        median=median,
        upper_quartile=upper,
        maximum=high,
        deciles=[float(value) for value in np.percentile(values, range(10, 100, 10))],
    )


def _occupied_classes(lows: tuple[int, ...], tokens: Values) -> list[BreakdownClass]:
    """Return the classes with these lower bounds that contain any rows; none if one of them contains all."""
    highs = [*(low - 1 for low in lows[1:]), None]
    classes = [
        BreakdownClass(code, token_range(low, high), low, high)
        for code, (low, high) in enumerate(zip(lows, highs, strict=True))
    ]
    codes = set(np.searchsorted(lows, tokens, side="right") - 1)
    return [each for each in classes if each.code in codes] if len(codes) > 1 else []


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


def breakdown_of_cell(rows: pd.DataFrame | Rows, seed: int | None, drafts: int) -> Breakdown:
    """Compute all breakdowns of the tidy rows of a cell, over all its repeats.

    `seed` is that of the intervals; without one there are none. `drafts` is the maximum number of draft tokens per
    step, 0 if it is not known.
    """
    sample = SampleRows(steady_rows(rows), seed)
    located = PlacedSteps(sample.rows)
    has_reasoning = located.has_reasoning
    classes, how = length_classes(sample.rows)
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
    mask = rows_in_class(sample.rows, each)
    steps: list[BreakdownSlice] = breakdown_by_place(sample, located.among(mask), "position", _POSITIONS, drafts)
    return LengthClass(whole=request_breakdown(sample, mask, each, drafts), by_position=steps)


def _missing(found: Breakdown, rows: Columns) -> dict[str, str]:
    unplaced = NO_DRAFTS if found.placed_share is None else NOT_LOCATED
    no_tokens = bool(np.isnan(numbers(rows, "tokens")).all())
    reasons = {
        "acceptance_by_request": "" if found.acceptance_by_request else NO_DRAFTS,
        "by_position": "" if found.by_position else unplaced,
        "by_context": "" if found.by_context else NO_PROMPT_TOKENS if found.by_position else unplaced,
        "by_length": "" if found.by_length else NO_TOKENS if no_tokens else ONE_LENGTH,
        "by_turn": "" if found.by_turn else NO_TURNS,
        "by_part": "" if found.by_part else NO_REASONING if found.by_position else unplaced,
    }
    return {name: reason for name, reason in reasons.items() if reason}
