"""Latency of a request as its user experiences it: from the time at which it was intended to be sent.

In a closed loop a request is intended when its stream is free, in an open loop at its scheduled time (a later turn:
when the previous one was answered), so any delay of the client is part of the latency. The `_from_send` variants are
measured from the socket instead: the difference is the client's own delay (up to `connect_ns`) and the time to connect,
which is the server's.
"""

from __future__ import annotations

import numpy as np

from specbench_client.columns import Values
from specbench_client.metrics.metric_types import FigureOrigin, RequestMetric
from specbench_client.metrics.rows import Table, group_numbers
from specbench_client.metrics.tidy_frame import numbers, sent_rows

NS_PER_MS = 1e6


def _latency(name: str, definition: str, missing: str, start: str, end: str) -> RequestMetric:
    """Return the time between two timestamps of a request."""
    return RequestMetric(
        name,
        "ms",
        f"{definition}: {end} − {start}",
        missing,
        FigureOrigin.CLIENT,
        lambda rows: (numbers(rows, end) - numbers(rows, start)) / NS_PER_MS,
        long_tailed=True,
    )


_NOT_STREAMED = "the answer had no content, or was not streamed"
_EMPTY = "the answer had no content"

TTFT_MS = _latency("ttft_ms", "Time to first token", _NOT_STREAMED, "intended_ns", "first_token_ns")
TTFT_SENT_MS = _latency(
    "ttft_from_send_ms", "Time to first token, measured from sending", _NOT_STREAMED, "sent_ns", "first_token_ns"
)
E2E_MS = _latency("e2e_ms", "E2E latency, the time to the last token", _EMPTY, "intended_ns", "last_token_ns")
E2E_SENT_MS = _latency("e2e_from_send_ms", "E2E latency, measured from sending", _EMPTY, "sent_ns", "last_token_ns")

MEASURES = (TTFT_MS, TTFT_SENT_MS, E2E_MS, E2E_SENT_MS)


# Stream-end delay is the time between the last token of an answer and the end of the exchange.
#
# A stream intends to send its next request when its last exchange ended, so the next `intended_ns` is that end. The
# time between the last token and that end (usage and stream end held back, connection closed late) is in no latency
# and in no speed-up, although the stream does nothing else meanwhile.
#
# If an engine does not report tokens per chunk, an end-of-sequence token may have no chunk with text: one gap between
# chunks is then a decode step, and is subtracted. Where users think between turns, a stream waits with its user before
# a later turn and after a filler, so only the requests that follow a measured conversation show the delay. That ends
# with the request that ends last, which need not be its last turn: requests of agents overlap.

_END_DELAY_COLUMNS = [
    "stream_index",
    "intended_ns",
    "first_token_ns",
    "last_token_ns",
    "chunks",
    "chunk_tokens_known",
    "ok",
    "error_class",
]
_THINKING_COLUMNS = ("turn", "filler")


def stream_end_delay_ns(rows: Table, *, thinks: bool) -> tuple[Values, Values]:
    """Return stream-end delay and total time in ns, for each answer that another request of its stream follows.

    `thinks`: whether streams wait between the turns of a conversation. Both arrays have the shape (answers,).
    """
    columns = [*_END_DELAY_COLUMNS, *(_THINKING_COLUMNS if thinks else ())]
    found = [_end_delays_of_point(sent_rows(point).table(columns), thinks=thinks) for point in rows.by_point()]
    after, whole = (np.concatenate([np.empty(0), *each]) for each in (zip(*found, strict=True) if found else ((), ())))
    return after, whole


def _end_delays_of_point(rows: Table, *, thinks: bool) -> tuple[Values, Values]:
    stream, begun = numbers(rows, "stream_index"), numbers(rows, "intended_ns")
    ordered = rows.assign(begun_ns=begun).at(np.lexsort((begun, stream)))
    if thinks:
        ordered = _ends_of_conversations(ordered)
    stream, begun, ended = numbers(ordered, "stream_index"), numbers(ordered, "begun_ns"), np.full(len(ordered), np.nan)
    ended[:-1] = np.where(stream[1:] == stream[:-1], begun[1:], np.nan)
    after = ended - numbers(ordered, "last_token_ns") - _step_gap_ns(ordered)
    whole = ended - numbers(ordered, "intended_ns")
    known = ordered.array("ok") & ~np.isnan(after)
    if thinks:
        known &= ~ordered.array("filler")
    return np.maximum(after[known], 0.0), whole[known]


def _ends_of_conversations(rows: Table) -> Table:
    """Return the row of each conversation that ends last, with the conversation's begin; ok if all its rows are."""
    stream, begun, turn = (numbers(rows, name) for name in ("stream_index", "intended_ns", "turn"))
    ordered = rows.at(np.lexsort((turn, begun, stream)))
    stream, begun, turn = (numbers(ordered, name) for name in ("stream_index", "intended_ns", "turn"))
    conversation = group_numbers(stream, np.cumsum(turn == 0))
    first = np.full(len(ordered), np.inf)
    np.minimum.at(first, conversation, begun)
    all_ok = np.bincount(conversation, ~ordered.array("ok")) == 0
    by_end = np.lexsort((np.nan_to_num(numbers(ordered, "last_token_ns"), nan=-np.inf), conversation))
    last = np.sort(by_end[np.flatnonzero(np.diff(conversation[by_end], append=-1))])
    return ordered.assign(begun_ns=first[conversation], ok=all_ok[conversation]).at(last)


def stream_end_delay_share(rows: Table, *, thinks: bool = False) -> float | None:
    """Return the stream-end delay as a share of the streams' time; None if no stream has another request."""
    after, whole = stream_end_delay_ns(rows, thinks=thinks)
    return float(after.sum() / whole.sum()) if whole.sum() > 0 else None


def _step_gap_ns(rows: Table) -> Values:
    """Mean gap in ns between the chunks of answers without tokens per chunk; 0 for the others. Shape (rows,)."""
    span = numbers(rows, "last_token_ns") - numbers(rows, "first_token_ns")
    gaps = np.where(~rows.array("chunk_tokens_known"), np.nan_to_num(numbers(rows, "chunks")) - 1, 0.0)
    return np.where(gaps > 0, span / np.maximum(gaps, 1.0), 0.0)
