"""A drafter was configured but never drafted: engines may start without it and report no error."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import known_sum, numbers
from specbench_client.trust.acceptance_counters import is_inferred
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence


def _evaluate(evidence: PointEvidence) -> CheckResults:
    rows = evidence.answered
    could = numbers(rows, "tokens") >= 2
    if evidence.arm.drafter is None or not could.any():
        return []
    drafted = _reported_drafting(evidence)
    if not drafted:
        message = "neither answers nor counters report whether the engine drafted"
        return [CheckResult(Severity.WARNING, message)]
    if max(drafted) > 0:
        return []
    method = evidence.arm.drafter.method
    message = (
        f"drafter {evidence.arm.name!r} ({method}) drafted no token in {int(could.sum())} answers: it is off, or it"
        " found nothing to draft from, so this arm measured the baseline"
    )
    return [CheckResult(Severity.INVALID, message, value=0, threshold=1)]


def _reported_drafting(evidence: PointEvidence) -> list[float]:
    """Return the reported counts of draft tokens, else of draft steps, else of accepted tokens if there were any.

    No accepted token does not prove that nothing was drafted, and inferred acceptance proves nothing.
    """
    rows = evidence.answered
    for name in ("drafted_tokens", "draft_steps"):
        counted = getattr(evidence.counters, name) if evidence.counters else None
        counts = [each for each in (known_sum(numbers(rows, name)), counted) if each is not None]
        if counts:
            return counts
    accepted = known_sum(numbers(rows, "accepted_tokens")[~is_inferred(rows)])
    return [accepted] if accepted else []


CHECK: Check[PointEvidence] = Check(
    name="NeverDrafted",
    severities=(Severity.INVALID, Severity.WARNING),
    description="A drafter was configured, but records and counters report no draft token.",
    threshold=(
        "a point has no draft token or, if draft tokens are not reported, no step with drafts; Warning if neither is"
        " reported and no draft is known to have been accepted"
    ),
    rationale=(
        "One draft token proves that the drafter works; an arm whose drafter never drafts is a second baseline."
    ),
    remedy=(
        "Check the engine's log and arguments (a drafter without its model, a model without its method), and enable"
        " its acceptance metrics."
    ),
    evaluate=_evaluate,
)
