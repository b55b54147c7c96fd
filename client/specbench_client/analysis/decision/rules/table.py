"""All rules beside a run."""

from __future__ import annotations

from specbench_api.outcome.recommendation import RuleReading
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.decision.rules.measured import MEASURED
from specbench_client.analysis.decision.rules.rule import Rule, subjects_of
from specbench_client.analysis.decision.rules.unmeasured import UNMEASURED

RULES: tuple[Rule, ...] = (*MEASURED, *UNMEASURED)


def readings(plan: Plan, summary: RunSummary) -> list[RuleReading]:
    """Each rule beside what was measured, in the table's order."""
    subjects = subjects_of(plan, summary)
    return [rule.read(subjects) for rule in RULES]
