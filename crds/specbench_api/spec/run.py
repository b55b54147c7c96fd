"""`SpecBenchRun`: one target model on one kind of node, measured without a drafter and with several drafters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from specbench_api import API_VERSION
from specbench_api.api_model import ApiModel, KeyedBy, RuledModel, ValidationRule
from specbench_api.spec.deadlines_and_ttl import (
    ENGINE_DEADLINE_S,
    REPORT_DEADLINE_S,
    STARTUP_DEADLINE_S,
    TTL_AFTER_FINISHED_S,
    Deadline,
    StartupDeadline,
    TtlAfterFinished,
)
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine, PromptCache
from specbench_api.spec.gate import MIN_REPEATS, Gate
from specbench_api.spec.load import REPEATS_MAX, ArmOrder, Load
from specbench_api.spec.model import Target
from specbench_api.spec.patterns import DNS_LABEL
from specbench_api.spec.placement import Placement
from specbench_api.spec.results import LATEST, Results
from specbench_api.spec.search import Search
from specbench_api.spec.slo import Slo
from specbench_api.spec.status import RunStatus
from specbench_api.spec.workload import Workload

NAME = "[a-z]([a-z0-9-]*[a-z0-9])?"
"""Pattern of a run's name. Like a Service's name it must begin with a letter."""
NAME_MAX = 40
"""Maximum length of a run's name: the longest child appends `-g99-9-client`, and a Service name is limited to 63."""

NOTHING_TO_MEASURE = ValidationRule(
    "self.baseline != 'Skip' || size(self.drafters) > 0",
    "nothing to measure, since baseline is Skip and drafters is empty: set baseline: Measure, or add a drafter",
    lambda spec: spec.baseline == "Measure" or len(spec.drafters) > 0,
)
NOTHING_CHANGES = ValidationRule(
    "self.model == oldSelf.model && self.engine == oldSelf.engine && self.drafters == oldSelf.drafters"
    " && self.baseline == oldSelf.baseline && self.workloads == oldSelf.workloads && self.load == oldSelf.load"
    " && has(self.search) == has(oldSelf.search) && (!has(self.search) || self.search == oldSelf.search)"
    " && self.placement == oldSelf.placement && self.results == oldSelf.results"
    " && has(self.promptCache) == has(oldSelf.promptCache)"
    " && (!has(self.promptCache) || self.promptCache == oldSelf.promptCache)",
    "what is measured cannot be changed in an existing run: create a new SpecBenchRun"
    " (only suspend, gate, slo, retries, the deadlines and ttlSecondsAfterFinished may change)",
)
DRAFTERS_OF_ENDPOINTS = ValidationRule(
    "self.engine.kind != 'external' || size(self.drafters) == 0",
    "drafters is only valid with engines that specbench starts: a running endpoint has its own: remove it, and give"
    " each server in engine.endpoints",
    lambda spec: not (spec.engine.is_external and spec.drafters),
)
_DEVICES = "(has(self.placement.gpus) ? self.placement.gpus : 0) + self.placement.claimedGpus"
SPLIT_TOO_FAR = ValidationRule(
    f"self.engine.tensorParallelSize <= 1 || {_DEVICES} == 0"
    f" || self.engine.tensorParallelSize <= ({_DEVICES}) * self.placement.nodes",
    "engine.tensorParallelSize is larger than placement.gpus (or claimedGpus) times nodes: request as many GPUs as the"
    " model is split over",
    lambda spec: not 0 < spec.placement.engine_devices < spec.engine.tensor_parallel_size,
)

TARGETS_WITHOUT_STREAMS = ValidationRule(
    "!has(self.slo) || !(has(self.slo.ttftMs) || has(self.slo.tpotMs)) || self.workloads.all(w, w.output.stream)",
    "slo.ttftMs and slo.tpotMs cannot be measured without streaming (output.stream): remove these targets, or let"
    " answers be streamed",
    lambda spec: (
        spec.slo is None
        or not (spec.slo.ttft_ms or spec.slo.tpot_ms)
        or all(each.output.stream for each in spec.workloads)
    ),
)

SEARCH_TAKES_TURNS = ValidationRule(
    f"!has(self.search) || (self.load.order == 'Interleaved' && self.load.repeats >= {MIN_REPEATS}"
    " && self.baseline == 'Measure'"
    " && self.engine.kind != 'external' && size(self.drafters) > 0)",
    f"search needs drafters, baseline: Measure, load.order: Interleaved, load.repeats of {MIN_REPEATS} or more (its"
    " rounds at most),"
    " and an engine that specbench starts: change these, or remove search",
    lambda spec: (
        spec.search is None
        or (
            spec.load.order is ArmOrder.INTERLEAVED
            and spec.load.repeats >= MIN_REPEATS
            and spec.baseline == "Measure"
            and not spec.engine.is_external
            and len(spec.drafters) > 0
        )
    ),
)


def default_cache_policy(engine: Engine) -> PromptCache:
    """Return the policy of a run that declares none: specbench cannot switch off the cache of a running endpoint."""
    return PromptCache.AS_SERVED if engine.is_external else PromptCache.DISABLED


class RunSpec(RuledModel):
    """The desired state of a run: what to measure, where, and how long it may take."""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        NOTHING_TO_MEASURE,
        NOTHING_CHANGES,
        DRAFTERS_OF_ENDPOINTS,
        SPLIT_TOO_FAR,
        TARGETS_WITHOUT_STREAMS,
        SEARCH_TAKES_TURNS,
    )

    model: Target
    """The target model."""
    engine: Engine
    """The inference engine that serves the model."""
    drafters: Annotated[list[Drafter], Field(max_length=16), KeyedBy("name")] = []
    """The arms to compare with the baseline, one per drafter. Empty: the baseline only."""
    baseline: Literal["Measure", "Skip"] = "Measure"
    """Measure: also measure the arm without a drafter. Skip: do not; the result then has no speed-ups."""
    prompt_cache: PromptCache | None = None
    """Disabled: no arm reuses the KV cache of earlier prompts, which compares drafting alone. AsServed: engines reuse
    it as in production, which compares what users get; it is emptied before each point. Without it: Disabled; for
    running endpoints AsServed, but their cache is never emptied."""
    workloads: Annotated[list[Workload], Field(min_length=1, max_length=16), KeyedBy("name")]
    """The prompts, with their sampling parameters and output limits."""
    load: Load
    """Load levels, repeats, and the order of the arms."""
    search: Search | None = None
    """Instead of measuring every arm equally often: a race, in which arms that lose end early. Without it: no race."""
    placement: Placement = Placement()
    """Nodes, GPUs and other resources of the pods."""
    results: Results = Results()
    """Where results are stored."""
    gate: Gate | None = None
    """Regression test against an earlier result. It is not part of what is measured and may be changed at any time.
    Without it: no test."""
    slo: Slo | None = None
    """Latency targets of a request. They are not part of what is measured and may be changed at any time. Without it:
    no goodput and no SLO attainment."""
    retries: Annotated[int, Field(ge=0, le=REPEATS_MAX)] = 1
    """How many times two repeats (a round) may be added, at the loads where the client or other traffic has spoiled
    one: with order Interleaved, and at least 3 repeats. It is not part of what is measured, and may be changed until
    the run has finished; for a finished one see docs, "Untrustworthy run". 0: none."""
    suspend: bool = False
    """true: stop, release the GPUs and keep finished points. false: continue."""
    active_deadline_seconds: Deadline = ENGINE_DEADLINE_S
    """Maximum seconds of one engine launch (the Job's activeDeadlineSeconds). Kubernetes enforces it even if the
    operator is down."""
    startup_deadline_seconds: StartupDeadline = STARTUP_DEADLINE_S
    """Maximum seconds until an engine is ready, from its creation, or from its admission if it is queued. A shorter
    activeDeadlineSeconds ends the launch first."""
    report_deadline_seconds: Deadline = REPORT_DEADLINE_S
    """Maximum seconds of the report Job and of a gate Job, which need no GPU. A report of ten million requests takes
    some minutes of one core."""
    ttl_seconds_after_finished: TtlAfterFinished = TTL_AFTER_FINISHED_S
    """Seconds after the end of the run until its Jobs and Services are deleted. The SpecBenchRun and its results stay.
    """

    @property
    def cache_policy(self) -> PromptCache:
        """The prompt cache policy with its default."""
        return self.prompt_cache or default_cache_policy(self.engine)


class Metadata(ApiModel):
    """The fields of Kubernetes' object metadata that a run uses; others are ignored."""

    model_config = {**ApiModel.model_config, "extra": "ignore"}

    name: Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=f"^{NAME}$")]
    """Name of the run: `llama-eagle3`."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] = "local"
    """Namespace; `local` with `specbench run`."""
    uid: str = ""
    """Unique id, assigned by the API server; with `specbench run`, the name of the results folder."""
    generation: int = 0
    """Number of changes of the spec, assigned by the API server."""
    labels: dict[str, str] = {}
    """Labels of the run."""


class SpecBenchRun(ApiModel):
    """One measured comparison of a baseline and its drafters."""

    rules: ClassVar = (
        ValidationRule(
            f"size(self.metadata.name) <= {NAME_MAX}",
            f"metadata.name is longer than {NAME_MAX} characters: shorten it, since names of Jobs and Services extend"
            " it",
        ),
        ValidationRule(
            f"self.metadata.name.matches('^{NAME}$')",
            "metadata.name must consist of lower-case letters, digits and dashes, start with a letter and not end with"
            " a dash: a Service is named after it",
        ),
    )

    api_version: Literal[API_VERSION] = API_VERSION  # type: ignore[valid-type]
    """Always specbench.io/v1alpha1."""
    kind: Literal["SpecBenchRun"] = "SpecBenchRun"
    """Always SpecBenchRun."""
    metadata: Metadata
    """Name and namespace."""
    spec: RunSpec
    """The desired state."""
    status: RunStatus | None = None
    """The observed state."""

    @property
    def results_uid(self) -> str:
        """The UID under which results are stored: the run's own, or that of the run whose results it adopts.

        With `adopt: Latest` it is the run's own until the operator has resolved which results are the newest.
        """
        adopted = self.spec.results.adopt
        return self.metadata.uid if adopted in (None, LATEST) else adopted
