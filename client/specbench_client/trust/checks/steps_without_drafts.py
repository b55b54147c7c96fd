"""Steps without drafts although the method drafts at every step.

An n-gram or suffix lookup may find nothing, but a draft model always has a proposal. Steps without drafts then ran with
the drafter off (above a batch size, below a confidence), or their tokens were never generated: a token count that is
too high shows up as steps that nobody drafted for.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_api.spec.drafter import Method
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.05
LAST_STEP = 1
ALWAYS = (
    Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.MEDUSA, Method.PARD, Method.DFLASH,
    Method.DSPARK,
)  # fmt: skip


def _evaluate(evidence: PointEvidence) -> CheckResults:
    drafter = evidence.arm.drafter
    if drafter is None or drafter.method not in ALWAYS or drafter.draft_lengths:
        return []
    steps, drafting = numbers(evidence.answered, "steps"), numbers(evidence.answered, "draft_steps")
    known = ~np.isnan(steps) & ~np.isnan(drafting)
    beyond_the_last = np.maximum((steps - drafting)[known] - LAST_STEP, 0.0)
    made, without = float(steps[known].sum()), float(beyond_the_last.sum())
    if without <= SHARE * made or not drafting[known].any():
        return []
    message = (
        f"{without / made:.0%} of {made:.0f} steps had no drafts, although {drafter.method} drafts at every step:"
        " the engine disabled its drafter at times, or counted tokens that no step generated"
    )
    return [CheckResult(Severity.WARNING, message, value=without / made, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="StepsWithoutDrafts",
    severities=(Severity.WARNING,),
    description="An arm whose method drafts at every step has steps without drafts.",
    threshold=(
        f"more than {SHARE:.0%} of the steps, beyond {LAST_STEP} per answer, with {', '.join(ALWAYS)}; no drafts at"
        " all are reported by NeverDrafted"
    ),
    rationale=(
        "The last step of an answer may have no room for drafts. More such steps mean a different configuration or"
        " a wrong count, and change the acceptance length by as much."
    ),
    remedy=(
        "Look for a batch size or a confidence at which the engine stops drafting, and report it with the result;"
        " compare one answer's tokens by hand."
    ),
    evaluate=_evaluate,
)
