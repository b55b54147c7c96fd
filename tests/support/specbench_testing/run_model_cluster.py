"""The world of the run model apart from the operator: Jobs, pods, clients, caches, users, and what may go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE, ROLE_REPORT
from specbench_testing.model_checker import Step
from specbench_testing.operator_builders import UID
from specbench_testing.run_model_values import (
    COMPLETE,
    ModelJob,
    ModelPod,
    ModelRun,
    RunWorld,
    Stored,
    restarted,
    status_of,
)

NEXT_UID = "7d0f6bd8-2222-4c4b-9d53-000000000002"
"""UID of the run that is created with the same name after a deletion."""
KINDS = ("run", "jobs", "pods", "objects")
RunStep = Step[RunWorld]


class ModelCluster:
    """The cluster. `points`: by group, its points as numbers. `external`: the engines are already running."""

    def __init__(self, points: Sequence[Sequence[int]], *, queued: bool, external: bool) -> None:
        self._points, self._queued, self._external = points, queued, external

    def nothing_stored(self) -> Stored:
        """Empty results."""
        return Stored((False,) * sum(map(len, self._points)), (-1,) * len(self._points))

    def measures(self, world: RunWorld, client: ModelPod) -> bool:
        """Whether this client runs and has a point left to measure."""
        points = self._points[client.group or 0]
        runs = client.stage == "Running" and client.owner == world.run.uid
        return runs and not all(world.stored.measured[point] for point in points)

    # What is due: no faults.

    def progress(self, world: RunWorld) -> Iterator[RunStep]:
        """What controllers, kubelets, clients and the garbage collector do next."""
        for job in world.jobs:
            yield from self._job_steps(world, job)
        for pod in world.pods:
            yield from self._pod_steps(world, pod)
        for child in world.objects:
            if child.owner != world.run.uid:
                objects = tuple(other for other in world.objects if other != child)
                yield Step(f"garbage collector deletes {child.kind} {child.uid}", world._replace(objects=objects))

    def _job_steps(self, world: RunWorld, job: ModelJob) -> Iterator[RunStep]:
        pods = [pod for pod in world.pods if pod.job_uid == job.uid]
        if job.owner != world.run.uid:
            yield Step(f"garbage collector deletes Job {job.uid}", world._replace(jobs=without(world.jobs, job)))
        if job.end:
            return
        if job.suspended:
            if not job.verdict:
                admitted = job._replace(suspended=False, started=0)
                yield Step(f"queue admits {job.uid}", with_job(world, job, admitted))
            return
        if job.verdict:
            stopped = with_job(world, job, job._replace(end="DeadlineExceeded"))
            yield Step(f"Job {job.uid} reaches its deadline", with_deleted_pods(stopped, job))
        if job.role == ROLE_REPORT:
            if world.store_up and job.owner == world.run.uid:
                stored = world.stored._replace(summary=sum(world.stored.measured))
                done = with_job(world._replace(stored=stored), job, job._replace(end=COMPLETE))
                yield Step(f"report {job.uid} is stored", done)
            return
        retried = job.role == ROLE_CLIENT and all(pod.stage == "Ended" for pod in pods)
        if not job.has_pod or retried:
            yield Step(f"Job {job.uid} creates its pod", self._with_new_pod(world, job))
        if job.role == ROLE_ENGINE and (ended := [pod for pod in pods if pod.stage == "Ended" and not pod.dropped]):
            reason = "PodFailurePolicy" if ended[-1].disrupted else "BackoffLimitExceeded"
            yield Step(f"Job {job.uid} fails", with_job(world, job, job._replace(end=reason)))

    def _with_new_pod(self, world: RunWorld, job: ModelJob) -> RunWorld:
        name = unused_uid(world, f"{job.uid}-p")
        stage = "Pending" if job.role == ROLE_ENGINE else "Running"
        pod = ModelPod(
            name, job.name, job.uid, job.role, job.group, job.attempt, job.owner, stage, target=job.engine_pod
        )
        pods = tuple(sorted((*world.pods, pod), key=lambda pod: pod.name))
        return with_job(world._replace(pods=pods), job, job._replace(has_pod=True))

    def _pod_steps(self, world: RunWorld, pod: ModelPod) -> Iterator[RunStep]:
        job = next((job for job in world.jobs if job.uid == pod.job_uid), None)
        if pod.deleted is not None:
            if pod.on_lost_node:
                return
            is_recorded = job is None or bool(job.end) or job.suspended or pod.dropped
            if is_recorded or (pod.role == ROLE_CLIENT and pod.stage == "Ended"):
                pods = tuple(other for other in world.pods if other != pod)
                yield Step(f"kubelet removes {pod.name}", world._replace(pods=pods))
            elif pod.stage != "Ended":
                yield Step(f"kubelet ends {pod.name}", with_pod(world, pod, pod._replace(stage="Ended", end="Killed")))
            return
        if job is None:
            yield Step(f"garbage collector deletes {pod.name}", with_pod(world, pod, pod._replace(deleted=0)))
        if pod.stage == "Ended":
            return
        if pod.role == ROLE_ENGINE and pod.stage != "Running":
            yield Step(f"{pod.name} is ready", with_pod(world, pod, pod._replace(stage="Running")))
        if pod.role == ROLE_CLIENT:
            yield from self._client_steps(world, pod, job)

    def _client_steps(self, world: RunWorld, pod: ModelPod, job: ModelJob | None) -> Iterator[RunStep]:
        if pod.owner != world.run.uid:
            return
        group = pod.group or 0
        missing = [point for point in self._points[group] if not world.stored.measured[point]]
        served = self._external or any(engine.name == pod.target and engine.stage == "Running" for engine in world.pods)
        if not missing:
            if job and not job.end and world.store_up:
                yield Step(f"client {pod.name} completes", ended_client(world, pod, job, "Done", COMPLETE))
        elif served and world.store_up:
            measured = tuple(there or point == missing[0] for point, there in enumerate(world.stored.measured))
            launches = tuple(
                max(launch, pod.attempt or 0) if index == group else launch
                for index, launch in enumerate(world.stored.launches)
            )
            stored = world.stored._replace(measured=measured, launches=launches)
            yield Step(f"client {pod.name} measures point {missing[0]}", world._replace(stored=stored))
        elif not served and job and not job.end:
            yield Step(
                f"client {pod.name} loses its engine", ended_client(world, pod, job, "EngineLost", "PodFailurePolicy")
            )

    def recovery(self, world: RunWorld) -> Iterator[RunStep]:
        """What ends the faults that last: caches catch up, S3 returns, the user resumes and repairs the run."""
        for kind in KINDS:
            if getattr(world.views, kind) is not None:
                yield Step(f"cache of {kind} catches up", world._replace(views=world.views._replace(**{kind: None})))
        if not world.store_up:
            yield Step("S3 returns", world._replace(store_up=True))
        if not world.permitted:
            yield Step("the operator has its rights again", world._replace(permitted=True))
        if world.downgraded:
            yield Step("the operator is upgraded", restarted(world._replace(downgraded=False)))
        if world.run.suspend:
            run = world.run._replace(suspend=False)
            yield Step(
                "user resumes the run", world._replace(run=run, current=False if world.writes else world.current)
            )
        failed = [job for job in world.jobs if job.role == ROLE_REPORT and job.end not in ("", COMPLETE)]
        if failed and not world.writes:
            yield Step("user deletes the failed report", world._replace(jobs=without(world.jobs, failed[0])))

    # Faults.

    def faults(self, world: RunWorld) -> Iterator[RunStep]:
        """What may go wrong in the cluster, and what users may change."""
        for pod in world.pods:
            yield from self._pod_faults(world, pod)
        for job in world.jobs:
            yield Step(f"user deletes Job {job.uid}", world._replace(jobs=without(world.jobs, job)))
            if self._queued and job.role == ROLE_ENGINE and not (job.end or job.suspended):
                held = job._replace(suspended=True, started=None, has_pod=False)
                yield Step(
                    f"queue preempts {job.uid}", with_deleted_pods(with_job(world, job, held), job, dropped=True)
                )
            if job.role == ROLE_REPORT and not job.end:
                yield Step("report fails", with_job(world, job, job._replace(end="BackoffLimitExceeded")))
        if world.objects:
            yield Step("user deletes Services and ConfigMaps", world._replace(objects=()))
        if world.store_up:
            yield Step("S3 is away", world._replace(store_up=False))
        if world.permitted:
            yield Step("the operator loses its rights", world._replace(permitted=False))
        if not world.downgraded:
            yield Step("the operator is downgraded", restarted(world._replace(downgraded=True)))
        if world.run.uid:
            yield from self._user_edits(world)

    def _pod_faults(self, world: RunWorld, pod: ModelPod) -> Iterator[RunStep]:
        if pod.stage == "Ended" or pod.deleted is not None:
            return
        yield Step(f"user deletes {pod.name}", with_pod(world, pod, pod._replace(deleted=0)))
        job = next((job for job in world.jobs if job.uid == pod.job_uid and not job.end), None)
        if pod.role == ROLE_CLIENT:
            ends = ("Killed", "BadInput", "NotStored", *(("EngineLost",) if self._external else ()))
            for end in ends if job else ():
                assert job is not None
                yield Step(
                    f"client {pod.name} fails: {end}", ended_client(world, pod, job, end, "BackoffLimitExceeded")
                )
            if self._external:
                lost = pod._replace(deleted=0, on_lost_node=True)
                yield Step(f"node of {pod.name} is lost", with_pod(world, pod, lost))
            return
        crashed = pod._replace(stage="Ended", end="Crashed")
        yield Step(f"{pod.name} crashes", with_pod(world, pod, crashed))
        preempted = crashed._replace(disrupted=True, end="Killed")
        yield Step(f"scheduler preempts {pod.name}", with_pod(world, pod, preempted))
        lost = pod._replace(deleted=0, disrupted=True, on_lost_node=True)
        yield Step(f"node of {pod.name} is lost", with_pod(world, pod, lost))
        if pod.stage == "Pending":
            yield Step(f"{pod.name} cannot pull its image", with_pod(world, pod, pod._replace(stage="ImagePull")))

    def lags(self, world: RunWorld) -> Iterator[RunStep]:
        """A cache begins to lag behind: later changes of its kind are not seen."""
        for kind in KINDS:
            if getattr(world.views, kind) is None:
                views = world.views._replace(**{kind: getattr(world, kind)})
                yield Step(f"cache of {kind} lags behind", world._replace(views=views))

    def _user_edits(self, world: RunWorld) -> Iterator[RunStep]:
        edited = world._replace(current=False if world.writes else world.current)
        if not world.run.suspend:
            yield Step("user suspends the run", edited._replace(run=world.run._replace(suspend=True)))
        if world.run.status != "{}" and not status_of(world.run.status).completion_time:
            yield Step("status is lost", edited._replace(run=world.run._replace(status="{}")))
        yield Step("user deletes the run", edited._replace(run=ModelRun(""), stored=self.nothing_stored()))
        if world.run.uid == UID:
            again = edited._replace(run=ModelRun(NEXT_UID), stored=self.nothing_stored())
            yield Step("user deletes the run and creates it again", again)

    # Properties.


def unused_uid(world: RunWorld, name: str) -> str:
    """A UID for a new object of this name that nothing refers to."""
    text = repr(world)
    return next(uid for n in range(100) if f"'{(uid := f'{name}#{n}')}'" not in text)


def sorted_jobs(jobs: Iterable[ModelJob]) -> tuple[ModelJob, ...]:
    """The Jobs in the order of a state."""
    return tuple(sorted(jobs, key=lambda job: job.name))


def without(jobs: tuple[ModelJob, ...], job: ModelJob) -> tuple[ModelJob, ...]:
    """The Jobs without this one."""
    return tuple(other for other in jobs if other.uid != job.uid)


def with_job(world: RunWorld, job: ModelJob, changed: ModelJob) -> RunWorld:
    """The world with a changed Job."""
    return world._replace(jobs=tuple(changed if other.uid == job.uid else other for other in world.jobs))


def with_pod(world: RunWorld, pod: ModelPod, changed: ModelPod) -> RunWorld:
    """The world with a changed pod."""
    return world._replace(pods=tuple(changed if other.name == pod.name else other for other in world.pods))


def with_deleted_pods(world: RunWorld, job: ModelJob, *, dropped: bool = False) -> RunWorld:
    """The world in which the living pods of a Job are being deleted."""
    return world._replace(
        pods=tuple(
            pod._replace(deleted=0 if pod.deleted is None else pod.deleted, dropped=pod.dropped or dropped)
            if pod.job_uid == job.uid and pod.stage != "Ended"
            else pod
            for pod in world.pods
        )
    )


def ended_client(world: RunWorld, pod: ModelPod, job: ModelJob, end: str, job_end: str) -> RunWorld:
    """The world in which a client's pod and its Job have ended."""
    return with_job(with_pod(world, pod, pod._replace(stage="Ended", end=end)), job, job._replace(end=job_end))
