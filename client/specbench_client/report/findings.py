"""Findings for people: one entry a check, however many points it spoke of, with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from specbench_api.outcome.finding import Finding, Severity
from specbench_client.trust.table import REMEDIES

SHOWN = 4
MEASURE_AGAIN = (
    "What is measured is kept, and never measured again by itself. To measure anew: the same command with `--new` on"
    " this machine; on a cluster, create the SpecBenchRun under another name, or delete it and create it again."
)
"""What every remedy that ends in `measure again` means."""


@dataclass(frozen=True)
class Group:
    """All that one check found with one severity."""

    check: str
    severity: Severity
    messages: tuple[str, ...]
    hidden: int
    remedy: str

    @property
    def more(self) -> str:
        """What the first message leaves out."""
        others = len(self.messages) - 1 + self.hidden
        return f" (and {others} more)" if others else ""


def grouped(findings: Sequence[Finding]) -> list[Group]:
    """Group by severity and check, the worst first."""
    order = list(Severity)
    ranked = sorted(findings, key=lambda finding: (order.index(finding.severity), finding.check))
    return [_group(list(each)) for _, each in groupby(ranked, key=lambda finding: (finding.severity, finding.check))]


def _group(findings: list[Finding]) -> Group:
    first = findings[0]
    messages = list(dict.fromkeys(f"{place_of(finding)}{finding.message}" for finding in findings))
    remedy = REMEDIES.get(first.check, "")
    return Group(first.check, first.severity, tuple(messages[:SHOWN]), max(0, len(messages) - SHOWN), remedy)


def place_of(finding: Finding) -> str:
    """`arm workload at load: `, as far as the finding is about one."""
    parts = [finding.arm, finding.workload, f"at {finding.load}" if finding.load else None]
    told = " ".join(part for part in parts if part)
    return f"{told}: " if told else ""
