"""The literature's decision tree, followed with what the user tells, and its choice beside what was measured."""

from __future__ import annotations

from collections.abc import Callable

from specbench_api.spec.drafter import Method
from specbench_client.analysis.decision.asked import Constraints
from specbench_client.analysis.decision.rules.rule import LARGER, PRODUCTION, Rule, Subject

TREE = "decision-tree"
ROOMY_GB = 10
"""Above so much spare memory the tree says EAGLE-3."""
_SAYS = (
    "Targets change often: draft model or prompt lookup; more than 10 GB spare: EAGLE-3; can train: Medusa-2; else a"
    " draft model"
)
_DRAFT_MODEL = (Method.DRAFT_MODEL,)


def decision_tree(told: Constraints) -> Rule:
    """The rule: an arm of the method that the tree ends at is faster than every other one."""
    methods, lacks = _followed(told)
    if not methods:
        return Rule(TREE, _SAYS, PRODUCTION, unmeasured=f"the tree is followed once {lacks} is told")
    names = " or ".join(methods)
    return Rule(TREE, f"{_SAYS}. Here: {names}", PRODUCTION, LARGER, pairs=_prefers(methods))


def _followed(told: Constraints) -> tuple[tuple[Method, ...], str]:
    """The methods at which the tree ends; or none, and the option that it asks for."""
    if told.target_changes is None:
        return (), "--target-changes"
    if told.target_changes == "often":
        return (Method.DRAFT_MODEL, Method.NGRAM), ""
    if told.spare_memory_gb is None:
        return (), "--spare-memory-gb"
    if told.spare_memory_gb > ROOMY_GB:
        return (Method.EAGLE3,), ""
    if told.can_train is None:
        return (), "--can-train"
    return (Method.MEDUSA,) if told.can_train else _DRAFT_MODEL, ""


def _prefers(methods: tuple[Method, ...]) -> Callable[[Subject, Subject], str | None]:
    def because(first: Subject, second: Subject) -> str | None:
        if first.drafter.method not in methods or second.drafter.method in methods:
            return None
        return f"{first.drafter.method} against {second.drafter.method}"

    return because
