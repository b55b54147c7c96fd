"""Acceptance step by step that does not add up to the answer: the identity AL = 1 + Σ Π of the conditional rates.

Of draft steps, whose conditional rates are products of one another, Σ Π is what a step accepts in the mean; a step
without drafts emits its one token. So the identity says of each answer: tokens − 1 = steps without drafts + Σ (accepted
+ 1) over draft steps. It holds whatever number of drafts each step had, since a position that was not drafted was not
accepted. What is told of an answer as a whole (tokens, steps) is held against the list of its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Values, numbers, tally
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.01
PER_ANSWER = 1


def _look(evidence: PointEvidence) -> Sequence[Seen]:
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
        f" 1 + Σ Π of the conditional rates is {_mean(emitted[known], drafting[known])} tokens a draft step, and the"
        f" answers hold {int(np.sum(beyond[known] > 0))} of {int(known.sum())} times something else"
    )
    return [Seen(Severity.DOUBT, message, value=unexplained / made, threshold=SHARE)]


def _delivered(rows: pd.DataFrame) -> Values:
    """Tokens of each answer as its chunks told them, else as its usage.

    Of a usage that counts others than came, TokenCountMismatch speaks.
    """
    told = numbers(rows, "output_tokens_client")
    return np.where(np.isnan(told), numbers(rows, "tokens"), told)


def _gaps(later: Values, emitted: Values, undrafted: Values) -> Values:
    """Tokens by which the two sides of the identity differ, of each answer.

    Where the steps of an answer are not known, those without drafts are not either, and only a list that emits more
    than there is contradicts it.
    """
    return np.where(np.isnan(undrafted), np.maximum(emitted - later, 0.0), np.abs(emitted + undrafted - later))


def _mean(emitted: Values, drafting: Values) -> str:
    return f"{emitted.sum() / drafting.sum():.2f}" if drafting.sum() else "not known"


CHECK: Check[PointEvidence] = Check(
    name="AcceptanceIdentity",
    severities=(Severity.DOUBT,),
    says="The accepted drafts of an answer's steps do not add up to its tokens: AL = 1 + Σ Π of the conditional rates.",
    threshold=(
        f"more than {SHARE:.0%} of the tokens after the first, beyond {PER_ANSWER} an answer; only of answers whose"
        " engine lists their steps"
    ),
    argument=(
        "It is an identity, also where steps draft different numbers or none: nothing but a wrong count breaks it. The"
        " one token of grace is an end of text that one side counts and the other does not. Beyond 1 % the acceptance"
        " by position and the acceptance length speak of different steps by more than the intervals of a usual run."
    ),
    remedy=(
        "Compare one answer's list of steps with its usage by hand; do not use acceptance by position, nor the oracle"
        " and the what-ifs that are made from it. Speed-ups stand: they count tokens and time alone."
    ),
    look=_look,
)
