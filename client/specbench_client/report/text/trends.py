"""Figures over the windows of a soak test, as a table and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.outcome.summary import Cell, RunSummary, Trend
from specbench_client.report.text.text_table import DASH, TextTable, number

TREND_TITLE = "Over time"
_COLUMNS = ("Arm", "Figure", "First window", "Last window", "Hours", "Change an hour [95 %]")
_DIGITS = 3


def trends_table(summary: RunSummary) -> TextTable:
    """Return one row for each arm and figure; none unless the run is a soak test."""
    rows = [_row(cell, trend) for cell in summary.cells for trend in cell.trends]
    return TextTable(TREND_TITLE, _COLUMNS, rows, words=_COLUMNS[:2])


def trend_lines(summary: RunSummary) -> Iterator[str]:
    """Yield one sentence for each figure that certainly changed."""
    for cell in summary.cells:
        for trend in cell.trends:
            bounds = trend.per_hour.interval
            if bounds is not None and not bounds.low <= 0 <= bounds.high:
                values = f"{number(trend.start, _DIGITS)} to {number(trend.end, _DIGITS)}"
                yield f"{cell.arm}: {trend.name} from {values} in {trend.hours:.3g} h ({_change(trend)} an hour)"


def _row(cell: Cell, trend: Trend) -> tuple[str, ...]:
    values = number(trend.start, _DIGITS), number(trend.end, _DIGITS), f"{trend.hours:.3g}"
    return (cell.arm, trend.name, *values, _change(trend))


def _change(trend: Trend) -> str:
    value, bounds = trend.per_hour.value, trend.per_hour.interval
    if value is None or bounds is None:
        return DASH
    return f"{value:+.2%} [{bounds.low:+.2%}, {bounds.high:+.2%}]"
