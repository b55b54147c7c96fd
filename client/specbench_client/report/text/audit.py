"""An audit as text: each finding with its arithmetic, then which rules could be applied."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.audit import AuditFinding, AuditReport
from specbench_client.report.text.text_table import escape_markdown, markdown_code, markdown_sentence


def audit_lines(report: AuditReport) -> list[str]:
    """Return the audit as lines of plain text."""
    lines = [f"{report.source}: {report.rows} rows in {report.tables} tables"]
    for finding in report.findings:
        lines += ["", f"{finding.rule} ({_place(finding)}): {finding.message}"]
        lines += [f"    {sum_}" for sum_ in finding.arithmetic]
    return [*lines, "", *_summary(report), *report.limits]


def audit_markdown(report: AuditReport) -> str:
    """Return the same as Markdown."""
    lines = [f"# Audit: {escape_markdown(report.source)}", "", f"{report.rows} rows in {report.tables} tables.", ""]
    for finding in report.findings:
        place, message = escape_markdown(_place(finding)), markdown_sentence(finding.message)
        lines += [f"- **{finding.rule}** ({place}): {message}", ""]
        lines += [f"  - {markdown_code(sum_)}" for sum_ in finding.arithmetic]
        lines.append("")
    lines += [f"{markdown_sentence(line)}  " for line in _summary(report)]
    return "\n".join([*lines, "", *map(markdown_sentence, report.limits), ""])


def rule_rows(report: AuditReport) -> list[tuple[str, str, int, int]]:
    """Return rule, description, number of comparisons and number of findings."""
    return [(each.rule, each.statement, each.comparisons, each.findings) for each in report.rule_usage]


def _summary(report: AuditReport) -> list[str]:
    comparisons = sum(rule.comparisons for rule in report.rule_usage)
    unchecked = [rule.rule for rule in report.rule_usage if not rule.comparisons]
    counts = f"{_count(len(report.findings), 'finding')} in {_count(comparisons, 'comparison')}"
    lines = [f"{counts} by {len(report.rule_usage) - len(unchecked)} of {len(report.rule_usage)} rules"]
    lines += [f"not checked, because columns are missing: {', '.join(unchecked)}"] if unchecked else []
    settings = ", ".join(report.settings)
    lines += [f"read as settings (rows that differ in a setting are not compared): {settings}"] if settings else []
    lines += (
        ["recognised headings, and the columns that each rule needs: docs/research/audit.md"]
        if unchecked or settings
        else []
    )
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _place(finding: AuditFinding) -> str:
    rows: Sequence[int] = finding.rows
    which = f"row {rows[0]}" if len(rows) == 1 else f"rows {', '.join(map(str, rows))}"
    return f"{finding.table}, {which}"
