"""Slices of whole requests, by turn and by the length of the answer, and the spread from request to request."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.slices import Slice, Spread
from specbench_client.analysis.estimates.figures import Sample, ratio_figures
from specbench_client.analysis.slices.steps import Class, span
from specbench_client.metrics import acceptance, pace
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.rows import Columns, among

RATIOS = (acceptance.EMITTED_POOLED, acceptance.VERIFIED_POOLED, acceptance.RATE, pace.TPOT_MS_POOLED)
"""What is shown of each class."""
TURNS_MAX = 16
"""Later turns are one class."""
LITERATURE = (1, 4_000, 8_000, 13_000)
"""Least output tokens of each class: those of "Speculative Decoding: Performance or Illusion?", its figure 6."""
PROMPTS_OF_A_CLASS = 3
"""A class of fewer prompts has no interval."""
BY_LITERATURE = "below 4,000 output tokens, to 7,999, to 12,999, and more, as in the literature"
BY_QUARTILE = (
    "quartiles of the output tokens of this cell's requests: its answers are too short for the literature's classes"
    " (below 4,000 tokens, to 7,999, to 12,999, and more)"
)


def slice_of(sample: Sample, mine: Mask, each: Class, drafts: int) -> Slice:
    """Return the slice of the rows that are marked, of which there is at least one."""
    rows = among(sample.rows, mine)
    steps = numbers(rows, "steps")
    return Slice(
        label=each.label,
        low=each.low,
        high=each.high,
        steps=round(np.nansum(steps)),
        requests=len(rows),
        prompts=int(rows["prompt_id"].nunique()),
        figures=ratio_figures(Sample(rows, sample.seed), acceptance.limited(RATIOS, drafts)),
    )


def by_turn(sample: Sample, drafts: int) -> list[Slice]:
    """Return a slice for each turn, or none where there are no later ones."""
    turns = np.minimum(numbers(sample.rows, "turn"), TURNS_MAX - 1)
    found = [int(turn) for turn in np.unique(turns)]
    if len(found) < 2:
        return []
    words = {TURNS_MAX - 1: f"turn {TURNS_MAX} and later"}
    classes = [Class(turn, words.get(turn, f"turn {turn + 1}")) for turn in found]
    return [slice_of(sample, turns == each.code, each, drafts) for each in classes]


def length_classes(rows: Columns) -> tuple[list[Class], str]:
    """Return the classes of output tokens that these rows fill, and how they were chosen; none of one length alone.

    The literature's where two of them hold enough prompts for an interval; else the rows' own quartiles.
    """
    tokens = numbers(rows, "tokens")
    known = ~np.isnan(tokens) & (tokens >= 1)
    of_class = np.searchsorted(LITERATURE, tokens[known], side="right")
    prompts = rows["prompt_id"][known]
    counts = [prompts[of_class == each].nunique() for each in np.unique(of_class)]
    if sum(count >= PROMPTS_OF_A_CLASS for count in counts) >= 2:
        return _filled(LITERATURE, tokens[known]), BY_LITERATURE
    if not known.any():
        return [], ""
    quartiles = np.floor(np.percentile(tokens[known], [25, 50, 75])).astype(int) + 1
    lows = (1, *(int(low) for low in np.unique(quartiles)))
    return _filled(lows, tokens[known]), BY_QUARTILE


def in_class(rows: Columns, each: Class) -> Mask:
    """Return which rows have as many output tokens."""
    tokens = numbers(rows, "tokens")
    inside: Mask = (tokens >= (each.low or 0)) & (tokens <= (np.inf if each.high is None else each.high))
    return inside


def spread_by_request(sample: Sample) -> Spread | None:
    """Return how the emitted acceptance length differs from request to request; None where none tells its steps."""
    metric = acceptance.EMITTED_MEAN
    parts = metric.of(sample.rows)
    values = parts.over[parts.known]
    if not values.size:
        return None
    low, lower, median, upper, high = (float(value) for value in np.percentile(values, [0, 25, 50, 75, 100]))
    return Spread(
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


def _filled(lows: tuple[int, ...], tokens: Values) -> list[Class]:
    """The classes that begin at these numbers and hold any; none where one of them holds all."""
    highs = [*(low - 1 for low in lows[1:]), None]
    classes = [
        Class(code, span(low, high), low, high) for code, (low, high) in enumerate(zip(lows, highs, strict=True))
    ]
    held = set(np.searchsorted(lows, tokens, side="right") - 1)
    return [each for each in classes if each.code in held] if len(held) > 1 else []
