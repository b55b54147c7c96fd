"""The same text as the baseline's, and another number of tokens: a count that lies only where the drafter is on.

One token more an answer may be convention between chunks and usage: engines differ in whether the end of it counts.
Between two arms of one engine it does not: the same answer has the same tokens, and each one more makes the arm faster
by its share of the answer. On short answers that is a tenth of the claim.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Mask, numbers
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

TOKENS_SHARE = 0.01


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if evidence.pairs is None:
        return []
    rows = evidence.pairs.rows
    same: Mask = (rows["output_sha256" + ARM] == rows["output_sha256" + BASELINE]).to_numpy(np.bool_)
    mine, theirs = numbers(rows, "tokens" + ARM), numbers(rows, "tokens" + BASELINE)
    told = same & rows["output_sha256" + ARM].notna().to_numpy(np.bool_) & ~np.isnan(mine) & ~np.isnan(theirs)
    ours, base = float(mine[told].sum()), float(theirs[told].sum())
    share = ours / base - 1 if base else 0.0
    if abs(share) <= TOKENS_SHARE:
        return []
    message = (
        f"{int(told.sum())} answers have the very text of the paired baseline's, and {ours:.0f} tokens where it has"
        f" {base:.0f} ({share:+.1%}): the speed-up is off by as much"
    )
    return [Seen(Severity.INVALID, message, value=abs(share), threshold=TOKENS_SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="SameTextOtherCount",
    severities=(Severity.INVALID,),
    says="Answers with the very text of the paired baseline's are counted with more or fewer tokens.",
    threshold=f"tokens of the pairs with the same text that differ by more than {TOKENS_SHARE:.0%}",
    argument=(
        "The same text of the same model is the same tokens; whatever an arm counts beyond them is added to its"
        " speed-up and to its acceptance length."
    ),
    remedy="Compare one answer by hand with the engine's tokenizer; report the engine's bug; do not use the numbers.",
    look=_look,
)
