"""How much of the drafted text is used: acceptance lengths in two definitions and two weightings, rates, and passes.

Emitted and verified acceptance length differ only in the last step, which the end of the answer may cut, provided that
steps without drafts are counted. Pooled figures determine throughput; means over requests are what a user experiences.
Requests whose steps are not known are left out; a baseline has acceptance length 1 only if its engine reports steps.

An engine may omit its draft counts for a request in which nothing was drafted. If such a request has as many steps as
tokens after the first, each step emitted one token, so nothing was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specbench_client.metrics.metric import FigureOrigin, RatioMetric
from specbench_client.metrics.rows import Columns
from specbench_client.metrics.tidy_frame import Values, numbers

_NO_STEPS = "the engine does not report the steps of a request"


def _steps(rows: Columns) -> Values:
    """Steps of each answer, shape (rows,); NaN for answers of one token, which have none."""
    steps = numbers(rows, "steps")
    return np.where(steps >= 1, steps, np.nan)


def _emitted(rows: Columns) -> tuple[Values, Values]:
    return numbers(rows, "tokens") - 1, _steps(rows)


def _verified(rows: Columns) -> tuple[Values, Values]:
    steps, accepted = _steps(rows), numbers(rows, "accepted_tokens")
    one_each = np.isnan(accepted) & (steps == numbers(rows, "tokens") - 1)
    return steps + np.where(one_each, 0.0, accepted), steps


def _emitted_each(rows: Columns) -> tuple[Values, Values]:
    over, under = _emitted(rows)
    return over / under, np.ones_like(under)


def _verified_each(rows: Columns) -> tuple[Values, Values]:
    over, under = _verified(rows)
    return over / under, np.ones_like(under)


def _accepted_per_step(rows: Columns) -> tuple[Values, Values]:
    emitted, steps = _verified(rows)
    return emitted - steps, steps


def _passes_saved(rows: Columns) -> tuple[Values, Values]:
    later, steps = _emitted(rows)
    return later - steps, np.where(np.isnan(steps), np.nan, later)


def _passes(rows: Columns) -> tuple[Values, Values]:
    later, steps = _emitted(rows)
    return steps, later


def _wasted(rows: Columns) -> tuple[Values, Values]:
    drafted = numbers(rows, "drafted_tokens")
    return drafted - numbers(rows, "accepted_tokens"), drafted + _steps(rows)


def _rate(rows: Columns) -> tuple[Values, Values]:
    return numbers(rows, "accepted_tokens"), numbers(rows, "drafted_tokens")


EMITTED_POOLED = RatioMetric(
    "acceptance_length_emitted_pooled",
    "tokens/step",
    "Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps",
    _NO_STEPS,
    FigureOrigin.ACCEPTANCE,
    _emitted,
    lowest=1.0,
)
EMITTED_MEAN = RatioMetric(
    "acceptance_length_emitted_mean",
    "tokens/step",
    "Acceptance length, emitted, mean over requests of (tokens − 1) / steps",
    _NO_STEPS,
    FigureOrigin.ACCEPTANCE,
    _emitted_each,
    lowest=1.0,
)
VERIFIED_POOLED = RatioMetric(
    "acceptance_length_verified_pooled",
    "tokens/step",
    "Acceptance length, verified, pooled over steps: 1 + Σ accepted / Σ steps",
    f"{_NO_STEPS} or the accepted tokens",
    FigureOrigin.ACCEPTANCE,
    _verified,
    lowest=1.0,
)
VERIFIED_MEAN = RatioMetric(
    "acceptance_length_verified_mean",
    "tokens/step",
    "Acceptance length, verified, mean over requests of 1 + accepted / steps",
    f"{_NO_STEPS} or the accepted tokens",
    FigureOrigin.ACCEPTANCE,
    _verified_each,
    lowest=1.0,
)
ACCEPTANCE_RATE = RatioMetric(
    "acceptance_rate",
    "ratio",
    "Acceptance rate: Σ accepted / Σ drafted tokens",
    "nothing was drafted, or the engine does not report it",
    FigureOrigin.ACCEPTANCE,
    _rate,
    highest=1.0,
)
ACCEPTED_PER_STEP = RatioMetric(
    "accepted_per_step",
    "tokens/step",
    "Accepted tokens per step, pooled, without the bonus token: Σ accepted / Σ steps; one less than the verified"
    " acceptance length; some papers call it the mean accepted length",
    f"{_NO_STEPS} or the accepted tokens",
    FigureOrigin.ACCEPTANCE,
    _accepted_per_step,
)
PASSES_SAVED = RatioMetric(
    "target_passes_saved",
    "ratio",
    "Share of the target's decode passes saved: 1 − Σ steps / Σ(tokens − 1), which is 1 − 1 / AL; excludes the pass"
    " that reads the prompt",
    _NO_STEPS,
    FigureOrigin.ACCEPTANCE,
    _passes_saved,
    highest=1.0,
)
PASSES_PER_TOKEN = RatioMetric(
    "target_passes_per_token",
    "passes/token",
    "Decode passes of the target per token: Σ steps / Σ(tokens − 1), which is 1 / AL",
    _NO_STEPS,
    FigureOrigin.ACCEPTANCE,
    _passes,
    highest=1.0,
)
WASTED_VERIFICATION = RatioMetric(
    "wasted_verification",
    "ratio",
    "Share of the verified positions that were discarded: Σ(drafted − accepted) / Σ(drafted + steps); includes drafts"
    " that were accepted and then cut off at the end of the answer",
    f"{_NO_STEPS} or the draft tokens",
    FigureOrigin.ACCEPTANCE,
    _wasted,
    highest=1.0,
)

LENGTHS = (EMITTED_POOLED, EMITTED_MEAN, VERIFIED_POOLED, VERIFIED_MEAN)
RATIOS = (*LENGTHS, ACCEPTANCE_RATE, ACCEPTED_PER_STEP, PASSES_SAVED, PASSES_PER_TOKEN, WASTED_VERIFICATION)


def limit_to_drafts(ratios: Sequence[RatioMetric], drafts: int) -> list[RatioMetric]:
    """Return the ratios with upper bounds that follow from the maximum number of drafts per step.

    An acceptance length is at most one more than the drafts, and the accepted tokens per step are at most the
    drafts; `drafts` is 0 if it is unknown, or if there are none, and then nothing is bounded.
    """
    if not drafts:
        return list(ratios)
    highest = dict.fromkeys(LENGTHS, drafts + 1.0) | {ACCEPTED_PER_STEP: float(drafts)}
    return [replace(ratio, highest=highest[ratio]) if ratio in highest else ratio for ratio in ratios]
