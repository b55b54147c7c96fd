"""One text for many prompts: the answers do not depend on the question.

The cause may be a mock behind the wrong endpoint, a broken chat template or a model that was not loaded: such an
endpoint is fast and its text is easy to draft. Labels are the legitimate exception: a classifier gives the same label
to many prompts.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

PROMPTS = 10
SHARE = 0.5
LABEL_TOKENS = 8


def _evaluate(evidence: PointEvidence) -> CheckResults:
    rows = steady_rows(evidence.rows)
    texts = rows["output_sha256"].dropna()
    if texts.empty:
        return []
    same = (rows["output_sha256"] == texts.mode().iloc[0]).to_numpy(np.bool_)
    prompts, share = int(rows["prompt_id"][same].nunique()), float(same.sum() / len(texts))
    if prompts <= PROMPTS or share <= SHARE:
        return []
    tokens = float(np.nanmax(np.append(numbers(rows, "tokens")[same], 0.0)))
    message = f"{share:.0%} of the answers, to {prompts} different prompts, are the same text of {tokens:.0f} tokens"
    return [
        CheckResult(Severity.WARNING if tokens > LABEL_TOKENS else Severity.INFO, message, value=share, threshold=SHARE)
    ]


CHECK: Check[PointEvidence] = Check(
    name="IdenticalAnswers",
    severities=(Severity.WARNING, Severity.INFO),
    description="Most answers to different prompts are the same text.",
    threshold=(
        f"more than {SHARE:.0%} of the steady answers, to more than {PROMPTS} prompts; Info if the text has at most"
        f" {LABEL_TOKENS} tokens"
    ),
    rationale=(
        "Different open questions hardly ever have the same answer. A label of a few words may be the right answer to"
        " most prompts."
    ),
    remedy="Read an answer (--keep-text), and look for a wrong endpoint, a broken chat template or an empty prompt.",
    evaluate=_evaluate,
)
