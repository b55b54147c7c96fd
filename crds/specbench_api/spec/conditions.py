"""Condition types of a run, their reasons, and the phases derived from them.

Meaning of each condition type:

    Validated            True: the spec can be run. False: it cannot, and nothing was created.
    Queued               True: an engine's Job waits in its queue and holds no GPU: for quota, again after a preemption,
                         or because the queue admits nothing. False: admitted, or nothing of the run is queued.
    EngineReady          True: the engine answered a real completion, or has finished its work. False: an engine did not
                         start, or died; see the reason. Unknown: still starting, or no engine is needed yet.
    MeasurementComplete  True: every point that can be measured is measured. False: in progress, or an arm has failed.
    ResultsStored        True: every measured point has its manifest in S3. False: S3 failed. Unknown: not finished.
    Trustworthy          True: no check found a reason to doubt the numbers. False: they cannot be trusted; see message.
    GatePassed           Only with spec.gate. True: not worse than the earlier result, within the tolerances. False:
                         worse, inconclusive, or not comparable. Unknown: not evaluated yet.
    Ready                True: the run has finished with results, whether or not they are trustworthy.
    Reconciling          True: in progress. Never True together with Stalled.
    Stalled              True: the run cannot continue without intervention, or has ended without results.

kstatus, and with it Argo CD and Flux, reads the last three; `kubectl wait` waits for any type. The conditions of a Job,
Complete and Failed, would only repeat Ready and Stalled: a run that has ended, and holds no GPU, has a completionTime.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Condition types, in the order in which they are listed."""

    VALIDATED = "Validated"
    QUEUED = "Queued"
    ENGINE_READY = "EngineReady"
    MEASUREMENT_COMPLETE = "MeasurementComplete"
    RESULTS_STORED = "ResultsStored"
    TRUSTWORTHY = "Trustworthy"
    GATE_PASSED = "GatePassed"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    """Condition statuses of Kubernetes."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Phase(StrEnum):
    """A one-word state for print columns.

    The operator reads it back: a campaign and a gate that of other runs, and a run its own, for whether it has begun,
    rests suspended, or has succeeded.
    """

    PENDING = "Pending"
    INVALID = "Invalid"
    SUSPENDED = "Suspended"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    ANALYZING = "Analyzing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


IN_PROGRESS_PHASES = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.ANALYZING)
"""Phases in which a run has begun, and may hold GPUs."""


class EngineReason(StrEnum):
    """Why an engine is not serving, or what it is doing: reason of EngineReady and of a group."""

    STARTING = "Starting"
    SERVING = "Serving"
    DONE = "Done"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONFIG_ERROR = "ConfigError"
    OOM_KILLED = "OOMKilled"
    CRASHED = "Crashed"
    NEVER_READY = "NeverReady"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    FIRST_REQUEST_FAILED = "FirstRequestFailed"
    LOST = "EngineLost"
    REQUESTS_FAILED = "RequestsFailed"
    PREEMPTED = "Preempted"


ENGINE_FAULTS = (
    EngineReason.IMAGE_PULL_FAILED,
    EngineReason.CONFIG_ERROR,
    EngineReason.OOM_KILLED,
    EngineReason.CRASHED,
    EngineReason.NEVER_READY,
    EngineReason.FIRST_REQUEST_FAILED,
    EngineReason.REQUESTS_FAILED,
)
"""Reasons that a later launch of the same arm would fail with again. Unschedulable is not one: clusters change."""


class QueueReason(StrEnum):
    """Whether and why a run waits in its queue."""

    WAITING = "WaitingForQuota"
    PREEMPTED = "Preempted"
    INADMISSIBLE = "Inadmissible"
    ADMITTED = "Admitted"
    NONE = "NotQueued"


class GroupState(StrEnum):
    """State of one engine group."""

    WAITING = "Waiting"
    QUEUED = "Queued"
    STARTING = "Starting"
    MEASURING = "Measuring"
    DONE = "Done"
    FAILED = "Failed"


class GateReason(StrEnum):
    """Why an evaluated gate passed or did not."""

    PASSED = "Passed"
    """Every cell was shown to be within its tolerance."""
    REGRESSED = "Regressed"
    """At least one cell was shown to be worse than its tolerance allows."""
    ARM_AT_FAULT = "ArmAtFault"
    """A check found an arm of this run at fault, and in the earlier result it did not."""
    INCONCLUSIVE = "Inconclusive"
    """For at least one cell, the data show neither."""
    CELLS_MISSING = "CellsMissing"
    """The earlier result has cells that this run does not have, or whose comparison a check invalidated."""
    NOT_COMPARABLE = "NotComparable"
    """The two results measured different things."""
    UNTRUSTWORTHY = "Untrustworthy"
    """One of the two results is not trustworthy, and no regression is shown."""


class GateWait(StrEnum):
    """Why a gate has not been evaluated."""

    NOT_YET = "NotYet"
    """The run itself has not finished."""
    EVALUATING = "Evaluating"
    """The gate's Job is running."""
    BASELINE_MISSING = "BaselineMissing"
    """The run, campaign or combination does not exist, or nothing is stored at the URI."""
    BASELINE_NOT_FINISHED = "BaselineNotFinished"
    """The earlier run has not finished."""
    BASELINE_FAILED = "BaselineFailed"
    """The earlier run ended without a result."""
    RUN_FAILED = "RunFailed"
    """This run ended without a result."""
