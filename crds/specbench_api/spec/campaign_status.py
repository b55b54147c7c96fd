"""`status` of a campaign: the results of its runs, aggregated. A cache: everything in it can be derived from the runs.

Its size is bounded: one short row per run, at most 256 rows, which is less than 100 kB. The details of each run are in
the run's own status and in its results.

Meaning of each condition type. Those that a run has too apply here to all runs of the round.

    Validated            True: every combination can be run. False: some cannot, and nothing was created.
    Queued               True: runs wait for quota.
    MeasurementComplete  True: every run of the round has ended.
    ResultsStored        True: every measured point of every run has its manifest in S3.
    Trustworthy          True: no run is untrustworthy.
    BudgetExhausted      True: the round has used its GPU-hours; runs that have not started will not start.
    GatePassed           True: every run passed its gate. Unknown: there is no gate, or the round has not ended.
    Ready                True: the round has ended with results, also if some of its runs failed.
    Reconciling          True: in progress. Never True together with Stalled.
    Stalled              True: the campaign cannot continue without intervention: its budget is spent, its failurePolicy
                         stopped it, every run failed, or it is invalid.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from specbench_api.api_model import ApiModel, KeyedBy
from specbench_api.spec.campaign_limits import COMBINATION_TEXT_MAX, RUNS_MAX
from specbench_api.spec.status import Condition, Timestamp


class CampaignConditionType(StrEnum):
    """Condition types, in the order in which they are listed."""

    VALIDATED = "Validated"
    QUEUED = "Queued"
    MEASUREMENT_COMPLETE = "MeasurementComplete"
    RESULTS_STORED = "ResultsStored"
    TRUSTWORTHY = "Trustworthy"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    GATE_PASSED = "GatePassed"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class CampaignPhase(StrEnum):
    """A one-word state for print columns, derived from the conditions and never read back."""

    PENDING = "Pending"
    INVALID = "Invalid"
    SUSPENDED = "Suspended"
    SCHEDULED = "Scheduled"
    """The last round has ended; the next starts at its scheduled time."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    """The round ended with failed runs or with no runs at all, or failurePolicy or the budget stopped it."""


class CampaignCondition(Condition):
    """A condition of a campaign, in the form of metav1.Condition."""

    type: CampaignConditionType  # type: ignore[assignment]
    """Type of the condition."""


class RunCounts(ApiModel):
    """Number of runs of the round by state. A run has not started, or is queued, active, succeeded or failed."""

    total: int = 0
    """All runs of the round."""
    active: int = 0
    """Started and not ended; queued runs are not included."""
    queued: int = 0
    """Created and waiting for quota."""
    succeeded: int = 0
    """Ended with results."""
    failed: int = 0
    """Ended without results, or rejected."""
    untrustworthy: int = 0
    """Succeeded runs whose numbers cannot be trusted."""


class CampaignRound(ApiModel):
    """One pass over all combinations. The first starts with the campaign, later ones by spec.rerun or the schedule."""

    number: int = 0
    """Number of the round, from 1. From the second round on it is part of the names of the runs."""
    token: Annotated[str, Field(max_length=64)] = ""
    """Value of spec.rerun when the round started."""
    fire_time: Timestamp | None = None
    """Scheduled time that started the round. Unset if the schedule did not start it."""
    start_time: Timestamp | None = None
    """When the round started."""
    completion_time: Timestamp | None = None
    """When its last run ended."""


class CampaignRunStatus(ApiModel):
    """One run of the round."""

    name: Annotated[str, Field(max_length=40)]
    """Name of the SpecBenchRun."""
    combination: Annotated[str, Field(max_length=COMBINATION_TEXT_MAX)] = ""
    """The run's combination of axis values: `engine=vllm temperature=0.7`."""
    phase: Annotated[str, Field(max_length=16)] = ""
    """The run's phase; empty until the run is created."""
    reason: Annotated[str, Field(max_length=32)] = ""
    """Why the run failed or waits, as one word; empty otherwise."""
    progress: Annotated[str, Field(max_length=12)] = ""
    """Measured points of all points: `7/18`."""
    trust: Annotated[str, Field(max_length=16)] = ""
    """Trustworthy or Untrustworthy; empty while unknown."""
    best: Annotated[str, Field(max_length=64)] = ""
    """The run's largest speed-up that is distinguishable from 1."""
    gpu_seconds: float | None = None
    """GPU-seconds: number of GPUs times the seconds for which the run's engines held them."""


class CampaignStatus(ApiModel):
    """The observed state of a campaign."""

    observed_generation: int = -1
    """Generation of the spec that this status describes; -1 until the operator has processed the campaign."""
    phase: CampaignPhase | None = None
    """One-word state for print columns, derived from the conditions."""
    conditions: Annotated[list[CampaignCondition], Field(max_length=16), KeyedBy("type")] = []
    """Conditions, each with its reason and message. Types and reasons: docs, "Conditions, reasons and events"."""
    round: CampaignRound | None = None
    """The current round, or the last one."""
    counts: RunCounts = RunCounts()
    """Number of runs of the round by state."""
    progress: Annotated[str, Field(max_length=64)] = ""
    """Ended runs of all runs, for print columns: `12/64`."""
    best: Annotated[str, Field(max_length=160)] = ""
    """The largest speed-up of all runs that is distinguishable from 1, with its combination; `none faster` if there is
    none."""
    trust: Annotated[str, Field(max_length=64)] = ""
    """Trustworthy, or the number of runs that are not."""
    gate: Annotated[str, Field(max_length=128)] = ""
    """Summary of the gates of the runs."""
    gpu_hours_spent: float | None = None
    """GPU-hours used by the round so far, over all its runs, deleted ones included."""
    gpu_seconds_deleted: float = 0
    """The part of gpuHoursSpent, in GPU-seconds, of runs that were deleted or whose status was lost or shows less than
    before."""
    gpu_hours_estimated: float | None = None
    """Estimated GPU-hours of the whole round: gpuHoursSpent, and for each remaining point as many as the measured ones
    took. Missing until a launch of this round was measured."""
    budget: Annotated[str, Field(max_length=64)] = ""
    """Spent GPU-hours and the budget, for print columns: `3.2 of 40 GPU-hours`."""
    runs: Annotated[list[CampaignRunStatus], Field(max_length=RUNS_MAX), KeyedBy("name")] = []
    """The runs of the round, in the order of the matrix."""
    last_schedule_time: Timestamp | None = None
    """The last scheduled time that was acted upon."""
    next_schedule_time: Timestamp | None = None
    """The next scheduled time."""
