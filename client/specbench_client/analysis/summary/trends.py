"""How the figures of a cell change over the windows of a soak test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import PointSummary, Trend
from specbench_api.plan.plan import Plan
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.trends import fit_line
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.catalog import CACHED_SHARE
from specbench_client.metrics.decode_speed import TPOT_MS_POOLED
from specbench_client.metrics.steady_window import OUTPUT_TPS, OUTPUT_TPS_UNIT
from specbench_client.metrics.tidy_frame import Values
from specbench_client.trust.checks.acceptance import is_decay


@dataclass(frozen=True)
class TrendFigure:
    """A figure that is followed over time: its name in results, its name and unit for people."""

    name: str
    label: str
    unit: str
    is_share: bool = False
    """Whether it changes by a difference; a share may begin at 0, of which nothing can be relative."""


ACCEPTANCE = TrendFigure(EMITTED_POOLED.name, "acceptance length", "tokens/step")
FAILURES = TrendFigure("failed_share", "failed requests", "ratio", is_share=True)
FIGURES = (
    ACCEPTANCE,
    TrendFigure(TPOT_MS_POOLED.name, "time per output token", TPOT_MS_POOLED.unit),
    TrendFigure(OUTPUT_TPS, "throughput", OUTPUT_TPS_UNIT),
    TrendFigure(CACHED_SHARE.name, "prompt tokens from the cache", CACHED_SHARE.unit, is_share=True),
    FAILURES,
)
RELATIVE_CHANGE = "slope × time from the first window to the last ÷ the fitted value in the first window; at least −1"
SHARE_CHANGE = "slope × time from the first window to the last: a difference of two shares"
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
    found = [_trend(figure, _series(windows, figure), hours) for figure in FIGURES]
    return [trend for trend in found if trend is not None]


def acceptance_trend(points: Sequence[PointSummary], level: float = LEVEL) -> Trend | None:
    """Return the trend of the acceptance length; `points` as of `trends_of`."""
    windows = sorted(points, key=lambda point: point.repeat)
    return _trend(ACCEPTANCE, _series(windows, ACCEPTANCE), _middles_h(windows), level)


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


def _series(windows: Sequence[PointSummary], figure: TrendFigure) -> Values:
    if figure is FAILURES:
        return np.array([each.counts.failed_requests / max(each.counts.requests, 1) for each in windows])
    found = (each.figures.get(figure.name) for each in windows)
    return np.array([np.nan if each is None or each.value is None else each.value for each in found])


def _trend(figure: TrendFigure, values: Values, hours: Values, level: float = LEVEL) -> Trend | None:
    line = fit_line(values, hours, level)
    if line is None or not (figure.is_share or line.start > 0):
        return None
    known = hours[np.isfinite(values)]
    lasted = float(known[-1] - known[0])
    scale = lasted if figure.is_share else lasted / line.start
    # No figure can lose more than all of it, though a line can fall below 0.
    change, low, high = (max(each * scale, -1.0) for each in (line.slope, line.bounds.low, line.bounds.high))
    return Trend(
        name=figure.name,
        start=max(line.start, 0.0),
        end=max(line.end, 0.0),
        change=Figure(
            value=change,
            unit="ratio",
            definition=SHARE_CHANGE if figure.is_share else RELATIVE_CHANGE,
            n=int(known.size),
            interval=FigureInterval(low=low, high=high, level=level, method=_METHOD, freedom=line.freedom),
            source="both",
        ),
        hours=lasted,
    )
