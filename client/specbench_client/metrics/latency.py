"""Latency of a request, as its user waits: from the moment it was meant to be sent.

A closed loop means to send when its stream is free, an open loop when its schedule says so (a later turn: when the one
before was answered); what the client dawdles then is part of the wait. The `_sent` variants count from the socket
instead: what lies between the two is the client's own delay (up to `connect_ns`) and connecting, which is the server's.
"""

from __future__ import annotations

from specbench_client.metrics.frame import Values, numbers
from specbench_client.metrics.metric import Measure, Origin
from specbench_client.metrics.rows import Columns

NS_PER_MS = 1e6


def _between(rows: Columns, start: str, end: str) -> Values:
    return (numbers(rows, end) - numbers(rows, start)) / NS_PER_MS


TTFT_MS = Measure(
    "ttft_ms",
    "ms",
    "Time to first token: first_token_ns − intended_ns",
    "the answer had no content, or was not streamed",
    Origin.CLIENT,
    lambda rows: _between(rows, "intended_ns", "first_token_ns"),
    long_tailed=True,
)
TTFT_SENT_MS = Measure(
    "ttft_sent_ms",
    "ms",
    "Time to first token from the socket: first_token_ns − sent_ns",
    "the answer had no content, or was not streamed",
    Origin.CLIENT,
    lambda rows: _between(rows, "sent_ns", "first_token_ns"),
    long_tailed=True,
)
E2E_MS = Measure(
    "e2e_ms",
    "ms",
    "Time to the last token: last_token_ns − intended_ns",
    "the answer had no content",
    Origin.CLIENT,
    lambda rows: _between(rows, "intended_ns", "last_token_ns"),
    long_tailed=True,
)
E2E_SENT_MS = Measure(
    "e2e_sent_ms",
    "ms",
    "Time to the last token from the socket: last_token_ns − sent_ns",
    "the answer had no content",
    Origin.CLIENT,
    lambda rows: _between(rows, "sent_ns", "last_token_ns"),
    long_tailed=True,
)

MEASURES = (TTFT_MS, TTFT_SENT_MS, E2E_MS, E2E_SENT_MS)
