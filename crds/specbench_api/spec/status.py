"""`status`: a cache of what was observed; the truth lies in S3 and in the children.

Bounded on purpose: one row an arm, workload and load; never one a request; and all of it in less than 100 kB, whatever
the plan, so that a watch of many runs stays light. What does not fit is counted, and stands in summary.json.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from specbench_api.model import ApiModel, KeyedBy
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase

Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"}, max_length=64)]
Text = Annotated[str, Field(max_length=1024)]


class Condition(ApiModel):
    """As metav1.Condition."""

    type: ConditionType
    """Type of the condition."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """One CamelCase word: why."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """What a person should know and do."""
    last_transition_time: Timestamp
    """When status last changed."""
    observed_generation: int = 0
    """The generation of the spec that this speaks of."""


class PointCounts(ApiModel):
    """How far the run is."""

    total: int = 0
    """Points of the plan."""
    measured: int = 0
    """Points with a manifest in S3."""
    invalid: int = 0
    """Measured points whose numbers break the comparison."""
    failed: int = 0
    """Points that will not be measured, because their engine failed."""


_ALWAYS_TOLD = ("index", "points", "measured", "attempt", "reason")


class GroupStatus(ApiModel):
    """One engine group: what one launch of one engine serves. Further fields are left out where they tell nothing."""

    index: int
    """Place in the plan."""
    arm: Annotated[str, Field(max_length=32)]
    """The drafter's name; `none` is the baseline."""
    state: GroupState
    """Where it stands."""
    points: int = 0
    """Points of the group."""
    measured: int = 0
    """Those with a manifest."""
    attempt: int = 0
    """The launch, counted from 0. It is repeated when the engine was lost without its fault, or given back."""
    given_back: int = 0
    """Launches that ended because the run was suspended, or of whose end nothing is known any more: no losses."""
    preemptions: int = 0
    """Launches that a queue, the scheduler or a node took away: no losses either, with a budget of their own."""
    engine_pod: Annotated[str, Field(max_length=253)] = ""
    """The pod of this launch's engine, once there is one."""
    idle_since: Timestamp | None = None
    """Since when its engine has been ready with no client at work; none while there is one."""
    ends_run: bool = False
    """It failed in a way that no other group would survive."""
    reason: Annotated[str, Field(max_length=128)] = ""
    """Why it is not serving."""
    message: Text = ""
    """What was seen."""

    @model_serializer(mode="wrap")
    def _lean(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A plan has up to 512 of these, and most have nothing to tell."""
        told: dict[str, Any] = handler(self)
        return {name: value for name, value in told.items() if value or name in _ALWAYS_TOLD}


class Interval(ApiModel):
    """A confidence interval."""

    value: float
    """The estimate."""
    low: float
    """Lower bound."""
    high: float
    """Upper bound."""


class Percentiles(ApiModel):
    """Milliseconds at three percentiles over requests."""

    p50: float | None = None
    """Median."""
    p95: float | None = None
    """95th percentile."""
    p99: float | None = None
    """99th percentile."""


class ArmResult(ApiModel):
    """One arm at one load: the answer. A figure that is missing was not to be had; it is never 0."""

    arm: Annotated[str, Field(max_length=32)]
    """The drafter's name; `none` is the baseline."""
    workload: Annotated[str, Field(max_length=32)]
    """The workload's name."""
    load: Annotated[str, Field(max_length=32)] = ""
    """The load level for people: `8`, `2.5/s`, `trace`."""
    concurrency: int | None = None
    """Closed loop: concurrent streams."""
    rate: float | None = None
    """Open loop: conversations a second."""
    speedup: Interval | None = None
    """Output tokens a second of stream time over the paired baseline's, with its 95 % interval.

    Missing where fewer than three repeats were compared: no interval then holds what differs from run to run.
    """
    speedup_text: Annotated[str, Field(max_length=64)] = ""
    """The same for people: `1.83 [1.76, 1.90]`, or `indistinguishable` when the interval holds 1.

    From fewer than three repeats: `1.83 (1 repeat: too few to tell)`.
    """
    tpot_speedup: Interval | None = None
    """The baseline's time per output token over this arm's."""
    e2e_speedup: Annotated[Interval | None, Field(alias="e2eSpeedup")] = None
    """The baseline's mean time to the last token over this arm's, of the very same requests."""
    acceptance_length: float | None = None
    """Tokens emitted a step, (output tokens - 1) / steps, pooled over steps. 1 for the baseline."""
    acceptance_length_verified: float | None = None
    """1 + accepted / steps, pooled over steps."""
    acceptance_rate: float | None = None
    """Accepted drafts / drafted tokens."""
    ttft_ms: Percentiles | None = None
    """Time to first token, from the intended send time."""
    tpot_ms: Percentiles | None = None
    """Time per output token after the first; tokens, never chunks."""
    e2e_ms: Annotated[Percentiles | None, Field(alias="e2eMs")] = None
    """Time to the last token, from the intended send time."""
    user_tps: float | None = None
    """Median over requests of 1 / TPOT."""
    output_tps: float | None = None
    """Output tokens a second of the whole engine in the steady state."""
    goodput: float | None = None
    """Requests a second that met every target of spec.slo; none where it has none."""
    goodput_share: float | None = None
    """Share of the steady state's requests that met them; one that failed met none."""
    requests: int = 0
    """Measured requests (turns), all repeats."""
    failed_requests: int = 0
    """Of them, those that failed."""
    output_tokens: int = 0
    """Output tokens, as the engine counts them."""
    valid: bool = True
    """False when a check broke the comparison."""
    findings: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=32)] = []
    """Names of the checks that found something."""


class ResultsStatus(ApiModel):
    """Where the results lie."""

    uri: Annotated[str, Field(max_length=2048)]
    """Root of the run's results."""
    summary: Annotated[str, Field(max_length=2048)] = ""
    """summary.json"""
    report: Annotated[str, Field(max_length=2048)] = ""
    """report.html"""


class GateStatus(ApiModel):
    """What became of spec.gate, once it was evaluated. The evidence is gate.json, beside the run's summary."""

    asked: Annotated[str, Field(max_length=64)]
    """Digest of the gate that was evaluated: another one is evaluated anew."""
    passed: bool
    """Whether it passed."""
    reason: Annotated[str, Field(max_length=64)]
    """One CamelCase word: why."""
    message: Text = ""
    """The same in a line."""
    baseline: Annotated[str, Field(max_length=2048)] = ""
    """Root of the results that it was compared with."""


class RunStatus(ApiModel):
    """What was observed of a run."""

    observed_generation: int = -1
    """Generation of the spec that this status speaks of; -1 until the operator has seen the run."""
    phase: Phase | None = None
    """A word for print columns, derived from the conditions."""
    conditions: Annotated[list[Condition], Field(max_length=16), KeyedBy("type")] = []
    """What is known, each with its reason and message: types and reasons stand in docs/troubleshooting.md."""
    start_time: Timestamp | None = None
    """When the first engine was asked for."""
    completion_time: Timestamp | None = None
    """When the run ended."""
    points: PointCounts = PointCounts()
    """How far the run is."""
    progress: Annotated[str, Field(max_length=64)] = ""
    """The same for people: `7/18`."""
    gpu_seconds_held: float = 0
    """GPUs times the seconds for which engine pods of this run held them. A GPU is one device of
    placement.gpuResourceName, so a MIG slice counts as one, or one of placement.claimedGpus."""
    gpu_seconds_until: Timestamp | None = None
    """Until when gpuSecondsHeld counts: what was held after this moment is not in it yet."""
    engine_nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] = []
    """Where the last engine that got ready ran: placement.pinNode draws the next one there."""
    groups: Annotated[list[GroupStatus], Field(max_length=512)] = []
    """Engine groups in the plan's order."""
    groups_omitted: int = 0
    """Groups that are done and were left out of `groups` at the end of the run, to keep status small."""
    arms: Annotated[list[ArmResult], Field(max_length=1024)] = []
    """The answer, one row an arm, workload and load, in six digits."""
    arms_omitted: int = 0
    """Rows that were left out to keep status small: of each arm and workload those of the highest loads. All of them
    stand in summary.json (results.summary)."""
    best: Annotated[str, Field(max_length=128)] = ""
    """The largest speed-up that is distinguishable from 1, for print columns; `none faster` where there is none."""
    recommendation: Text = ""
    """Which arm to use up to which load, in a sentence. Its evidence and its limits are in summary.json."""
    verdict: Annotated[str, Field(max_length=32)] = ""
    """Trustworthy, Untrustworthy or empty while unknown."""
    problem: Annotated[str, Field(max_length=128)] = ""
    """What is wrong, for print columns: reasons, each with its arm where it is one arm's; empty where nothing is."""
    results: ResultsStatus | None = None
    """Where the results lie."""
    gate: GateStatus | None = None
    """What became of spec.gate; none until it was evaluated."""
