"""All rules beside a run."""

from __future__ import annotations

from specbench_api.outcome.recommendation import RuleReading
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.decision.asked import Constraints
from specbench_client.analysis.decision.rules.measured import MEASURED
from specbench_client.analysis.decision.rules.rule import Rule, subjects_of
from specbench_client.analysis.decision.rules.tree import TREE, decision_tree
from specbench_client.analysis.decision.rules.unmeasured import UNMEASURED

NONE_TOLD = Constraints()
RULES: tuple[Rule, ...] = (*MEASURED, decision_tree(NONE_TOLD), *UNMEASURED)


def readings(plan: Plan, summary: RunSummary, constraints: Constraints = NONE_TOLD) -> list[RuleReading]:
    """Each rule beside what was measured, in the table's order. `constraints`: what the decision tree asks for."""
    subjects = subjects_of(plan, summary)
    rules = [decision_tree(constraints) if rule.name == TREE else rule for rule in RULES]
    return [rule.read(subjects) for rule in rules]
