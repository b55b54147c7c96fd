"""Acceptance that no drafter can have: more accepted than drafted, too many tokens a step, or steps without a token.

Steps may be told a little too few where an answer was cut at its stop and the engine does not say of which step: as
many steps as tokens were cut, which are at most k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Mask, numbers, tally
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

_COUNTS = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens")


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    broken = [(words, int(rows.sum())) for words, rows in _kinds(evidence) if rows.any()]
    if not broken:
        return []
    answers = len(evidence.answered)
    told = "; ".join(f"{count} of {answers} {words}" for words, count in broken)
    message = f"of the answers {told}: the engine counts its drafts wrongly, and no acceptance of this point is true"
    return [Seen(Severity.INVALID, message, value=max(count for _, count in broken), threshold=1)]


def _kinds(evidence: PointEvidence) -> Iterator[tuple[str, Mask]]:
    """What cannot be, in words, and which answers tell it."""
    rows, drafts = evidence.answered, evidence.drafts
    yield "have more tokens accepted than drafted", numbers(rows, "accepted_tokens") > numbers(rows, "drafted_tokens")
    steps = tally(rows, "accepted_of_steps")
    listed = steps.sums(steps.fields[0] < 0) > 0
    yield "have a count below 0", np.any([listed, *(numbers(rows, name) < 0 for name in _COUNTS)], axis=0)
    if drafts is None:
        return
    yield f"have a step with more than {drafts} drafts accepted", steps.sums(steps.fields[0] > drafts) > 0
    most = (drafts + 1) * (numbers(rows, "steps") + drafts)
    later = numbers(rows, "tokens") - 1
    yield f"have more than {drafts + 1} tokens a step", later > most
    yield "have more steps than tokens", numbers(rows, "steps") > later + drafts + 1


CHECK: Check[PointEvidence] = Check(
    name="ImpossibleAcceptance",
    severities=(Severity.INVALID,),
    says="An answer tells of more accepted than drafted tokens, or of more tokens a step than its drafter can give.",
    threshold=(
        "any answer with accepted > drafted, with a count below 0, with a step that accepted more than k drafts, or"
        " with tokens − 1 > (k + 1) × (steps + k), or with steps > tokens + k"
    ),
    argument=(
        "A step emits its accepted drafts, of which there are at most k, and one token more. The k steps of grace are"
        " those that a cut answer may hide; the k + 1 tokens those of a last step that were cut off. One answer is"
        " enough: whoever counts it counts the others."
    ),
    remedy="Compare one answer by hand with the engine's log; report the engine's bug; do not use the acceptance.",
    look=_look,
)
