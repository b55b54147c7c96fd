"""A pod of an engine, a client or a report, as far as a run depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from specbench_operator.state.child import Place, Ref


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


FINAL_POD_PHASES = ("Succeeded", "Failed")


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
