"""Checks a document against every rule, and reports the contradictions."""

from __future__ import annotations

from specbench_client.analysis.audit.document import AuditDocument
from specbench_client.analysis.audit.rules.acceptance import FALLS, LENGTHS, SHARES
from specbench_client.analysis.audit.rules.rule import AuditRule, RuleViolation
from specbench_client.analysis.audit.rules.settings import RELEASE, REPEATED
from specbench_client.analysis.audit.rules.speedup import ABOVE_TPOT, BOUNDED, MIXED, OWN
from specbench_client.analysis.audit.rules.step_time import STATED_STEP, STEP_TIME
from specbench_client.analysis.audit.rules.throughput import COST, END_TO_END, LITTLE, STREAMS, THROUGHPUT
from specbench_client.documents.audit import AuditFinding, AuditReport, AuditRuleUsage

# The order of the rules is the order of the findings in reports.
RULES: tuple[AuditRule, ...] = (
    SHARES,
    LENGTHS,
    FALLS,
    STATED_STEP,
    STEP_TIME,
    BOUNDED,
    OWN,
    ABOVE_TPOT,
    MIXED,
    THROUGHPUT,
    STREAMS,
    LITTLE,
    END_TO_END,
    COST,
    RELEASE,
    REPEATED,
)


LIMITS = (
    "A table without a finding may still be wrong: rules only check whether its numbers can come from one measurement.",
    "A finding shows that numbers contradict each other, not which of them is wrong, and not why.",
)
DOUBLED = "Column {title!r} was not read: {read!r} is the same quantity. To check both, audit a table with each."
UNREAD = "Column {title!r} was not read: only medians and means of TTFT, TPOT, E2E and step time are."


def audit_document(document: AuditDocument) -> AuditReport:
    """Check the document against every rule. Pure."""
    outcomes = [(rule, rule.check(document)) for rule in RULES]
    return AuditReport(
        source=document.source,
        tables=len(document.tables),
        rows=len(document.rows),
        settings=list(document.settings),
        findings=[_finding(rule, violation) for rule, outcome in outcomes for violation in outcome.violations],
        rule_usage=[
            AuditRuleUsage(
                rule=rule.name,
                statement=rule.statement,
                comparisons=outcome.comparisons,
                findings=len(outcome.violations),
            )
            for rule, outcome in outcomes
        ],
        limits=[
            *LIMITS,
            *(UNREAD.format(title=title) for title in document.unread),
            *(DOUBLED.format(title=title, read=read) for title, read in document.doubled),
        ],
    )


def _finding(rule: AuditRule, violation: RuleViolation) -> AuditFinding:
    table = violation.rows[0].table
    return AuditFinding(
        rule=rule.name,
        table=table,
        rows=[row.number for row in violation.rows if row.table == table],
        message=violation.message,
        arithmetic=list(violation.arithmetic),
    )
