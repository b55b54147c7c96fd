"""The same prompt, and another number of prompt tokens than on the baseline: the two were asked other things.

A chat template of its own, a start token twice, a system prompt that a gateway puts in front, a prompt that was cut:
each changes what the model reads, and with it the answer, its length, and what a drafter makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SHARE = 0.01


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if evidence.pairs is None:
        return []
    rows = evidence.pairs.rows
    mine, theirs = numbers(rows, "input_tokens" + ARM), numbers(rows, "input_tokens" + BASELINE)
    known = ~np.isnan(mine) & ~np.isnan(theirs)
    differs = known & (mine != theirs)
    share = float(differs.sum() / known.sum()) if known.any() else 0.0
    if share <= SHARE:
        return []
    middle = float(np.median(mine[differs] - theirs[differs]))
    message = (
        f"{share:.0%} of {int(known.sum())} paired requests have another number of prompt tokens than the baseline's"
        f" (the median difference is {middle:+.0f}): the two arms were asked other things"
    )
    return [Seen(Severity.INVALID, message, value=share, threshold=SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="PromptTokensDiffer",
    severities=(Severity.INVALID,),
    says="The engine of the arm read another number of prompt tokens than the baseline's, for the same prompts.",
    threshold=(
        f"more than {SHARE:.0%} of the pairs whose prompt tokens both engines tell; of later turns those whose earlier"
        " replies were the same"
    ),
    argument=(
        "One model and one template make the same tokens of the same text: honest is 0. A template that prints the date"
        " may add one at midnight, in a few requests. Another prompt is another task, so nothing compared holds."
    ),
    remedy=(
        "Compare the arms' chat templates (`provenance.json`), start tokens and context lengths; or let the client"
        " apply the template (chatTemplate.appliedBy: Client), so that both read the same token ids."
    ),
    look=_look,
)
