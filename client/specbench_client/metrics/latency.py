"""Latency of a request as its user experiences it: from the time at which it was intended to be sent.

In a closed loop a request is intended when its stream is free, in an open loop at its scheduled time (a later turn:
when the previous one was answered), so any delay of the client is part of the latency. The `_from_send` variants are
measured from the socket instead: the difference is the client's own delay (up to `connect_ns`) and the time to connect,
which is the server's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics.metric_types import (
    SENT_LATE,
    FigureOrigin,
    RequestMetric,
    TimingFault,
    starts_uncounted,
    why_no_first_token,
)
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Values


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


def _ttft(name: str, definition: str, missing: str, start: str) -> RequestMetric:
    """Return the time to first token.

    It is unknown where chunks were coalesced, or a template or a gateway may have written the first chunk before it.
    """
    every = _latency(name, definition, missing, start, "first_token_ns")

    def why(rows: Table) -> str:
        worst = TimingFault.of(rows)
        return worst.reason or why_no_first_token(rows)

    def values(rows: Table) -> Values:
        unknown = (rows.array("timing_fault") >= TimingFault.COALESCED) | starts_uncounted(rows)
        return np.where(unknown, np.nan, every.values(rows))

    return replace(every, why=why, values=values)


_NOT_STREAMED = "the answer had no content, or was not streamed"
_EMPTY = "the answer had no content"

_COALESCED = (
    f"{_NOT_STREAMED}, or begins with blank text or `<think>` and its chunks are not counted (UncountedStart), or"
    f" {TimingFault.COALESCED.reason}"
)

TTFT_MS = _ttft(
    "ttft_ms",
    "Time to first token",
    f"{_COALESCED}, or {SENT_LATE}",
    "intended_ns",
)
TTFT_SENT_MS = _ttft(
    "ttft_from_send_ms",
    "Time to first token, measured from sending",
    _COALESCED,
    "sent_ns",
)
E2E_MS = _latency(
    "e2e_ms", "E2E latency, the time to the last token", f"{_EMPTY}, or {SENT_LATE}", "intended_ns", "last_token_ns"
)
E2E_SENT_MS = _latency("e2e_from_send_ms", "E2E latency, measured from sending", _EMPTY, "sent_ns", "last_token_ns")


def _stream_end_ms(rows: Table) -> Values:
    after = (numbers(rows, "ended_ns") - numbers(rows, "last_token_ns")) / NS_PER_MS
    return np.where(rows.known("first_token_ns"), after, np.nan)


STREAM_END_MS = RequestMetric(
    "stream_end_ms",
    "ms",
    "Time from the last token to the end of the exchange, when a stream of a closed loop is free; it contains the step"
    " of an end-of-sequence token, if there is one: ended_ns − last_token_ns",
    f"{_NOT_STREAMED}, or the result was imported",
    FigureOrigin.CLIENT,
    _stream_end_ms,
    long_tailed=True,
)

MEASURES = (TTFT_MS, TTFT_SENT_MS, E2E_MS, E2E_SENT_MS, STREAM_END_MS)


def stream_end_share(rows: Table) -> float | None:
    """Return the time after the last token as a share of the exchanges' time; None if no answer has both.

    One gap between chunks is left out of each answer's time: an end-of-sequence token takes a step and has no text.
    """
    begun, first, last, ended = (
        numbers(rows, name) for name in ("intended_ns", "first_token_ns", "last_token_ns", "ended_ns")
    )
    gaps = (last - first) / np.maximum(numbers(rows, "chunks") - 1, 1.0)
    after, whole = np.maximum(ended - last - gaps, 0.0), ended - begun
    known = rows.array("ok") & ~np.isnan(after)
    total = float(whole[known].sum())
    return float(after[known].sum()) / total if total > 0 else None
