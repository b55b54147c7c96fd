"""Different prompts that are one: the same question under many names is one witness, not many.

Prompts are not in the records, their lengths and their answers are: at temperature 0, two prompts of one length that
got one and the same long answer are the same text, or as good as that.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, steady
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.2
TOKENS_MIN = 16


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    if evidence.plan.workload(evidence.point.workload).sampling.temperature > 0:
        return []
    rows = steady(evidence.rows)
    long = rows[(numbers(rows, "turn") == 0) & (numbers(rows, "tokens") >= TOKENS_MIN)]
    told = long[long["output_sha256"].notna().to_numpy(bool)].drop_duplicates("prompt_id")
    if told.empty:
        return []
    share = float(told.duplicated(["input_tokens", "output_sha256"]).mean())
    if share <= SHARE:
        return []
    message = (
        f"of {len(told)} prompts {share:.0%} have the length and the very answer of another one: they are the same"
        " question, and the figures rest on fewer prompts than they seem to"
    )
    return [Seen(Severity.DOUBT, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="AlikePrompts",
    severities=(Severity.DOUBT,),
    says="At temperature 0, prompts of one length got the very same long answer.",
    threshold=f"more than {SHARE:.0%} of the prompts with an answer of at least {TOKENS_MIN} tokens repeat another one",
    argument=(
        "Two different questions do not get the same sixteen tokens in the same words. Intervals count each prompt as a"
        " witness of its own; where a fifth of them repeat others they are a tenth too narrow, and a drafter with a"
        " memory, or a prompt cache, has seen them before. How alike prompts are that differ, `specbench dataset"
        " inspect` tells."
    ),
    remedy="Remove doubles (`specbench dataset select` takes the most different ones), or draw more of your traffic.",
    look=_look,
)
