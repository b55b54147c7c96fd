"""`status` of a campaign: what its runs came to, rolled up. A cache: everything in it can be read again from the runs.

Bounded on purpose: one short row a run, at most 256 of them, which is under 100 kB; what each run found stands in the
run's own status and in its results.

For each condition type: what True and False mean. Where a run has the same word, it is said of all runs of the round.

    Validated        True: every combination can be run. False: some cannot, and nothing was created.
    Queued           True: runs wait for quota.
    LoadFinished     True: every run of the round has ended.
    ResultsDurable   True: every measured point of every run has its manifest in S3.
    Trustworthy      True: no run is untrustworthy.
    BudgetExhausted  True: the round has taken its GPU-hours, and what has not begun will not.
    GatePassed       True: the gate's rules hold. Unknown: there is no gate, or the round has not ended.
    Ready            True: the round has ended, whatever the verdict.
    Reconciling      True: at work. Never True together with Stalled.
    Stalled          True: it cannot go on by itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from specbench_api.model import ApiModel, KeyedBy
from specbench_api.spec.status import Condition, Timestamp

CELL_TEXT_MAX = 96


class CampaignConditionType(StrEnum):
    """Types of conditions, in the order in which they are listed."""

    VALIDATED = "Validated"
    QUEUED = "Queued"
    LOAD_FINISHED = "LoadFinished"
    RESULTS_DURABLE = "ResultsDurable"
    TRUSTWORTHY = "Trustworthy"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    GATE_PASSED = "GatePassed"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class CampaignPhase(StrEnum):
    """A print column, derived from the conditions and never read back."""

    PENDING = "Pending"
    INVALID = "Invalid"
    SUSPENDED = "Suspended"
    SCHEDULED = "Scheduled"
    """Finished, and waiting for the schedule."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    """Finished, with failed runs or without any; or stopped by failurePolicy or by the budget."""


class CampaignCondition(Condition):
    """As metav1.Condition."""

    type: CampaignConditionType  # type: ignore[assignment]
    """Type of the condition."""


class RunCounts(ApiModel):
    """Runs of the round, by how they stand: each has not begun, or is queued, active, succeeded or failed."""

    total: int = 0
    """Runs of the round."""
    active: int = 0
    """Begun and not ended; those that are queued are not among them."""
    queued: int = 0
    """Created, and waiting for quota."""
    succeeded: int = 0
    """Ended with results."""
    failed: int = 0
    """Ended without, or refused."""
    untrustworthy: int = 0
    """Of those that succeeded, runs whose numbers cannot be trusted."""


class Round(ApiModel):
    """One pass over all combinations. The first begins with the campaign, the others by a token or by the schedule."""

    number: int = 0
    """Counted from 1. It is in the names of the runs, but for the first."""
    token: Annotated[str, Field(max_length=64)] = ""
    """spec.rerun as it was when the round began."""
    fire_time: Timestamp | None = None
    """The firing of the schedule that began it."""
    start_time: Timestamp | None = None
    """When it began."""
    completion_time: Timestamp | None = None
    """When its last run ended."""


class RunRow(ApiModel):
    """One run of the round."""

    name: Annotated[str, Field(max_length=40)]
    """Name of the SpecBenchRun."""
    cell: Annotated[str, Field(max_length=CELL_TEXT_MAX)] = ""
    """Its combination, for people: `engine=vllm temperature=0.7`."""
    phase: Annotated[str, Field(max_length=16)] = ""
    """The run's phase; empty until it is created."""
    reason: Annotated[str, Field(max_length=32)] = ""
    """Why it failed or waits; empty where all is well."""
    progress: Annotated[str, Field(max_length=12)] = ""
    """Its points: `7/18`."""
    verdict: Annotated[str, Field(max_length=16)] = ""
    """Trustworthy, Untrustworthy or empty while unknown."""
    best: Annotated[str, Field(max_length=64)] = ""
    """Its largest speed-up that is distinguishable from 1."""
    gpu_seconds: float | None = None
    """GPUs times the seconds for which its engines held them."""


class CampaignStatus(ApiModel):
    """What was observed of a campaign."""

    observed_generation: int = -1
    """Generation of the spec that this status speaks of; -1 until the operator has seen the campaign."""
    phase: CampaignPhase | None = None
    """A word for print columns, derived from the conditions."""
    conditions: Annotated[list[CampaignCondition], Field(max_length=16), KeyedBy("type")] = []
    """What is known, each with its reason and message: types and reasons stand in docs/troubleshooting.md."""
    round: Round | None = None
    """The round at work, or the last one."""
    counts: RunCounts = RunCounts()
    """How far the round is."""
    progress: Annotated[str, Field(max_length=64)] = ""
    """The same for people: runs that have ended, of all: `12/64`."""
    best: Annotated[str, Field(max_length=160)] = ""
    """The largest speed-up of all runs that is distinguishable from 1, with its combination; `none faster` where there
    is none."""
    verdict: Annotated[str, Field(max_length=64)] = ""
    """Trustworthy, or how many of the runs are not."""
    gate: Annotated[str, Field(max_length=128)] = ""
    """What the gate found, for people."""
    gpu_hours_spent: float | None = None
    """GPU-hours of the round so far, all its runs together, those that were deleted too."""
    gpu_seconds_deleted: float = 0
    """Of them, in GPU-seconds, what runs had held that are there no more, or whose status was lost and tells less."""
    gpu_hours_estimated: float | None = None
    """GPU-hours of the whole round, as `specbench plan` estimates them where the prompts are out of its reach."""
    budget: Annotated[str, Field(max_length=64)] = ""
    """Both for people, with the budget: `3.2 of 40 GPU-hours`."""
    runs: Annotated[list[RunRow], Field(max_length=256), KeyedBy("name")] = []
    """The runs of the round, in the order of the matrix."""
    last_schedule_time: Timestamp | None = None
    """The last firing of the schedule that was acted upon."""
    next_schedule_time: Timestamp | None = None
    """The next firing."""
