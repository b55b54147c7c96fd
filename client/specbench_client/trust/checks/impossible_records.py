"""Records that no request can produce: duplicates, times out of order or out of range, or impossible counts.

Our own client writes none of them. They come from files that were assembled by hand or by another program, from a clock
that was set during the measurement, or from a bug of ours. Sums over such records look like any others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import Mask, flags, numbers
from specbench_client.trust.check import Check, CheckResults, report_impossible
from specbench_client.trust.evidence import PointEvidence

BACKWARDS_NS = 1e6
"""Tolerance in ns: sending is timestamped in our process and arrival in the kernel, so the two may differ slightly."""
LATEST_NS, MOST_TOKENS = 2.0**53, 2.0**24
"""Maximum time in ns (104 days) and maximum token count (16 million): beyond them, tidy rows are no longer exact."""
_IN_ORDER = ("intended_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns")
_COUNTS = ("input_tokens", "output_tokens", "output_tokens_client", "cached_tokens")


def _evaluate(evidence: PointEvidence) -> CheckResults:
    consequence = "no request produces such records, so no figure of this point is usable"
    return report_impossible(_kinds(evidence), f"{len(evidence.rows)} records", consequence)


def _kinds(evidence: PointEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield each impossible condition, in words, with a mask, shape (rows,). Missing values meet none of them."""
    rows = evidence.rows
    measured = ~flags(rows, "filler")
    yield "are duplicates", measured & rows.duplicated(["conversation_id", "turn"]).to_numpy(bool)
    yield f"belong to a repeat other than {evidence.point.repeat}", numbers(rows, "repeat") != evidence.point.repeat
    times = [numbers(rows, name) for name in _IN_ORDER]
    backwards = [earlier - later > BACKWARDS_NS for earlier, later in combinations(times, 2)]
    yield "have times in the wrong order", np.any(backwards, axis=0)
    yield "begin before their point", times[0] < -BACKWARDS_NS
    yield "have a time later than 104 days", np.any([each > LATEST_NS for each in times], axis=0)
    yield "have no duration", flags(rows, "ok") & (times[-1] <= times[0])
    yield "were answered but never sent", flags(rows, "ok") & np.isnan(numbers(rows, "sent_ns"))
    counts = [numbers(rows, name) for name in _COUNTS]
    yield "have a count below 0", np.any([each < 0 for each in counts], axis=0)
    yield "have a count above 16 million", np.any([each > MOST_TOKENS for each in counts], axis=0)
    yield "have more cached than prompt tokens", numbers(rows, "cached_tokens") > numbers(rows, "input_tokens")


CHECK: Check[PointEvidence] = Check(
    name="ImpossibleRecords",
    severities=(Severity.INVALID,),
    description="Records are duplicated, have times out of order or out of range, or have impossible counts.",
    threshold=(
        "any record with the same conversation and turn as another one; with another repeat than its point's; with a"
        f" time more than {BACKWARDS_NS / 1e6:g} ms before one that must precede it (intended, sent, first byte,"
        " first token, last token), before the start of its point or more than 104 days after it; answered without"
        " having been sent, or without any duration; with a token count below 0 or above 16 million; or with more"
        " cached than prompt tokens"
    ),
    rationale=(
        "Our client writes no such records: each one is a modified file, a clock that was set, or a bug. A"
        " duplicate counts twice in every sum, and times in the wrong order make an arm look faster."
    ),
    remedy=(
        "Use the records as the client wrote them (compare the SHA-256 in the manifest). If they are unmodified,"
        " report the bug and measure again."
    ),
    evaluate=_evaluate,
)
