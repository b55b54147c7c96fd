"""Figures over the windows of a soak test, as a table and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.outcome.summary import Cell, RunSummary, Trend
from specbench_client.analysis.summary.trends import FIGURES, TrendFigure
from specbench_client.report.text.text_table import DASH, TextTable, number

TREND_TITLE = "Over time"
_COLUMNS = ("Arm", "Figure", "First window (fitted)", "Last window (fitted)", "Time", "Change [95 %]")
_AN_HOUR = "An hour"
_RESTARTS = "Restarts"
_BY_NAME = {figure.name: figure for figure in FIGURES}
_POINTS = " points"
_DIGITS = 3


def trends_table(summary: RunSummary) -> TextTable:
    """Return one row for each arm and figure; none unless the run is a soak test."""
    trends = [(cell, trend) for cell in summary.cells for trend in cell.trends]
    hourly = any(trend.change_per_hour is not None for _, trend in trends)
    restarted = any(trend.restarts for _, trend in trends)
    columns = *_COLUMNS, *([_AN_HOUR] if hourly else []), *([_RESTARTS] if restarted else [])
    rows = [
        (*_row(cell, trend)[: None if hourly else -1], *([str(trend.restarts)] if restarted else []))
        for cell, trend in trends
    ]
    return TextTable(TREND_TITLE, columns, rows, words=_COLUMNS[:2])


def trend_lines(summary: RunSummary) -> Iterator[str]:
    """Yield one sentence for each figure that certainly changed, and one for each arm whose engine restarted."""
    for cell in summary.cells:
        if cell.trends and cell.trends[0].restarts:
            yield f"{cell.arm}: {cell.trends[0].restart_words}"
        for trend in cell.trends:
            bounds = trend.change.interval
            if bounds is not None and not bounds.low <= 0 <= bounds.high:
                figure, hourly = _BY_NAME[trend.name], trend.change_per_hour
                unit = "" if figure.is_share else f" {figure.unit}"
                rate = "" if hourly is None else f", {_difference(figure, hourly)} an hour"
                values = f"{_value(figure, trend.start)} to {_value(figure, trend.end)}{unit}"
                change = f"{_change(figure, trend)}{rate}"
                yield f"{cell.arm}: {figure.label} from {values} in {trend.time_words}: {change}"


def _row(cell: Cell, trend: Trend) -> tuple[str, ...]:
    figure, hourly = _BY_NAME[trend.name], trend.change_per_hour
    label = figure.label if figure.is_share else f"{figure.label} ({figure.unit})"
    values = _value(figure, trend.start), _value(figure, trend.end), trend.time_words
    return (cell.arm, label, *values, _change(figure, trend), DASH if hourly is None else _difference(figure, hourly))


def _value(figure: TrendFigure, value: float) -> str:
    return f"{value:.1%}" if figure.is_share else number(value, _DIGITS)


def _change(figure: TrendFigure, trend: Trend) -> str:
    value, bounds = trend.change.value, trend.change.interval
    if value is None or bounds is None:
        return DASH
    low, high = (_difference(figure, each).removesuffix(_POINTS) for each in (bounds.low, bounds.high))
    return f"{_difference(figure, value)} [{low}, {high}]"


def _difference(figure: TrendFigure, change: float) -> str:
    """Return a change: of shares in percentage points, which no one can take for a relative change."""
    return f"{100 * change:+.1f}{_POINTS}" if figure.is_share else f"{change:+.1%}"
