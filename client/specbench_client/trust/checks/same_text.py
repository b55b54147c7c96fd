"""One text for many prompts: whoever answers does not read the question.

A mock behind the wrong endpoint, a broken chat template, a model that was not loaded: it is as fast as can be, and as
easy to draft. Labels are the honest exception: a classifier says the same word to most of its prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, steady
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

PROMPTS = 10
SHARE = 0.5
LABEL_TOKENS = 8


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    rows = steady(evidence.rows)
    texts = rows["output_sha256"].dropna()
    if texts.empty:
        return []
    same = (rows["output_sha256"] == texts.mode().iloc[0]).to_numpy(np.bool_)
    prompts, share = int(rows["prompt_id"][same].nunique()), float(same.sum() / len(texts))
    if prompts <= PROMPTS or share <= SHARE:
        return []
    tokens = float(np.nanmax(np.append(numbers(rows, "tokens")[same], 0.0)))
    message = (
        f"{share:.0%} of the answers, to {prompts} different prompts, are one and the same text of {tokens:.0f} tokens"
    )
    return [Seen(Severity.DOUBT if tokens > LABEL_TOKENS else Severity.NOTE, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="SameText",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="Most answers to different prompts are the very same text.",
    threshold=(
        f"more than {SHARE:.0%} of the steady answers, to more than {PROMPTS} prompts; a Note where the text has no"
        f" more than {LABEL_TOKENS} tokens"
    ),
    argument=(
        "Two open questions hardly ever get one answer, ten never. A label of a few words may be the right answer to"
        " most of them."
    ),
    remedy="Read an answer (--keep-text): look for the wrong endpoint, a broken chat template, an empty prompt.",
    look=_look,
)
