"""How the figures of a cell change over the windows of a soak test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import PointSummary, Trend
from specbench_api.plan.plan import Plan
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.trends import fit_line
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.catalog import CACHED_SHARE
from specbench_client.metrics.decode_speed import TPOT_MS_POOLED
from specbench_client.metrics.steady_window import OUTPUT_TPS
from specbench_client.metrics.tidy_frame import Values
from specbench_client.trust.checks.acceptance import is_decay

FAILURES = "failed_share"
"""Name of the share of requests that failed."""
FIGURES = (EMITTED_POOLED.name, TPOT_MS_POOLED.name, OUTPUT_TPS, CACHED_SHARE.name)
LOOKS_FROM = 12
"""Fewest windows after which a soak test may end."""
LOOK_LEVEL = 0.996
"""Level of the interval that ends a soak test, which is looked at after every window: `benchmarks/intervals.md`."""
_S_PER_HOUR = 3600.0
_METHOD = "t averaged over AR(1) coefficients, weighted by restricted likelihood"


def trends_of(points: Sequence[PointSummary]) -> list[Trend]:
    """Return the trend of each figure that enough windows have. `points`: the windows of one arm, in any order."""
    windows = sorted(points, key=lambda point: point.repeat)
    hours = _middles_h(windows)
    series = {name: _series(windows, name) for name in FIGURES}
    series[FAILURES] = np.array([each.counts.failed_requests / max(each.counts.requests, 1) for each in windows])
    return [trend for name, values in series.items() if (trend := _trend(name, values, hours)) is not None]


def acceptance_trend(points: Sequence[PointSummary], level: float = LEVEL) -> Trend | None:
    """Return the trend of the acceptance length; `points` as of `trends_of`."""
    windows = sorted(points, key=lambda point: point.repeat)
    return _trend(EMITTED_POOLED.name, _series(windows, EMITTED_POOLED.name), _middles_h(windows), level)


def has_decayed(points: Sequence[PointSummary]) -> bool:
    """Return whether a soak test may end: its acceptance length has fallen, however often this is asked."""
    trend = acceptance_trend(points, LOOK_LEVEL) if len(points) >= LOOKS_FROM else None
    return trend is not None and is_decay(trend)


def windows_after_decay(plan: Plan, points: Sequence[PointSummary]) -> set[str]:
    """Return the points that a stop rule leaves out: the further windows of arms that have decayed."""
    if plan.stop != "WhenDecayed":
        return set()
    measured = {point.hash for point in points}
    decayed = {arm.name for arm in plan.arms if has_decayed([point for point in points if point.arm == arm.name])}
    return {point.hash for point in plan.points if point.arm in decayed} - measured


def _middles_h(windows: Sequence[PointSummary]) -> Values:
    """Return the time of each window's middle in hours, shape (windows,): they follow each other without a pause."""
    lengths_s = np.array([each.client_health.duration_s or 0.0 for each in windows])
    return (np.cumsum(lengths_s) - lengths_s / 2) / _S_PER_HOUR


def _series(windows: Sequence[PointSummary], name: str) -> Values:
    figures = (each.figures.get(name) for each in windows)
    return np.array([np.nan if figure is None or figure.value is None else figure.value for figure in figures])


def _trend(name: str, values: Values, hours: Values, level: float = LEVEL) -> Trend | None:
    line = fit_line(values, hours, level)
    if line is None or line.start <= 0:
        return None
    known = hours[np.isfinite(values)]
    slope, low, high = (each / line.start for each in (line.slope, line.bounds.low, line.bounds.high))
    figure = Figure(
        value=slope,
        unit="1/h",
        definition=f"change of {name} per hour, relative to its fitted value in the first window",
        n=int(known.size),
        interval=FigureInterval(low=low, high=high, level=level, method=_METHOD, freedom=line.freedom),
        source="both",
    )
    return Trend(name=name, start=line.start, end=line.end, per_hour=figure, hours=float(known[-1] - known[0]))
