"""Client, usage and counters must count the same tokens, because every figure divides by them.

One token per answer may differ by convention, but only if the answer was not cut: the token that ends it (or the stop
that is trimmed off) is counted by one side and not by the other. An answer that was cut at its length has no such
token, so its counts must be equal.

Differences that are a convention in one answer are still summed over the point, with their sign. One token in a hundred
is within the noise; one in three changes the time per token by a third, and it is not clear which side is right. One
token too many on every answer of every arm biases every absolute figure, and cancels in a speed-up only as far as the
answers of both sides are equally long.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import Mask, Values, known_sum, numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

END_TOKENS = 1
"""Tokens by which two counts of an answer that was not cut may differ."""
ANSWERS_SHARE = 0.01
TOKENS_SHARE = 0.01
LENGTH = "length"


def _evaluate(evidence: PointEvidence) -> CheckResults:
    return [*_client_against_usage(evidence), *_usage_against_counters(evidence)]


def _client_against_usage(evidence: PointEvidence) -> list[CheckResult]:
    rows = evidence.answered
    difference = numbers(rows, "output_tokens") - numbers(rows, "output_tokens_client")
    both = ~np.isnan(difference)
    known, allowed = difference[both], np.where(_not_cut(rows), END_TOKENS, 0)[both]
    if not known.size:
        return []
    share = float((np.abs(known) > allowed).mean())
    if share <= ANSWERS_SHARE:
        return _added_up(known, numbers(rows, "output_tokens")[both])
    message = (
        f"in {share:.0%} of {known.size} answers the engine's usage and the streamed chunks differ by more than the"
        f" end token (mean {known.mean():+.1f}): no time per token is reliable"
    )
    return [CheckResult(Severity.INVALID, message, value=share, threshold=ANSWERS_SHARE)]


def _added_up(difference: Values, usage: Values) -> list[CheckResult]:
    """Report the sum over the point of differences that the convention explains one by one."""
    if float((difference != 0).mean()) <= ANSWERS_SHARE:
        return []
    share = abs(float(difference.sum())) / max(float(usage.sum()), 1.0)
    message = (
        f"over {difference.size} answers the engine's usage counts {difference.sum():+.0f} tokens compared with the"
        f" streamed chunks ({share:.1%}): one of the two counts the token that ends an answer"
    )
    severity = Severity.WARNING if share > TOKENS_SHARE else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=TOKENS_SHARE)]


def _usage_against_counters(evidence: PointEvidence) -> list[CheckResult]:
    rows, counters = evidence.answered, evidence.monotonic_counters
    usage = known_sum(numbers(rows, "output_tokens"))
    if counters is None or counters.output_tokens is None or not usage:
        return []
    lacking = usage - counters.output_tokens
    if lacking <= TOKENS_SHARE * usage:
        return []
    severity, why = Severity.INVALID, "one of the two misses generated tokens, or the engine restarted"
    if lacking <= TOKENS_SHARE * usage + END_TOKENS * int(_not_cut(rows).sum()):
        severity, why = Severity.WARNING, "one of the two counts the token that ends an answer"
    counted = f"adds up to {usage:.0f} tokens, but the engine's own counter to {counters.output_tokens}"
    return [
        CheckResult(severity, f"the answers' usage {counted}: {why}", value=lacking / usage, threshold=TOKENS_SHARE)
    ]


def _not_cut(rows: pd.DataFrame) -> Mask:
    ended: Mask = (rows["finish_reason"] != LENGTH).to_numpy(np.bool_)
    return ended


CHECK: Check[PointEvidence] = Check(
    name="TokenCountMismatch",
    severities=(Severity.INVALID, Severity.WARNING, Severity.INFO),
    description="The output tokens according to the client, the usage and the counters differ.",
    threshold=(
        f"Invalid if chunks and usage disagree in more than {ANSWERS_SHARE:.0%} of the answers, or if the counter has"
        f" more than {TOKENS_SHARE:.0%} fewer tokens than the usage. {END_TOKENS} token per answer is allowed, the"
        " end-of-sequence token, except for answers cut at their length. Differences within this allowance are a"
        f" Warning above {TOKENS_SHARE:.0%} of the point's tokens; below that, Info for chunks against usage"
    ),
    rationale=(
        "Engines differ in whether they count the end-of-sequence token, which an answer cut at its length does not"
        " have. A count that is wrong by 1 % changes every time per token and every speed-up by as much; for short"
        " answers the error is larger."
    ),
    remedy=(
        "Check that the dialect (`specbench measure`: --dialect) is the engine's, and that no proxy or reasoning parser"
        " changes the stream. Then compare one answer by hand with the engine's tokenizer: if the engine counts"
        " wrongly, report its bug, and do not use the numbers."
    ),
    evaluate=_evaluate,
)
