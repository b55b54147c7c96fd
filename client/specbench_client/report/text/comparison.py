"""A comparison of two results, and a gate over it, for a terminal and as a comment on a pull request.

The verdict comes first, the worst rows next; a comment fits one screen and GitHub's limit of length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.outcome.comparison import (
    ChangeConclusion,
    ComparedFigure,
    ComparedResult,
    Comparison,
    ComparisonGap,
    Difference,
)
from specbench_api.outcome.gate_report import GateReport, GateTest, GateTestOutcome
from specbench_api.outcome.layout import REPORT
from specbench_api.spec.conditions import GateReason
from specbench_client.documents.published import PublishedComparison, PublishedMatch, PublishedTable
from specbench_client.report.text.text_table import (
    DASH,
    SIMULATED,
    TextTable,
    escape_markdown,
    markdown_table,
    number,
    with_interval,
)

LENGTH_MAX = 60_000
"""Characters of a comment; GitHub's limit is 65,536."""
ROWS_MAX = 40
"""Rows of a comment's table: one screen. The others are counted, and are in gate.json."""
LINES_MAX = 12
"""Differences, or cells that were not compared, that a comment lists."""
TEXT_MAX = 800
"""Characters of one cell or one line."""
_MARKS = {GateTestOutcome.PASSED: "✅", GateTestOutcome.FAILED: "❌", GateTestOutcome.INCONCLUSIVE: "❔"}
_STYLES = {
    ChangeConclusion.BETTER: "green",
    ChangeConclusion.WORSE: "red",
    GateTestOutcome.PASSED: "green",
    GateTestOutcome.FAILED: "red",
    GateTestOutcome.INCONCLUSIVE: "yellow",
}
_WORDS = ("Arm", "Workload", "Metric", "Says", "Verdict")


def headline(report: GateReport) -> str:
    """`Gate passed`, `Gate failed`, `Gate inconclusive`, … in a few words."""
    if report.passed:
        tail = " (inconclusive, which this gate lets pass)" if report.reason is GateReason.INCONCLUSIVE else ""
        return f"Gate passed{tail}"
    return "Gate failed" if report.reason is GateReason.REGRESSED else f"Gate not passed: {report.reason}"


def gate_markdown(report: GateReport, link: str = "") -> str:
    """Return the comment. `link`: URL of the report; without one the results' root is given."""
    mark = "✅" if report.passed else "❌"
    lines = [f"### {mark} specbench: {headline(report)}", "", *_warning(report.after), _plain(report.message), ""]
    table = gate_table(report)
    if table.rows:
        lines += [
            *_table(replace(table, rows=table.rows[:ROWS_MAX])),
            *_more(len(report.tests) - ROWS_MAX, "tests"),
            "",
        ]
        lines += [f"Bounds: one-sided, each at {report.gate.confidence:.0%}; Limit: what the tolerance allows.", ""]
    lines += _rest(report.differences, report.uncompared, report.limits)
    lines += [f"Before: `{report.before.uri}`<br>After: `{report.after.uri}`", ""]
    lines += [f"[Report]({link})" if link else f"Report: `{report.after.uri}/{REPORT}`", ""]
    return _fitting("\n".join(lines))


def comparison_markdown(comparison: Comparison) -> str:
    """Return a comparison of two results as Markdown."""
    before, after = comparison.before, comparison.after
    lines = [f"### specbench: {_plain(before.name)} → {_plain(after.name)}", "", *_warning(after)]
    table = comparison_table(comparison)
    lines += [*_table(table), ""] if table.rows else []
    lines += _rest(comparison.differences, comparison.uncompared, comparison.limits)
    lines += [
        f"Before: `{before.uri}`: {_plain(before.headline)}<br>After: `{after.uri}`: {_plain(after.headline)}",
        "",
    ]
    return _fitting("\n".join(lines))


def gate_table(report: GateReport) -> TextTable:
    """Return a gate as a table: one row a test, the worst first."""
    rows = [_gate_row(test) for test in report.tests]
    title = _titled(headline(report), report.after)
    return TextTable(title, _GATE_TITLES, rows, _WORDS, [_STYLES[test.verdict] for test in report.tests])


def comparison_table(comparison: Comparison) -> TextTable:
    """Return a comparison of two results as a table: one row a cell and metric."""
    before, after = comparison.before, comparison.after
    rows = [_row(each) for each in comparison.cells]
    title = _titled(f"{before.name} → {after.name}", after)
    return TextTable(title, _TITLES, rows, _WORDS, [_STYLES.get(each.conclusion, "") for each in comparison.cells])


def comparison_notes(differences: Sequence[Difference], uncompared: Sequence[ComparisonGap]) -> list[str]:
    """Return the lines below the table on a terminal."""
    return [
        *(f"differs: {each}" for each in differences),
        *(f"not compared: {each.place}: {each.message}" for each in uncompared),
    ]


_TITLES = ("Arm", "Workload", "Load", "Metric", "Before", "After", "After / before [95 %]", "Says")
_GATE_TITLES = ("Verdict", "Arm", "Workload", "Load", "Metric", "Before", "After", "After / before", "Limit")


def _row(each: ComparedFigure) -> list[str]:
    bounds = each.ratio.interval
    ratio = number(each.ratio.value, 3) + (f" [{bounds.low:.3f}, {bounds.high:.3f}]" if bounds else "")
    return [*_place(each), *_values(each), ratio, str(each.conclusion)]


def _gate_row(test: GateTest) -> list[str]:
    each = test.compared
    bounded = test.low is not None and test.high is not None
    bounds = f" [{test.low:.3f}, {test.high:.3f}]" if bounded else f" ({each.conclusion})"
    ratio = number(each.ratio.value, 3) + bounds
    side = "≥" if each.more_is_better else "≤"
    verdict = f"{_MARKS[test.verdict]} {test.verdict}"
    return [verdict, *_place(each), *_values(each), ratio, f"{side} {test.limit:.3f}"]


def _place(each: ComparedFigure) -> list[str]:
    return [each.arm, each.workload, each.load, each.metric]


def _values(each: ComparedFigure) -> list[str]:
    unit = "" if each.unit == "ratio" else f" {each.unit}"
    return [f"{number(each.before)}{unit}", f"{number(each.after)}{unit}"]


def _warning(side: ComparedResult) -> list[str]:
    return [f"> **{SIMULATED}**", ""] if side.simulated else []


def _titled(title: str, side: ComparedResult) -> str:
    return f"{title} (simulated, not a measurement)" if side.simulated else title


def _table(table: TextTable) -> list[str]:
    """Return a table as Markdown with short cells and without @mentions."""
    return markdown_table(replace(table, rows=[[_quiet(cell) for cell in row] for row in table.rows]))


def _rest(differences: Sequence[Difference], uncompared: Sequence[ComparisonGap], limits: Sequence[str]) -> list[str]:
    different = [f"- Different: {_plain(str(each))}" for each in differences[:LINES_MAX]]
    lacking = [f"- Not compared: {_plain(f'{each.place}: {each.message}')}" for each in uncompared[:LINES_MAX]]
    lines = [
        *different,
        *_more(len(differences) - LINES_MAX, "differences"),
        *lacking,
        *_more(len(uncompared) - LINES_MAX, "that were not compared"),
    ]
    notes = [f"<sub>{_plain(limit, most=LENGTH_MAX)}</sub>" for limit in limits]
    return [*lines, *([""] if lines else []), *notes, *([""] if notes else [])]


def _more(count: int, what: str) -> list[str]:
    return ["", f"… and {count} more {what}, in gate.json"] if count > 0 else []


def _plain(text: str, most: int = TEXT_MAX) -> str:
    return escape_markdown(_quiet(text, most)) or DASH


def _quiet(text: str, most: int = TEXT_MAX) -> str:
    """Return text of at most `most` characters without @mentions."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut.replace("@", "@\u200b")


def _fitting(text: str) -> str:
    if len(text) <= LENGTH_MAX:
        return text
    tail = "\n\n… cut: it is longer than a comment may be\n"
    return text[: LENGTH_MAX - len(tail)].rpartition("\n")[0] + tail


# A run beside published tables, in rows: for a terminal and for Markdown. Nothing of it is a pass or a fail.

PUBLISHED_TITLES = (
    "Arm",
    "Workload",
    "Load",
    "Figure",
    "Measured [95 %]",
    "Published",
    "Ratio",
    "Table",
    "Differs",
)
PUBLISHED_LIST_TITLES = ("Name", "Rows", "Shows", "Source", "Caution")


def published_rows(comparison: PublishedComparison) -> list[list[str]]:
    """Return one row for each cell, figure and table."""
    return [_published_row(each) for each in comparison.rows]


def table_rows(tables: Sequence[PublishedTable]) -> list[list[str]]:
    """Return one row for each published table."""
    return [[each.name, str(each.rows), each.title, f"{each.source}; {each.read}", each.caution] for each in tables]


def published_table(comparison: PublishedComparison) -> TextTable:
    """Return the run compared with published tables."""
    title = "Beside published tables: no pass, no fail"
    titled = f"{title} ({SIMULATED})" if comparison.simulated else title
    words = ("Arm", "Workload", "Figure", "Table", "Differs")
    return TextTable(titled, PUBLISHED_TITLES, published_rows(comparison), words)


def published_list_table(tables: Sequence[PublishedTable]) -> TextTable:
    """Return the list of published tables."""
    return TextTable(
        "Published tables", PUBLISHED_LIST_TITLES, table_rows(tables), words=("Name", "Shows", "Source", "Caution")
    )


def published_lines(comparison: PublishedComparison) -> list[str]:
    """Return the lines below the table."""
    return [*(f"nothing beside: {each}" for each in comparison.unmatched), *comparison.limits]


def published_markdown(comparison: PublishedComparison) -> str:
    """Return the comparison as Markdown."""
    lines = ["### Beside published tables: no pass, no fail", ""]
    lines += [f"> **{SIMULATED}**", ""] if comparison.simulated else []
    lines += [*markdown_table(published_table(comparison)), ""] if comparison.rows else []
    lines += [f"- {line}" for line in published_lines(comparison)]
    sources = [f"- {each.name}: {each.source}; {each.read}" for each in comparison.tables]
    return "\n".join([*lines, "", "Sources:", "", *sources, ""])


def _published_row(each: PublishedMatch) -> list[str]:
    row = each.published
    note = f" ({row.note})" if row.note else ""
    differs = "; ".join(map(str, each.differences)) or "nothing that was told"
    where = [each.arm, each.workload, each.load, row.figure, with_interval(each.measured)]
    return [*where, f"{row.value:g}{note}", f"{each.ratio:.2f}", each.table, differs]
