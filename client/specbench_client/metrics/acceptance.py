"""How much of what was drafted is used: acceptance lengths in both definitions and weightings, rates, and passes.

Emitted and verified differ on the last step (cut by the end of the answer) and nowhere else, once steps without drafts
are counted. Pooled is what throughput sees; the mean of requests is what a user sees. Requests whose steps are not
known stay out; a baseline has acceptance length 1 only where its engine tells its steps.

An engine may leave out its draft counts where a request drafted nothing. Where its steps are as many as its later
tokens, each step emitted one token: nothing was accepted, by arithmetic and not by guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specbench_client.metrics.frame import Values, numbers
from specbench_client.metrics.metric import Origin, Ratio
from specbench_client.metrics.rows import Columns

_NO_STEPS = "the engine does not tell the steps of a request"


def _steps(rows: Columns) -> Values:
    """Steps of answers that had any; an answer of one token has none and says nothing."""
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


def _accepted_a_step(rows: Columns) -> tuple[Values, Values]:
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


EMITTED_POOLED = Ratio(
    "acceptance_length_emitted_pooled",
    "tokens/step",
    "Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps",
    _NO_STEPS,
    Origin.ACCEPTANCE,
    _emitted,
    lowest=1.0,
)
EMITTED_MEAN = Ratio(
    "acceptance_length_emitted_mean",
    "tokens/step",
    "Acceptance length, emitted, mean over requests of (tokens − 1) / steps",
    _NO_STEPS,
    Origin.ACCEPTANCE,
    _emitted_each,
    lowest=1.0,
)
VERIFIED_POOLED = Ratio(
    "acceptance_length_verified_pooled",
    "tokens/step",
    "Acceptance length, verified, pooled over steps: 1 + Σ accepted / Σ steps",
    f"{_NO_STEPS} or what it accepted",
    Origin.ACCEPTANCE,
    _verified,
    lowest=1.0,
)
VERIFIED_MEAN = Ratio(
    "acceptance_length_verified_mean",
    "tokens/step",
    "Acceptance length, verified, mean over requests of 1 + accepted / steps",
    f"{_NO_STEPS} or what it accepted",
    Origin.ACCEPTANCE,
    _verified_each,
    lowest=1.0,
)
RATE = Ratio(
    "acceptance_rate",
    "ratio",
    "Acceptance rate: Σ accepted / Σ drafted tokens",
    "nothing was drafted, or the engine does not tell",
    Origin.ACCEPTANCE,
    _rate,
    highest=1.0,
)
ACCEPTED_PER_STEP = Ratio(
    "accepted_per_step",
    "tokens/step",
    "Accepted drafts a step, pooled, without the bonus token: Σ accepted / Σ steps; what some papers call the mean"
    " accepted length, one less than the acceptance length",
    f"{_NO_STEPS} or what it accepted",
    Origin.ACCEPTANCE,
    _accepted_a_step,
)
PASSES_SAVED = Ratio(
    "target_passes_saved",
    "ratio",
    "Share of the target's decode passes saved: 1 − Σ steps / Σ(tokens − 1), which is 1 − 1 / AL; the pass that reads"
    " the prompt is left out on both sides",
    _NO_STEPS,
    Origin.ACCEPTANCE,
    _passes_saved,
    highest=1.0,
)
PASSES_PER_TOKEN = Ratio(
    "target_passes_per_token",
    "passes/token",
    "Decode passes of the target a token: Σ steps / Σ(tokens − 1), which is 1 / AL",
    _NO_STEPS,
    Origin.ACCEPTANCE,
    _passes,
    highest=1.0,
)
WASTED = Ratio(
    "wasted_verification",
    "ratio",
    "Share of the verified positions that were thrown away: Σ(drafted − accepted) / Σ(drafted + steps); drafts that"
    " were accepted and then cut off at the end of the answer are thrown away too",
    f"{_NO_STEPS}, or what it drafted",
    Origin.ACCEPTANCE,
    _wasted,
    highest=1.0,
)

LENGTHS = (EMITTED_POOLED, EMITTED_MEAN, VERIFIED_POOLED, VERIFIED_MEAN)
RATIOS = (*LENGTHS, RATE, ACCEPTED_PER_STEP, PASSES_SAVED, PASSES_PER_TOKEN, WASTED)


def limited(ratios: Sequence[Ratio], drafts: int) -> list[Ratio]:
    """The same with what a step's most draft tokens allow at most; 0: not known, or none.

    An acceptance length then ends at one more than the drafts, and the drafts accepted a step at the drafts.
    """
    if not drafts:
        return list(ratios)
    highest = dict.fromkeys(LENGTHS, drafts + 1.0) | {ACCEPTED_PER_STEP: float(drafts)}
    return [replace(ratio, highest=highest[ratio]) if ratio in highest else ratio for ratio in ratios]
