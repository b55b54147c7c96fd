"""Without repeats, no interval contains the variation between runs."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import MIN_REPEATS_TO_COMPARE
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    repeats, arms = evidence.plan.load.repeats, {arm.name for arm in evidence.plan.arms}
    if repeats >= MIN_REPEATS_TO_COMPARE:
        return []
    compared = BASELINE_NAME in arms and len(arms) > 1
    times = "once" if repeats == 1 else "twice"
    message = f"the plan measures each point {times}: the intervals do not cover the variation between runs"
    message += ", so no arm can be called faster or slower" if compared else ""
    return [
        CheckResult(
            Severity.WARNING if compared else Severity.INFO, message, value=repeats, threshold=MIN_REPEATS_TO_COMPARE
        )
    ]


CHECK: Check[RunEvidence] = Check(
    name="TooFewRepeats",
    severities=(Severity.WARNING, Severity.INFO),
    description="Points were measured fewer than three times.",
    threshold=f"fewer than {MIN_REPEATS_TO_COMPARE} repeats: Warning if arms are compared with a baseline, else Info",
    rationale=(
        "The variation between runs needs at least three of them for a t interval of a useful width. With a"
        " run-to-run noise of 3 % and no real difference, an interval from one repeat excludes 1 in 64 % of the"
        " runs, from two in 30 %, from three or more in 5 % to 7 %."
    ),
    remedy="Set load.repeats (`specbench measure`: --repeats) to 3 or more; use 5 for a claim.",
    evaluate=_evaluate,
)
