"""Which arm is simpler to run: what decides between arms that are not told apart.

The baseline first; then what drafts from the text alone (no weights, no memory of its own); then what the target brings
with it (its own heads); then what has a model of its own. Among equals the shorter draft, then the plan's order.
"""

from __future__ import annotations

from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import TEXT_ALONE


def simplest_first(plan: Plan) -> list[str]:
    """Names of the plan's arms."""
    return [arm.name for arm in sorted(plan.arms, key=_complexity)]


def _complexity(arm: Arm) -> tuple[int, int]:
    drafter = arm.drafter
    if drafter is None:
        return 0, 0
    kind = 1 if drafter.method in TEXT_ALONE else 2 if drafter.model is None else 3
    return kind, drafter.num_draft_tokens or drafter.num_speculative_tokens
