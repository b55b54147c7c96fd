"""The arm's tokens contain a different amount of text than the baseline's, so one of the token counts is wrong.

At temperature 0 the token counts of equal texts are compared (SameTextDifferentTokenCount). At other temperatures the
texts differ, but not the amount of text per token of one model over the same prompts. Needs the answers' texts
(`--keep-text`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.rows import Columns, Rows
from specbench_client.metrics.tidy_frame import Values, numbers, steady_rows, sums_by_text
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SHARE = 0.1
ERRORS = 3.0
PROMPTS_MIN = 5


def _evaluate(evidence: CellEvidence) -> CheckResults:
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
        f"over the same prompts, a token contains {ours:.2f} bytes of text on this arm and {base:.2f} on the"
        f" baseline ({ours / base - 1:+.0%}): one of the two token counts is wrong"
    )
    return [CheckResult(Severity.WARNING, message, value=abs(ours / base - 1), threshold=SHARE)]


def _by_prompt(rows: Rows) -> pd.DataFrame:
    """Bytes of text and tokens per prompt, summed over the steady answers that have both."""
    sums = sums_by_text(steady_rows(rows), "prompt_id", _size_and_tokens)
    named = pd.DataFrame(sums.to_numpy(np.float64).reshape(-1, 2), index=sums.index, columns=["size", "tokens"])
    return named[named["size"] > 0]


def _size_and_tokens(rows: Columns) -> list[Values]:
    tokens = numbers(rows, "tokens")
    return [numbers(rows, "text_bytes"), np.where(tokens > 0, tokens, np.nan)]


def _pooled(sums: pd.DataFrame, side: str) -> float:
    return float(sums["size" + side].sum() / sums["tokens" + side].sum())


CHECK: Check[CellEvidence] = Check(
    name="BytesPerTokenDiffer",
    severities=(Severity.WARNING,),
    description="At temperatures above 0, the arm's tokens contain a different amount of text than the baseline's.",
    threshold=(
        f"bytes per token over the same prompts that differ by more than {SHARE:.0%} and by more than {ERRORS:g}"
        f" standard errors, over at least {PROMPTS_MIN} prompts; only where texts were stored"
    ),
    rationale=(
        "Sampled answers to the same prompts have the same language and style, so bytes per token agree within a"
        " few hundredths. A count that is a tenth too high makes the arm look a tenth faster."
    ),
    remedy=(
        "Compare one answer by hand with the engine's tokenizer, and measure at temperature 0, where texts are equal."
    ),
    evaluate=_evaluate,
)
