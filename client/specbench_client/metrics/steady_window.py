"""The steady window of a point, and throughput inside it.

The window lasts from the first steady request sent to the last steady token: in a closed loop all streams are busy
throughout, in an open loop conversations start as requested throughout, since whatever ends after the last start is
drain. Tokens that requests of the ramp and the drain deliver inside the window count, and tokens outside it do not, so
neither ramp nor drain dilutes the throughput.
"""

from __future__ import annotations

import numpy as np

from specbench_client.load.steady_state import TimeSpan
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.numpy_columns import Values

OUTPUT_TPS = "output_tps"
OUTPUT_TPS_UNIT = "tokens/s"
OUTPUT_TPS_DEFINITION = (
    "Output tokens per second of the whole engine: tokens that arrived inside the steady window / the window's length;"
    " the window is from the first steady request sent to the last steady token; a chunk has chunk_tokens, else an"
    " equal part of the answer's tokens; an answer that arrived at one moment counts with the share of its time, from"
    " sent to arrival, that is inside"
)
OUTPUT_TPS_MISSING = (
    "no request is in the steady state, or the tokens of an answer that arrived during it were not counted"
)
OUTPUT_TPS_PER_GPU = "output_tps_per_gpu"
OUTPUT_TPS_PER_GPU_UNIT = "tokens/s/GPU"
OUTPUT_TPS_PER_GPU_DEFINITION = (
    "output_tps / number of GPUs of an engine, including those of its drafter: placement.gpus or claimedGpus, times"
    " nodes"
)
OUTPUT_TPS_PER_GPU_MISSING = "output_tps is missing, or the run requests no GPU"


def steady_window(rows: Table) -> TimeSpan | None:
    """Return the steady window of one point's rows, or None if it has none."""
    inside = steady_rows(rows)
    starts, ends = numbers(inside, "sent_ns"), numbers(inside, "last_token_ns")
    if not (~np.isnan(starts)).any() or not (~np.isnan(ends)).any():
        return None
    window = TimeSpan(int(np.nanmin(starts)), int(np.nanmax(ends)))
    return window if window.end_ns > window.start_ns else None


def window_tokens(rows: Table, window: TimeSpan) -> float:
    """Return the tokens of error-free answers that arrived inside the window; NaN if one of them was not counted.

    Steady answers are stored without their chunks, because they are inside the window from their first to their
    last token. An answer that arrived at one moment was computed since it was sent: counting all of it where it
    arrived would count those at the beginning of a short window as a whole.
    """
    answered = rows.among(rows.array("ok"))
    tokens, starts, ends = (numbers(answered, name) for name in ("tokens", "sent_ns", "last_token_ns"))
    inside_ns = np.minimum(ends, window.end_ns) - np.maximum(starts, window.start_ns)
    shares = np.nan_to_num(np.clip(inside_ns / np.maximum(ends - starts, 1.0), 0.0, 1.0))
    edges = np.flatnonzero(answered.known("edge_ns")).astype(np.int32)
    times, weights = (answered.at(edges).lists(name).arrays() for name in ("edge_ns", "edge_tokens"))
    for row, at, each in zip(edges, times, weights, strict=True):
        assert at is not None, "the rows have stored chunks"
        shares[row] = _share_inside(at, each, window, shares[row])
    inside = shares > 0
    return float((shares[inside] * tokens[inside]).sum())


def window_throughput(rows: Table) -> tuple[Values, Values]:
    """Return tokens and seconds of each point's steady window, shape (points,) each.

    Points without a window, or with an answer in it whose tokens were not counted, are left out.
    """
    found = [_delivered(point) for point in rows.by_point()]
    tokens, seconds = np.array([each for each in found if each is not None], dtype=np.float64).reshape(-1, 2).T
    return tokens, seconds


def _delivered(point: Table) -> tuple[float, float] | None:
    window = steady_window(point)
    if window is None:
        return None
    tokens = window_tokens(point, window)
    return None if np.isnan(tokens) else (tokens, window.length_s)


def mean_in_flight(rows: Table, window: TimeSpan) -> float:
    """Return the mean number of requests in flight (sent, last token not yet received) over the window."""
    starts = np.clip(numbers(rows, "sent_ns"), window.start_ns, window.end_ns)
    ends = np.clip(numbers(rows, "last_token_ns"), window.start_ns, window.end_ns)
    return float(np.nansum(ends - starts) / (window.end_ns - window.start_ns))


def _share_inside(at: Values, weights: Values | None, window: TimeSpan, by_time: float) -> float:
    """Share of an answer's tokens that arrived inside the window; `by_time` if they arrived at one moment."""
    if at.size == 0 or at[0] == at[-1]:
        return by_time
    weight = np.ones_like(at)
    if weights is not None and weights.size == at.size and not np.isnan(weights).any() and weights.sum() > 0:
        weight = weights
    inside = (at >= window.start_ns) & (at <= window.end_ns)
    return float(weight[inside].sum() / weight.sum())
