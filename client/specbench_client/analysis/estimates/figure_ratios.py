"""Ratios of figures with their intervals, on the log scale, and their p-values.

The intervals of two figures from different requests are combined by MOVER (Zou and Donner 2008, "Construction of
confidence limits about effect measures: a general approach", Statistics in Medicine 27): the distance of each bound
from its value is its error, and the squares of errors are added. The gains of two arms over one baseline share that
baseline's noise, so the interval of their quotient is too wide rather than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.statistics.bootstrap import LEVEL, IntervalBounds
from specbench_client.analysis.statistics.p_values import interval_p_value

MOVER = "MOVER on the log scale from the two intervals"


@dataclass(frozen=True)
class LogInterval:
    """A positive figure on the log scale: its value, and the distances of the interval's lower and upper bound."""

    value: float
    below: float
    above: float


def log_interval_of(figure: Figure | None) -> LogInterval | None:
    """Return the figure on the log scale, with infinite distances if it has no interval; None if not positive."""
    if figure is None or figure.value is None or figure.value <= 0:
        return None
    value, bounds = math.log(figure.value), figure.interval
    if bounds is None:
        return LogInterval(value, math.inf, math.inf)
    low = math.log(bounds.low) if bounds.low > 0 else -math.inf
    high = math.log(bounds.high) if bounds.high > 0 else -math.inf  # math.log(inf) is inf
    return LogInterval(value, max(0.0, value - low), max(0.0, high - value))


def figure_ratio(over: Figure, under: Figure, definition: str) -> Figure | None:
    """Return the ratio of two figures that share no pairs; None if either has no positive value."""
    top, bottom = log_interval_of(over), log_interval_of(under)
    if top is None or bottom is None:
        return None
    below, above = math.hypot(top.below, bottom.above), math.hypot(top.above, bottom.below)
    value = top.value - bottom.value
    bounds = FigureInterval(low=math.exp(value - below), high=math.exp(value + above), level=LEVEL, method=MOVER)
    finite = math.isfinite(below) and math.isfinite(above)
    return Figure(
        value=math.exp(value),
        unit="ratio",
        definition=definition,
        n=min(over.n, under.n),
        interval=bounds if finite else None,
        source=over.source if over.source == under.source else "both",
    )


def map_figure(figure: Figure, change: Callable[[float], float], unit: str, definition: str) -> Figure:
    """Return a monotone function of a figure, applied to its value and to its bounds."""
    if figure.value is None:
        return Figure(unit=unit, definition=definition, n=0, source=figure.source)
    bounds, interval = figure.interval, None
    if bounds is not None and bounds.low > 0:  # the function may be undefined at 0 and below
        low, high = sorted((change(bounds.low), change(bounds.high)))
        interval = bounds.model_copy(update={"low": low, "high": high})
    return Figure(
        value=change(figure.value),
        unit=unit,
        definition=definition,
        n=figure.n,
        interval=interval,
        source=figure.source,
    )


def degrees_of_freedom(figure: Figure) -> float:
    """Return the degrees of freedom of a figure's interval, at least 1; n − 1 for a ratio of unpaired figures."""
    freedom = figure.interval.freedom if figure.interval else None
    return max(1.0, figure.n - 1 if freedom is None else freedom)


def ratio_p_value(ratio: Figure, freedom: float) -> float | None:
    """Two-sided p-value of "the ratio is 1", below 1 − LEVEL exactly if its interval excludes 1; None without one."""
    on_log = log_interval_of(ratio)
    if on_log is None or ratio.interval is None:
        return None
    bounds = IntervalBounds(on_log.value - on_log.below, on_log.value + on_log.above)
    return interval_p_value(on_log.value, bounds, freedom)


def is_larger(better: Figure, other: Figure) -> bool:
    """Whether one gain is significantly larger than the other, both over the same baseline."""
    ratio = figure_ratio(better, other, "")
    return ratio is not None and ratio.interval is not None and ratio.interval.low > 1
