"""Findings for people: one entry a check, however many points it spoke of, with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_client.store.uids import made_ms
from specbench_client.trust.table import BASELINE_INVALID, REMEDIES

SHOWN = 4
FOLLOWS = (BASELINE_INVALID,)
"""Checks that only pass on what others found: to mend those is to mend these."""
_KEPT = "What is measured is kept, and never measured again by itself. To measure anew:"
AGAIN_HERE = f"{_KEPT} the same command with `--new`."
AGAIN_ON_A_CLUSTER = f"{_KEPT} create the SpecBenchRun under another name, or delete it and create it again."
AGAIN_AT_AN_ENDPOINT = "What is measured is kept. To measure anew, beside it: the same `specbench measure` again."


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


def measure_again(plan: Plan) -> str:
    """What a remedy that ends in `measure again` means, where and how this run was measured."""
    if not made_ms(plan.uid):
        return AGAIN_ON_A_CLUSTER
    return AGAIN_AT_AN_ENDPOINT if plan.engine.kind is EngineKind.EXTERNAL else AGAIN_HERE


def grouped(findings: Sequence[Finding]) -> list[Group]:
    """Group by severity and check, the worst first; what only follows from other findings comes behind them."""
    order = list(Severity)
    ranked = sorted(
        findings, key=lambda finding: (order.index(finding.severity), finding.check in FOLLOWS, finding.check)
    )
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
