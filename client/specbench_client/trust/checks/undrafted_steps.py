"""Steps without drafts where the method drafts at every step.

An n-gram or suffix lookup may find nothing; a drafting model always has a guess. Steps that are left over then were
made with the drafter switched off (beyond a batch size, below a confidence), or they are tokens that were never made: a
count that is too high shows as steps that nobody drafted for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_api.spec.drafter import Method
from specbench_client.metrics.frame import numbers
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.05
LAST_STEP = 1
ALWAYS = (
    Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.MEDUSA, Method.PARD, Method.DFLASH,
    Method.DSPARK,
)  # fmt: skip


def _look(evidence: PointEvidence) -> Sequence[Seen]:
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
        f"{without / made:.0%} of {made:.0f} steps had no drafts, though {drafter.method} drafts at every step: the"
        " engine left its drafter out, or tokens were counted that no step made"
    )
    return [Seen(Severity.DOUBT, message, value=without / made, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="UndraftedSteps",
    severities=(Severity.DOUBT,),
    says="An arm whose method drafts at every step has steps without drafts.",
    threshold=(
        f"more than {SHARE:.0%} of the steps beyond {LAST_STEP} an answer, of {', '.join(ALWAYS)}; no drafts at all are"
        " NeverDrafted's"
    ),
    argument=(
        "The last step of an answer may have no room for drafts. More of them speak of another configuration, or of a"
        " wrong count, and move the acceptance length by as much."
    ),
    remedy=(
        "Look for a batch size or a confidence from which on the engine does not draft, and say so with the result;"
        " compare one answer's tokens by hand."
    ),
    look=_look,
)
