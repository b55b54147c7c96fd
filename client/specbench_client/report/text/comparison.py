"""A comparison of two results, for a terminal and as a comment on a pull request; `gate` has the table of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.api_model import in_words
from specbench_api.outcome.layout import REPORT
from specbench_api.spec.conditions import GateReason
from specbench_client.documents.comparison import (
    ComparedFigure,
    ComparedResult,
    Comparison,
    ComparisonGap,
    Difference,
    GateReport,
    GateTest,
    GateTestOutcome,
)
from specbench_client.documents.figure import Verdict
from specbench_client.report.table_renderers import markdown_code, markdown_sentence, markdown_table
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    DASH,
    SIMULATED,
    TextTable,
    constant_columns,
    figure_text,
    mark_simulated,
    number,
)

LENGTH_MAX = 60_000
"""Characters of a comment; GitHub's limit is 65,536."""
LINES_MAX = 12
"""Differences, or cells that were not compared, that a comment lists."""
TEXT_MAX = 800
"""Characters of one cell or one line."""
_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red"}
WORD_COLUMNS = ("Arm", "Workload", "Metric", "Conclusion", "Outcome")


def comparison_markdown(comparison: Comparison) -> str:
    """Return a comparison of two results as Markdown."""
    before, after = comparison.before, comparison.after
    lines = [f"### specbench: {comment_text(before.name)} → {comment_text(after.name)}", "", *simulated_warning(after)]
    table = comparison_table(comparison)
    lines += [*comment_table(table), ""] if table.rows else []
    lines += comment_notes(comparison.differences, comparison.uncompared, comparison.limits)
    shown = [
        f"{title}: {markdown_code(side.uri)}: {comment_text(side.headline)}"
        for title, side in (("Before", before), ("After", after))
    ]
    lines += ["<br>".join(shown), ""]
    return cut_to_comment("\n".join(lines))


def comparison_table(comparison: Comparison) -> TextTable:
    """Return a comparison of two results as a table: one row a cell and metric."""
    before, after = comparison.before, comparison.after
    rows = [_row(each) for each in comparison.cells]
    title = mark_simulated(f"{before.name} → {after.name}", simulated=after.simulated)
    styles = [_STYLES.get(each.conclusion, "") for each in comparison.cells]
    return keep_ratios(TextTable(title, _TITLES, rows, WORD_COLUMNS, styles))


def keep_ratios(table: TextTable) -> TextTable:
    """Return the table with the columns that a narrow terminal leaves out: not the ratio, which decides."""
    return replace(table, optional=[*constant_columns(table, ["Workload"]), "Before", "After"])


def comparison_notes(differences: Sequence[Difference], uncompared: Sequence[ComparisonGap]) -> list[str]:
    """Return the lines below the table on a terminal."""
    return [
        *(f"differs: {each}" for each in differences),
        *(f"not compared: {each.place}: {each.message}" for each in uncompared),
    ]


_TITLES = ("Arm", "Workload", "Load", "Metric", "Before", "After", f"After / before {AT_LEVEL}", "Conclusion")


def _row(each: ComparedFigure) -> list[str]:
    ratio = figure_text(each.ratio, "{:.3f}".format)
    return [*_fields(each), ratio, in_words(each.conclusion)]


def _fields(each: ComparedFigure) -> list[str]:
    """Return what a compared figure is, and its values before and after, with the unit."""
    values = [
        f"{number(value)}{'' if each.unit == 'ratio' else f' {each.unit}'}" for value in (each.before, each.after)
    ]
    return [each.arm, each.workload, each.load, each.metric, *values]


def simulated_warning(side: ComparedResult) -> list[str]:
    """Return the lines that warn of a simulated engine, or none."""
    return [f"> **{SIMULATED}**", ""] if side.simulated else []


def comment_table(table: TextTable) -> list[str]:
    """Return a table as Markdown with short cells and without @mentions."""
    cut = replace(table, rows=[[_cut(cell) for cell in row] for row in table.rows])
    return [_without_mentions(line) for line in markdown_table(cut)]


def comment_notes(
    differences: Sequence[Difference], uncompared: Sequence[ComparisonGap], limits: Sequence[str]
) -> list[str]:
    """Return the lines below a comment's table: differences, cells that were not compared, and limits."""
    different = [f"- Different: {comment_text(str(each))}" for each in differences[:LINES_MAX]]
    lacking = [f"- Not compared: {comment_text(f'{each.place}: {each.message}')}" for each in uncompared[:LINES_MAX]]
    lines = [
        *different,
        *omitted_count(len(differences) - LINES_MAX, "differences"),
        *lacking,
        *omitted_count(len(uncompared) - LINES_MAX, "that were not compared"),
    ]
    notes = [f"<sub>{comment_text(limit, most=LENGTH_MAX)}</sub>" for limit in limits]
    return [*lines, *([""] if lines else []), *notes, *([""] if notes else [])]


def omitted_count(count: int, what: str) -> list[str]:
    """Return the lines that report how many rows were left out, or none."""
    return ["", f"… and {count} more {what}, in gate.json"] if count > 0 else []


def comment_text(text: str, most: int = TEXT_MAX) -> str:
    """Return text for a comment: escaped, cut and without @mentions; a dash where there is none."""
    return _without_mentions(markdown_sentence(_cut(text, most))) or DASH


def _cut(text: str, most: int = TEXT_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _without_mentions(markdown: str) -> str:
    return markdown.replace("@", "@\u200b")


def cut_to_comment(text: str) -> str:
    """Return the comment, cut to GitHub's limit of length."""
    if len(text) <= LENGTH_MAX:
        return text
    tail = "\n\n… cut: it is longer than a comment may be\n"
    return text[: LENGTH_MAX - len(tail)].rpartition("\n")[0] + tail


# The report of a gate, for a terminal and as a comment on a pull request.
#
# The outcome comes first, the worst rows next; a comment fits one screen and GitHub's limit of length.


ROWS_MAX = 40
"""Rows of a comment's table: one screen. The others are counted, and are in gate.json."""
_MARKS = {GateTestOutcome.PASSED: "✅", GateTestOutcome.FAILED: "❌", GateTestOutcome.INCONCLUSIVE: "❔"}
_OUTCOME_STYLES = {
    GateTestOutcome.PASSED: "green",
    GateTestOutcome.FAILED: "red",
    GateTestOutcome.INCONCLUSIVE: "yellow",
}
_GATE_TITLES = ("Outcome", "Arm", "Workload", "Load", "Metric", "Before", "After", "After / before", "Limit")


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
    title = mark_simulated(headline(report), simulated=report.after.simulated)
    styles = [_OUTCOME_STYLES[test.outcome] for test in report.tests]
    return keep_ratios(TextTable(title, _GATE_TITLES, rows, WORD_COLUMNS, styles))


def _gate_row(test: GateTest) -> list[str]:
    each = test.compared
    bounded = test.low is not None and test.high is not None
    bounds = f" [{test.low:.3f}, {test.high:.3f}]" if bounded else f" ({in_words(each.conclusion)})"
    ratio = number(each.ratio.value, 3) + bounds
    side = "≥" if each.more_is_better else "≤"
    outcome = f"{_MARKS[test.outcome]} {test.outcome}"
    return [outcome, *_fields(each), ratio, f"{side} {test.limit:.3f}"]
