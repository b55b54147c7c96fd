"""`status` of a run: a cache of what was observed. The source of truth is S3 and the run's children.

Its size is bounded: one row per arm, workload and load, never one per request, and less than 100 kB whatever the plan,
so that watching many runs stays cheap. Rows that do not fit are counted and are in summary.json.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from specbench_api.api_model import ApiModel, KeyedBy
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase
from specbench_api.spec.results import S3

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"}, max_length=64)]
TEXT_MAX = 1024
"""Maximum length of a text in status."""
FINDINGS_MAX = 32
"""Maximum number of findings in one row of results."""
Text = Annotated[str, Field(max_length=TEXT_MAX)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""A number of things, within the range that every reader of JSON keeps exact."""
NONE_FASTER = "none faster"
"""`best` of results without an arm that is faster."""


class Condition(ApiModel):
    """A condition, in the form of metav1.Condition."""

    type: ConditionType
    """Type of the condition."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why the condition has its status, as one CamelCase word."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Details for a person, and what to do next."""
    last_transition_time: Timestamp
    """When the condition's status last changed."""
    observed_generation: int = 0
    """Generation of the spec that the condition describes."""


class PointCounts(ApiModel):
    """Number of points by state."""

    total: int = 0
    """All points of the plan."""
    measured: int = 0
    """Points with a manifest in S3."""
    invalid: int = 0
    """Measured points that a check excluded from the comparison."""
    failed: int = 0
    """Points that will not be measured because their engine failed."""


_ALWAYS_SERIALIZED = ("index", "points", "measured", "attempt", "reason")


class GroupStatus(ApiModel):
    """One engine group: the points that one launch of one engine serves. Empty fields are omitted."""

    index: int
    """Position of the group in the plan, from 0."""
    arm: Annotated[str, Field(max_length=32)]
    """Name of the drafter; `none` is the baseline."""
    state: GroupState
    """State of the group."""
    points: int = 0
    """Number of points of the group."""
    measured: int = 0
    """Number of its points with a manifest in S3."""
    attempt: int = 0
    """The current launch, counted from 0. A group is relaunched if the engine was lost for a reason outside it, or
    suspended."""
    suspensions: int = 0
    """Launches that ended because the run was suspended, or whose end is unknown. They do not count as engine losses.
    """
    preemptions: int = 0
    """Launches that a queue, the scheduler or a node ended. They do not count as engine losses;
    placement.preemptionBudget limits them."""
    engine_pod: Annotated[str, Field(max_length=253)] = ""
    """Pod of this launch's engine; empty until it exists."""
    idle_since: Timestamp | None = None
    """Since when the engine has been ready without a running client. Unset while a client runs."""
    ends_run: bool = False
    """Whether the group failed in a way that would fail every other group too, which ends the run."""
    reason: Annotated[str, Field(max_length=128)] = ""
    """Why the engine is not serving, as one word."""
    message: Text = ""
    """Details of the reason."""

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit empty fields: a plan has up to 512 groups, and most have nothing to report."""
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value or name in _ALWAYS_SERIALIZED}


class Interval(ApiModel):
    """An estimate with its confidence interval."""

    value: float
    """The estimate."""
    low: float
    """Lower bound of the interval."""
    high: float
    """Upper bound of the interval."""


class Percentiles(ApiModel):
    """Milliseconds at three percentiles over requests."""

    p50: float | None = None
    """Median."""
    p95: float | None = None
    """95th percentile."""
    p99: float | None = None
    """99th percentile."""


class ArmResult(ApiModel):
    """Results of one arm, workload and load. A figure that could not be computed is missing; it is never 0."""

    arm: Annotated[str, Field(max_length=32)]
    """Name of the drafter; `none` is the baseline."""
    workload: Annotated[str, Field(max_length=32)]
    """Name of the workload."""
    load: Annotated[str, Field(max_length=32)] = ""
    """Label of the load level: `8`, `2.5/s`, `trace`."""
    concurrency: Count | None = None
    """Closed loop: number of concurrent streams."""
    rate: float | None = None
    """Open loop: conversations per second."""
    speedup: Interval | None = None
    """Output tokens per second of stream time, divided by the paired baseline's, with its 95 % confidence interval.

    Missing if fewer than three repeats were compared: an interval would then not include run-to-run variation.
    """
    speedup_text: Annotated[str, Field(max_length=64)] = ""
    """The speed-up for print columns: `1.83 [1.76, 1.90]`; `1.02 [0.97, 1.07] indistinguishable` if it contains 1.

    With fewer than three repeats: `1.83 (1 repeat: too few to tell)`.
    """
    tpot_speedup: Interval | None = None
    """The baseline's time per output token divided by this arm's, with its 95 % confidence interval."""
    e2e_speedup: Annotated[Interval | None, Field(alias="e2eSpeedup")] = None
    """The baseline's mean time to the last token divided by this arm's, over the same requests, with its 95 %
    confidence interval."""
    acceptance_length: float | None = None
    """Emitted tokens per step: (output tokens - 1) / steps, pooled over steps. 1 for the baseline."""
    acceptance_length_verified: float | None = None
    """1 + accepted tokens / steps, pooled over steps."""
    acceptance_rate: float | None = None
    """Accepted tokens divided by draft tokens."""
    ttft_ms: Percentiles | None = None
    """Time to first token in milliseconds, from the intended send time."""
    tpot_ms: Percentiles | None = None
    """Time per output token after the first, in milliseconds. Per token, not per chunk."""
    e2e_ms: Annotated[Percentiles | None, Field(alias="e2eMs")] = None
    """Time to the last token in milliseconds, from the intended send time."""
    user_tps: float | None = None
    """Tokens per second for one user: median over requests of 1 / TPOT."""
    output_tps: float | None = None
    """Output tokens per second of the whole engine in the steady state."""
    goodput: float | None = None
    """Requests per second that met every target of spec.slo. Missing without spec.slo."""
    slo_attainment: float | None = None
    """Fraction of the requests in the steady state that met every target; a failed request met none."""
    requests: Count = 0
    """Measured requests (turns), over all repeats."""
    failed_requests: Count = 0
    """Number of those requests that failed."""
    output_tokens: Count = 0
    """Output tokens, as counted by the engine."""
    valid: bool = True
    """False if a check invalidated the comparison."""
    findings: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=FINDINGS_MAX)] = []
    """Names of the checks that reported a finding."""


class MeasuredResults(ApiModel):
    """The part of a run's status that its client computes."""

    arms: Annotated[list[ArmResult], Field(max_length=1024)] = []
    """Results, one row per arm, workload and load, rounded to six digits."""
    arms_omitted: Count = 0
    """Number of rows that were removed to limit the size of status: those of the highest loads of each arm and
    workload. summary.json has all rows."""
    best: Annotated[str, Field(max_length=128)] = ""
    """The largest speed-up that is distinguishable from 1, for print columns; `none faster` if there is none
    although every cell is known."""
    recommendation: Text = ""
    """Which arm to use up to which load, in one sentence. Its evidence and limits are in summary.json."""
    trust: Annotated[str, Field(max_length=32)] = ""
    """Trustworthy or Untrustworthy; empty while unknown."""


class ResultsStatus(ApiModel):
    """Where the results are stored."""

    uri: Annotated[str, Field(max_length=2048)]
    """Root folder of the run's results."""
    summary: Annotated[str, Field(max_length=2048)] = ""
    """URI of summary.json."""
    report: Annotated[str, Field(max_length=2048)] = ""
    """URI of report.html."""


class GateStatus(ApiModel):
    """Outcome of spec.gate. The evidence is in gate.json, next to summary.json."""

    gate_digest: Annotated[str, Field(max_length=64)]
    """Digest of the gate that was evaluated. If spec.gate changes, it is evaluated again."""
    passed: bool
    """Whether the gate passed."""
    reason: Annotated[str, Field(max_length=64)]
    """Why, as one CamelCase word."""
    message: Text = ""
    """The reason in one sentence."""
    baseline: Annotated[str, Field(max_length=2048)] = ""
    """Root folder of the earlier results."""


class RunStatus(MeasuredResults):
    """The observed state of a run."""

    observed_generation: int = -1
    """Generation of the spec that this status describes; -1 until the operator has processed the run."""
    phase: Phase | None = None
    """One-word state for print columns, derived from the conditions."""
    conditions: Annotated[list[Condition], Field(max_length=16), KeyedBy("type")] = []
    """Conditions, each with its reason and message. Types and reasons: docs, "Conditions, reasons and events"."""
    start_time: Timestamp | None = None
    """When the first engine was requested."""
    completion_time: Timestamp | None = None
    """When the run ended."""
    points: PointCounts = PointCounts()
    """Number of points by state."""
    progress: Annotated[str, Field(max_length=64)] = ""
    """Measured points of all points, and the one that is being measured, for print columns: `7/18 ngram at 8`."""
    gpu_seconds_held: float = 0
    """GPU-seconds: number of GPUs times the seconds for which engine pods of this run held them. A GPU is one device of
    placement.gpuResourceName (a MIG slice counts as one) or one of placement.claimedGpus."""
    gpu_seconds_until: Timestamp | None = None
    """Time up to which gpuSecondsHeld counts; later use is not included yet."""
    engine_nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] = []
    """Nodes of the last engine that became ready, to which placement.pinNode sends the next one."""
    groups: Annotated[list[GroupStatus], Field(max_length=512)] = []
    """Engine groups, in the order of the plan."""
    groups_omitted: int = 0
    """Number of finished groups that were removed from `groups` at the end of the run to limit the size of status."""
    problem: Annotated[str, Field(max_length=128)] = ""
    """What is wrong, for print columns: reasons, each with its arm if it concerns one arm; empty if nothing is."""
    results: ResultsStatus | None = None
    """Where the results are stored."""
    store: S3 | None = None
    """The default store, if the spec names none; once the run has begun, a change of the default does not change it."""
    gate: GateStatus | None = None
    """Outcome of spec.gate. Missing until it was evaluated."""
