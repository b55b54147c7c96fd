"""The report of `specbench analyze audit`: contradictions between the numbers of a table of results."""

from __future__ import annotations

from typing import Literal

from specbench_api.api_model import ApiModel


class AuditFinding(ApiModel):
    """One contradiction, with the arithmetic that shows it."""

    rule: str
    """Name of the rule, see docs/research/audit.md."""
    table: str
    """Name of the table."""
    rows: list[int]
    """The contradicting rows of this table, counted from 1."""
    message: str
    """What contradicts what, in one sentence."""
    arithmetic: list[str]
    """The calculation, one line per element."""


class AuditRuleUsage(ApiModel):
    """One rule, and the number of comparisons that the columns allowed."""

    rule: str
    """Name of the rule."""
    statement: str
    """What holds for numbers of one measurement."""
    comparisons: int
    """Number of comparisons; 0 if columns are missing, so that the rule checked nothing."""
    findings: int
    """How many of them contradict the rule."""


class AuditReport(ApiModel):
    """An audit of one document with one or more tables."""

    schema_version: Literal["specbench.io/audit/v1"] = "specbench.io/audit/v1"
    """Version of this document."""
    source: str
    """Source of the numbers."""
    tables: int
    """Tables that were read."""
    rows: int
    """Rows in these tables."""
    settings: list[str] = []
    """Columns of unknown quantities, used as settings: rows that differ in one of them are never compared."""
    findings: list[AuditFinding]
    """Contradictions, in the order of the rules."""
    rule_usage: list[AuditRuleUsage]
    """Every rule, and how often it could be checked."""
    limits: list[str]
    """Limits of this report."""
