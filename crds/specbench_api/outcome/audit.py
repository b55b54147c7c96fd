"""What `specbench audit` found in a table of results: where its own numbers contradict one another."""

from __future__ import annotations

from typing import Literal

from specbench_api.model import ApiModel


class AuditFinding(ApiModel):
    """One contradiction, with the arithmetic that anybody can do again."""

    rule: str
    """Name of the rule, see docs/audit.md."""
    table: str
    """Name of the table."""
    rows: list[int]
    """Rows of that table that it is about, from 1."""
    message: str
    """What contradicts what, in one sentence."""
    arithmetic: list[str]
    """The sums, one a line."""


class AskedRule(ApiModel):
    """One rule, and how often the columns that were there let it be asked."""

    rule: str
    """Its name."""
    says: str
    """What holds where numbers are of one measurement."""
    asked: int
    """Comparisons that were made; 0: the columns for it are missing, so its silence says nothing."""
    found: int
    """Of its comparisons, those that became findings."""


class AuditReport(ApiModel):
    """An audit of one document with one or more tables."""

    schema_version: Literal["specbench.io/audit/v1"] = "specbench.io/audit/v1"
    """Version of this document."""
    source: str
    """Whose numbers these are."""
    tables: int
    """Tables that were read."""
    rows: int
    """Rows in them."""
    settings: list[str] = []
    """Columns that are no quantity of ours and were taken for settings: rows that differ in one are never compared."""
    findings: list[AuditFinding]
    """Contradictions, in the order of the rules."""
    asked: list[AskedRule]
    """Every rule, and how often it could be asked."""
    limits: list[str]
    """What a reader must know."""
