"""Time that a stream spends between the last token of an answer and the end of the exchange.

A stream means to send its next request at the moment at which the last exchange ended, so the next `intended_ns` is
that end. What lies before it and after the last token (usage and end held back, a connection closed late) is in no
latency and in no speed-up, while the stream does nothing else.

Where an engine does not tell the tokens of its chunks, an end-of-sequence token may have no chunk with text: one gap
between chunks is then a decode step, and taken off.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import Values, flags, numbers, points_of, sent
from specbench_client.metrics.rows import Rows, read

_READ = ["stream", "intended_ns", "first_token_ns", "last_token_ns", "chunks", "chunks_told", "ok", "error_class"]


def afterwards_ns(rows: pd.DataFrame | Rows) -> tuple[Values, Values]:
    """Return, for each answer that another request of its stream follows, the time after it and the stream's in all."""
    told = [_of_point(point) for point in points_of(rows, _READ)]
    after, whole = (np.concatenate([np.empty(0), *each]) for each in (zip(*told, strict=True) if told else ((), ())))
    return after, whole


def _of_point(rows: pd.DataFrame | Rows) -> tuple[Values, Values]:
    ordered = read(sent(rows), _READ).sort_values(["stream", "intended_ns"], kind="stable", ignore_index=True)
    ended = ordered.groupby("stream", sort=False)["intended_ns"].shift(-1).to_numpy(np.float64)
    after = ended - numbers(ordered, "last_token_ns") - _step_ns(ordered)
    whole = ended - numbers(ordered, "intended_ns")
    known = flags(ordered, "ok") & ~np.isnan(after)
    return np.maximum(after[known], 0.0), whole[known]


def afterwards_share(rows: pd.DataFrame | Rows) -> float | None:
    """Return the share of it in the streams' time; None where no answer is followed by another request."""
    after, whole = afterwards_ns(rows)
    return float(after.sum() / whole.sum()) if whole.sum() > 0 else None


def _step_ns(rows: pd.DataFrame) -> Values:
    """The mean gap between chunks of answers that do not tell their chunks' tokens; 0 for the others."""
    span = numbers(rows, "last_token_ns") - numbers(rows, "first_token_ns")
    gaps = np.where(~flags(rows, "chunks_told"), np.nan_to_num(numbers(rows, "chunks")) - 1, 0.0)
    return np.where(gaps > 0, span / np.maximum(gaps, 1.0), 0.0)
