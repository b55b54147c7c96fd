"""The report of a gate, for a terminal and as a comment on a pull request.

The outcome comes first, the worst rows next; a comment fits one screen and GitHub's limit of length.
"""

from __future__ import annotations

from dataclasses import replace

from specbench_api.api_model import in_words
from specbench_api.outcome.gate_report import GateReport, GateTest, GateTestOutcome
from specbench_api.outcome.layout import REPORT
from specbench_api.spec.conditions import GateReason
from specbench_client.report.text.comparison import (
    WORD_COLUMNS,
    comment_notes,
    comment_table,
    comment_text,
    cut_to_comment,
    keep_ratios,
    omitted_count,
    place_fields,
    simulated_warning,
    table_title,
    value_fields,
)
from specbench_client.report.text.text_table import TextTable, markdown_code, number

ROWS_MAX = 40
"""Rows of a comment's table: one screen. The others are counted, and are in gate.json."""
_MARKS = {GateTestOutcome.PASSED: "✅", GateTestOutcome.FAILED: "❌", GateTestOutcome.INCONCLUSIVE: "❔"}
_STYLES = {
    GateTestOutcome.PASSED: "green",
    GateTestOutcome.FAILED: "red",
    GateTestOutcome.INCONCLUSIVE: "yellow",
}
_TITLES = ("Outcome", "Arm", "Workload", "Load", "Metric", "Before", "After", "After / before", "Limit")


def headline(report: GateReport) -> str:
    """`Gate passed`, `Gate failed: 2 of 12 tests regressed`, `Gate not passed: Inconclusive`, … in a few words."""
    if report.passed:
        tail = " (inconclusive, which this gate lets pass)" if report.reason is GateReason.INCONCLUSIVE else ""
        return f"Gate passed{tail}"
    if report.reason is not GateReason.REGRESSED:
        return f"Gate not passed: {report.reason}"
    failed = sum(test.outcome is GateTestOutcome.FAILED for test in report.tests)
    trusted = not report.gate.require_trustworthy or (report.before.trustworthy and report.after.trustworthy)
    tail = "" if trusted else "; a result is also untrustworthy"
    return f"Gate failed: {failed} of {len(report.tests)} tests regressed{tail}"


def gate_markdown(report: GateReport, link: str = "") -> str:
    """Return the comment. `link`: URL of the report; without one the results' root is given."""
    mark = "✅" if report.passed else "❌"
    lines = [
        f"### {mark} specbench: {headline(report)}",
        "",
        *simulated_warning(report.after),
        comment_text(report.message),
        "",
    ]
    table = gate_table(report)
    if table.rows:
        lines += [
            *comment_table(replace(table, rows=table.rows[:ROWS_MAX])),
            *omitted_count(len(report.tests) - ROWS_MAX, "tests"),
            "",
        ]
        lines += [f"Bounds: one-sided, each at {report.gate.confidence:.0%}; Limit: what the tolerance allows.", ""]
    lines += comment_notes(report.differences, report.uncompared, report.limits)
    lines += [f"Before: {markdown_code(report.before.uri)}<br>After: {markdown_code(report.after.uri)}", ""]
    lines += [f"[Report]({link})" if link else f"Report: {markdown_code(f'{report.after.uri}/{REPORT}')}", ""]
    return cut_to_comment("\n".join(lines))


def gate_table(report: GateReport) -> TextTable:
    """Return a gate as a table: one row a test, the worst first."""
    rows = [_gate_row(test) for test in report.tests]
    title = table_title(headline(report), report.after)
    styles = [_STYLES[test.outcome] for test in report.tests]
    return keep_ratios(TextTable(title, _TITLES, rows, WORD_COLUMNS, styles))


def _gate_row(test: GateTest) -> list[str]:
    each = test.compared
    bounded = test.low is not None and test.high is not None
    bounds = f" [{test.low:.3f}, {test.high:.3f}]" if bounded else f" ({in_words(each.conclusion)})"
    ratio = number(each.ratio.value, 3) + bounds
    side = "≥" if each.more_is_better else "≤"
    outcome = f"{_MARKS[test.outcome]} {test.outcome}"
    return [outcome, *place_fields(each), *value_fields(each), ratio, f"{side} {test.limit:.3f}"]
