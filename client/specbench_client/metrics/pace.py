"""Pace of an answer once it flows: per token and per step, never per chunk.

Under speculation a chunk holds several tokens, so the gap between chunks is no time per token. `tokens` is the
engine's own count of the answer, else the client's.

An answer whose chunks all came in one read, or that has one chunk alone, has one time of arrival: what lay between its
first and its last token was not measured, and is missing. It is never 0.
"""

from __future__ import annotations

import numpy as np

from specbench_client.metrics.frame import Values, numbers
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.metric import Measure, Origin, Ratio
from specbench_client.metrics.rows import Columns

NS_PER_S = 1e9


def flow_ms(rows: Columns) -> Values:
    """Return the time from first to last token; NaN for answers of fewer than two tokens, or of one arrival."""
    span = (numbers(rows, "last_token_ns") - numbers(rows, "first_token_ns")) / NS_PER_MS
    return np.where((numbers(rows, "tokens") >= 2) & (span > 0), span, np.nan)


def later_tokens(rows: Columns) -> Values:
    """Return the tokens after the first; NaN for answers of fewer than two tokens."""
    tokens = numbers(rows, "tokens")
    return np.where(tokens >= 2, tokens - 1, np.nan)


def _tpot_ms(rows: Columns) -> Values:
    return flow_ms(rows) / later_tokens(rows)


def _step_ms(rows: Columns) -> Values:
    steps = numbers(rows, "steps")
    return flow_ms(rows) / np.where(steps >= 1, steps, np.nan)


def _user_tps(rows: Columns) -> Values:
    return 1000.0 / _tpot_ms(rows)


def _stream_parts(rows: Columns) -> tuple[Values, Values]:
    return numbers(rows, "tokens"), (numbers(rows, "last_token_ns") - numbers(rows, "intended_ns")) / NS_PER_S


_SHORT = (
    "the answer has fewer than two tokens, or its tokens were not counted, or it was not streamed, or all of it came"
    " at one time"
)

TPOT_MS = Measure(
    "tpot_ms",
    "ms",
    "Time per output token after the first: (last_token_ns − first_token_ns) / (tokens − 1)",
    _SHORT,
    Origin.BOTH,
    _tpot_ms,
)
STEP_MS = Measure(
    "step_ms",
    "ms",
    "Time per decode step of the target: (last_token_ns − first_token_ns) / steps",
    "the engine does not tell its steps, or the answer has fewer than two tokens, or it was not streamed, or all of it"
    " came at one time",
    Origin.BOTH,
    _step_ms,
)
USER_TPS = Measure(
    "user_tps",
    "tokens/s",
    "Tokens a second that one user sees after the first: (tokens − 1) / (last_token_ns − first_token_ns)",
    _SHORT,
    Origin.BOTH,
    _user_tps,
    percents=(1, 5, 50),
)
TPOT_MS_POOLED = Ratio(
    "tpot_ms_pooled",
    "ms",
    "Time per output token, pooled: Σ(last_token_ns − first_token_ns) / Σ(tokens − 1)",
    "no answer has two counted tokens that came at two times",
    Origin.BOTH,
    lambda rows: (flow_ms(rows), later_tokens(rows)),
)
STREAM_TPS = Ratio(
    "stream_tps",
    "tokens/s",
    "Output tokens a second of one stream's time: Σ tokens / Σ(last_token_ns − intended_ns); what the speed-up divides",
    "no answer has counted tokens",
    Origin.BOTH,
    _stream_parts,
)

MEASURES = (TPOT_MS, STEP_MS, USER_TPS)
RATIOS = (TPOT_MS_POOLED, STREAM_TPS)
