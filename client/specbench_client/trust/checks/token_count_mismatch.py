"""Client, usage and counters must count the same tokens: every figure divides by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, total
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

OFF_BY = 1
ANSWERS_SHARE = 0.01
TOKENS_SHARE = 0.01


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    return [*_client_against_usage(evidence), *_usage_against_counters(evidence)]


def _client_against_usage(evidence: PointEvidence) -> list[Seen]:
    rows = evidence.answered
    difference = numbers(rows, "output_tokens") - numbers(rows, "output_tokens_client")
    known = difference[~np.isnan(difference)]
    share = float((np.abs(known) > OFF_BY).mean()) if known.size else 0.0
    if share <= ANSWERS_SHARE:
        return []
    message = (
        f"in {share:.0%} of {known.size} answers the engine's usage and the streamed chunks differ by more than"
        f" {OFF_BY} token (mean {known.mean():+.1f}): no time per token can be trusted"
    )
    return [Seen(Severity.INVALID, message, value=share, threshold=ANSWERS_SHARE)]


def _usage_against_counters(evidence: PointEvidence) -> list[Seen]:
    rows, counters = evidence.answered, evidence.counters
    usage = total(numbers(rows, "output_tokens"))
    if counters is None or counters.restarted or counters.output_tokens is None or not usage:
        return []
    lacking = usage - counters.output_tokens
    if lacking <= TOKENS_SHARE * usage + OFF_BY * len(rows):
        return []
    message = (
        f"the answers' usage adds up to {usage:.0f} tokens, the engine's own counter to {counters.output_tokens}:"
        " one of the two does not count what was generated, or the engine restarted in between"
    )
    return [Seen(Severity.INVALID, message, value=lacking / usage, threshold=TOKENS_SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="TokenCountMismatch",
    severities=(Severity.INVALID,),
    says="The client's, the usage's and the counters' output tokens differ.",
    threshold=(
        f"more than {ANSWERS_SHARE:.0%} of the answers off by more than {OFF_BY} token between chunks and usage; or the"
        f" counter lacks more than {TOKENS_SHARE:.0%} of the usage's tokens and {OFF_BY} an answer"
    ),
    argument=(
        "Engines differ in whether the end-of-sequence token counts: one token an answer is convention. A count that is"
        " off by 1 % moves every time per token and every speed-up by as much."
    ),
    remedy="Compare one answer by hand with the engine's tokenizer; report the engine's bug; do not use the numbers.",
    look=_look,
)
