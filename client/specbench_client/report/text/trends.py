"""Changes over time: figures over the windows of a soak test, and drift between two request logs."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_client.analysis.summary.trends import FIGURES, TrendFigure
from specbench_client.documents.drift import DriftChange, DriftReport, DriftSide
from specbench_client.documents.summary import Cell, RunSummary, Trend
from specbench_client.report.text.text_table import AT_LEVEL, DASH, Report, TextTable, Topic, number, with_interval

TREND_TITLE = "Over time"
_COLUMNS = ("Arm", "Figure", "First window (fitted)", "Last window (fitted)", "Time", f"Change {AT_LEVEL}")
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
    arm = cell.arm + ("" if cell.valid else " invalid")
    return (arm, label, *values, _change(figure, trend), DASH if hourly is None else _difference(figure, hourly))


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


# Drift between two request logs: control charts, windows, and the causes of a change.


WINDOWS_MOST = 40
"""Windows that are shown; the JSON document has all of them."""


def drift_report_text(report: DriftReport) -> Report:
    """Return the headline, control charts, windows and the causes of a change."""
    logs, windows = ["", "requests", "left out"], ["from", "requests", "begun"]
    lengths = [f"AL {AT_LEVEL}", f"acc. rate {AT_LEVEL}"]
    sides = [_side("reference", report.reference), _side("current", report.current)]
    tables = [
        TextTable("logs", [*logs, *lengths], sides, words=logs[:1]),
        TextTable("charts", _CHARTS, _charts(report), words=(*_CHARTS[:1], *_CHARTS[3:])),
        TextTable("windows", [*windows, *lengths], _windows(report), words=windows),
    ]
    for change in report.changes:
        heads = ["category", f"share of {change.weight}", "then → now", "mix", "drafter"]
        tables.append(TextTable(f"change of {change.metric}", heads, _parts(change), words=heads[:1]))
    chances = (
        f"Limits: by simulation from the reference; {report.run_length:,.0f} requests between false alarms on average,"
        f" a chance of {report.false_alarm:.1%} in a log as long as this one."
    )
    return Report([Topic("", tables, [chances, *report.limits])], report.headline)


_CHARTS = ("chart", "largest", "limit", "alarm at", "when")


def _side(name: str, side: DriftSide) -> list[str]:
    figures = [with_interval(side.acceptance_length, 3), with_interval(side.acceptance_rate, 3)]
    return [name, f"{side.requests:,}", f"{side.left_out:,}", *figures]


def _charts(report: DriftReport) -> list[list[str]]:
    return [
        [
            each.name,
            f"{each.statistic:.2f}",
            f"{each.limit:.2f}",
            f"request {each.alarm_at:,} ({each.direction})" if each.alarm_at else DASH,
            each.alarm_time or DASH,
        ]
        for each in report.charts
    ]


def _windows(report: DriftReport) -> list[list[str]]:
    rows = [
        [
            f"{each.first:,}",
            f"{each.requests:,}",
            each.begun or DASH,
            with_interval(each.acceptance_length, 3),
            with_interval(each.acceptance_rate, 3),
        ]
        for each in report.windows[-WINDOWS_MOST:]
    ]
    earlier = len(report.windows) - len(rows)
    return [*([[f"({earlier} earlier)", "", "", "", ""]] if earlier else []), *rows]


def _parts(change: DriftChange) -> list[list[str]]:
    rows = [
        [
            each.category or "(none)",
            f"{each.reference_share:.1%} → {each.current_share:.1%}",
            f"{number(each.reference, 3)} → {number(each.current, 3)}",
            f"{each.mix:+.3f}",
            f"{each.drafter:+.3f}",
        ]
        for each in change.categories
    ]
    whole = f"{change.change.value:+.3f}"
    return [*rows, ["all", "", whole, with_interval(change.mix, 3), with_interval(change.drafter, 3)]]
