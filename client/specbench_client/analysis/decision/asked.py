"""What is asked of a recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specbench_api.outcome.recommendation import Objective, SloTarget
from specbench_api.outcome.summary import Cell
from specbench_api.spec.prices import Prices
from specbench_api.spec.slo import Slo

WORTH = 1.05
"""A drafter is a further model, its memory and its upkeep: a gain that is shown to be below 5 % is not worth it."""


@dataclass(frozen=True)
class Constraints:
    """What the user has. None: not told, and then nothing is ruled out by it."""

    can_train: bool | None = None
    """Whether a drafter can be trained."""
    spare_memory_gb: float | None = None
    """GPU memory that a drafter may take, in GB of 10^9 bytes; 0: none."""
    target_changes: Literal["often", "seldom"] | None = None
    """How often another target is served. It rules nothing out: the literature's decision tree asks for it."""


@dataclass(frozen=True)
class Asked:
    """The question. Without targets every load may be chosen; without prices nothing is said of cost."""

    objective: Objective = Objective.THROUGHPUT
    targets: tuple[SloTarget, ...] = ()
    prices: Prices | None = None
    worth: float = WORTH
    """Gains that are shown to be below this ratio are not worth while."""
    load: str | None = None
    """One load by its label, where only that one may be chosen."""
    constraints: Constraints = Constraints()

    def takes(self, cell: Cell) -> bool:
        """Whether the cell is at a load that may be chosen."""
        return self.load in (None, cell.level.label)


def targets_of(slo: Slo | None) -> tuple[SloTarget, ...]:
    """Return a run's own targets, in the form of a question."""
    if slo is None:
        return ()
    told = [{"metric": name, "percentile": f"p{slo.percentile}", "limit_ms": ms} for name, ms in slo.targets.items()]
    return tuple(SloTarget.model_validate(each) for each in told)
