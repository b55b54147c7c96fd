"""The shape of a rule: a law between numbers, how it is asked of a document, and what it saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench_client.analysis.audit.document import Document, Row


@dataclass(frozen=True)
class Seen:
    """A contradiction between rows of one table (or a row and its baseline elsewhere)."""

    rows: tuple[Row, ...]
    message: str
    arithmetic: tuple[str, ...]


@dataclass(frozen=True)
class Looked:
    """How many comparisons the columns allowed, and those that contradict."""

    asked: int
    seen: Sequence[Seen] = ()


@dataclass(frozen=True)
class Rule:
    """One rule. `look` is pure; what it lacks columns for it does not ask."""

    name: str
    """CamelCase."""
    says: str
    """What holds, as a formula and in words."""
    why: str
    """Why it must hold, and when it need not."""
    tolerance: str
    """What is let pass beside rounding."""
    look: Callable[[Document], Looked]
