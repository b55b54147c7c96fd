"""Two results beside each other, and a gate over them, for a terminal and as the comment of a pull request.

The verdict comes first, the worst rows next; a comment is one screen and never longer than GitHub takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.outcome.comparison import Compared, Comparison, Difference, Side, Standing, Uncompared
from specbench_api.outcome.gate import GateReport, GateTest, Shown
from specbench_api.outcome.layout import REPORT
from specbench_api.spec.conditions import GateReason
from specbench_client.report.columns import DASH, SIMULATED, number
from specbench_client.report.sheets import Sheet, escaped, markdown_table

LENGTH_MAX = 60_000
"""Characters of a comment; GitHub takes 65,536."""
ROWS_MAX = 40
"""Rows of a comment's table: one screen. The others are counted, and stand in gate.json."""
LINES_MAX = 12
"""Differences, or cells that were not compared, that a comment lists."""
TEXT_MAX = 800
"""Characters of one cell or one line."""
_MARKS = {Shown.PASSED: "✅", Shown.FAILED: "❌", Shown.INCONCLUSIVE: "❔"}
_STYLES = {
    Standing.BETTER: "green",
    Standing.WORSE: "red",
    Shown.PASSED: "green",
    Shown.FAILED: "red",
    Shown.INCONCLUSIVE: "yellow",
}
_WORDS = ("Arm", "Workload", "Metric", "Says", "Verdict")


def headline(report: GateReport) -> str:
    """`Gate passed`, `Gate failed`, `Gate inconclusive`, … in a few words."""
    if report.passed:
        tail = " (inconclusive, which this gate lets pass)" if report.reason is GateReason.INCONCLUSIVE else ""
        return f"Gate passed{tail}"
    return "Gate failed" if report.reason is GateReason.REGRESSED else f"Gate not passed: {report.reason}"


def gate_markdown(report: GateReport, link: str = "") -> str:
    """The comment. `link`: where a person finds the report; else the results' root is told."""
    mark = "✅" if report.passed else "❌"
    lines = [f"### {mark} specbench: {headline(report)}", "", *_warning(report.after), _plain(report.message), ""]
    sheet = gate_sheet(report)
    if sheet.rows:
        lines += [
            *_table(replace(sheet, rows=sheet.rows[:ROWS_MAX])),
            *_more(len(report.tests) - ROWS_MAX, "tests"),
            "",
        ]
        lines += [f"Bounds: one-sided, each at {report.gate.confidence:.0%}; Limit: what the tolerance allows.", ""]
    lines += _rest(report.differences, report.uncompared, report.limits)
    lines += [f"Before: `{report.before.uri}`<br>After: `{report.after.uri}`", ""]
    lines += [f"[Report]({link})" if link else f"Report: `{report.after.uri}/{REPORT}`", ""]
    return _fitting("\n".join(lines))


def comparison_markdown(comparison: Comparison) -> str:
    """Two results beside each other as Markdown."""
    before, after = comparison.before, comparison.after
    lines = [f"### specbench: {_plain(before.name)} → {_plain(after.name)}", "", *_warning(after)]
    sheet = comparison_sheet(comparison)
    lines += [*_table(sheet), ""] if sheet.rows else []
    lines += _rest(comparison.differences, comparison.uncompared, comparison.limits)
    lines += [f"Before: `{before.uri}`: {_plain(before.verdict)}<br>After: `{after.uri}`: {_plain(after.verdict)}", ""]
    return _fitting("\n".join(lines))


def gate_sheet(report: GateReport) -> Sheet:
    """A gate: a row a test, the worst first."""
    rows = [_gate_row(test) for test in report.tests]
    title = _titled(headline(report), report.after)
    return Sheet(title, _GATE_TITLES, rows, _WORDS, [_STYLES[test.verdict] for test in report.tests])


def comparison_sheet(comparison: Comparison) -> Sheet:
    """Two results beside each other: a row a cell and metric."""
    before, after = comparison.before, comparison.after
    rows = [_row(each) for each in comparison.cells]
    title = _titled(f"{before.name} → {after.name}", after)
    return Sheet(title, _TITLES, rows, _WORDS, [_STYLES.get(each.standing, "") for each in comparison.cells])


def lines_below(differences: Sequence[Difference], uncompared: Sequence[Uncompared]) -> list[str]:
    """What stands below a terminal's table."""
    return [
        *(f"differs: {each}" for each in differences),
        *(f"not compared: {each.place}: {each.message}" for each in uncompared),
    ]


_TITLES = ("Arm", "Workload", "Load", "Metric", "Before", "After", "After / before [95 %]", "Says")
_GATE_TITLES = ("Verdict", "Arm", "Workload", "Load", "Metric", "Before", "After", "After / before", "Limit")


def _row(each: Compared) -> list[str]:
    bounds = each.ratio.interval
    ratio = number(each.ratio.value, 3) + (f" [{bounds.low:.3f}, {bounds.high:.3f}]" if bounds else "")
    return [*_place(each), *_values(each), ratio, str(each.standing)]


def _gate_row(test: GateTest) -> list[str]:
    each = test.compared
    told = test.low is not None and test.high is not None
    bounds = f" [{test.low:.3f}, {test.high:.3f}]" if told else f" ({each.standing})"
    ratio = number(each.ratio.value, 3) + bounds
    side = "≥" if each.more_is_better else "≤"
    verdict = f"{_MARKS[test.verdict]} {test.verdict}"
    return [verdict, *_place(each), *_values(each), ratio, f"{side} {test.limit:.3f}"]


def _place(each: Compared) -> list[str]:
    return [each.arm, each.workload, each.load, each.metric]


def _values(each: Compared) -> list[str]:
    unit = "" if each.unit == "ratio" else f" {each.unit}"
    return [f"{number(each.before)}{unit}", f"{number(each.after)}{unit}"]


def _warning(side: Side) -> list[str]:
    return [f"> **{SIMULATED}**", ""] if side.simulated else []


def _titled(title: str, side: Side) -> str:
    return f"{title} (simulated, not a measurement)" if side.simulated else title


def _table(sheet: Sheet) -> list[str]:
    """No cell is long, or calls anybody."""
    return markdown_table(replace(sheet, rows=[[_quiet(cell) for cell in row] for row in sheet.rows]))


def _rest(differences: Sequence[Difference], uncompared: Sequence[Uncompared], limits: Sequence[str]) -> list[str]:
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
    return escaped(_quiet(text, most)) or DASH


def _quiet(text: str, most: int = TEXT_MAX) -> str:
    """Text of so many characters, in which nobody is called by name."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut.replace("@", "@\u200b")


def _fitting(text: str) -> str:
    if len(text) <= LENGTH_MAX:
        return text
    tail = "\n\n… cut: it is longer than a comment may be\n"
    return text[: LENGTH_MAX - len(tail)].rpartition("\n")[0] + tail
