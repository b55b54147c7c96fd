"""The children of this very run, told apart from those of an earlier run of the same name.

A run that is deleted and created again has the same names for its children and another UID. What the garbage
collector has not removed yet is never adopted, changed or deleted by us; it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE, ROLE_GATE, ROLE_REPORT
from specbench_api.spec.conditions import EngineReason
from specbench_operator.reconcile.launches.judgement import SUSPENDED
from specbench_operator.render.engine_group import KIND
from specbench_operator.settings import Settings
from specbench_operator.state.child import Ref
from specbench_operator.state.jobs import Before, Job, Thing
from specbench_operator.state.observed import Observed
from specbench_operator.state.pods import Pod


@dataclass(frozen=True)
class Children:
    """What belongs to the run, and what bears its name but not its UID."""

    jobs: tuple[Job, ...]
    pods: tuple[Pod, ...]
    things: tuple[Thing, ...]
    strangers: tuple[Ref, ...]
    """Jobs, Services, ConfigMaps and living engine pods of an earlier run of this name."""
    orphans: tuple[Ref, ...] = ()
    """Those of them that nobody owns, so that Kubernetes will never remove them."""

    @property
    def engines(self) -> tuple[Job, ...]:
        """Engine Jobs of all groups and attempts."""
        return tuple(job for job in self.jobs if job.place.role == ROLE_ENGINE)

    @property
    def clients(self) -> tuple[Job, ...]:
        """Client Jobs of all groups and attempts."""
        return tuple(job for job in self.jobs if job.place.role == ROLE_CLIENT)

    @property
    def services(self) -> tuple[Thing, ...]:
        """Services of all launches, and LeaderWorkerSets."""
        return tuple(thing for thing in self.things if thing.place.role == ROLE_ENGINE)

    @property
    def report(self) -> Job | None:
        """The report Job."""
        return next((job for job in self.jobs if job.place.role == ROLE_REPORT), None)

    @property
    def gates(self) -> tuple[Job, ...]:
        """Jobs that evaluate a gate: the one that is asked now, and those of gates that were changed."""
        return tuple(job for job in self.jobs if job.place.role == ROLE_GATE)

    def pods_of(self, job: Job | None) -> tuple[Pod, ...]:
        """Pods that a Job controls; not those of an earlier one of its name, nor that of its launch before."""
        if job is None:
            return ()
        past = job.relaunch.past_pod if job.relaunch else ""
        return tuple(pod for pod in self.pods if pod.job_uid == job.ref.uid and pod.ref.uid != past)

    def attempts(self, group: int) -> list[int]:
        """Launches of a group that left an engine Job or a client Job, in order."""
        jobs = (*self.engines, *self.clients)
        return sorted({job.launch or 0 for job in jobs if job.place.group == group})

    def before(self, group: int, launch: int) -> Before:
        """How many launches of a group before this one were no losses, as far as its engine Jobs still tell.

        A Job was told of all launches before it, so of the older ones none need be there.
        """
        jobs = sorted((job for job in self.engines if job.place.group == group), key=lambda job: job.place.attempt or 0)
        latest = max((at for at, job in enumerate(jobs) if job.before != Before()), default=0)
        told, counted = (jobs[latest].before if jobs else Before()), jobs[latest:]
        over = [job.verdict.reason for job in counted if (job.launch or 0) < launch and job.verdict]
        started_over = sum(job.relaunch.preemptions for job in counted if job.relaunch)
        return Before(
            told.given_back + over.count(SUSPENDED),
            told.preemptions + started_over + over.count(EngineReason.PREEMPTED),
        )

    def engine(self, group: int, attempt: int) -> Job | None:
        """The engine Job of one launch."""
        return _of(self.engines, group, attempt)

    def client(self, group: int, attempt: int) -> Job | None:
        """The client Job of one launch."""
        return _of(self.clients, group, attempt)


def children_of(observed: Observed, uid: str, settings: Settings, now: datetime) -> Children:
    """Sort what was observed by whose it is."""
    jobs = tuple(job for job in observed.jobs if job.owner == uid)
    things = tuple(thing for thing in observed.things if _is_ours(thing, uid))
    pods = tuple(pod for pod in observed.pods if pod.run_uid == uid)
    owned: tuple[Job | Thing, ...] = (*observed.jobs, *observed.things)
    strange = (
        *(job.ref for job in observed.jobs if job.owner != uid),
        *(thing.ref for thing in observed.things if not _is_ours(thing, uid)),
        *(pod.ref for pod in engine_pods(observed.pods, settings, now) if pod.run_uid != uid),
    )
    orphans = tuple(child.ref for child in owned if child.owner is None)
    return Children(jobs, pods, things, strange, orphans)


def _is_ours(thing: Thing, uid: str) -> bool:
    """By its owner; a LeaderWorkerSet by its label: its owner is a Job of the run, which may be gone before it."""
    return uid in (thing.owner, thing.run_uid if thing.ref.kind == KIND else None)


def engine_pods(pods: Iterable[Pod], settings: Settings, now: datetime) -> list[Pod]:
    """Engine pods that may still hold GPUs.

    A pod that outlived its deletion by far sits on a node that does not answer; waiting for it would mean waiting
    for the node, and what it holds there is of no use to anybody.
    """
    patience = timedelta(seconds=settings.gone_after_s)
    return [
        pod
        for pod in pods
        if pod.place.role == ROLE_ENGINE and pod.alive and (pod.deleted_at is None or now < pod.deleted_at + patience)
    ]


def holding(children: Children, settings: Settings, now: datetime) -> bool:
    """Whether any engine of the run holds GPUs or may still come to hold them.

    A Job that was stopped may do so until it has ended: its controller makes a pod before it has seen the deadline.
    """
    startable = any(job.deleting or not job.ended for job in children.engines)
    spread = any(thing.ref.kind == KIND for thing in children.things)  # its pods may be yet to come
    return startable or spread or bool(engine_pods(children.pods, settings, now))


def _of(jobs: Iterable[Job], group: int, attempt: int) -> Job | None:
    return next((job for job in jobs if (job.place.group, job.launch) == (group, attempt)), None)
