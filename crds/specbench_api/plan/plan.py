"""The plan: the contract between operator and client, stored as plan.json."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from specbench_api.api_model import ApiModel
from specbench_api.outcome.layout import StorageName
from specbench_api.spec.drafter import BASELINE_NAME, Drafter
from specbench_api.spec.engine import Endpoint, Engine, PromptCache
from specbench_api.spec.load import ArmOrder, Level, Load
from specbench_api.spec.model import Target
from specbench_api.spec.placement import Placement
from specbench_api.spec.search import Search
from specbench_api.spec.workload import Workload

PlanCell = tuple[str, str, Level]
"""An arm, a workload and a load: its points differ in their repeat alone."""
REPEATS_OF_ROUND = 2
"""In a round every arm is measured first once (ABBA)."""
REPEATS_TO_DECIDE = 6
"""Repeats of a comparison of running servers, and of its first decision: even, so that a linear drift cancels (ABBA).
Removing it costs a degree of freedom, so that four repeats would give an interval half as wide again."""


class Arm(ApiModel):
    """One engine configuration with one drafter; the one without a drafter is the baseline."""

    name: str
    """Name of the drafter or endpoint; `none` for the baseline."""
    drafter: Drafter | None = None
    """How drafts are made; None for the baseline and for an endpoint, whose drafter is not known."""
    endpoint: Endpoint | None = None
    """The running server; None if specbench starts the engine."""

    @property
    def is_baseline(self) -> bool:
        """Whether the other arms are compared with this one."""
        return self.name == BASELINE_NAME

    @property
    def most_drafts(self) -> int:
        """Maximum draft tokens per step, over all batch sizes; 0 for the baseline."""
        if self.drafter is None:
            return 0
        return max(self.drafter.num_speculative_tokens, *(each.tokens for each in self.drafter.draft_lengths), 0)


class Point(ApiModel):
    """The unit of measurement and storage: one arm, workload, load and repeat."""

    hash: StorageName
    """SHA-256 of the canonical point, see `plan.canonical`."""
    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    level: Level
    """The load level."""
    repeat: int
    """Index of the repeat, from 0. Points of one repeat are paired."""

    @property
    def cell(self) -> PlanCell:
        """Its arm, workload and load."""
        return self.arm, self.workload, self.level


class EngineGroup(ApiModel):
    """The points that one launch of one engine serves, in the order of measurement."""

    index: int
    """Position in the plan, from 0."""
    arm: str
    """Name of the arm."""
    points: list[Point]
    """The points, in order."""


class Plan(ApiModel):
    """Everything a client needs; it never reads the custom resource."""

    schema_version: Literal["specbench.io/plan/v2"] = "specbench.io/plan/v2"
    """Version of this document."""
    namespace: StorageName
    """Namespace of the run; `local` with `specbench run`."""
    name: StorageName
    """Name of the run."""
    uid: StorageName | Literal[""]
    """UID under which results are stored: the run's own, or that of the run whose results it adopts."""
    target: Target
    """The target model."""
    engine: Engine
    """The inference engine."""
    prompt_cache: PromptCache
    """Whether engines may reuse the KV cache of earlier prompts."""
    arms: list[Arm]
    """All arms, the baseline first."""
    workloads: list[Workload]
    """The prompts."""
    load: Load
    """Load levels, repeats, and the order of the arms."""
    placement: Placement
    """Nodes, GPUs and other resources of the pods."""
    groups: list[EngineGroup]
    """Engine groups, in the order of their launches."""
    stop: Literal["WhenDecided", "WhenDecayed"] | None = None
    """WhenDecided: the run ends after fewer repeats once every speed-up is decided. WhenDecayed: an arm of a soak test
    ends after fewer windows once its acceptance length has certainly fallen."""
    planned_repeats: int | None = None
    """Number of repeats before rounds of them (ABBA) were measured again, which added repeats; None if none was."""
    search: Search | None = None
    """How further repeats are chosen, of `load.repeats` at most: the plan has those that were begun."""
    restarts: Literal[True] | None = None
    """Whether a running server is restarted before each group; only `specbench measure` can do so."""

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        arms, workloads = [arm.name for arm in self.arms], [workload.name for workload in self.workloads]
        for kind, names in (("arm", arms), ("workload", workloads), ("point", [point.hash for point in self.points])):
            if not names or len(set(names)) != len(names):
                raise ValueError(f"it has no {kind}, or the same {kind} twice")
        if [group.index for group in self.groups if group.points] != list(range(len(self.groups))):
            raise ValueError("its groups are not numbered in their order, or one has no points")
        levels = self.load.levels
        for group in self.groups:
            for point in group.points:
                if point.arm != group.arm or point.arm not in arms or point.workload not in workloads:
                    raise ValueError(f"the point {point.hash} has an unknown arm or workload, or is in the wrong group")
                if point.level not in levels or not 0 <= point.repeat < self.load.repeats:
                    raise ValueError(f"the point {point.hash} has a load or repeat that the run does not have")
        return self

    @property
    def points(self) -> list[Point]:
        """All points, in the order of measurement."""
        return [point for group in self.groups for point in group.points]

    @property
    def added_rounds(self) -> int:
        """Number of rounds that were added because others are invalid, or by a search."""
        return (self.begun_repeats - self.own_repeats) // self.repeats_of_round

    @property
    def rounds_added(self) -> list[list[PlanCell]]:
        """What is measured in each round that was added, in order."""
        found: dict[int, dict[PlanCell, None]] = {}
        for point in self.points:
            if point.repeat >= self.own_repeats:
                found.setdefault(self.round_of(point.repeat), {})[point.cell] = None
        return [list(found[number]) for number in sorted(found)]

    @property
    def repeats_of_round(self) -> int:
        """Number of repeats by which the plan grows; in a round of a search every arm is launched once."""
        return 1 if self.search else REPEATS_OF_ROUND

    def round_of(self, repeat: int) -> int:
        """Index of the round that a repeat is in, from 0."""
        return repeat // self.repeats_of_round

    def round_in_words(self, repeat: int) -> str:
        """The repeats of this one's round: `repeats 3 and 4`, in a search `repeat 3`."""
        first = self.round_of(repeat) * self.repeats_of_round + 1
        return f"repeat {first}" if self.search else f"repeats {first} and {first + 1}"

    @property
    def begun_repeats(self) -> int:
        """Number of repeats that it has points of."""
        if self.search is None:
            return self.load.repeats
        return 1 + max(point.repeat for group in self.groups for point in group.points)

    @property
    def own_repeats(self) -> int:
        """Number of repeats without those that were added."""
        if self.search:
            return 1
        return self.load.repeats if self.planned_repeats is None else self.planned_repeats

    @property
    def slots(self) -> int:
        """Number of requests that every arm's engine must be able to serve at once."""
        return self.load.engine_slots

    @property
    def soaks(self) -> bool:
        """Whether each arm is kept under load, and its repeats are windows of it."""
        return self.load.order is ArmOrder.SOAK

    @property
    def keeps_running(self) -> bool:
        """Whether servers that run already keep running between groups, with what they have cached."""
        return self.engine.is_external and not self.restarts

    @property
    def repeats_continue(self) -> bool:
        """Whether each repeat goes on through the prompts: a running engine would have cached them.

        One that is restarted has not, but more prompts give narrower intervals than the same ones in each repeat.
        """
        limits = (self.load.requests, self.load.requests_per_stream, self.load.duration_seconds)
        return (self.engine.is_external or self.soaks) and any(limit is not None for limit in limits)

    @property
    def empties_cache(self) -> bool:
        """Whether the prompt cache is emptied before each point; that of a running endpoint or in a soak never is."""
        kept = self.engine.is_external or self.soaks
        return not kept and self.prompt_cache is PromptCache.AS_SERVED

    @property
    def alternates(self) -> bool:
        """Whether running servers are compared, in an order that every repeat reverses (ABBA)."""
        return self.engine.is_external and self.load.order is ArmOrder.INTERLEAVED

    @property
    def may_end_early(self) -> bool:
        """Whether it ends when its answer is known, so that its intervals must be valid however often one looks."""
        return self.stop is not None or self.search is not None

    @property
    def launches_repeats(self) -> bool:
        """Whether each repeat has launches of its own, whose differences are then part of those between repeats."""
        return not self.keeps_running and all(
            len({point.repeat for point in group.points}) == 1 for group in self.groups
        )

    def engine_of(self, arm: Arm) -> Engine:
        """Return the engine of an arm; that of an endpoint has the endpoint's dialect."""
        if arm.endpoint is None or arm.endpoint.dialect is None:
            return self.engine
        return self.engine.model_copy(update={"dialect": arm.endpoint.dialect})

    @property
    def has_baseline(self) -> bool:
        """Whether one of the arms is the baseline."""
        return any(arm.is_baseline for arm in self.arms)

    def arm(self, name: str) -> Arm:
        """Return the arm of this name. Raises KeyError."""
        return {arm.name: arm for arm in self.arms}[name]

    def workload(self, name: str) -> Workload:
        """Return the workload of this name. Raises KeyError."""
        return {workload.name: workload for workload in self.workloads}[name]
