"""`SpecBenchCampaign`: one run as a template, and the axes along which it is varied."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from specbench_api import API_VERSION
from specbench_api.model import ApiModel, KeyedBy, Open, Rule, refuse_broken
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_api.spec.kubernetes import LabelValue
from specbench_api.spec.run import NAME, NOTHING_TO_MEASURE, SPLIT_TOO_FAR, Metadata, RunSpec

CAMPAIGN_NAME_MAX = 28
"""Longest name of a campaign: its runs add `-HASH8` and, after the first round, `-NN`; a run's name ends at 40."""
RUNS_MAX = 256
"""Most runs of one round: rows of status.runs."""
AXES_MAX = 8

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
    """What a failed run means for those that have not begun."""

    CONTINUE = "Continue"
    STOP = "Stop"


class TemplateSpec(RunSpec):
    """A whole spec of a SpecBenchRun, valid by itself. It may be changed: runs that then differ get other names."""

    rules: ClassVar = (NOTHING_TO_MEASURE, SPLIT_TOO_FAR)


class TemplateMetadata(ApiModel):
    """What is put on every run beside the campaign's own labels."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = {}
    """Labels; the keys of specbench.io are the campaign's own."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] = {}
    """Annotations; the keys of specbench.io are the campaign's own."""


class RunTemplate(ApiModel):
    """The run that is varied."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the runs."""
    spec: TemplateSpec
    """What each run asks, where no axis says otherwise."""


class Axis(ApiModel):
    """One field of the template and the values that it takes."""

    rules: ClassVar = (
        Rule("!has(self.name) || self.name != 'set'", "an axis cannot be named set: rows of include use that word"),
    )

    path: FieldPath
    """The field, below the run's spec: `engine.kind`, `workloads[0].sampling.temperature`,
    `workloads[name=chat].output`, `placement.nodeSelector["nvidia.com/gpu.product"]`. It may be a whole object or list.
    """
    name: AxisName | None = None
    """Name in tables, in exclude and in include. Without it: the last word of the path."""
    values: Annotated[list[Any], Field(min_length=1, max_length=64), Open()]
    """What it takes, each as the spec has it there. null: the field is left out."""

    @model_validator(mode="after")
    def _named_apart(self) -> Axis:
        refuse_broken(self.rules, [self.name != "set"])
        return self


class Budget(ApiModel):
    """How many GPU-hours a round may take, and what is assumed of launches and points that were never seen."""

    gpu_hours: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """GPUs times the hours for which engines of one round hold them. When they are spent, runs at work are suspended and
    keep what they measured, and none begins. Without it: no bound."""
    launch_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """Assumed of each launch beside its points: scheduling, image, model load, first completion, teardown."""
    point_seconds: Annotated[int, Field(ge=1, le=604_800)] = 120
    """Assumed of each point whose load does not say how long it takes: warm-up, load, the last answers."""


class CampaignSpec(ApiModel):
    """What is asked of a campaign.

    All of it may be changed at any time: a run is named by what it measures, so that what is measured already stays,
    and what is new is added.
    """

    rules: ClassVar = (
        Rule(
            "!has(self.timeZone) || self.schedule != ''",
            "timeZone goes with schedule: give a schedule, or remove it",
        ),
        Rule(
            "!has(self.startingDeadlineSeconds) || self.schedule != ''",
            "startingDeadlineSeconds goes with schedule: give a schedule, or remove it",
        ),
        Rule(
            "!has(self.maxFailedRuns) || self.failurePolicy == 'Stop'",
            "maxFailedRuns goes with failurePolicy Stop: set that, or remove it",
        ),
    )

    template: RunTemplate
    """The run that is varied."""
    axes: Annotated[list[Axis], Field(max_length=AXES_MAX), KeyedBy("path")] = []
    """What is varied: every combination of their values is a run. The first varies slowest, so put first what changes
    the engine or the model. Without axes the template is the one run."""
    exclude: Annotated[list[Row], Field(max_length=256), Open()] = []
    """Combinations that are left out: rows of axis: value, each for every combination that has all its values."""
    include: Annotated[list[Row], Field(max_length=256), Open()] = []
    """Combinations that are added or extended, after exclude: rows of axis: value, and perhaps `set: {path: value}` for
    further fields. A row whose values some combinations have extends those; any other row is a combination of its own,
    in which an axis that it does not name is as the template has it."""
    parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    """Runs that are at work at once, at most."""
    suspend: bool = False
    """True begins nothing new and suspends the runs at work, which give their GPUs back and keep what is finished."""
    failure_policy: FailurePolicy = FailurePolicy.CONTINUE
    """Continue: a failed run holds up no other. Stop: after maxFailedRuns of them none begins; those that run go on."""
    max_failed_runs: Annotated[int, Field(ge=1, le=RUNS_MAX)] | None = None
    """failurePolicy Stop: after so many failed runs of a round no new one begins. Without it: 1."""
    run_history_limit: Annotated[int, Field(ge=1, le=100)] = 3
    """Rounds whose SpecBenchRuns are kept, the one at work among them. Older ones are deleted; results never."""
    rerun: Annotated[str, Field(max_length=64, pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.:/+-]*[A-Za-z0-9])?)?$")] = ""
    """A token, such as a date. Another one than before begins a new round: every run again, under names of its own."""
    schedule: Annotated[
        str,
        Field(
            max_length=128,
            pattern=r"^([0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}|@(hourly|daily|weekly|monthly|yearly))?$",
        ),
    ] = ""
    """Cron: minute, hour, day of the month, month, weekday; or @hourly, @daily, @weekly, @monthly, @yearly. Each firing
    begins a new round; one that falls into a round at work is left out."""
    time_zone: (
        Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$")] | None
    ) = None
    """Of the schedule, as the IANA database names it: Europe/Berlin. Without it: UTC."""
    starting_deadline_seconds: Annotated[int, Field(ge=10, le=31_536_000)] | None = None
    """A firing that could not begin for so long, because no operator was there, is left out. Without it: none is."""
    budget: Budget = Budget()
    """What a round may take."""

    @property
    def failed_runs_max(self) -> int | None:
        """After how many failed runs of a round none begins any more; None: never."""
        return (self.max_failed_runs or 1) if self.failure_policy is FailurePolicy.STOP else None

    @model_validator(mode="after")
    def _coherent(self) -> CampaignSpec:
        scheduled = self.schedule != ""
        holds = (
            scheduled or self.time_zone is None,
            scheduled or self.starting_deadline_seconds is None,
            self.failure_policy is FailurePolicy.STOP or self.max_failed_runs is None,
        )
        refuse_broken(self.rules, holds)
        return self


class CampaignMetadata(Metadata):
    """The part of Kubernetes' object metadata that a campaign needs; the rest is passed over."""

    name: Annotated[str, Field(min_length=1, max_length=CAMPAIGN_NAME_MAX, pattern=f"^{NAME}$")]
    """Name of the campaign."""


class SpecBenchCampaign(ApiModel):
    """A matrix of measured comparisons: SpecBenchRuns made from one template, and what they found together."""

    rules: ClassVar = (
        Rule(
            f"size(self.metadata.name) <= {CAMPAIGN_NAME_MAX}",
            f"metadata.name is longer than {CAMPAIGN_NAME_MAX} characters: the names of its runs derive from it",
        ),
        Rule(
            f"self.metadata.name.matches('^{NAME}$')",
            "metadata.name must begin with a letter and hold lower case letters, digits and dashes:"
            " runs, and their Services, are named after it",
        ),
    )

    api_version: Literal[API_VERSION] = API_VERSION  # type: ignore[valid-type]
    """specbench.io/v1alpha1"""
    kind: Literal["SpecBenchCampaign"] = "SpecBenchCampaign"
    """SpecBenchCampaign"""
    metadata: CampaignMetadata
    """Name and namespace."""
    spec: CampaignSpec
    """What is asked."""
    status: CampaignStatus | None = None
    """What was seen."""
