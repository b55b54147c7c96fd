"""The request for a recommendation: objective, targets, prices, constraints, and the arms that these rule out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from specbench_api.api_model import ApiModel
from specbench_api.outcome.provenance import FactName
from specbench_api.plan.expansion import lossy_arms
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME, TEXT_ONLY, Drafter, Method
from specbench_api.spec.search import WORTH_PERCENT
from specbench_api.spec.slo import Slo
from specbench_client.documents.figure import StatusFigure
from specbench_client.documents.finding import faults_by_arm
from specbench_client.documents.recommendation import Objective, SloTarget
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.trust.checks.answers import answers_worse

WORTH = 1 + WORTH_PERCENT / 100
"""The same as a ratio: a drafter costs memory and upkeep, so gains that are shown to be smaller are rejected."""


Price = Annotated[float, Field(ge=1e-12, le=1e12)]
"""A price in any currency. The lower bound rejects prices so small that costs per token would be 0."""


class Prices(ApiModel):
    """A price list, all in one currency."""

    currency: Annotated[str, Field(min_length=1, max_length=8)] = "USD"
    """Printed after every amount; nothing is converted."""
    gpu_hour: dict[str, Price] = {}
    """Price of one GPU for an hour, by the product name in provenance.json, or by `*` for any GPU."""
    gpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """GPUs of one engine including its drafter's, used if neither the run's placement nor a launch has their number."""
    machine_hour: Price | None = None
    """Price per hour of all hardware of one engine (a node, or a CPU machine), instead of prices per GPU."""


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
    can_train: bool | None = None
    """Whether a drafter can be trained; None: not given, and nothing is ruled out."""
    spare_memory_gb: float | None = None
    """GPU memory that a drafter may take, in GB of 10^9 bytes; 0: none. None: not given, and nothing is ruled out."""

    def takes(self, cell: Cell) -> bool:
        """Return whether the cell is at an eligible load."""
        return self.load in (None, cell.level.label)

    @property
    def constraints(self) -> list[str]:
        """The constraints in words; empty where there are none."""
        spare = self.spare_memory_gb
        training = ["without training"] if self.can_train is False else []
        memory = (
            [] if spare is None else ["without spare memory" if spare == 0 else f"with {spare:g} GB of spare memory"]
        )
        return [*training, *memory]


def targets_of(slo: Slo | None, percentile: str | None = None) -> tuple[SloTarget, ...]:
    """Return the targets of an SLO, at its own percentile or another one; none without an SLO."""
    if slo is None:
        return ()
    at = {"percentile": percentile or f"p{slo.percentile}"}
    targets = [{"metric": name, "limit_ms": limit_ms, **at} for name, limit_ms in slo.targets.items()]
    return tuple(SloTarget.model_validate(each) for each in targets)


# Constraints rule out arms that need training, and arms that need memory. A post-hoc drafter is trained for its target,
# and a new target needs a new one; whether a drafter is post-hoc follows from its method. Methods that draft from the
# text alone need no memory; any other drafter has weights and a cache, whose size is only known where the engine
# reports it.

GB = 1e9


def ruled_out(
    plan: Plan, summary: RunSummary, request: RecommendationRequest, faulty: Mapping[str, str]
) -> dict[str, str]:
    """Return the arms that a fault, lossy verification, worse answers or the constraints rule out, with the reasons.

    `faulty`: why arms are at fault. A baseline at fault is not among the arms: it cannot be chosen, but others are
    compared with it.
    """
    weights, lossy, worse = _weights_gb(summary), lossy_arms(plan), worse_arms(summary.cells)
    found = {arm.name: _why(arm, request, weights.get(arm.name)) for arm in plan.arms}
    found |= {arm: why for arm, why in faulty.items() if arm != BASELINE_NAME}
    found |= {arm: f"its answers are worse than the baseline's at {', '.join(at)}" for arm, at in worse.items()}
    found |= {arm: f"lossy verification: {'; '.join(options)}" for arm, options in lossy.items()}
    return {name: why for name, why in found.items() if why}


def why_none_drafts(plan: Plan, summary: RunSummary) -> str:
    """Return that no arm but the baseline drafts, according to the servers; empty if one does, or may do so."""
    facts = [(each.arm, each.facts.get(FactName.DRAFTER_AT_WORK)) for each in summary.arm_environments]
    at_work = {arm: fact.value for arm, fact in facts if fact is not None}
    at_work |= {cell.arm: True for cell in summary.cells if (cell.value(StatusFigure.ACCEPTANCE_LENGTH) or 0.0) > 1}
    others = [arm.drafter is not None or at_work.get(arm.name) is not False for arm in plan.arms if not arm.is_baseline]
    if not plan.has_baseline or not others or any(others):
        return ""
    return "the baseline drafts, and no other arm does (swapped?)" if at_work.get(BASELINE_NAME) else "no arm drafts"


def faulty_arms(summary: RunSummary) -> dict[str, str]:
    """Return why arms are at fault: `at fault: ReuseLost`. Those with worse answers are in `worse_arms`."""
    faults, worse = faults_by_arm(summary.findings), worse_arms(summary.cells)
    return {arm: f"at fault: {', '.join(checks)}" for arm, checks in faults.items() if arm not in worse}


def worse_arms(cells: Iterable[Cell]) -> dict[str, list[str]]:
    """Return where arms answer worse than the baseline, as words; such an arm is recommended nowhere."""
    found: dict[str, list[str]] = {}
    cells = list(cells)
    several = len({cell.workload for cell in cells}) > 1
    for cell in cells:
        if answers_worse.name in cell.findings:
            place = f"{cell.level.words} on {cell.workload}" if several else cell.level.words
            found.setdefault(cell.arm, []).append(place)
    return found


def not_known(plan: Plan, summary: RunSummary, request: RecommendationRequest) -> list[str]:
    """Return the arms of which it is unknown whether they fit into the spare memory; they are not ruled out."""
    if not request.spare_memory_gb:
        return []
    weights = _weights_gb(summary)
    return [arm.name for arm in plan.arms if arm.drafter and _takes_memory(arm.drafter) and arm.name not in weights]


def _why(arm: Arm, request: RecommendationRequest, weights_gb: float | None) -> str:
    """Return why this arm is ruled out; empty where it is not."""
    if arm.drafter is None:
        return ""
    if request.can_train is False and _is_post_hoc(arm.drafter):
        return "must be trained for its target"
    spare = request.spare_memory_gb
    if spare is None or not _takes_memory(arm.drafter):
        return ""
    if spare == 0:
        return "needs memory of its own"
    fits = weights_gb is None or weights_gb <= spare
    return "" if fits else f"its weights need {weights_gb:.1f} GB, and {spare:g} GB are spare"


def _is_post_hoc(drafter: Drafter) -> bool:
    """Return whether it is trained for an existing target: n-grams and smaller models are not, MTP comes with it."""
    return _takes_memory(drafter) and drafter.method not in (Method.DRAFT_MODEL, Method.MTP)


def _takes_memory(drafter: Drafter) -> bool:
    """Return whether it has weights; a custom method has some if it names a model."""
    return drafter.method not in TEXT_ONLY and (drafter.method is not Method.CUSTOM or drafter.model is not None)


def _weights_gb(summary: RunSummary) -> dict[str, float]:
    """Return the size of drafters' weights in GB, where an engine reported it; caches come on top of that."""
    facts = {each.arm: each.facts.get(FactName.DRAFTER_WEIGHTS_BYTES) for each in summary.arm_environments}
    return {arm: fact.number / GB for arm, fact in facts.items() if fact is not None and fact.number is not None}
