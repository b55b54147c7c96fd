"""Prompts with different ids and the same text: the sample is smaller than it seems.

Records do not contain prompts, but their lengths and answers: at temperature 0, two prompts of the same length with the
same long answer have the same, or practically the same, text.
"""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.2
TOKENS_MIN = 16


def _evaluate(evidence: PointEvidence) -> CheckResults:
    if evidence.workload.sampling.temperature > 0:
        return []
    rows = steady_rows(evidence.rows)
    long = rows[(numbers(rows, "turn") == 0) & (numbers(rows, "tokens") >= TOKENS_MIN)]
    known = long[long["output_sha256"].notna().to_numpy(bool)].drop_duplicates("prompt_id")
    if known.empty:
        return []
    share = float(known.duplicated(["input_tokens", "output_sha256"]).mean())
    if share <= SHARE:
        return []
    message = (
        f"{share:.0%} of {len(known)} prompts have the same length and the same answer as another prompt: they are"
        " the same question, and the figures rest on fewer prompts than they seem to"
    )
    return [CheckResult(Severity.WARNING, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="DuplicatePrompts",
    severities=(Severity.WARNING,),
    description="At temperature 0, prompts of the same length got the same long answer.",
    threshold=f"more than {SHARE:.0%} of the prompts with an answer of at least {TOKENS_MIN} tokens repeat another one",
    rationale=(
        "Two different questions do not get the same sixteen tokens. Intervals treat each prompt as an independent"
        " sample: if a fifth of them repeat others, intervals are a tenth too narrow, and a drafter with a memory,"
        " or a prompt cache, has seen them before. `specbench dataset inspect` shows how similar different prompts"
        " are."
    ),
    remedy=(
        "Remove duplicates (`specbench dataset select` picks the most diverse prompts), or sample more of your traffic."
    ),
    evaluate=_evaluate,
)
