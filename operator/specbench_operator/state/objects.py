"""A run's children as the operator observes them: Jobs, pods, Services, ConfigMaps, LeaderWorkerSets and nodes.

Decisions that must survive a restart of the operator and the loss of status are annotations of the engine's Job:
LaunchVerdict, Relaunch and PriorLaunches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class ObjectRef:
    """Name and UID of one object.

    The UID is the precondition of every deletion and patch, so that a new object of the same name is never changed.
    """

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class ChildKey:
    """A child's role in its run, from its labels. Only engines and clients have a `group`, and a launch as `attempt`.

    The `attempt` of a plan is the number of rounds that were added to it, if there are any.
    """

    role: str
    group: int | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class JobFailure:
    """The Failed (or FailureTarget) condition of a Job."""

    reason: str
    message: str
    at: datetime


class FailureScope(StrEnum):
    """What a failure ends: one launch, its group, or the whole run."""

    LAUNCH = "Launch"
    """Only this launch: the engine did not cause the failure, so it is launched again."""
    GROUP = "Group"
    """The engine group: another launch would fail in the same way. The other groups continue."""
    RUN = "Run"
    """The whole run: nothing can be measured until somebody changes it."""


@dataclass(frozen=True)
class LaunchVerdict:
    """Why an engine's launch ended. Stored as an annotation of its Job, which outlives pods and the operator."""

    scope: FailureScope
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True)
class QueueWait:
    """Why a queue does not admit a Job. `inadmissible`: it never will, until somebody changes the Job or the queue."""

    message: str
    inadmissible: bool = False


@dataclass(frozen=True)
class Relaunch:
    """An engine's Job continues as another launch, because its queue preempted its pod. Stored as an annotation.

    The queue will give the Job another pod later. The same Job is kept so that it keeps its position in the queue; only
    the launch number, by which pods, clients and results are named, changes.
    """

    launch: int
    """The launch that the Job serves from now on."""
    preemptions: int
    """How often this Job was preempted."""
    previous_pod: str = ""
    """UID of the previous launch's pod; empty if no pod was observed."""


@dataclass(frozen=True)
class PriorLaunches:
    """How many earlier launches of a group do not count as lost. Stored as an annotation of the engine's Job.

    Status contains these counts too, but status is a cache: it may be lost, or writing it may fail.
    """

    suspensions: int = 0
    """Launches that ended because the run was suspended."""
    preemptions: int = 0
    """Launches that ended because the engine was preempted."""


@dataclass(frozen=True)
class Job:
    """A Job of the run, or of an earlier run of the same name (compare `owner` with the run's UID)."""

    ref: ObjectRef
    owner: str | None
    """UID of its controller; None if it has none."""
    key: ChildKey
    created_at: datetime
    started_at: datetime | None = None
    suspended: bool = False
    complete: bool = False
    failure: JobFailure | None = None
    deleting: bool = False
    verdict: LaunchVerdict | None = None
    warning: str = ""
    """Message of its latest Warning event while it has no pod, such as an exceeded quota."""
    queue: str = ""
    """Name of its Kueue queue, or that of its LeaderWorkerSet; empty if it has none."""
    waits: QueueWait | None = None
    """Why its queue does not admit it, while it is suspended."""
    relaunch: Relaunch | None = None
    """Set for an engine's Job that continues as another launch."""
    engine_pod: str = ""
    """For a client: UID of the engine's pod that it measures. For a queued engine on several nodes that was admitted:
    UID of its leader's pod."""
    engine_nodes: tuple[str, ...] = ()
    """For a client: names of the nodes on which its engine became ready."""
    prior_launches: PriorLaunches = PriorLaunches()
    """For an engine's Job: counts of earlier launches, written when the Job was created."""
    unlisted_pods: int = 0
    """How many of its pods have not ended by its controller, if none is listed: they have lost specbench's labels."""

    @property
    def ended(self) -> bool:
        """Whether it has ended, so that it creates no further pod."""
        return self.complete or self.failure is not None

    @property
    def stopping_or_ended(self) -> bool:
        """Whether it has ended or is about to.

        The operator stops a Job with a short deadline, and Kubernetes does not apply deadlines to suspended Jobs.
        """
        return self.ended or (self.verdict is not None and not self.suspended)

    @property
    def launch(self) -> int | None:
        """The number of the launch that it serves, or served last."""
        return self.relaunch.launch if self.relaunch else self.key.attempt


REPAIRED_KINDS = ("Service", "NetworkPolicy")
"""Kinds whose spec is applied again if somebody edited it. Jobs and the plan's ConfigMap are immutable."""


@dataclass(frozen=True)
class ChildObject:
    """A child that is not a Job.

    A Service, a ConfigMap, a NetworkPolicy, or the LeaderWorkerSet of an engine on several nodes.
    """

    ref: ObjectRef
    owner: str | None
    key: ChildKey
    deleting: bool = False
    run_uid: str = ""
    """UID of its run, from its label."""
    spec: Mapping[str, Any] | None = None
    """The spec of a Service or a NetworkPolicy, which somebody may have edited; None for other kinds."""


@dataclass(frozen=True)
class ContainerTerminated:
    """The terminated state of a container."""

    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True)
class ContainerWaiting:
    """The waiting state of a container: why it does not run yet."""

    reason: str
    message: str = ""


FINAL_POD_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Pod:
    """A pod of an engine, a client, a report or a gate, reduced to its main container."""

    ref: ObjectRef
    run_uid: str
    """UID of its run, from its label."""
    key: ChildKey
    job: str
    """Name of the Job that controls it."""
    job_uid: str
    """UID of that Job. The name alone is not enough: the Job may have been deleted and created again."""
    phase: str
    created_at: datetime
    reason: str = ""
    """status.reason, such as Evicted, NodeShutdown or UnexpectedAdmissionError."""
    message: str = ""
    ready: bool = False
    disrupted: str | None = None
    """Message of its DisruptionTarget condition, or of TerminationTarget, which Kueue sets, if that is True; else None.
    """
    unschedulable: str | None = None
    """The scheduler's message if no node fits, else None."""
    scheduled_at: datetime | None = None
    deleted_at: datetime | None = None
    """deletionTimestamp: the time by which it should have terminated; it includes the grace period."""
    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None
    probe: ContainerTerminated | None = None
    """How the probe container ended, if the pod has one."""
    node: str = ""
    """Name of its node; empty until it is scheduled."""
    command: tuple[str, ...] = ()
    """Command and arguments of its container; without the command if the image's own is used."""
    image: str = ""
    """The image as the pod's spec names it."""
    image_id: str = ""
    """The image that runs, with its digest."""
    started_at: datetime | None = None
    """Since when its container has been running."""
    worker: int | None = None
    """Index of its node within an engine on several nodes, 0 for the leader; None for an engine on one node."""
    restarts: int = 0
    """How often its container was restarted. If it was, `terminated` is how the previous container ended."""
    gated: bool = False
    """Whether it waits for its admission by Kueue, and so is not scheduled."""
    workload: str = ""
    """Name of the Workload by which Kueue admits it; empty if Kueue has not set it, or does so by its Job."""

    @property
    def alive(self) -> bool:
        """Whether it may still hold its resources, such as GPUs."""
        return self.phase not in FINAL_POD_PHASES

    def overdue_s(self, now: datetime) -> float:
        """Time since it should have terminated, in seconds; negative before, and while it is not being deleted."""
        return (now - self.deleted_at).total_seconds() if self.deleted_at else -math.inf


@dataclass(frozen=True)
class Node:
    """The properties of a node that matter for a measurement."""

    name: str
    labels: Mapping[str, str]
    kernel: str = ""
    kubelet: str = ""
    cores: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class UnreadableNode:
    """A node that could not be read, and why."""

    name: str
    reason: str


RawObject = Mapping[str, Any]


_EXACT = ("selector", "matchLabels")


def fulfils(found: object, wanted: object) -> bool:
    """Whether a spec is as wanted. The API server adds default values, but no item of a list and no label to select."""
    if isinstance(wanted, Mapping):
        own: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        return all(
            own.get(key) == value if key in _EXACT else fulfils(own.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        items = found if isinstance(found, list) else []
        return len(items) == len(wanted) and all(map(fulfils, items, wanted))
    return found == wanted
