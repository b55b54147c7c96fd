"""The plan: the contract between operator and client, and the very document that lies in S3 as plan.json."""

from __future__ import annotations

from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.spec.drafter import BASELINE_NAME, Drafter
from specbench_api.spec.engine import Engine
from specbench_api.spec.load import Level, Load
from specbench_api.spec.placement import Placement
from specbench_api.spec.target import Target
from specbench_api.spec.workload import Workload


class Arm(ApiModel):
    """One engine configuration with one drafter; without a drafter it is the baseline."""

    name: str
    """The drafter's name, or `none`."""
    drafter: Drafter | None = None
    """How drafts are made."""

    @property
    def is_baseline(self) -> bool:
        """Whether the other arms are compared with this one."""
        return self.name == BASELINE_NAME

    @property
    def most_drafts(self) -> int:
        """The most draft tokens of a step, at any batch size; 0 for the baseline."""
        if self.drafter is None:
            return 0
        return max(self.drafter.num_speculative_tokens, *(each.tokens for each in self.drafter.draft_lengths), 0)


class Point(ApiModel):
    """What is measured, stored, cached and judged: arm × workload × load × repeat."""

    hash: str
    """SHA-256 of the canonical point, see `plan.canonical`."""
    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    level: Level
    """The load level."""
    repeat: int
    """Which repeat, from 0. Points of one repeat are paired."""


class EngineGroup(ApiModel):
    """The points that one launch of one engine serves, in the order in which they are measured."""

    index: int
    """Place in the plan."""
    arm: str
    """Name of the arm."""
    points: list[Point]
    """In order."""


class Plan(ApiModel):
    """Everything a client must know; it never reads the custom resource."""

    schema_version: Literal["specbench.io/plan/v2"] = "specbench.io/plan/v2"
    """Version of this document."""
    namespace: str
    """Namespace of the run; `local` on this machine."""
    name: str
    """Name of the run."""
    uid: str
    """UID under which its results lie: the run's own, or that of the earlier run whose results it carries on."""
    target: Target
    """The model."""
    engine: Engine
    """What serves it."""
    arms: list[Arm]
    """Baseline first."""
    workloads: list[Workload]
    """The prompts."""
    load: Load
    """How hard, how often, in which order."""
    placement: Placement
    """On which nodes."""
    groups: list[EngineGroup]
    """In the order in which they are launched."""

    @property
    def points(self) -> list[Point]:
        """All points, in the order in which they are measured."""
        return [point for group in self.groups for point in group.points]

    @property
    def slots(self) -> int:
        """What every arm's engine must be able to serve at once."""
        return self.load.engine_slots

    def arm(self, name: str) -> Arm:
        """The arm of this name. Raises KeyError."""
        return {arm.name: arm for arm in self.arms}[name]

    def workload(self, name: str) -> Workload:
        """The workload of this name. Raises KeyError."""
        return {workload.name: workload for workload in self.workloads}[name]
