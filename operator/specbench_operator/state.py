"""Observed (all that was read of a run) and Decision (all that is to be done): the two ends of `reconcile`.

Plain frozen values in our own words, not the API server's: whoever decides never sees a raw Pod, so every rule of
the operator can be tested by a table, and `cluster` and `reconcile` need not know each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from specbench_api.outcome.gate import GateReport
from specbench_api.outcome.summary import RunSummary
from specbench_api.spec.status import RunStatus

FINAL_POD_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Ref:
    """One child, with the UID that every deletion and patch of it is fenced by."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Place:
    """Which part of a run a child plays, as its labels say. `group` and `attempt` only for engines and clients."""

    role: str
    group: int | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class Terminated:
    """How a container ended."""

    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True)
class Waiting:
    """Why a container does not run yet."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Pod:
    """A pod of an engine, a client or a report. Its containers are reduced to the one that matters."""

    ref: Ref
    run_uid: str
    """UID of the run that it was made for, by its label."""
    place: Place
    job: str
    """Name of the Job that controls it."""
    job_uid: str
    """UID of that very Job: another of the same name may have followed it."""
    phase: str
    created_at: datetime
    reason: str = ""
    """status.reason: Evicted, NodeShutdown, UnexpectedAdmissionError, …"""
    message: str = ""
    ready: bool = False
    disrupted: str | None = None
    """Message of its DisruptionTarget condition, if that is True."""
    unschedulable: str | None = None
    """The scheduler's message, if it found no node."""
    scheduled_at: datetime | None = None
    deleted_at: datetime | None = None
    """deletionTimestamp: when it should be gone."""
    waiting: Waiting | None = None
    terminated: Terminated | None = None
    probe: Terminated | None = None
    """How the probe in the engine's image ended, where one ran."""
    node: str = ""
    """Where the scheduler put it; empty before that."""
    command: tuple[str, ...] = ()
    """Its container's program, where the image's own was not taken, and arguments."""
    image: str = ""
    """The image that was asked for."""
    image_id: str = ""
    """What really runs: the image by its digest."""
    started_at: datetime | None = None
    """Since when its container runs."""
    worker: int | None = None
    """Which node of an engine on several it is; 0 leads. None: its engine has one."""
    restarts: int = 0
    """How often its container was started again; then `terminated` tells how the last one ended."""

    @property
    def alive(self) -> bool:
        """Whether it may still hold what it was given: GPUs, memory, the node's attention."""
        return self.phase not in FINAL_POD_PHASES


@dataclass(frozen=True)
class Node:
    """A node as far as it bears on a measurement."""

    name: str
    labels: Mapping[str, str]
    kernel: str = ""
    kubelet: str = ""
    cores: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class NodeUnread:
    """A node that could not be looked at, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """A Job's Failed condition."""

    reason: str
    message: str
    at: datetime


class Scope(StrEnum):
    """What a failure ends."""

    LAUNCH = "Launch"
    """This launch alone: the engine was lost without its fault, another may do better."""
    GROUP = "Group"
    """The group: another launch would end the same way. The other arms go on."""
    RUN = "Run"
    """The run: nothing in it can be measured until somebody changes something."""


@dataclass(frozen=True)
class Verdict:
    """Why an engine's launch is over, written as an annotation on its Job: it outlives pods and the operator."""

    scope: Scope
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True)
class Waits:
    """What a queue says of a Job that it holds back. `inadmissible`: it admits this one never, until somebody acts."""

    message: str
    inadmissible: bool = False


@dataclass(frozen=True)
class Relaunch:
    """That an engine's Job goes on as another launch: an annotation on it, which outlives pods and the operator.

    A queue that takes a Job's pods away gives it others later. So the Job keeps its place in the queue, and its name;
    the launch, whose number all else is named by, is another one.
    """

    launch: int
    """The launch that the Job serves from now on."""
    preemptions: int
    """How often this Job has started over."""
    past_pod: str = ""
    """UID of the pod of the launch before; empty where none was seen."""


@dataclass(frozen=True)
class Before:
    """Launches of a group before one of them that were no losses: an annotation on that one's Job.

    Status counts them too, but status is a cache: it may be lost, or a write of it refused.
    """

    given_back: int = 0
    """Those that ended because the run was suspended."""
    preemptions: int = 0
    """Those that were taken away."""


@dataclass(frozen=True)
class Job:
    """A Job of the run (or of an earlier run of the same name: `owner` tells)."""

    ref: Ref
    owner: str | None
    """UID of its controller."""
    place: Place
    created_at: datetime
    started_at: datetime | None = None
    suspended: bool = False
    complete: bool = False
    failure: Failure | None = None
    deleting: bool = False
    verdict: Verdict | None = None
    trouble: str = ""
    """Its latest warning event, while it has no pod: quota, admission, service account."""
    queue: str = ""
    """The queue that its label names."""
    waits: Waits | None = None
    """What its queue says, while it is suspended."""
    relaunch: Relaunch | None = None
    """Of an engine's Job that has started over."""
    engine_pod: str = ""
    """Of a client: UID of the pod that it was made for."""
    engine_nodes: tuple[str, ...] = ()
    """Of a client: the nodes on which its engine got ready."""
    before: Before = Before()
    """Of an engine's Job: what it was told of the launches before it."""

    @property
    def ended(self) -> bool:
        """Whether it will start no further pod."""
        return self.complete or self.failure is not None

    @property
    def harmless(self) -> bool:
        """Whether it has ended or will within a moment. A deadline, by which one is stopped, ends no suspended Job."""
        return self.ended or (self.verdict is not None and not self.suspended)

    @property
    def launch(self) -> int | None:
        """The launch that it serves, or has served last."""
        return self.relaunch.launch if self.relaunch else self.place.attempt


@dataclass(frozen=True)
class Thing:
    """A Service, a ConfigMap, or the LeaderWorkerSet of an engine on several nodes."""

    ref: Ref
    owner: str | None
    place: Place
    deleting: bool = False
    run_uid: str = ""
    """UID of the run that it was made for, by its label."""


@dataclass(frozen=True)
class LaunchStored:
    """The last launch that the results tell of."""

    node: str
    """Node of the pod that served."""
    asked: datetime
    """When its engine was asked, by the client's clock."""


@dataclass(frozen=True)
class Stored:
    """What lies in S3 below the run's root."""

    measured: frozenset[str] = frozenset()
    """Hashes of points with a manifest."""
    summary: RunSummary | None = None
    answering: tuple[int, int] | None = None
    """Group and attempt whose client says in progress.json that its engine has answered a real completion."""
    answered_at: datetime | None = None
    """When that progress.json was stored, by S3's clock."""
    plan_json: str | None = None
    """plan.json that lies there; read for a run that carries on an earlier one's results, and for no other."""
    last_launch: LaunchStored | None = None
    """Asked for only where status does not say where the last engine ran, and where one engine is one pod."""


@dataclass(frozen=True)
class StoreTrouble:
    """S3 did not answer. `refused`: it did, and said no; that heals only by somebody's hand."""

    reason: str
    message: str
    refused: bool


@dataclass(frozen=True)
class EarlierRun:
    """Another run of the namespace that a gate may compare with."""

    name: str
    uid: str
    created: str
    """creationTimestamp: RFC 3339 in whole seconds and UTC, so its order is that of time."""
    phase: str
    """Empty where nothing was said of it yet."""
    uri: str
    """Root of its results."""
    cell: str
    """Which cell of its campaign it is; empty where it is of none."""


@dataclass(frozen=True)
class Observed:
    """All that was read of one run. Children first, S3 last: a client that is seen complete has its manifests seen."""

    resource: Mapping[str, Any]
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    things: tuple[Thing, ...] = ()
    plan_json: str | None = None
    """plan.json of the run's own ConfigMap."""
    nodes: tuple[Node | NodeUnread, ...] = ()
    """Of engines whose client is about to be told of them; of no others."""
    stored: Stored | StoreTrouble | None = None
    """None: not asked, because nothing depends on it."""
    gate: GateReport | StoreTrouble | None = None
    """gate.json of a run that has ended and whose gate is still to be told; None: there is none, or not asked."""
    earlier: tuple[EarlierRun, ...] = ()
    """Runs that such a gate may mean."""


@dataclass(frozen=True)
class StopJob:
    """End a Job for good and write on it why. It and its last pod stay as the record; its running pods go."""

    ref: Ref
    verdict: Verdict
    ended: bool
    """It ended by itself: only the reason is to be written."""


@dataclass(frozen=True)
class RelaunchJob:
    """Let an engine's Job go on as another launch."""

    ref: Ref
    relaunch: Relaunch


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event for people."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Decision:
    """What is to be done, in this order: relaunch, stop, delete, apply, status, events."""

    status: RunStatus
    stop: tuple[StopJob, ...] = ()
    delete: tuple[Ref, ...] = ()
    apply: tuple[Mapping[str, Any], ...] = ()
    events: tuple[Event, ...] = ()
    look_again_s: float | None = None
    """When to look again even if nothing is heard."""
    at_rest: bool = False
    """Nothing is left to be done until the run itself changes: the relist may pass it over."""
    relaunch: tuple[RelaunchJob, ...] = ()
    awaits: frozenset[str] = frozenset()
    """Names of other runs of the namespace at whose end it is worth looking again."""
