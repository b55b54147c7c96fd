"""Pooled acceptance of some requests, with a standard error that knows that requests of one prompt are alike.

A ratio r = ΣA / ΣD over clusters (prompts) has the standard error of Taylor's linearisation,
sqrt(G / (G − 1) × Σ_g (A_g − r D_g)²) / ΣD (Cochran 1977, Sampling Techniques, section 6.3, with clusters as units).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.drift import DriftWindow
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.drift.requests import Requests
from specbench_client.analysis.statistics.bootstrap import LEVEL, PROMPTS_MIN


@dataclass(frozen=True)
class Metric:
    """A pooled metric: constant + Σ accepted / Σ weight."""

    name: str
    weight: str
    constant: float
    unit: str
    definition: str


LENGTH = Metric("acceptance_length", "steps", 1.0, "tokens/step", "Acceptance length: 1 + Σ accepted / Σ steps")
RATE = Metric("acceptance_rate", "drafted_tokens", 0.0, "ratio", "Acceptance rate: Σ accepted / Σ drafted tokens")


def told_for(table: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The requests that have the metric's weight."""
    return table[(table[metric.weight] > 0).to_numpy(bool)]


def pooled(table: pd.DataFrame, metric: Metric) -> Figure | None:
    """The metric with its interval; None where no request has its weight. No interval below three prompts."""
    known = told_for(table, metric)
    if known.empty:
        return None
    sums = known.groupby("prompt_id", sort=False)[["accepted_tokens", metric.weight]].sum()
    over, under = sums["accepted_tokens"].to_numpy(float), sums[metric.weight].to_numpy(float)
    groups, ratio = over.size, float(over.sum() / under.sum())
    value, interval = metric.constant + ratio, None
    if groups >= PROMPTS_MIN:
        squares = float(((over - ratio * under) ** 2).sum())
        half = float(
            special.stdtrit(groups - 1, (1 + LEVEL) / 2) * np.sqrt(groups / (groups - 1) * squares) / under.sum()
        )
        method = f"t, standard error of a ratio over {groups} clusters (prompts, or requests where none is told)"
        interval = FigureInterval(low=value - half, high=value + half, level=LEVEL, method=method)
    return Figure(
        value=value, unit=metric.unit, definition=metric.definition, n=groups, interval=interval, source="engine"
    )


def windows(requests: Requests, size: int, seconds: float | None) -> list[DriftWindow]:
    """Pieces of so many requests, or of so many seconds where that is given. The last may be smaller."""
    found = []
    for begin, end in _pieces(requests, size, seconds):
        table = requests.table.iloc[begin:end]
        length = pooled(table, LENGTH)
        assert length is not None  # every request has a step
        window = DriftWindow(
            first=begin + 1,
            requests=end - begin,
            begun=requests.when(begin),
            acceptance_length=length,
            acceptance_rate=pooled(table, RATE),
        )
        found.append(window)
    return found


def _pieces(requests: Requests, size: int, seconds: float | None) -> Iterator[tuple[int, int]]:
    count = len(requests.table)
    if seconds is None:
        yield from ((begin, min(begin + size, count)) for begin in range(0, count, size))
        return
    times = requests.table["time"].to_numpy(float)
    turns = np.flatnonzero(np.diff(np.floor((times - times[0]) / seconds))) + 1
    edges = [0, *turns.tolist(), count]
    yield from pairwise(edges)
