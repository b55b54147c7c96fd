"""Which cells belong to one profile: a drafter at all its lengths, and the baseline as its length 0.

Arms that differ in their draft length alone are one drafter. Arms of different drafters share no term, not even the
target's: engines run some drafters on other kernels than others, and what is shared would be bent by that.
"""

from __future__ import annotations

from collections.abc import Iterable

from specbench_api.outcome.stepcost import StepCost, StepObservation
from specbench_api.plan.plan import Arm
from specbench_client.analysis.stepcost.fit import step_cost
from specbench_client.analysis.stepcost.split import with_splits


def family_of(arm: Arm) -> str | None:
    """What arms of one drafter have in common; None for the baseline, for trees and for schedules.

    A tree verifies more tokens than it is deep, and a schedule has no one length: neither fits B·(k + 1).
    """
    drafter = arm.drafter
    if drafter is None or (drafter.eagle_topk or 1) > 1 or drafter.num_draft_tokens or drafter.draft_lengths:
        return None
    same = drafter.model_copy(update={"name": "x", "num_speculative_tokens": 1})
    return same.to_json()


def step_costs(seen: Iterable[tuple[Arm, StepObservation]]) -> list[StepCost]:
    """Return a profile for each drafter of which any cell was observed. `seen`: each cell with its arm."""
    cells = list(seen)
    baseline = [(arm, each) for arm, each in cells if arm.is_baseline]
    families = dict.fromkeys(family for arm, _ in cells if (family := family_of(arm)) is not None)
    members = ([*baseline, *((arm, each) for arm, each in cells if family_of(arm) == family)] for family in families)
    costs = (step_cost(list(dict.fromkeys(arm.name for arm, _ in own)), [each for _, each in own]) for own in members)
    return [with_splits(cost) for cost in costs]
