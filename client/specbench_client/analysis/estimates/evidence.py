"""Ratios with their intervals, on the log scale: how clear one is, and one over another.

Where two ratios come from different requests their intervals are put together by MOVER (Zou and Donner 2008,
"Construction of confidence limits about effect measures: a general approach", Statistics in Medicine 27): the distance
of each bound from its value is taken for its error, and the squares are added. Gains of two arms over one baseline
share that baseline's noise, so their quotient's interval is too wide rather than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import special

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.statistics.bootstrap import LEVEL

MOVER = "MOVER on the log scale from the two intervals"
_T = "t"
_WITHIN = " within categories"


@dataclass(frozen=True)
class Reach:
    """A positive figure on the log scale: its value, and how far below and above it its interval reaches."""

    value: float
    below: float
    above: float


def reach_of(figure: Figure | None) -> Reach | None:
    """The figure's log value and reaches; infinite where it has no interval; None where it has no positive value."""
    if figure is None or figure.value is None or figure.value <= 0:
        return None
    value, bounds = math.log(figure.value), figure.interval
    if bounds is None:
        return Reach(value, math.inf, math.inf)
    low = math.log(bounds.low) if bounds.low > 0 else -math.inf
    high = math.log(bounds.high) if bounds.high > 0 else -math.inf  # a bound may be inf, and its log is
    return Reach(value, max(0.0, value - low), max(0.0, high - value))


def quotient(over: Figure, under: Figure, definition: str) -> Figure | None:
    """The first figure over the second, of two figures that share no pairs; None where either has no value."""
    top, bottom = reach_of(over), reach_of(under)
    if top is None or bottom is None:
        return None
    below, above = math.hypot(top.below, bottom.above), math.hypot(top.above, bottom.below)
    value = top.value - bottom.value
    bounds = FigureInterval(low=math.exp(value - below), high=math.exp(value + above), level=LEVEL, method=MOVER)
    told = math.isfinite(below) and math.isfinite(above)
    return Figure(
        value=math.exp(value),
        unit="ratio",
        definition=definition,
        n=min(over.n, under.n),
        interval=bounds if told else None,
        source=over.source if over.source == under.source else "both",
    )


def mapped(figure: Figure, change: Callable[[float], float], unit: str, definition: str) -> Figure:
    """A figure through a monotone function of it: value and bounds alike; the bounds in their order."""
    if figure.value is None:
        return Figure(unit=unit, definition=definition, n=0, source=figure.source)
    bounds, interval = figure.interval, None
    if bounds is not None and bounds.low > 0:  # beyond 0 the function need not have a value
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


def freedom_of(figure: Figure, repeats: int, categories: int) -> float:
    """Degrees of freedom of a figure's interval; of older results, from how its method says that it was made.

    At least 1. `repeats`: over which it was made; `categories`: of the cell, within which prompts may have been drawn.
    """
    if figure.interval and figure.interval.freedom is not None:
        return max(1.0, figure.interval.freedom)
    method = figure.interval.method if figure.interval else ""
    if method.startswith(_T):
        return max(1, repeats - 1)
    return max(1, figure.n - (max(1, categories) if _WITHIN in method else 1))


def p_value(ratio: Figure, freedom: float) -> float | None:
    """Two-sided p of `the ratio is 1`: below 1 - LEVEL exactly when its interval excludes 1. None without interval."""
    told = reach_of(ratio)
    if told is None or ratio.interval is None:
        return None
    reach = told.below if told.value > 0 else told.above
    if reach <= 0:
        return 1.0 if told.value == 0 else 0.0
    critical = special.stdtrit(freedom, 1 - (1 - LEVEL) / 2)
    return float(2 * special.stdtr(freedom, -critical * abs(told.value) / reach))


def apart(better: Figure, other: Figure) -> bool:
    """Whether the one gain is shown to be larger than the other, both over one baseline."""
    told = quotient(better, other, "")
    return told is not None and told.interval is not None and told.interval.low > 1
