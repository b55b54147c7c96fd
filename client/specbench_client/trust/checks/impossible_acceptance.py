"""Impossible acceptance: more tokens accepted than drafted, too many tokens per step, or steps without a token.

The reported steps may be slightly too few where an answer was cut at its stop and the engine does not report in which
step: at most as many steps as tokens were cut, which are at most k.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import Mask, numbers, tally
from specbench_client.trust.check import Check, CheckResults, report_impossible
from specbench_client.trust.evidence import PointEvidence

_COUNTS = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens")


def _evaluate(evidence: PointEvidence) -> CheckResults:
    consequence = "the engine counts its drafts wrongly, so the acceptance of this point is not usable"
    return report_impossible(_kinds(evidence), f"{len(evidence.answered)} answers", consequence)


def _kinds(evidence: PointEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield each impossible condition, in words, with a mask, shape (answers,), of the answers that meet it."""
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
    yield f"have more than {drafts + 1} tokens per step", later > most
    yield "have more steps than tokens", numbers(rows, "steps") > later + drafts + 1


CHECK: Check[PointEvidence] = Check(
    name="ImpossibleAcceptance",
    severities=(Severity.INVALID,),
    description=(
        "An answer reports more accepted than draft tokens, or more tokens per step than its drafter can give."
    ),
    threshold=(
        "any answer with accepted > drafted, with a count below 0, with a step that accepted more than k drafts,"
        " with tokens − 1 > (k + 1) × (steps + k), or with steps > tokens + k"
    ),
    rationale=(
        "A step emits its accepted drafts, at most k, and one more token. If an answer was cut at its end, up to k"
        " steps may be missing, and the last step may have lost its tokens; both limits allow for that. One answer is"
        " enough: the same code counts all of them."
    ),
    remedy="Compare one answer by hand with the engine's log, report the engine's bug, and do not use the acceptance.",
    evaluate=_evaluate,
)
