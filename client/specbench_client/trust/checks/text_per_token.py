"""Another amount of text in a token than on the baseline: somebody counts tokens that are none.

At temperature 0 the counts of equal texts are compared (SameTextOtherCount). At other temperatures texts differ, but
not how much text a token of this model holds, over the same prompts. Needs the answers' texts (`--keep-text`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, steady
from specbench_client.metrics.rows import Rows, read
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SHARE = 0.1
ERRORS = 3.0
PROMPTS_MIN = 5


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if evidence.baseline is None or evidence.greedy:
        return []
    both = _by_prompt(evidence.rows).join(_by_prompt(evidence.baseline), how="inner", rsuffix="_base")
    if len(both) < PROMPTS_MIN:
        return []
    ours, base = _pooled(both, ""), _pooled(both, "_base")
    shifts = np.log(numbers(both, "size") / numbers(both, "tokens"))
    shifts -= np.log(numbers(both, "size_base") / numbers(both, "tokens_base"))
    error = float(shifts.std(ddof=1) / np.sqrt(shifts.size))
    if abs(ours / base - 1) <= SHARE or abs(float(shifts.mean())) <= ERRORS * error:
        return []
    message = (
        f"a token holds {ours:.2f} bytes of text, and {base:.2f} on the baseline over the same prompts"
        f" ({ours / base - 1:+.0%}): one of the two counts tokens that are none"
    )
    return [Seen(Severity.DOUBT, message, value=abs(ours / base - 1), threshold=SHARE)]


def _by_prompt(rows: Rows) -> pd.DataFrame:
    """Bytes of text and tokens of each prompt's steady answers, of those that have both."""
    inside = read(steady(rows), ["prompt_id", "text_bytes", "tokens"])
    told = inside[inside["text_bytes"].notna().to_numpy(np.bool_) & (numbers(inside, "tokens") > 0)]
    sums = told.assign(size=told["text_bytes"]).groupby("prompt_id")[["size", "tokens"]].sum()
    return sums[sums["size"] > 0]


def _pooled(sums: pd.DataFrame, side: str) -> float:
    return float(sums["size" + side].sum() / sums["tokens" + side].sum())


CHECK: Check[CellEvidence] = Check(
    name="TextPerToken",
    severities=(Severity.DOUBT,),
    says="At temperatures above 0, the arm's tokens hold another amount of text than the baseline's.",
    threshold=(
        f"bytes a token over the same prompts that differ by more than {SHARE:.0%}, and by more than {ERRORS:g}"
        f" standard errors over at least {PROMPTS_MIN} prompts; only where texts were kept"
    ),
    argument=(
        "Sampled answers to the same prompts are in the same language and style: bytes a token agree within a few"
        " hundredths. A count that is a tenth too high makes the arm a tenth faster."
    ),
    remedy="Compare one answer by hand with the engine's tokenizer; measure at temperature 0, where texts are equal.",
    look=_look,
)
