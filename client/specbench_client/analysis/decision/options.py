"""Options of a recommendation: objective, targets, prices and constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specbench_api.outcome.recommendation import Objective, SloTarget
from specbench_api.outcome.summary import Cell
from specbench_api.spec.slo import Slo
from specbench_client.documents.prices import Prices

WORTH = 1.05
"""Smallest gain worth having: a drafter costs memory and upkeep, so gains shown to be below 5 % are rejected."""


@dataclass(frozen=True)
class Constraints:
    """Constraints of the user. None: not given, and nothing is ruled out."""

    can_train: bool | None = None
    """Whether a drafter can be trained."""
    spare_memory_gb: float | None = None
    """GPU memory that a drafter may take, in GB of 10^9 bytes; 0: none."""
    target_changes: Literal["often", "seldom"] | None = None
    """How often the target changes. It rules nothing out; the decision tree from the literature uses it."""


@dataclass(frozen=True)
class RecommendationRequest:
    """One request. Without targets every load is eligible; without prices no cost is computed."""

    objective: Objective = Objective.THROUGHPUT
    targets: tuple[SloTarget, ...] = ()
    prices: Prices | None = None
    worth: float = WORTH
    """Gains that are shown to be below this ratio are not worth having."""
    load: str | None = None
    """The label of the only eligible load; None: all loads."""
    constraints: Constraints = Constraints()

    def takes(self, cell: Cell) -> bool:
        """Return whether the cell is at an eligible load."""
        return self.load in (None, cell.level.label)


def targets_of(slo: Slo | None) -> tuple[SloTarget, ...]:
    """Return the targets of a run's own SLO."""
    if slo is None:
        return ()
    targets = [{"metric": name, "percentile": f"p{slo.percentile}", "limit_ms": ms} for name, ms in slo.targets.items()]
    return tuple(SloTarget.model_validate(each) for each in targets)
