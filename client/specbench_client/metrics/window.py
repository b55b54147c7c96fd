"""The steady window of a point, and what happened inside it.

From the first steady request sent to the last steady token: in a closed loop all streams are busy all the while, in an
open one conversations begin as asked all the while, since what ends after the last beginning is drain. What requests of
ramp and drain deliver inside the window counts, what lies outside does not: neither ramp nor drain dilutes the
throughput.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import Values, flags, numbers, points_of, steady
from specbench_client.metrics.pace import NS_PER_S
from specbench_client.metrics.rows import Rows, among

OUTPUT_TPS = "output_tps"
OUTPUT_TPS_UNIT = "tokens/s"
OUTPUT_TPS_DEFINITION = (
    "Output tokens a second of the whole engine: tokens that arrived inside the steady window (first steady request"
    " sent to last steady token; its bounds and its share of the point stand in the summary's windows) / its length;"
    " the tokens of a chunk by chunk_tokens, else those of the answer spread evenly over its chunks; an answer that"
    " came whole counts when it came"
)
OUTPUT_TPS_MISSING = (
    "no request lies in the steady state, or nobody counted the tokens of an answer that came meanwhile"
)
OUTPUT_TPS_PER_GPU = "output_tps_per_gpu"
OUTPUT_TPS_PER_GPU_UNIT = "tokens/s/GPU"
OUTPUT_TPS_PER_GPU_DEFINITION = (
    "output_tps / the GPUs that an engine of this run is given: placement.gpus or claimedGpus, times nodes; those that"
    " a drafter runs on are among them"
)
OUTPUT_TPS_PER_GPU_MISSING = "output_tps is missing, or the run asks for no GPU"

_READ = ["point", "steady", "ok", "sent_ns", "last_token_ns", "tokens", "edge_ns", "edge_tokens"]
"""All that throughput asks of a row."""


@dataclass(frozen=True)
class Window:
    """Bounds on the point's own clock."""

    start_ns: float
    end_ns: float

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S


def steady_window(rows: pd.DataFrame | Rows) -> Window | None:
    """Return the steady window of one point's rows, or None where it has none."""
    inside = steady(rows)
    starts, ends = numbers(inside, "sent_ns"), numbers(inside, "last_token_ns")
    if not (~np.isnan(starts)).any() or not (~np.isnan(ends)).any():
        return None
    window = Window(float(np.nanmin(starts)), float(np.nanmax(ends)))
    return window if window.end_ns > window.start_ns else None


def window_tokens(rows: pd.DataFrame | Rows, window: Window) -> float:
    """Return the tokens of error-free answers that arrived inside the window; NaN where one of them is not counted.

    A steady answer is kept without its chunks, and lies inside from its first to its last.
    """
    answered = among(rows, flags(rows, "ok"))
    tokens, ends = numbers(answered, "tokens"), numbers(answered, "last_token_ns")
    shares = np.where((ends >= window.start_ns) & (ends <= window.end_ns), 1.0, 0.0)
    at, weights = (answered[name].to_numpy(object) for name in ("edge_ns", "edge_tokens"))
    for row in np.flatnonzero(answered["edge_ns"].notna().to_numpy(np.bool_)):
        shares[row] = _share_inside(at[row], weights[row], window, shares[row])
    inside = shares > 0
    return float((shares[inside] * tokens[inside]).sum())


def deliveries(rows: pd.DataFrame | Rows) -> tuple[Values, Values]:
    """Return tokens and seconds of each point's steady window, of the points that have one and tell its tokens."""
    told = [_delivered(point) for point in points_of(rows, _READ)]
    tokens, seconds = np.array([each for each in told if each is not None], dtype=np.float64).reshape(-1, 2).T
    return tokens, seconds


def _delivered(point: pd.DataFrame | Rows) -> tuple[float, float] | None:
    window = steady_window(point)
    tokens = np.nan if window is None else window_tokens(point, window)
    return None if window is None or np.isnan(tokens) else (tokens, window.length_s)


def in_flight(rows: pd.DataFrame, window: Window) -> float:
    """Return the mean number of requests between sending and last token over the window."""
    starts = np.clip(numbers(rows, "sent_ns"), window.start_ns, window.end_ns)
    ends = np.clip(numbers(rows, "last_token_ns"), window.start_ns, window.end_ns)
    return float(np.nansum(ends - starts) / (window.end_ns - window.start_ns))


def _share_inside(at: Values, weights: Values | None, window: Window, whole: float) -> float:
    """Share of an answer's tokens that arrived inside; `whole` for one without chunks, which came at once."""
    if at.size == 0:
        return whole
    told = weights is not None and weights.size == at.size and not np.isnan(weights).any() and weights.sum() > 0
    weight = weights if told and weights is not None else np.ones_like(at)
    inside = (at >= window.start_ns) & (at <= window.end_ns)
    return float(weight[inside].sum() / weight.sum())
