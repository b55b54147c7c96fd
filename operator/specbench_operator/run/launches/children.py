"""The run's own children, separated from those of an earlier run of the same name.

A run that is deleted and created again has a new UID, but its children have the same names as before. Children of the
earlier run are never adopted, changed or deleted; the operator waits until the garbage collector has removed them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE, ROLE_GATE, ROLE_REPORT
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.engine import EngineKind
from specbench_operator.render.engine_job import LWS_KIND
from specbench_operator.run.launches.launch_state import SUSPENDED, with_safe_messages
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ChildObject, Job, ObjectRef, Pod, PriorLaunches
from specbench_operator.state.run import RunObservation, StoredLaunch


@dataclass(frozen=True)
class Children:
    """The run's own children, and those that have its name but another UID."""

    jobs: tuple[Job, ...]
    pods: tuple[Pod, ...]
    objects: tuple[ChildObject, ...]
    leftovers: tuple[ObjectRef, ...]
    """Jobs, Services, ConfigMaps and living pods of launches of an earlier run of this name."""
    orphans: tuple[ObjectRef, ...] = ()
    """Those leftovers that have no owner, so that the garbage collector will never remove them."""
    running_already: bool = False
    """Whether the run measures servers that are already running. A launch then consists of its client alone."""

    @property
    def launch_role(self) -> str:
        """The role of the Jobs and pods that a launch consists of, of which a run has at most one at any time."""
        return ROLE_CLIENT if self.running_already else ROLE_ENGINE

    @property
    def launch_jobs(self) -> tuple[Job, ...]:
        """The Jobs that represent launches: they have the verdict and the counts of earlier launches."""
        return self.clients if self.running_already else self.engines

    @property
    def engines(self) -> tuple[Job, ...]:
        """Engine Jobs of all groups and launches."""
        return tuple(job for job in self.jobs if job.key.role == ROLE_ENGINE)

    @property
    def clients(self) -> tuple[Job, ...]:
        """Client Jobs of all groups and launches."""
        return tuple(job for job in self.jobs if job.key.role == ROLE_CLIENT)

    @property
    def services(self) -> tuple[ChildObject, ...]:
        """Services and LeaderWorkerSets of all launches."""
        return tuple(child for child in self.objects if child.key.role == ROLE_ENGINE)

    @property
    def report(self) -> Job | None:
        """The report Job."""
        return next((job for job in self.jobs if job.key.role == ROLE_REPORT), None)

    @property
    def gates(self) -> tuple[Job, ...]:
        """Jobs that evaluate a gate: that of the current gate, and those of earlier versions of it."""
        return tuple(job for job in self.jobs if job.key.role == ROLE_GATE)

    def pods_of(self, job: Job | None) -> tuple[Pod, ...]:
        """Pods of the Job's current launch: controlled by this Job (by UID), without its previous launch's pod."""
        if job is None:
            return ()
        previous_pod = job.relaunch.previous_pod if job.relaunch else ""
        return tuple(pod for pod in self.pods if pod.job_uid == job.ref.uid and pod.ref.uid != previous_pod)

    def attempts(self, group: int) -> list[int]:
        """Numbers of the group's launches that have an engine Job or a client Job, ascending."""
        jobs = (*self.engines, *self.clients)
        return sorted({job.launch or 0 for job in jobs if job.key.group == group})

    def prior_launches(self, group: int, launch: int) -> PriorLaunches:
        """How many of the group's launches before this one do not count as lost, from the Jobs of its launches.

        Each Job records earlier totals, so older Jobs may already be deleted.
        """
        jobs = sorted((job for job in self.launch_jobs if job.key.group == group), key=lambda job: job.key.attempt or 0)
        latest = max((at for at, job in enumerate(jobs) if job.prior_launches != PriorLaunches()), default=0)
        recorded, later = (jobs[latest].prior_launches if jobs else PriorLaunches()), jobs[latest:]
        verdicts = [job.verdict.reason for job in later if (job.launch or 0) < launch and job.verdict]
        relaunches = sum(job.relaunch.preemptions for job in later if job.relaunch)
        return PriorLaunches(
            recorded.suspensions + verdicts.count(SUSPENDED),
            recorded.preemptions + relaunches + verdicts.count(EngineReason.PREEMPTED),
        )

    def launch_job(self, group: int, attempt: int) -> Job | None:
        """The Job that represents one launch."""
        return _job_of_launch(self.launch_jobs, group, attempt)

    def engine(self, group: int, attempt: int) -> Job | None:
        """The engine Job of one launch."""
        return _job_of_launch(self.engines, group, attempt)

    def client(self, group: int, attempt: int) -> Job | None:
        """The client Job of one launch."""
        return _job_of_launch(self.clients, group, attempt)


def children_of(observed: RunObservation, uid: str, settings: OperatorSettings, now: datetime) -> Children:
    """Separate the children of the run with this UID from those of earlier runs of its name."""
    running_already = (observed.resource.get("spec") or {}).get("engine", {}).get("kind") == EngineKind.EXTERNAL
    role = ROLE_CLIENT if running_already else ROLE_ENGINE
    jobs = tuple(job for job in observed.jobs if job.owner == uid)
    objects = tuple(child for child in observed.objects if _belongs_to_run(child, uid))
    pods = tuple(with_safe_messages(pod, settings) for pod in observed.pods if pod.run_uid == uid)
    owned: tuple[Job | ChildObject, ...] = (*observed.jobs, *observed.objects)
    leftovers = (
        *(job.ref for job in observed.jobs if job.owner != uid),
        *(child.ref for child in observed.objects if not _belongs_to_run(child, uid)),
        *(pod.ref for pod in live_pods(observed.pods, settings, now) if pod.key.role == role and pod.run_uid != uid),
    )
    orphans = tuple(child.ref for child in owned if child.owner is None)
    return Children(jobs, pods, objects, leftovers, orphans, running_already)


def _belongs_to_run(child: ChildObject, uid: str) -> bool:
    """By the owner; a LeaderWorkerSet also by its label, because its owner is a Job that may be deleted before it."""
    return uid in (child.owner, child.run_uid if child.ref.kind == LWS_KIND else None)


def live_pods(pods: Iterable[Pod], settings: OperatorSettings, now: datetime) -> list[Pod]:
    """Pods whose programs may still run.

    A pod that exists long after its deletion time is on a node that no longer answers. The operator does not wait for
    it, because the node may never come back and nobody else can use its GPUs meanwhile.
    """
    return [pod for pod in pods if pod.alive and not is_on_dead_node(pod, settings, now)]


def is_on_dead_node(pod: Pod, settings: OperatorSettings, now: datetime) -> bool:
    """Whether a pod exists so long after its deletion time that its node counts as dead."""
    return pod.alive and pod.overdue_s(now) >= settings.gone_after_s


def is_lost(job: Job | None, children: Children, settings: OperatorSettings, now: datetime) -> bool:
    """Whether a Job of a report or a gate has a pod on a dead node, so that it may never end."""
    return any(is_on_dead_node(pod, settings, now) for pod in children.pods_of(job))


def overdue_pods(pods: Iterable[Pod], settings: OperatorSettings, now: datetime) -> str:
    """Names a live pod that should have ended and its node, and how that ends; empty if there is none."""
    overdue = [pod for pod in live_pods(pods, settings, now) if pod.overdue_s(now) >= 0]
    if not overdue:
        return ""
    return (
        f"pod {overdue[0].ref.name} should have ended, but node {overdue[0].node} does not report it: if the node is"
        " off, delete it or taint it node.kubernetes.io/out-of-service, and Kubernetes removes the pod; otherwise the"
        f" pod is ignored after {settings.gone_after_s:.0f} s (SPECBENCH_GONE_AFTER_S of the operator)"
    )


def holds_gpus(children: Children, settings: OperatorSettings, now: datetime) -> bool:
    """Whether any engine of the run holds GPUs or may still get some.

    Of servers that are already running: whether a client may still send load to one. A stopped Job may still create a
    pod until it has ended, because its controller may not have seen the deadline yet.
    """
    startable = any(job.deleting or not job.ended or job.unlisted_pods for job in children.launch_jobs)
    has_set = any(child.ref.kind == LWS_KIND for child in children.objects)  # it may still create pods
    alive = any(pod.key.role == children.launch_role for pod in live_pods(children.pods, settings, now))
    return startable or has_set or alive


def _job_of_launch(jobs: Iterable[Job], group: int, attempt: int) -> Job | None:
    return next((job for job in jobs if (job.key.group, job.launch) == (group, attempt)), None)


def serving_nodes(pods: Iterable[Pod], known: Iterable[str]) -> tuple[str, ...]:
    """Nodes of the newest launch that is ready, else the `known` nodes. The next launch prefers these nodes.

    A launch that never became ready is ignored, because its node may be the reason.
    """
    engines = [pod for pod in pods if pod.key.role == ROLE_ENGINE and pod.node]
    ready = [pod for pod in engines if pod.ready and not pod.worker]
    if not ready:
        return tuple(known)
    youngest = max(ready, key=lambda pod: pod.created_at)
    return tuple(sorted({pod.node for pod in engines if pod.key == youngest.key and pod.alive}))


def known_nodes(
    from_status: Iterable[str], clients: Iterable[Job], stored: StoredLaunch | None, created: datetime | None
) -> tuple[str, ...]:
    """Nodes of the last launch whose pods are gone: from status, else from its client's Job, else from S3.

    A stored launch that is older than the run belongs to an earlier run, whose results this run adopts. Its node may be
    in another cluster, and a launch that requires it would wait forever.
    """
    if nodes := tuple(from_status):
        return nodes
    annotated = [client for client in clients if client.engine_nodes]
    if annotated:
        return max(annotated, key=lambda client: (client.created_at, client.ref.name)).engine_nodes
    if stored is None or (created is not None and stored.requested_at < created):
        return ()
    return (stored.node,)
