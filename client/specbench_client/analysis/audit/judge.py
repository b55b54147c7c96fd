"""Every rule over a document."""

from __future__ import annotations

from specbench_api.outcome.audit import AskedRule, AuditFinding, AuditReport
from specbench_client.analysis.audit.document import Document
from specbench_client.analysis.audit.rule import Rule, Seen
from specbench_client.analysis.audit.rules.table import RULES

LIMITS = (
    "A table without a finding may still be wrong: rules ask only whether its numbers can be of one measurement.",
    "A finding says that numbers contradict each other, not which of them is wrong, and not why.",
)
DOUBLED = "Column {title!r} was not read: {read!r} tells the same quantity. Audit a table with either to ask of both."
UNREAD = "Column {title!r} was not read: medians and means of a named quantity are (TTFT, TPOT, E2E, step time)."


def audit(document: Document) -> AuditReport:
    """Ask every rule. Pure."""
    looked = [(rule, rule.look(document)) for rule in RULES]
    return AuditReport(
        source=document.source,
        tables=len(document.tables),
        rows=len(document.rows),
        settings=list(document.settings),
        findings=[_finding(rule, seen) for rule, found in looked for seen in found.seen],
        asked=[
            AskedRule(rule=rule.name, says=rule.says, asked=found.asked, found=len(found.seen))
            for rule, found in looked
        ],
        limits=[
            *LIMITS,
            *(UNREAD.format(title=title) for title in document.unread),
            *(DOUBLED.format(title=title, read=read) for title, read in document.doubled),
        ],
    )


def _finding(rule: Rule, seen: Seen) -> AuditFinding:
    table = seen.rows[0].table
    return AuditFinding(
        rule=rule.name,
        table=table,
        rows=[row.number for row in seen.rows if row.table == table],
        message=seen.message,
        arithmetic=list(seen.arithmetic),
    )
