"""The same prompt with a different number of prompt tokens than on the baseline: the two arms read different inputs.

Causes are a different chat template, a duplicated start token, a system prompt that a gateway adds, or a prompt that
was cut. Each changes what the model reads, and with it the answer, its length and its acceptance.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_client.metrics.rows import iter_pieces
from specbench_client.metrics.tidy_frame import Values, numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SHARE = 0.01


def _evaluate(evidence: CellEvidence) -> CheckResults:
    if evidence.pairs is None:
        return []
    known, found = 0, list[Values]()
    for piece in iter_pieces(evidence.pairs.rows):
        more = numbers(piece, "input_tokens" + ARM) - numbers(piece, "input_tokens" + BASELINE)
        known += int((~np.isnan(more)).sum())
        found.append(more[(more != 0) & ~np.isnan(more)])
    differences = np.concatenate(found)
    share = differences.size / known if known else 0.0
    if share <= SHARE:
        return []
    middle = float(np.median(differences))
    message = (
        f"{share:.0%} of {known} paired requests have a different number of prompt tokens than the"
        f" baseline's (median difference {middle:+.0f}): the two arms read different prompts"
    )
    return [CheckResult(Severity.INVALID, message, value=share, threshold=SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="PromptTokensDiffer",
    severities=(Severity.INVALID,),
    description=(
        "For the same prompts, the arm's engine read a different number of prompt tokens than the baseline's."
    ),
    threshold=(
        f"more than {SHARE:.0%} of the pairs whose prompt tokens both engines report; of later turns, only those"
        " whose earlier replies were the same"
    ),
    rationale=(
        "One model with one template turns the same text into the same tokens, so the expected share is 0. A"
        " template that prints the date may add a token at midnight, in a few requests. A different prompt is a"
        " different task, so no comparison is valid."
    ),
    remedy=(
        "Compare the arms' chat templates (`provenance.json`), start tokens and context lengths; or let the client"
        " apply the template (chatTemplate.appliedBy: Client), so that both arms read the same token ids."
    ),
    evaluate=_evaluate,
)
