"""Jobs and the other children, with what is written on them: it outlives pods, status and the operator."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from specbench_operator.state.child import Place, Ref


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
