"""The model of one run: a small Kubernetes, S3 and the operator, which decides with the real `decide_run`.

Two arms with two points each. The operator observes, decides, and writes one request after the other; between any two
of them, everything else may happen. Each kind of object may lag behind in its cache, but after a write of its own the
operator sees that kind up to this write. Status is fenced by the run's resourceVersion, other writes by UID.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE
from specbench_api.spec.conditions import Phase
from specbench_testing.model_checker import Step
from specbench_testing.operator_builders import UID
from specbench_testing.run_model_cluster import ModelCluster, RunStep
from specbench_testing.run_model_operator import ModelOperator
from specbench_testing.run_model_values import TICK_S, ModelPod, ModelRun, RunWorld, Views, older_world, status_of

STARTUP_TICKS = 2
"""The deadline for the start of an engine."""


class RunModel:
    """The model for `model_checker.explore`.

    `queued`: the run names a queue, which admits and preempts its engines. `external`: it measures two servers that are
    already running, in four groups of one point, so that each of its launches is a client. `stale`: that a cache lags
    behind is no fault, so that all orders of what is seen and what happens are explored first. `confirms`: the operator
    acts only on what it has read from the API server after its caches gave a reason, as `RunReconciler` does.
    """

    def __init__(
        self, *, queued: bool = False, external: bool = False, stale: bool = False, confirms: bool = True
    ) -> None:
        self._stale = stale
        self._launch_role = ROLE_CLIENT if external else ROLE_ENGINE
        self._operator = ModelOperator(queued=queued, external=external, confirms=confirms)
        self._cluster = ModelCluster(self._operator.points, queued=queued, external=external)

    def initial(self) -> RunWorld:
        """The run was just created."""
        return RunWorld(ModelRun(UID), (), (), (), self._cluster.nothing_stored())

    def steps(self, world: RunWorld) -> Iterable[RunStep]:
        """All steps from this state without a fault. Time passes only when all others wait."""
        due = (*self._cluster.progress(world), *self._operator.steps(world), *self._cluster.recovery(world))
        return (*(due or self._waits(world)), *(self._cluster.lags(world) if self._stale else ()))

    def faults(self, world: RunWorld) -> Iterable[RunStep]:
        """All faults in this state, of which one is that everybody is so slow that a deadline passes."""
        later = older_world(world)
        slow = (Step("time passes although there is something to do", later),) if later != world else ()
        lags = () if self._stale else self._cluster.lags(world)
        return (*self._cluster.faults(world), *self._operator.faults(world), *lags, *slow)

    def fair_step(self, world: RunWorld) -> RunStep | None:
        """Caches catch up, S3 and the user resume, the operator acts, then the cluster; time passes when all wait."""
        for source in (self._cluster.recovery, self._operator.steps, self._cluster.progress, self._waits):
            for step in source(world):
                return step
        return None

    def _waits(self, world: RunWorld) -> tuple[RunStep, ...]:
        """Time passes, up to the next deadline."""
        if (later := older_world(world)) == world:
            return ()
        return (Step("time passes", later, self._overdue(world) or self._not_woken(world, later)),)

    def broken(self, world: RunWorld) -> str:
        """The invariant that this state breaks; empty if it breaks none."""
        holders = {job.uid for job in world.jobs if job.role == self._launch_role and not job.end}
        holders |= {pod.job_uid for pod in world.pods if self._may_hold(pod)}
        if len(holders) > 1:
            what = "engines may hold GPUs" if self._launch_role == ROLE_ENGINE else "clients may send load"
            return f"two {what} at once: {', '.join(sorted(holders))}"
        clients = [
            pod
            for pod in world.pods
            if pod.role == ROLE_CLIENT and not is_given_up(pod) and self._cluster.measures(world, pod)
        ]
        for first, second in combinations(clients, 2):
            if first.target == second.target:
                return f"two clients load one engine at once: {first.name}, {second.name}"
        return ""

    def has_ended(self, world: RunWorld) -> bool:
        """Whether the run has ended and holds no GPUs, or was deleted with everything that it owned."""
        if not world.run.uid:
            return not (world.jobs or world.objects or [pod for pod in world.pods if not pod.on_lost_node])
        return status_of(world.run.status).completion_time is not None and not self._holds(world)

    def _overdue(self, world: RunWorld) -> str:
        """Why GPUs must not be held, although everybody waits; empty if they may be."""
        status = status_of(world.run.status)
        over = status.completion_time or status.phase in (Phase.SUSPENDED, Phase.INVALID, Phase.FAILED)
        if over and self._holds(world):
            return f"GPUs are held although the run is {status.phase}"
        starting = {pod.job_uid for pod in world.pods if self._may_hold(pod) and pod.stage != "Running"}
        late = [job.uid for job in world.jobs if job.uid in starting and (job.started or 0) >= STARTUP_TICKS]
        return f"{late[0]} is not ready, and its deadline has passed" if late else ""

    def _not_woken(self, world: RunWorld, later: RunWorld) -> str:
        """Whether a later look would act, and nothing makes the operator look."""
        if world.writes or not world.run.uid or world.views != Views() or not self._operator.outcome(later).writes:
            return ""
        due = self._operator.outcome(world).requeue_after_s
        return "" if due is not None and due <= TICK_S else "the next deadline does not wake the operator"

    def _may_hold(self, pod: ModelPod) -> bool:
        """Whether a launch's pod may hold GPUs or send load."""
        return pod.role == self._launch_role and pod.stage != "Ended" and not is_given_up(pod)

    def _holds(self, world: RunWorld) -> bool:
        """Whether a launch holds GPUs or may still get some, or send load, apart from pods on lost nodes."""
        startable = any(job.role == self._launch_role and not job.end for job in world.jobs)
        return startable or any(self._may_hold(pod) and not pod.on_lost_node for pod in world.pods)


def is_given_up(pod: ModelPod) -> bool:
    """Whether the pod exists so long after its deletion time that its node counts as lost: after `gone_after_s`."""
    return pod.deleted is not None and pod.deleted >= 1
