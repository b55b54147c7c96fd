"""The vocabulary of status: condition types, their reasons, and the phases derived from them.

For each condition type: what True, False and Unknown mean.

    Validated       True: the spec can be run. False: it cannot, and nothing was created.
    Queued          True: an engine's Job waits for its queue and holds nothing: for quota, again after a preemption, or
                    for a queue that admits nobody. False: admitted, or nothing of the run waits for a queue.
    EngineReady     True: the engine answered a real completion, or has done its part. False: an engine did not
                    start or died; the reason names how. Unknown: still starting, or none is needed yet.
    LoadFinished    True: every point that can be measured is measured. False: still at it, or gave up on an arm.
    ResultsDurable  True: every measured point has its manifest in S3. False: S3 refused. Unknown: not finished.
    Trustworthy     True: no check found a reason to doubt. False: the numbers are not to be trusted, and why.
    GatePassed      Only where spec.gate asks. True: not worse than the earlier result, within the tolerances. False:
                    worse, or neither could be shown, or the two cannot be compared. Unknown: not evaluated yet.
    Ready           True: the run is finished, whatever the verdict. For tools (kstatus, kubectl wait).
    Reconciling     True: the run is at work. Never True together with Stalled.
    Stalled         True: the run cannot go on by itself.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of conditions, in the order in which they are listed."""

    VALIDATED = "Validated"
    QUEUED = "Queued"
    ENGINE_READY = "EngineReady"
    LOAD_FINISHED = "LoadFinished"
    RESULTS_DURABLE = "ResultsDurable"
    TRUSTWORTHY = "Trustworthy"
    GATE_PASSED = "GatePassed"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    """As Kubernetes has them."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Phase(StrEnum):
    """A print column, derived from the conditions and never read back."""

    PENDING = "Pending"
    INVALID = "Invalid"
    SUSPENDED = "Suspended"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    ANALYSING = "Analysing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class EngineReason(StrEnum):
    """Why an engine is not (or no longer) serving. Each names what a person would look for."""

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
    REFUSED = "CompletionRefused"
    LOST = "EngineLost"
    PREEMPTED = "Preempted"


class QueueReason(StrEnum):
    """Why a run waits for its queue, or does not."""

    WAITING = "WaitingForQuota"
    PREEMPTED = "Preempted"
    INADMISSIBLE = "Inadmissible"
    ADMITTED = "Admitted"
    NONE = "NotQueued"


class GroupState(StrEnum):
    """Where one engine group stands."""

    WAITING = "Waiting"
    QUEUED = "Queued"
    STARTING = "Starting"
    MEASURING = "Measuring"
    DONE = "Done"
    FAILED = "Failed"


class GateReason(StrEnum):
    """Why a gate passed or did not, once it was evaluated."""

    PASSED = "Passed"
    """Every cell was shown to be within its tolerance."""
    REGRESSED = "Failed"
    """A cell was shown to be worse than its tolerance allows."""
    INCONCLUSIVE = "Inconclusive"
    """Of some cell neither could be shown."""
    CELLS_MISSING = "CellsMissing"
    """The earlier result has cells that this run lacks, or whose comparison a check broke."""
    NOT_COMPARABLE = "NotComparable"
    """The two results answer different questions."""
    UNTRUSTWORTHY = "Untrustworthy"
    """One of the results is not to be trusted."""


class GateWait(StrEnum):
    """Why a gate is not evaluated, or not yet."""

    NOT_YET = "NotYet"
    """The run itself is not finished."""
    EVALUATING = "Evaluating"
    """The gate's Job is at work."""
    BASELINE_MISSING = "BaselineMissing"
    """There is no such run, campaign or cell, or nothing lies at the URI."""
    BASELINE_NOT_FINISHED = "BaselineNotFinished"
    """The earlier run is still at work."""
    BASELINE_FAILED = "BaselineFailed"
    """The earlier run ended without a result."""
    RUN_FAILED = "RunFailed"
    """This run ended without a result."""
