"""Records that no request can have left: told twice, with times that run backwards or away, or with a count below 0.

Our own client writes none of them. They come from files that were put together by hand or by another program, from a
clock that was set while it was read, or from a bug of ours: whichever it is, sums over them look like any others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Mask, flags, numbers
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

BACKWARDS_NS = 1e6
"""Sending is read in our process and arrival in the kernel: two readings of one moment may be a little apart."""
LATEST_NS, MOST_TOKENS = 2.0**53, 2.0**24
"""Beyond these, 104 days and 16 million tokens, a tidy row holds a number no longer exactly: no request is as long."""
_IN_ORDER = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")
_COUNTS = ("input_tokens", "output_tokens", "output_tokens_client", "cached_tokens")


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    broken = [(words, int(rows.sum())) for words, rows in _kinds(evidence) if rows.any()]
    if not broken:
        return []
    told = "; ".join(f"{count} of {len(evidence.rows)} {words}" for words, count in broken)
    message = f"of the records {told}: no request leaves such a record, and no figure over them is true"
    return [Seen(Severity.INVALID, message, value=max(count for _, count in broken), threshold=1)]


def _kinds(evidence: PointEvidence) -> Iterator[tuple[str, Mask]]:
    """What cannot be, in words, and which records tell it. What is missing tells nothing."""
    rows = evidence.rows
    asked = ~flags(rows, "filler")
    yield "are there twice", asked & rows.duplicated(["conversation_id", "turn"]).to_numpy(bool)
    yield f"are of another repeat than {evidence.point.repeat}", numbers(rows, "repeat") != evidence.point.repeat
    times = [numbers(rows, name) for name in _IN_ORDER]
    backwards = [earlier - later > BACKWARDS_NS for earlier, later in combinations(times, 2)]
    yield "have times that run backwards", np.any(backwards, axis=0)
    yield "begin before their point", times[0] < -BACKWARDS_NS
    yield "have a time of later than 104 days", np.any([each > LATEST_NS for each in times], axis=0)
    yield "end when they begin", flags(rows, "ok") & (times[-1] <= times[0])
    yield "were answered and never sent", flags(rows, "ok") & np.isnan(numbers(rows, "sent_ns"))
    counts = [numbers(rows, name) for name in _COUNTS]
    yield "have a count below 0", np.any([each < 0 for each in counts], axis=0)
    yield "have a count above 16 million", np.any([each > MOST_TOKENS for each in counts], axis=0)
    yield "have more cached than prompt tokens", numbers(rows, "cached_tokens") > numbers(rows, "input_tokens")


CHECK: Check[PointEvidence] = Check(
    name="ImpossibleRecords",
    severities=(Severity.INVALID,),
    says="Records are there twice, have times that run backwards or away, or counts that cannot be.",
    threshold=(
        "any record with a conversation and turn that another one has, of another repeat than its point's, with a time"
        f" more than {BACKWARDS_NS / 1e6:g} ms before one that must precede it (intended, sent, first byte, first"
        " token, last token), before its point's start or later than 104 days after it, answered without having been"
        " sent or without any duration, with a count of tokens below 0 or above 16 million, or with more cached than"
        " prompt tokens"
    ),
    argument=(
        "Our client leaves none: each is a file that was changed, a clock that was set, or a bug. A record that is"
        " there twice counts twice in every sum, and a time that runs backwards makes an arm look faster."
    ),
    remedy=(
        "Take the records as the client wrote them (the manifest's SHA-256 tells); where they are, report the bug and"
        " measure again."
    ),
    look=_look,
)
