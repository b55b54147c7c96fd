"""The shape of a check: its name, its threshold and the reason for it, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from specbench_api.outcome.finding import Severity
from specbench_client.trust.evidence import CheckResult

Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class Check(Generic[Evidence]):
    """A check. `evaluate` is pure and returns nothing if all is well or if the data does not allow a decision."""

    name: str
    """CamelCase; used as the reason in `status`."""
    severities: tuple[Severity, ...]
    """The severities that this check can report."""
    description: str
    """What the check reports, in one sentence."""
    threshold: str
    """The value from which on the check reports a finding."""
    rationale: str
    """Why the threshold is where it is."""
    remedy: str
    """What the user should do about it."""
    evaluate: Callable[[Evidence], Sequence[CheckResult]]
