"""Without repeats the noise between runs is not in any interval."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    repeats, arms = evidence.plan.load.repeats, {arm.name for arm in evidence.plan.arms}
    if repeats >= REPEATS_TO_TELL:
        return []
    compared = BASELINE_NAME in arms and len(arms) > 1
    times = "once" if repeats == 1 else "twice"
    message = f"the plan measures each point {times}: what differs from run to run is not in the intervals, or hardly"
    message += ", so no arm can be called faster or slower" if compared else ""
    return [Seen(Severity.DOUBT if compared else Severity.NOTE, message, value=repeats, threshold=REPEATS_TO_TELL)]


CHECK: Check[RunEvidence] = Check(
    name="TooFewRepeats",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="Points were measured fewer than three times.",
    threshold=f"fewer than {REPEATS_TO_TELL} repeats: a Doubt where arms are compared with a baseline, else a Note",
    argument=(
        "A spread over runs needs three of them for a t interval that is not absurdly wide. Under a run noise of 3 %"
        " and no difference at all, an interval from one repeat excludes 1 in 64 % of the runs, from two in 30 %, from"
        " three or more in 5 % to 7 %."
    ),
    remedy="Set load.repeats (`measure`: --repeats) to 3 or more; 5 for a claim.",
    look=_look,
)
