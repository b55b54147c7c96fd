"""Acceptance per step that does not add up to the answer: the identity AL = 1 + Σ Π of the conditional rates.

Over draft steps, whose conditional rates multiply, Σ Π is the mean number of accepted tokens of a step; a step without
drafts emits one token. So for each answer: tokens − 1 = steps without drafts + Σ (accepted + 1) over draft steps. This
holds whatever the number of drafts per step, because a position that was not drafted was not accepted. The totals of an
answer (tokens, steps) are compared with the list of its steps.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import Values, numbers, tally
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.01
PER_ANSWER = 1


def _evaluate(evidence: PointEvidence) -> CheckResults:
    rows = evidence.answered
    listed = tally(rows, "accepted_of_steps")
    drafts, steps = listed.fields
    drafting, accepted = listed.sums(steps), listed.sums(drafts * steps)
    later, emitted = _delivered(rows) - 1, drafting + accepted
    beyond = np.maximum(_gaps(later, emitted, numbers(rows, "steps") - drafting) - PER_ANSWER, 0.0)
    known = ~np.isnan(beyond) & (later >= 1)
    made, unexplained = float(later[known].sum()), float(beyond[known].sum())
    if unexplained <= SHARE * made:
        return []
    message = (
        f"{unexplained / made:.1%} of {made:.0f} tokens after the first contradict the accepted drafts of their steps:"
        f" 1 + Σ Π of the conditional rates is {_mean(emitted[known], drafting[known])} tokens per draft step, but"
        f" {int(np.sum(beyond[known] > 0))} of {int(known.sum())} answers contain a different number"
    )
    return [CheckResult(Severity.WARNING, message, value=unexplained / made, threshold=SHARE)]


def _delivered(rows: pd.DataFrame) -> Values:
    """Tokens of each answer according to its chunks, else to its usage, shape (answers,).

    A usage that differs from the chunks is reported by TokenCountMismatch.
    """
    from_chunks = numbers(rows, "output_tokens_client")
    return np.where(np.isnan(from_chunks), numbers(rows, "tokens"), from_chunks)


def _gaps(later: Values, emitted: Values, undrafted: Values) -> Values:
    """Tokens by which the two sides of the identity differ, shape (answers,).

    If the steps of an answer are not known, those without drafts are not known either, and only a list that emits
    more tokens than the answer has contradicts it.
    """
    return np.where(np.isnan(undrafted), np.maximum(emitted - later, 0.0), np.abs(emitted + undrafted - later))


def _mean(emitted: Values, drafting: Values) -> str:
    return f"{emitted.sum() / drafting.sum():.2f}" if drafting.sum() else "not known"


CHECK: Check[PointEvidence] = Check(
    name="StepTokenMismatch",
    severities=(Severity.WARNING,),
    description=("The accepted drafts of an answer's steps do not add up to its tokens."),
    threshold=(
        f"more than {SHARE:.0%} of the tokens after the first, beyond {PER_ANSWER} per answer; only for answers"
        " whose engine lists their steps"
    ),
    rationale=(
        "Each step emits its accepted drafts and one more token, so AL = 1 + Σ Π of the conditional acceptance rates."
        " The identity also holds if steps draft different numbers of tokens or none: only a wrong count breaks it. The"
        " allowance of one token covers an end-of-sequence token that one side counts and the other does not. Above"
        " 1 %, acceptance by position and acceptance length disagree by more than the intervals of a usual run."
    ),
    remedy=(
        "Compare one answer's list of steps with its usage by hand. Do not use acceptance by position, nor the"
        " oracle and the what-if analyses based on it. Speed-ups are still valid: they use only tokens and time."
    ),
    evaluate=_evaluate,
)
