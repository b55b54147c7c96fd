"""Findings for people: one entry for each check, however many points it reported, with what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.trust.checks.comparison import MISSING_POINTS
from specbench_client.trust.checks.engine import SIMULATED
from specbench_client.trust.registry import BASELINE_INVALID, remedy_of

SHOWN = 4
FOLLOWS = (BASELINE_INVALID,)
"""Checks that only pass on what others found: fixing those fixes these."""
_KEPT = "Stored points are reused. To measure again,"
AGAIN_HERE = f"{_KEPT} repeat the same command with `--new`."
AGAIN_ON_A_CLUSTER = f"{_KEPT} create the SpecBenchRun under another name, or delete it and create it again."
AGAIN_ELSEWHERE = "To measure again, repeat the benchmark that wrote the files, and import all of them."
AGAIN_AT_AN_ENDPOINT = "To measure again, repeat the same `specbench measure` command; earlier results are kept."


@dataclass(frozen=True)
class FindingGroup:
    """All findings of one check with one severity."""

    check: str
    severity: Severity
    messages: tuple[str, ...]
    hidden: int
    remedy: str

    @property
    def more(self) -> str:
        """How many messages follow the first one; empty for none."""
        others = len(self.messages) - 1 + self.hidden
        return f" (and {others} more)" if others else ""


def measure_again(plan: Plan) -> str:
    """How to measure again, which depends on where and how this run was measured."""
    if not uid_created_ms(plan.uid):
        return AGAIN_ON_A_CLUSTER
    if plan.engine.is_imported:
        return AGAIN_ELSEWHERE
    return AGAIN_AT_AN_ENDPOINT if plan.engine.kind is EngineKind.EXTERNAL else AGAIN_HERE


def _continue(plan: Plan) -> str:
    """How to measure only the missing points."""
    if not uid_created_ms(plan.uid):
        return AGAIN_ON_A_CLUSTER
    command = "`specbench measure` command" if plan.engine.kind is EngineKind.EXTERNAL else "command"
    return f"Then repeat the {command}: measured points are reused, and only the missing ones are measured."


def group_findings(plan: Plan, findings: Sequence[Finding]) -> list[FindingGroup]:
    """Group by severity and check, the worst first; findings that only follow from others come after them."""
    imported = plan.engine.is_imported
    order = list(Severity)
    ranked = sorted(
        findings, key=lambda finding: (order.index(finding.severity), finding.check in FOLLOWS, finding.check)
    )
    by_check = groupby(ranked, key=lambda finding: (finding.severity, finding.check))
    return [_group(list(each), imported=imported) for _, each in by_check]


def _group(findings: list[Finding], *, imported: bool) -> FindingGroup:
    first = findings[0]
    messages = list(dict.fromkeys(f"{finding_location(finding)}{finding.message}" for finding in findings))
    remedy = remedy_of(first.check, imported=imported)
    return FindingGroup(first.check, first.severity, tuple(messages[:SHOWN]), max(0, len(messages) - SHOWN), remedy)


def finding_location(finding: Finding) -> str:
    """Return `arm workload at load: `, without the parts that the finding does not name."""
    parts = [finding.arm, finding.workload, f"at {finding.load}" if finding.load else None]
    place = " ".join(part for part in parts if part)
    return f"{place}: " if place else ""


def next_step(plan: Plan, summary: RunSummary, groups: Sequence[FindingGroup], uri: str) -> str:
    """The one thing to do now: fix the worst finding, else use the results. `uri`: where they are stored."""
    if not summary.trustworthy:
        if summary.failures:
            return f"Correct why {' and '.join(summary.failures)} failed, as stated above. {_continue(plan)}"
        worst = next((group for group in groups if group.severity is not Severity.INFO and group.remedy), None)
        if worst and worst.check == MISSING_POINTS.name:
            return worst.remedy  # How to measure everything again would contradict it.
        return f"{worst.remedy} {measure_again(plan)}" if worst else measure_again(plan)
    if summary.simulated:
        return SIMULATED.remedy
    return f"`specbench decide {uri}` adds targets, prices and constraints of your own."
