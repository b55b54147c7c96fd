"""How much of what was drafted is used: acceptance lengths in both definitions and both weightings, and the rate.

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
import pandas as pd

from specbench_client.metrics.frame import Values, numbers
from specbench_client.metrics.metric import Origin, Ratio

_NO_STEPS = "the engine does not tell the steps of a request"


def _steps(rows: pd.DataFrame) -> Values:
    """Steps of answers that had any; an answer of one token has none and says nothing."""
    steps = numbers(rows, "steps")
    return np.where(steps >= 1, steps, np.nan)


def _emitted(rows: pd.DataFrame) -> tuple[Values, Values]:
    return numbers(rows, "tokens") - 1, _steps(rows)


def _verified(rows: pd.DataFrame) -> tuple[Values, Values]:
    steps, accepted = _steps(rows), numbers(rows, "accepted_tokens")
    one_each = np.isnan(accepted) & (steps == numbers(rows, "tokens") - 1)
    return steps + np.where(one_each, 0.0, accepted), steps


def _emitted_each(rows: pd.DataFrame) -> tuple[Values, Values]:
    over, under = _emitted(rows)
    return over / under, np.ones_like(under)


def _verified_each(rows: pd.DataFrame) -> tuple[Values, Values]:
    over, under = _verified(rows)
    return over / under, np.ones_like(under)


def _rate(rows: pd.DataFrame) -> tuple[Values, Values]:
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

LENGTHS = (EMITTED_POOLED, EMITTED_MEAN, VERIFIED_POOLED, VERIFIED_MEAN)
RATIOS = (EMITTED_POOLED, EMITTED_MEAN, VERIFIED_POOLED, VERIFIED_MEAN, RATE)


def limited(ratios: Sequence[Ratio], drafts: int) -> list[Ratio]:
    """The same, where acceptance lengths end at one more than a step's most draft tokens; 0: not known, or none."""
    return [replace(ratio, highest=drafts + 1.0) if drafts and ratio in LENGTHS else ratio for ratio in ratios]
