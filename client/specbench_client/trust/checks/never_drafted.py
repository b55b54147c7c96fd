"""A drafter was asked for and nothing was ever drafted: real engines start happily without one."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, total
from specbench_client.trust.check import Check
from specbench_client.trust.drafting import inferred
from specbench_client.trust.evidence import PointEvidence, Seen


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    rows = evidence.answered
    could = numbers(rows, "tokens") >= 2
    if evidence.arm.drafter is None or not could.any():
        return []
    drafted = _told(evidence)
    if not drafted:
        message = "the engine tells nowhere whether it drafted: read its log, or switch its acceptance metrics on"
        return [Seen(Severity.DOUBT, message)]
    if max(drafted) > 0:
        return []
    method = evidence.arm.drafter.method
    message = (
        f"drafter {evidence.arm.name!r} ({method}) drafted no token in {int(could.sum())} answers: it is off, or it"
        " found nothing to draft from; what was measured is the baseline by another name"
    )
    return [Seen(Severity.INVALID, message, value=0, threshold=1)]


def _told(evidence: PointEvidence) -> list[float]:
    """What is told of its drafting: drafts, or else steps that verified some, or else drafts that were accepted.

    That none was accepted proves nothing, and neither does what was only inferred.
    """
    rows = evidence.answered
    for name in ("drafted_tokens", "draft_steps"):
        counted = getattr(evidence.counters, name) if evidence.counters else None
        told = [each for each in (total(numbers(rows, name)), counted) if each is not None]
        if told:
            return told
    accepted = total(numbers(rows, "accepted_tokens")[~inferred(rows)])
    return [accepted] if accepted else []


CHECK: Check[PointEvidence] = Check(
    name="NeverDrafted",
    severities=(Severity.INVALID, Severity.DOUBT),
    says="A drafter was asked for, and records and counters know of no drafted token.",
    threshold=(
        "fewer than 1 drafted token in a point, or 1 step with drafts where tokens are not told; a Doubt where neither"
        " records nor counters tell, and no draft is known to have been accepted"
    ),
    argument="One drafted token proves the drafter alive; a drafter that never drafts is the baseline by another name.",
    remedy="Check the engine's log and arguments (a drafter without its model, a model without its method).",
    look=_look,
)
