"""A drift report as text: headline, control charts, windows, and the causes of a change."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.drift import DriftChange, DriftReport, DriftSide
from specbench_client.report.text.text_table import DASH, TextTable, markdown_section, markdown_sentence, with_interval

WINDOWS_MOST = 40
"""Windows that are shown; the JSON document has all of them."""

Rows = list[list[str]]


def drift_lines(report: DriftReport) -> list[str]:
    """Return lines of plain text."""
    lines = [report.headline, ""]
    for title, (heads, rows) in _tables(report).items():
        lines += [f"{title}:", *_aligned([heads, *rows]), ""]
    return [*lines, _limits_text(report), *report.limits]


def drift_markdown(report: DriftReport) -> str:
    """Return the same as Markdown."""
    lines = [f"### specbench analyze drift: {'alarm' if report.alarm else 'in control'}", ""]
    lines += [markdown_sentence(report.headline), ""]
    for title, (heads, rows) in _tables(report).items():
        lines.append(markdown_section(TextTable(title, heads, rows, words=heads)))
    limits = [markdown_sentence(line) for line in (_limits_text(report), *report.limits)]
    return "\n".join([*lines, limits[0], "", *limits[1:], ""])


def _tables(report: DriftReport) -> dict[str, tuple[list[str], Rows]]:
    tables = {
        "logs": (
            ["", "requests", "left out", "AL [95 %]", "acc. rate [95 %]"],
            [_side("reference", report.reference), _side("current", report.current)],
        ),
        "charts": (["chart", "largest", "limit", "alarm at", "when"], _charts(report)),
        "windows": (["from", "requests", "begun", "AL [95 %]", "acc. rate [95 %]"], _windows(report)),
    }
    for change in report.changes:
        heads = ["category", f"share of {change.weight}", "then → now", "mix", "drafter"]
        tables[f"change of {change.metric}"] = (heads, _change(change))
    return tables


def _side(name: str, side: DriftSide) -> list[str]:
    figures = [with_interval(side.acceptance_length, 3), with_interval(side.acceptance_rate, 3)]
    return [name, f"{side.requests:,}", f"{side.left_out:,}", *figures]


def _charts(report: DriftReport) -> Rows:
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


def _windows(report: DriftReport) -> Rows:
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


def _change(change: DriftChange) -> Rows:
    rows = [
        [
            each.category or "(none)",
            f"{each.reference_share:.1%} → {each.current_share:.1%}",
            f"{_value(each.reference)} → {_value(each.current)}",
            f"{each.mix:+.3f}",
            f"{each.drafter:+.3f}",
        ]
        for each in change.categories
    ]
    whole = f"{change.change.value:+.3f}"
    return [*rows, ["all", "", whole, with_interval(change.mix, 3), with_interval(change.drafter, 3)]]


def _value(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"


def _limits_text(report: DriftReport) -> str:
    return (
        f"Limits: by simulation from the reference; {report.run_length:,.0f} requests between false alarms on average,"
        f" a chance of {report.false_alarm:.1%} in a log as long as this one."
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return [f"  {'  '.join(cells)}".rstrip() for cells in padded]
