"""A log of requests as one table, from a stored run or from production, and its pooled acceptance.

Requests of one prompt are alike, so a ratio r = ΣA / ΣD has the standard error of Taylor's linearisation over clusters
(prompts), sqrt(G / (G − 1) × Σ_g (A_g − r D_g)²) / ΣD (Cochran 1977, Sampling Techniques, section 6.3, with clusters as
units).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pandas as pd

from specbench_client.analysis.statistics.bootstrap import PROMPTS_MIN
from specbench_client.analysis.statistics.intervals import symmetric_interval
from specbench_client.analysis.statistics.level import t_quantile
from specbench_client.documents.drift import DriftWindow, LoggedAcceptance
from specbench_client.documents.figure import Figure
from specbench_client.numpy_columns import Values

COLUMNS = ("accepted_tokens", "drafted_tokens", "steps", "category", "time", "prompt_id")
"""`time`: seconds since 1970, NaN if unknown. `prompt_id`: requests with the same value are one cluster."""


@dataclass(frozen=True)
class RequestLog:
    """Requests with a step and known acceptance, in their order. `left_out`: number of the other requests.

    The columns `category` and `prompt_id` are categorical, which needs a few bytes per request.
    """

    source: str
    table: pd.DataFrame
    left_out: int
    repeated: int = 0
    """Requests with the same time, prompt and counts as an earlier one."""

    @property
    def log_lengths(self) -> Values:
        """log(1 + accepted / steps) of each request, shape (requests,)."""
        steps = self.table["steps"].to_numpy(float)
        return np.asarray(np.log1p(self.table["accepted_tokens"].to_numpy(float) / steps), dtype=np.float64)

    def when(self, index: int) -> str | None:
        """Return the time of a request (counted from 0) as RFC 3339; None if the log has no times."""
        seconds = float(self.table["time"].iloc[index])
        return None if np.isnan(seconds) else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def request_log(source: str, table: pd.DataFrame) -> RequestLog:
    """Make a log from a table with COLUMNS, in the log's order; sorted by time if every request has one."""
    rows = table.reindex(columns=list(COLUMNS)).reset_index(drop=True)
    numbers = {
        name: pd.to_numeric(rows[name]).to_numpy(float) for name in COLUMNS if name not in ("category", "prompt_id")
    }
    rows = rows.assign(**numbers)
    known = (numbers["steps"] >= 1) & ~np.isnan(numbers["accepted_tokens"])
    kept = rows[known].reset_index(drop=True)
    if len(kept) and not kept["time"].isna().any():
        kept = kept.sort_values("time", kind="stable").reset_index(drop=True)
    timed = kept["time"].notna() & kept["prompt_id"].notna()
    repeated = int(kept[timed].duplicated().sum())
    unnamed = np.flatnonzero(kept["prompt_id"].isna())
    if unnamed.size:
        prompts = kept["prompt_id"].to_numpy(object, copy=True)
        prompts[unnamed] = [f"request {index}" for index in unnamed]
        kept["prompt_id"] = prompts
    for name in ("category", "prompt_id"):
        kept[name] = kept[name].astype("category")
    return RequestLog(source, kept, len(rows) - len(kept), repeated)


@dataclass(frozen=True)
class PooledMetric:
    """A pooled metric: constant + Σ accepted / Σ weight."""

    name: str
    weight: str
    constant: float
    highest: float
    unit: str
    definition: str


LENGTH = PooledMetric(
    "acceptance_length", "steps", 1.0, np.inf, "tokens/step", "Acceptance length: 1 + Σ accepted / Σ steps"
)
RATE = PooledMetric(
    "acceptance_rate", "drafted_tokens", 0.0, 1.0, "ratio", "Acceptance rate: Σ accepted / Σ drafted tokens"
)


def requests_with(table: pd.DataFrame, metric: PooledMetric) -> pd.DataFrame:
    """Return the requests that have the metric's weight."""
    return table[(table[metric.weight] > 0).to_numpy(bool)]


def pooled_acceptance(table: pd.DataFrame, metric: PooledMetric) -> Figure | None:
    """Return the metric with its interval; None if no request has its weight. Fewer than three prompts: no interval."""
    known = requests_with(table, metric)
    if known.empty:
        return None
    sums = known.groupby("prompt_id", sort=False)[["accepted_tokens", metric.weight]].sum()
    over, under = sums["accepted_tokens"].to_numpy(float), sums[metric.weight].to_numpy(float)
    groups, ratio = over.size, float(over.sum() / under.sum())
    value, interval = metric.constant + ratio, None
    if groups >= PROMPTS_MIN:
        squares = float(((over - ratio * under) ** 2).sum())
        half = float(t_quantile(groups - 1) * np.sqrt(groups / (groups - 1) * squares) / under.sum())
        method = f"t, standard error of a ratio over {groups} clusters (prompts, or requests without a prompt)"
        interval = symmetric_interval(value, half, method)
    return Figure(
        value=value, unit=metric.unit, definition=metric.definition, n=groups, interval=interval, source="engine"
    ).within(metric.constant, metric.highest)


def logged_acceptance(table: pd.DataFrame) -> LoggedAcceptance:
    """Return the acceptance of requests, each of which has a step."""
    length = pooled_acceptance(table, LENGTH)
    assert length is not None
    rate = pooled_acceptance(table, RATE)
    return LoggedAcceptance(requests=len(table), acceptance_length=length, acceptance_rate=rate)


def acceptance_windows(requests: RequestLog, size: int, seconds: float | None) -> list[DriftWindow]:
    """Return the acceptance in windows of `size` requests, or of `seconds` if given. The last one may be smaller."""
    return [
        DriftWindow(
            **dict(logged_acceptance(requests.table.iloc[begin:end])), first=begin + 1, begun=requests.when(begin)
        )
        for begin, end in _pieces(requests, size, seconds)
    ]


def _pieces(requests: RequestLog, size: int, seconds: float | None) -> Iterator[tuple[int, int]]:
    count = len(requests.table)
    if seconds is None:
        yield from ((begin, min(begin + size, count)) for begin in range(0, count, size))
        return
    times = requests.table["time"].to_numpy(float)
    turns = np.flatnonzero(np.diff(np.floor((times - times[0]) / seconds))) + 1
    edges = [0, *turns.tolist(), count]
    yield from pairwise(edges)
