"""Speed of an answer after its first token: per token and per step, never per chunk.

With speculation a chunk contains several tokens, so the gap between chunks is not a time per token. `tokens` is the
engine's own count for the answer, else the client's. One of them may be an end-of-sequence token. It is in no time if
it arrives with the finish reason, which a server may send at any later time, but a step with drafts emits it with the
last text: so it counts on every arm, and further tokens after the last text do not where chunks are counted.

The time from the first to the last token has the tokens of all chunks but the first. That chunk has the token of the
prefill, and more if chunks were merged or nothing was sent for earlier tokens. Where it is not counted, it is one,
unless it is blank text or `<think>`: a template may have written that long before the first token.

An answer with a single chunk, or whose chunks all arrived in one read, has only one arrival time: the time between its
first and its last token was not measured and is missing. It is never 0.
"""

from __future__ import annotations

import numpy as np

from specbench_client.load.steady_state import NS_PER_MS, NS_PER_S
from specbench_client.metrics.metric_types import (
    FigureOrigin,
    RatioMetric,
    RequestMetric,
    TimingFault,
    why_no_first_token,
)
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Values

SHORT = 0.1
"""Quantile of times per step that is the time of a short step: one in which no prompt is computed."""
SAME_STEP = 0.5
"""First tokens that are at most this share of a short step apart are from the same step."""


def timed_tokens(rows: Table) -> Values:
    """Return the tokens up to the last text and one more, shape (rows,); all tokens of rows without records."""
    return numbers(rows, "timed_tokens" if "timed_tokens" in rows else "tokens")


def timed_steps(rows: Table) -> Values:
    """Return the steps of `timed_tokens`, shape (rows,); NaN where the steps are unknown, or refuted by counters."""
    steps = numbers(rows, "steps")
    return np.where(np.isnan(steps), steps, numbers(rows, "timed_steps")) if "timed_steps" in rows else steps


def decode_ns(rows: Table) -> Values:
    """Return the time from first to last token in ns, shape (rows,); NaN where it is not the engine's."""
    span = numbers(rows, "last_token_ns") - numbers(rows, "first_token_ns")
    return np.where(rows.array("timing_fault") >= TimingFault.AT_ONCE, np.nan, span)


def flow_ms(rows: Table) -> Values:
    """Return the time from first to last token in ms, shape (rows,).

    NaN for answers without `later_tokens`, or with a single arrival time.
    """
    span = decode_ns(rows) / NS_PER_MS
    return np.where((later_tokens(rows) >= 1) & (span > 0), span, np.nan)


def later_tokens(rows: Table) -> Values:
    """Return the number of timed tokens after the first chunk, shape (rows,); NaN if there are none."""
    later = timed_tokens(rows) - (numbers(rows, "first_tokens") if "first_tokens" in rows else 1)
    return np.where(later >= 1, later, np.nan)


def _tpot_ms(rows: Table) -> Values:
    return flow_ms(rows) / later_tokens(rows)


def _step_ms(rows: Table) -> Values:
    steps = timed_steps(rows)
    return flow_ms(rows) / np.where(steps >= 1, steps, np.nan)


def _user_tps(rows: Table) -> Values:
    return 1000.0 / _tpot_ms(rows)


def _stream_parts(rows: Table) -> tuple[Values, Values]:
    return timed_tokens(rows), (numbers(rows, "last_token_ns") - numbers(rows, "intended_ns")) / NS_PER_S


_SHORT = (
    "the answer has fewer than two tokens, its tokens were not counted, it was not streamed, half of it arrived at"
    " once, or its chunks are not counted, and it begins with blank text or `<think>` (UncountedStart) or with a large"
    " chunk (LargeStart)"
)


def _why(rows: Table) -> str:
    if TimingFault.of(rows) >= TimingFault.AT_ONCE:
        return TimingFault.AT_ONCE.reason
    if not rows.known("tokens").any():
        return "tokens were not counted"
    if "first_tokens" in rows and np.isinf(rows.array("first_tokens")).all():
        return (
            "the first chunks have many tokens, and chunks are not counted (LargeStart): let the engine stream each"
            " token (--stream-interval 1), or measure it without the gateway"
        )
    return why_no_first_token(rows) or ("" if (numbers(rows, "tokens") >= 2).any() else "no answer has two tokens")


TPOT_MS = RequestMetric(
    "tpot_ms",
    "ms",
    "Time per output token after the first chunk, up to the last text: (last_token_ns − first_token_ns) / (tokens −"
    " tokens of the first chunk, 1 if unknown)",
    _SHORT,
    FigureOrigin.BOTH,
    _tpot_ms,
    why=_why,
)
STEP_MS = RequestMetric(
    "step_ms",
    "ms",
    "Time per decode step of the target, up to the last text: (last_token_ns − first_token_ns) / steps",
    "the engine does not report its steps, or the answer has fewer than two tokens, was not streamed, or arrived at"
    " once",
    FigureOrigin.BOTH,
    _step_ms,
    why=_why,
)
USER_TPS = RequestMetric(
    "user_tps",
    "tokens/s",
    "Tokens per second that one user receives after the first chunk: 1000 / tpot_ms",
    _SHORT,
    FigureOrigin.BOTH,
    _user_tps,
    percents=(1, 5, 50),
    why=_why,
)
TPOT_MS_POOLED = RatioMetric(
    "tpot_ms_pooled",
    "ms",
    "Time per output token, pooled, up to the last text: Σ(last_token_ns − first_token_ns) / Σ(tokens − tokens of the"
    " first chunk, 1 if unknown)",
    "no answer has two counted tokens with different arrival times",
    FigureOrigin.BOTH,
    lambda rows: (flow_ms(rows), later_tokens(rows)),
    why=_why,
)
STREAM_TPS = RatioMetric(
    "stream_tps",
    "tokens/s",
    "Output tokens per second of one stream's time: Σ tokens / Σ(last_token_ns − intended_ns); the speed-up is the"
    " ratio of two of these",
    "no answer has counted tokens",
    FigureOrigin.BOTH,
    _stream_parts,
)

MEASURES = (TPOT_MS, STEP_MS, USER_TPS)
RATIOS = (TPOT_MS_POOLED, STREAM_TPS)
