"""The shape of a check: its name, from which number on it speaks and why from there, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from specbench_api.outcome.finding import Severity
from specbench_client.trust.evidence import Seen

Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class Check(Generic[Evidence]):
    """One check. `look` is pure and returns nothing where all is well or nothing can be told."""

    name: str
    """CamelCase; the reason in status."""
    severities: tuple[Severity, ...]
    """What it can say."""
    says: str
    """What it speaks of, in one sentence."""
    threshold: str
    """From which number on."""
    argument: str
    """Why from there."""
    remedy: str
    """What to do."""
    look: Callable[[Evidence], Sequence[Seen]]
