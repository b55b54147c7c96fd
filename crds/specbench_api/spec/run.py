"""`SpecBenchRun`: one model on one kind of node, a baseline and its drafters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from specbench_api import API_VERSION
from specbench_api.model import ApiModel, KeyedBy, Rule
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine
from specbench_api.spec.gate import Gate
from specbench_api.spec.kubernetes import DNS_LABEL
from specbench_api.spec.load import Load
from specbench_api.spec.placement import Placement
from specbench_api.spec.results import LATEST, Results
from specbench_api.spec.slo import Slo
from specbench_api.spec.status import RunStatus
from specbench_api.spec.target import Target
from specbench_api.spec.workload import Workload

NAME = "[a-z]([a-z0-9-]*[a-z0-9])?"
"""Pattern of a run's name, which begins as a Service's must."""
NAME_MAX = 40
"""Longest name of a run: the longest child adds `-g99-9-client` and a Service name ends at 63."""


NOTHING_TO_MEASURE = Rule(
    "self.baseline != 'Skip' || size(self.drafters) > 0",
    "nothing to measure: baseline is Skip and drafters is empty",
)
NOTHING_CHANGES = Rule(
    "self.model == oldSelf.model && self.engine == oldSelf.engine && self.drafters == oldSelf.drafters"
    " && self.baseline == oldSelf.baseline && self.workloads == oldSelf.workloads && self.load == oldSelf.load"
    " && self.placement == oldSelf.placement && self.results == oldSelf.results",
    "what is measured cannot change under a run: create a new SpecBenchRun"
    " (only suspend, the gate, the slo and the deadlines may change)",
)
SPLIT_TOO_FAR = Rule(
    "self.engine.tensorParallelSize <= 1 || self.placement.gpus + self.placement.claimedGpus == 0"
    " || self.engine.tensorParallelSize <= (self.placement.gpus + self.placement.claimedGpus) * self.placement.nodes",
    "engine.tensorParallelSize is larger than placement.gpus (or claimedGpus) times nodes: ask for as many GPUs as the"
    " model is split over",
)


class RunSpec(ApiModel):
    """What is asked."""

    rules: ClassVar[tuple[Rule, ...]] = (NOTHING_TO_MEASURE, NOTHING_CHANGES, SPLIT_TOO_FAR)

    model: Target
    """The target."""
    engine: Engine
    """What serves it."""
    drafters: Annotated[list[Drafter], Field(max_length=16), KeyedBy("name")] = []
    """The arms beside the baseline."""
    baseline: Literal["Measure", "Skip"] = "Measure"
    """Whether the arm without a drafter is measured; without it there is no speed-up."""
    workloads: Annotated[list[Workload], Field(min_length=1, max_length=16), KeyedBy("name")]
    """The prompts."""
    load: Load
    """How hard, how often, in which order."""
    placement: Placement = Placement()
    """On which nodes."""
    results: Results
    """Where results are kept."""
    gate: Gate | None = None
    """What must not be worse than in an earlier result. Not part of what is measured: it may change under a run."""
    slo: Slo | None = None
    """How fast an answer must be. Not part of what is measured: it may change under a run."""
    suspend: bool = False
    """True gives the GPUs back and keeps what is finished; false goes on."""
    active_deadline_seconds: Annotated[int, Field(ge=60, le=2_592_000)] = 14_400
    """Longest life of one engine launch; enforced by Kubernetes even when the operator is dead."""
    startup_deadline_seconds: Annotated[int, Field(ge=5, le=86_400)] = 1_800
    """How long an engine may take from its creation (where it is queued, from its admission) until it is ready. A
    shorter activeDeadlineSeconds ends the launch before that."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] = 86_400
    """When the children of a finished run are removed. The run itself and its results stay."""

    @model_validator(mode="after")
    def _coherent(self) -> RunSpec:
        if self.baseline == "Skip" and not self.drafters:
            raise ValueError(NOTHING_TO_MEASURE.message)
        if 0 < self.placement.engine_devices < self.engine.tensor_parallel_size:
            raise ValueError(SPLIT_TOO_FAR.message)
        return self


class Metadata(ApiModel):
    """The part of Kubernetes' object metadata that a run needs; the rest is passed over."""

    model_config = {**ApiModel.model_config, "extra": "ignore"}

    name: Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=f"^{NAME}$")]
    """Name of the run."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] = "local"
    """Namespace; `local` on this machine."""
    uid: str = ""
    """Given by the API server, or by the results folder."""
    generation: int = 0
    """Counts the changes of the spec."""
    labels: dict[str, str] = {}
    """Labels."""


class SpecBenchRun(ApiModel):
    """One measured comparison."""

    rules: ClassVar = (
        Rule(
            f"size(self.metadata.name) <= {NAME_MAX}",
            f"metadata.name is longer than {NAME_MAX} characters: the names of its Jobs and Services derive from it",
        ),
        Rule(
            f"self.metadata.name.matches('^{NAME}$')",
            "metadata.name must begin with a letter and hold lower case letters, digits and dashes:"
            " a Service is named after it",
        ),
    )

    api_version: Literal[API_VERSION] = API_VERSION  # type: ignore[valid-type]
    """specbench.io/v1alpha1"""
    kind: Literal["SpecBenchRun"] = "SpecBenchRun"
    """SpecBenchRun"""
    metadata: Metadata
    """Name and namespace."""
    spec: RunSpec
    """What is asked."""
    status: RunStatus | None = None
    """What was seen."""

    @property
    def results_uid(self) -> str:
        """Under which UID its results lie: its own, or that of the earlier run whose results it carries on.

        Its own too where the newest ones are meant and nobody has looked which those are.
        """
        adopted = self.spec.results.adopt
        return self.metadata.uid if adopted in (None, LATEST) else adopted
