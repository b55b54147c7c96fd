"""`SpecBenchCampaign`: a run as a template, and the axes along which it is varied."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from specbench_api import API_VERSION
from specbench_api.api_model import ApiModel, KeyedBy, PreserveUnknown, RuledModel, ValidationRule
from specbench_api.spec.campaign_limits import AXES_MAX, RUNS_MAX
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_api.spec.patterns import LabelValue
from specbench_api.spec.run import (
    DRAFTERS_OF_ENDPOINTS,
    NAME,
    NAME_MAX,
    NOTHING_TO_MEASURE,
    SEARCH_TAKES_TURNS,
    SPLIT_TOO_FAR,
    TARGETS_WITHOUT_STREAMS,
    Metadata,
    RunSpec,
)

RUN_HASH_LENGTH = 8
"""40 bits: two of 256 runs collide once in 34 million campaigns, which is then reported as a problem."""
ROUND_LENGTH = 2
"""Characters of a round's number in names, in base 36."""
CAMPAIGN_NAME_MAX = NAME_MAX - len("-") - RUN_HASH_LENGTH - len("-") - ROUND_LENGTH
"""Maximum length of a campaign's name: its runs are named `CAMPAIGN-HASH`, and from round 2 on `CAMPAIGN-HASH-NN`."""

AxisName = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
FieldPath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*|\[[^\[\]]+\])*$",
    ),
]
Row = Annotated[dict[str, Any], Field(max_length=AXES_MAX + 1)]


class FailurePolicy(StrEnum):
    """What a failed run means for the runs that have not started."""

    CONTINUE = "Continue"
    STOP = "Stop"


class TemplateSpec(RunSpec):
    """A complete, valid spec of a SpecBenchRun. It may be changed: runs whose spec differs get new names."""

    rules: ClassVar = (
        NOTHING_TO_MEASURE,
        DRAFTERS_OF_ENDPOINTS,
        SPLIT_TOO_FAR,
        TARGETS_WITHOUT_STREAMS,
        SEARCH_TAKES_TURNS,
    )


class TemplateMetadata(ApiModel):
    """Metadata added to every run, next to the campaign's own labels."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = {}
    """Labels of every run. Keys of specbench.io are reserved."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] = {}
    """Annotations of every run. Keys of specbench.io are reserved."""


class RunTemplate(ApiModel):
    """The run that is varied."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of every run."""
    spec: TemplateSpec
    """Spec of every run, except for the fields that the axes set."""


class Axis(RuledModel):
    """One field of the template, and the values that it takes."""

    rules: ClassVar = (
        ValidationRule(
            "!has(self.name) || self.name != 'set'",
            "an axis cannot be named set, which is a key of include rows: choose another axes[].name",
            lambda axis: axis.name != "set",
        ),
    )

    path: FieldPath
    """The field to vary, relative to the run's spec: `engine.kind`, `workloads[0].sampling.temperature`,
    `workloads[name=chat].output`, `placement.nodeSelector["nvidia.com/gpu.product"]`. It may be a whole object or list.
    """
    name: AxisName | None = None
    """Name of the axis in tables, exclude and include. Without it: the last part of the path."""
    values: Annotated[list[Any], Field(min_length=1, max_length=64), PreserveUnknown()]
    """The values, each in the form that the field takes. null: leave the field unset."""


class Budget(ApiModel):
    """Limit on the GPU-hours of a round."""

    gpu_hours: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """Maximum GPU-hours of one round: number of GPUs times the hours for which engines hold them. Once spent, running
    runs are suspended (finished points are kept) and no run starts. Without it: no limit."""


class CampaignSpec(RuledModel):
    """The desired state of a campaign.

    Everything may be changed at any time. Runs are named by what they measure: existing measurements are kept, and new
    combinations are added.
    """

    rules: ClassVar = (
        ValidationRule(
            "!has(self.timeZone) || self.schedule != ''",
            "timeZone has no effect without schedule: set schedule, or remove timeZone",
            lambda spec: spec.time_zone is None or spec.schedule != "",
        ),
        ValidationRule(
            "!has(self.startingDeadlineSeconds) || self.schedule != ''",
            "startingDeadlineSeconds has no effect without schedule: set schedule, or remove startingDeadlineSeconds",
            lambda spec: spec.starting_deadline_seconds is None or spec.schedule != "",
        ),
        ValidationRule(
            "!has(self.maxFailedRuns) || self.failurePolicy == 'Stop'",
            "maxFailedRuns has no effect without failurePolicy: Stop: set that, or remove maxFailedRuns",
            lambda spec: spec.max_failed_runs is None or spec.failure_policy is FailurePolicy.STOP,
        ),
    )

    template: RunTemplate
    """The run that is varied."""
    axes: Annotated[list[Axis], Field(max_length=AXES_MAX), KeyedBy("path")] = []
    """The fields to vary; every combination of their values is a run. The first axis varies slowest, so put the engine
    or the model first. Without axes the template is the only run."""
    exclude: Annotated[list[Row], Field(max_length=256), PreserveUnknown()] = []
    """Combinations to leave out. Each row is a map of axis: value and removes every combination that matches all of it.
    """
    include: Annotated[list[Row], Field(max_length=256), PreserveUnknown()] = []
    """Combinations to add or extend, applied after exclude. Each row is a map of axis: value, with an optional `set:
    {path: value}` for other fields. A row that matches existing combinations extends them; any other row adds one
    combination, whose other axes keep the template's values."""
    parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    """Maximum number of runs in progress at the same time."""
    suspend: bool = False
    """true: start no new run and suspend the running ones, which release their GPUs and keep finished points."""
    failure_policy: FailurePolicy = FailurePolicy.CONTINUE
    """Continue: a failed run does not affect the others. Stop: after maxFailedRuns failed runs no run starts; running
    ones continue."""
    max_failed_runs: Annotated[int, Field(ge=1, le=RUNS_MAX)] | None = None
    """With failurePolicy Stop: number of failed runs of a round after which no run starts. Without it: 1."""
    run_history_limit: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of rounds whose SpecBenchRuns are kept, the current one included. Those of older rounds are deleted; their
    results are not."""
    rerun: Annotated[str, Field(max_length=64, pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.:/+-]*[A-Za-z0-9])?)?$")] = ""
    """A token, such as a date: `2026-01-31`. Changing it starts a new round: every run again, under new names."""
    schedule: Annotated[
        str,
        Field(
            max_length=128,
            pattern=r"^([0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}|@(hourly|daily|weekly|monthly|yearly))?$",
        ),
    ] = ""
    """Cron schedule that starts new rounds: `0 3 * * mon-fri` (minute, hour, day of month, month, weekday), or @hourly,
    @daily, @weekly, @monthly, @yearly. A scheduled time during a running round is skipped. Empty: no schedule."""
    time_zone: (
        Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$")] | None
    ) = None
    """Time zone of the schedule, by its IANA name: `Europe/Berlin`. Without it: UTC."""
    starting_deadline_seconds: Annotated[int, Field(ge=10, le=31_536_000)] | None = None
    """How late a scheduled round may start, in seconds, for example because the operator was down; a later one is
    skipped. Without it: no limit."""
    budget: Budget = Budget()
    """GPU-hours that a round may use."""

    @property
    def failed_runs_max(self) -> int | None:
        """Number of failed runs of a round after which no run starts; None: no limit."""
        return (self.max_failed_runs or 1) if self.failure_policy is FailurePolicy.STOP else None


class CampaignMetadata(Metadata):
    """The fields of Kubernetes' object metadata that a campaign uses; others are ignored."""

    name: Annotated[str, Field(min_length=1, max_length=CAMPAIGN_NAME_MAX, pattern=f"^{NAME}$")]
    """Name of the campaign."""


class SpecBenchCampaign(ApiModel):
    """A matrix of measured comparisons: SpecBenchRuns made from one template, and their combined results."""

    rules: ClassVar = (
        ValidationRule(
            f"size(self.metadata.name) <= {CAMPAIGN_NAME_MAX}",
            f"metadata.name is longer than {CAMPAIGN_NAME_MAX} characters: shorten it, since run names extend it",
        ),
        ValidationRule(
            f"self.metadata.name.matches('^{NAME}$')",
            "metadata.name must consist of lower-case letters, digits and dashes, start with a letter and not end with"
            " a dash: runs and their Services are named after it",
        ),
    )

    api_version: Literal[API_VERSION] = API_VERSION  # type: ignore[valid-type]
    """Always specbench.io/v1alpha1."""
    kind: Literal["SpecBenchCampaign"] = "SpecBenchCampaign"
    """Always SpecBenchCampaign."""
    metadata: CampaignMetadata
    """Name and namespace."""
    spec: CampaignSpec
    """The desired state."""
    status: CampaignStatus | None = None
    """The observed state."""
