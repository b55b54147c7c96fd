"""The same text as the baseline's with a different number of tokens: one of the arms counts wrongly.

A difference of one token per answer between chunks and usage may be a convention: engines differ in whether the
end-of-sequence token counts. Between two arms of one engine it is not: the same answer has the same tokens, and each
extra token makes the arm look faster by its share of the answer. On short answers that can be a tenth of the claim.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_client.metrics.rows import Columns, iter_pieces
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

TOKENS_SHARE = 0.01


def _evaluate(evidence: CellEvidence) -> CheckResults:
    if evidence.pairs is None:
        return []
    each = [_counts(piece) for piece in iter_pieces(evidence.pairs.rows)]
    answers, ours, base = (float(total) for total in np.sum(each, axis=0))
    share = ours / base - 1 if base else 0.0
    if abs(share) <= TOKENS_SHARE:
        return []
    message = (
        f"{answers:.0f} answers have exactly the text of the paired baseline's, but {ours:.0f} tokens instead"
        f" of {base:.0f} ({share:+.1%}): the speed-up is wrong by as much"
    )
    return [CheckResult(Severity.INVALID, message, value=abs(share), threshold=TOKENS_SHARE)]


def _counts(pairs: Columns) -> tuple[float, float, float]:
    """Number of pairs with the same text, and the tokens of both sides."""
    texts, tokens = ([numbers(pairs, name + side) for side in (ARM, BASELINE)] for name in ("output_sha256", "tokens"))
    known = (texts[0] == texts[1]) & ~np.isnan(tokens).any(axis=0)  # A missing text equals no other.
    return float(known.sum()), float(tokens[0][known].sum()), float(tokens[1][known].sum())


CHECK: Check[CellEvidence] = Check(
    name="SameTextDifferentTokenCount",
    severities=(Severity.INVALID,),
    description="Answers with exactly the paired baseline's text are counted with more or fewer tokens.",
    threshold=f"token counts that differ by more than {TOKENS_SHARE:.0%} over the pairs with the same text",
    rationale=(
        "The same text from the same model has the same tokens; any token that an arm counts beyond them increases"
        " its speed-up and its acceptance length."
    ),
    remedy=(
        "Compare one answer by hand with the engine's tokenizer, report the engine's bug, and do not use the numbers."
    ),
    evaluate=_evaluate,
)
