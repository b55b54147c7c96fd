"""Client, usage and counters must count the same tokens: every figure divides by them.

One token an answer may differ by convention, and in an answer that ended itself alone: the token that ends it (or the
stop that is trimmed off it) is counted by one side and not by the other. An answer that was cut at its length has no
such token, so its counts must be equal.

What is convention in one answer is still added up over the point, with its sign. One token in a hundred vanishes in the
noise; one in three is a third of the time per token, whatever the reason, and no reader can tell which side is right.
A token too many on every answer of every arm cancels in no absolute figure, and in a speed-up only as far as the
answers of both sides are equally long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Mask, Values, numbers, total
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

END_TOKENS = 1
"""By how many tokens two sides may differ in an answer that ended itself."""
ANSWERS_SHARE = 0.01
TOKENS_SHARE = 0.01
LENGTH = "length"


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    return [*_client_against_usage(evidence), *_usage_against_counters(evidence)]


def _client_against_usage(evidence: PointEvidence) -> list[Seen]:
    rows = evidence.answered
    difference = numbers(rows, "output_tokens") - numbers(rows, "output_tokens_client")
    told = ~np.isnan(difference)
    known, allowed = difference[told], np.where(_ended_themselves(rows), END_TOKENS, 0)[told]
    if not known.size:
        return []
    share = float((np.abs(known) > allowed).mean())
    if share <= ANSWERS_SHARE:
        return _added_up(known, numbers(rows, "output_tokens")[told])
    message = (
        f"in {share:.0%} of {known.size} answers the engine's usage and the streamed chunks differ by more than the"
        f" token that ended them (mean {known.mean():+.1f}): no time per token can be trusted"
    )
    return [Seen(Severity.INVALID, message, value=share, threshold=ANSWERS_SHARE)]


def _added_up(difference: Values, usage: Values) -> list[Seen]:
    """What differences that convention explains one by one come to over the point."""
    if float((difference != 0).mean()) <= ANSWERS_SHARE:
        return []
    share = abs(float(difference.sum())) / max(float(usage.sum()), 1.0)
    message = (
        f"over {difference.size} answers the engine's usage counts {difference.sum():+.0f} tokens against the streamed"
        f" chunks ({share:.1%}): one of the two counts the token that ends an answer"
    )
    severity = Severity.DOUBT if share > TOKENS_SHARE else Severity.NOTE
    return [Seen(severity, message, value=share, threshold=TOKENS_SHARE)]


def _usage_against_counters(evidence: PointEvidence) -> list[Seen]:
    rows, counters = evidence.answered, evidence.counters
    usage = total(numbers(rows, "output_tokens"))
    if counters is None or counters.restarted or counters.output_tokens is None or not usage:
        return []
    lacking = usage - counters.output_tokens
    if lacking <= TOKENS_SHARE * usage:
        return []
    severity, why = Severity.INVALID, "one of the two does not count what was generated, or the engine restarted"
    if lacking <= TOKENS_SHARE * usage + END_TOKENS * int(_ended_themselves(rows).sum()):
        severity, why = Severity.DOUBT, "one of the two counts the token that ends an answer"
    counted = f"adds up to {usage:.0f} tokens, the engine's own counter to {counters.output_tokens}"
    return [Seen(severity, f"the answers' usage {counted}: {why}", value=lacking / usage, threshold=TOKENS_SHARE)]


def _ended_themselves(rows: pd.DataFrame) -> Mask:
    ended: Mask = (rows["finish_reason"] != LENGTH).to_numpy(np.bool_)
    return ended


CHECK: Check[PointEvidence] = Check(
    name="TokenCountMismatch",
    severities=(Severity.INVALID, Severity.DOUBT, Severity.NOTE),
    says="The client's, the usage's and the counters' output tokens differ.",
    threshold=(
        f"Invalid where more than {ANSWERS_SHARE:.0%} of the answers differ between chunks and usage (by any token if"
        f" they were cut at their length, by more than {END_TOKENS} where they ended themselves), or where the counter"
        f" lacks more than {TOKENS_SHARE:.0%} of the usage's tokens and {END_TOKENS} for each answer that ended itself."
        f" A Doubt where that one token explains each answer and all of them are more than {TOKENS_SHARE:.0%} of the"
        " point's tokens; a Note where they are fewer and stand between chunks and usage"
    ),
    argument=(
        "Engines differ in whether the end-of-sequence token counts: one token an answer is convention, of an answer"
        " that has such a token. A count that is off by 1 % moves every time per token and every speed-up by as much;"
        " short answers are off by more."
    ),
    remedy="Compare one answer by hand with the engine's tokenizer; report the engine's bug; do not use the numbers.",
    look=_look,
)
