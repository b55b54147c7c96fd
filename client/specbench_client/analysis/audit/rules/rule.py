"""The interface of an audit rule, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench_client.analysis.audit.document import AuditDocument, AuditRow


@dataclass(frozen=True)
class RuleViolation:
    """A contradiction within a row, or between rows of one table (or a row and its baseline in another table)."""

    rows: tuple[AuditRow, ...]
    message: str
    arithmetic: tuple[str, ...]


@dataclass(frozen=True)
class RuleOutcome:
    """The number of comparisons that the columns allowed, and the contradictions among them."""

    comparisons: int
    violations: Sequence[RuleViolation] = ()


@dataclass(frozen=True)
class AuditRule:
    """One rule. `check` is pure, and skips rows that lack the columns it needs."""

    name: str
    """Name in CamelCase."""
    statement: str
    """What must hold, as a formula and in words."""
    why: str
    """Why it must hold, and when it need not."""
    tolerance: str
    """The deviation that is accepted besides rounding."""
    check: Callable[[AuditDocument], RuleOutcome]
