"""Engines with a queue: waiting, preempted and resumed, without holding GPUs or measuring twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_operator.cluster.kubernetes_api import WORKLOADS, Forbidden, NotFound, path_of
from specbench_operator.cluster.run_observer import NO_KUEUE, NO_WORKLOAD, queue_wait
from specbench_operator.errors import OperatorError, Retry
from specbench_operator.run.decide import decide_run
from specbench_operator.state.objects import (
    ChildKey,
    FailureScope,
    Job,
    JobFailure,
    LaunchVerdict,
    ObjectRef,
    QueueWait,
)
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.fake_api import FakeApi, Raw
from specbench_testing.operator_builders import NOON, operator_run

DAY_S = 86_400.0
FULL = QueueWait("insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed")
NO_QUEUE = QueueWait("LocalQueue bench doesn't exist", inadmissible=True)


@pytest.fixture
def world() -> ClusterWorld:
    return queued_world()


def queued_world(**placement: Any) -> ClusterWorld:
    """A run whose first engine waits in its queue."""
    return launched(operator_run({"spec.placement": {"gpus": 2, "queueName": "bench", **placement}}))


def make_pod_ready(world: ClusterWorld) -> None:
    """Admit the engine's Job and make its pod ready."""
    world.admit(world.engine())
    world.start_pod(world.engine(), ready=True)


def make_ready(world: ClusterWorld) -> None:
    """The same, and settle."""
    make_pod_ready(world)
    world.settle()


def serve(world: ClusterWorld, launch: int = 0) -> None:
    """Admit the engine's Job, make its pod ready and start the client of this launch."""
    make_ready(world)
    world.start_pod(world.client(0, launch), ready=True)
    world.settle()


@pytest.fixture
def serving(world: ClusterWorld) -> ClusterWorld:
    serve(world)
    return world


def load(world: ClusterWorld) -> None:
    """Admit the engine's Job and start its pod, which is not ready."""
    world.admit(world.engine())
    world.start_pod(world.engine())
    world.settle()


def preempt(world: ClusterWorld) -> RunDecision:
    """The queue reclaims its quota; returns the decision that follows."""
    world.hold_back(world.engine(), FULL)
    decision = world.reconcile()
    world.settle()
    return decision


def test_an_engine_is_created_suspended_and_waits_for_its_queue(world: ClusterWorld) -> None:
    assert world.launched == [world.engine()]
    job = world.jobs[world.engine()]
    assert (job.suspended, job.queue) == (True, "bench")
    assert (world.status.phase, world.group(0).state) == (Phase.QUEUED, GroupState.QUEUED)
    assert world.status_and_reason(ConditionType.QUEUED) == ("True", "WaitingForQuota")
    assert world.status_and_reason(ConditionType.RECONCILING) == ("True", "WaitingForQuota")
    assert (
        world.status_and_reason(ConditionType.READY)[0] == world.status_and_reason(ConditionType.STALLED)[0] == "False"
    )
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("Unknown", "WaitingForQuota")
    assert "EngineQueued" in {event.reason for event in world.events}


def test_waiting_holds_no_gpus_and_has_no_deadline(world: ClusterWorld) -> None:
    before = world.run["status"]
    decision = world.settle(after_s=30 * DAY_S)
    assert world.run["status"] == before, "waiting does not change the status"
    assert (world.status.gpu_seconds_held, decision.requeue_after_s) == (0, None)


def test_an_inadmissible_queue_is_reported_but_is_no_failure(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], waits=NO_QUEUE)
    world.settle()
    assert world.status_and_reason(ConditionType.QUEUED) == ("True", "Inadmissible")
    assert world.status_and_reason(ConditionType.READY) == ("False", "Inadmissible")
    assert world.status_and_reason(ConditionType.STALLED)[0] == "False", "the queue may be created later"
    assert [event.type for event in world.events if event.reason == "Inadmissible"] == ["Warning"]
    serve(world)
    assert world.status_and_reason(ConditionType.QUEUED) == ("False", "Admitted")
    assert world.status_and_reason(ConditionType.READY) == ("False", "Running")


def test_deadlines_start_at_admission(world: ClusterWorld) -> None:
    world.pass_time(DAY_S)
    resumed = replace(world.jobs[world.engine()], suspended=False)
    world.jobs[world.engine()] = resumed
    assert world.reconcile().requeue_after_s == 1800, "resumed by its queue, but not yet by the Job controller"
    world.admit(world.engine())
    world.start_pod(world.engine())
    assert world.reconcile(after_s=1000).requeue_after_s == 800
    world.settle(after_s=800)
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "NeverReady")


def test_client_start_deadline_counts_from_engine_readiness(world: ClusterWorld) -> None:
    world.pass_time(DAY_S)
    make_ready(world)
    world.settle(after_s=world.settings.client_start_deadline_s - 1)
    assert world.group(0).state is GroupState.MEASURING


def test_a_preempted_engine_keeps_its_job_and_is_measured_as_another_launch(serving: ClusterWorld) -> None:
    job = serving.jobs[serving.engine()]
    decision = preempt(serving)
    assert {ref.name for ref in decision.delete} == {serving.client(), serving.engine()}, (
        "the client and the Service are deleted"
    )
    assert not [ref for ref in decision.delete if ref.name == serving.engine() and ref.kind == "Job"]
    assert serving.jobs[serving.engine()].ref == job.ref, "the Job keeps its position in the queue"
    assert (serving.status.phase, serving.status_and_reason(ConditionType.QUEUED)) == (
        Phase.QUEUED,
        ("True", "Preempted"),
    )
    message = serving.condition(ConditionType.QUEUED).message
    assert "preempted 1 times" in message
    assert FULL.message in message
    row = serving.group(0)
    assert (row.state, row.attempt, row.preemptions, row.measured) == (GroupState.QUEUED, 1, 1, 0)
    assert "Preempted" in {event.reason for event in serving.events}
    assert [job for job in serving.jobs.values() if job.key.role == ROLE_CLIENT] == []


def test_the_service_of_a_restarted_launch_selects_the_pods_of_its_job(serving: ClusterWorld) -> None:
    serving.hold_back(serving.engine())
    serving.reconcile()
    serving.admit(serving.engine())
    serving.reap()
    serving.start_pod(serving.engine(), ready=True)
    made = {row["kind"]: row for row in serving.reconcile().apply}
    assert made["Service"]["metadata"]["name"] == serving.engine(0, 1)
    assert made["Service"]["spec"]["selector"]["specbench.io/attempt"] == "0"
    assert f"//{serving.engine(0, 1)}." in str(made["Job"]["spec"]["template"]["spec"]["containers"][0]["args"])


def pods_remain(world: ClusterWorld) -> None:
    """The Job is suspended, but its controller has not deleted the pod yet."""
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], suspended=True, started_at=None)


def pods_gone(world: ClusterWorld) -> None:
    world.hold_back(world.engine())
    world.reap()


def client_fails_first(world: ClusterWorld) -> None:
    world.fail_client(Exit.ENGINE_FAILED, "EngineLost")
    world.hold_back(world.engine())


def resumed_while_down(world: ClusterWorld) -> None:
    pods_gone(world)
    world.pass_time(60)
    world.admit(world.engine())


def pod_replaced_while_down(world: ClusterWorld) -> None:
    resumed_while_down(world)
    world.start_pod(world.engine())


def ready_again_while_down(world: ClusterWorld) -> None:
    resumed_while_down(world)
    world.start_pod(world.engine(), ready=True)


def pod_replaced_without_suspension(world: ClusterWorld) -> None:
    world.lose_pods(world.engine())
    world.start_pod(world.engine(), ready=True)


PREEMPTIONS: list[Callable[[ClusterWorld], None]] = [
    pods_remain,
    pods_gone,
    client_fails_first,
    resumed_while_down,
    pod_replaced_while_down,
    ready_again_while_down,
    pod_replaced_without_suspension,
]


@pytest.mark.parametrize("preemption", PREEMPTIONS)
@pytest.mark.parametrize("status", ["kept", "lost"])
def test_every_kind_of_preemption_counts_once_and_ends_the_client(
    serving: ClusterWorld, preemption: Callable[[ClusterWorld], None], status: str
) -> None:
    preemption(serving)
    if status == "lost":
        serving.run.pop("status")
    serving.settle()
    serving.settle()
    assert (serving.group(0).preemptions, serving.group(0).attempt) == (1, 1)
    assert serving.client() not in serving.jobs or serving.jobs[serving.client()].ended
    assert serving.jobs[serving.engine()].verdict is None
    if serving.jobs[serving.engine()].suspended:
        serving.hold_back(serving.engine())
        serving.reap()
        serving.admit(serving.engine())
    if not [pod for pod in serving.pods.values() if pod.key.role == ROLE_ENGINE and pod.deleted_at is None]:
        serving.start_pod(serving.engine())
    serving.change_pod(serving.engine(), ready=True)
    serving.settle()
    assert serving.jobs[serving.client(0, 1)].engine_pod == serving.group(0).engine_pod
    assert serving.launched == [serving.engine()]


def reconcile_with_stale_jobs(world: ClusterWorld, change: Callable[[], None]) -> None:
    """Reconcile with Jobs that were listed before the change and pods that were listed after it."""
    jobs = world.observed().jobs
    change()
    world.follow(decide_run(replace(world.observed(), jobs=jobs), world.settings, world.now))


def test_a_job_admitted_between_two_lists_is_not_preempted(world: ClusterWorld) -> None:
    reconcile_with_stale_jobs(world, lambda: make_pod_ready(world))
    world.settle()
    assert (world.group(0).preemptions, world.group(0).state) == (0, GroupState.MEASURING)
    assert world.client() in world.jobs


@pytest.mark.parametrize("begin", [serve, load])
def test_a_pod_created_between_two_lists_is_not_mistaken_for_the_old_one(
    world: ClusterWorld, begin: Callable[[ClusterWorld], None]
) -> None:
    begin(world)
    world.hold_back(world.engine())
    world.reap()

    reconcile_with_stale_jobs(world, lambda: make_pod_ready(world))
    world.settle()
    assert (world.group(0).preemptions, world.group(0).state) == (1, GroupState.MEASURING)
    assert world.jobs[world.client(0, 1)].engine_pod == world.group(0).engine_pod


@pytest.mark.parametrize("begin", [serve, load])
def test_a_pod_deleted_between_two_lists_is_not_lost_before_the_next_reconcile(
    world: ClusterWorld, begin: Callable[[ClusterWorld], None]
) -> None:
    begin(world)
    reconcile_with_stale_jobs(world, lambda: world.hold_back(world.engine()))
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "EngineLost")
    world.settle()
    assert (world.group(0).preemptions, world.group(0).attempt) == (1, 1)
    assert world.jobs[world.engine()].verdict is None


def test_a_manually_deleted_pod_is_a_lost_launch(serving: ClusterWorld) -> None:
    serving.change_pod(serving.engine(), deleted_at=serving.now + timedelta(seconds=5))
    assert serving.reconcile().requeue_after_s == 5
    assert serving.reconcile(after_s=5).stop, "the pod is gone at this time"
    serving.settle()
    assert (serving.group(0).attempt, serving.group(0).preemptions) == (1, 0)
    assert serving.launched[-1] == serving.engine(0, 1)


def test_a_client_that_finished_before_the_preemption_is_not_repeated(serving: ClusterWorld) -> None:
    serving.finish_client()
    serving.hold_back(serving.engine())
    serving.settle()
    assert serving.states() == [GroupState.DONE, GroupState.QUEUED]
    assert serving.launched == [serving.engine(0), serving.engine(1)]


def test_preemptions_and_losses_have_separate_budgets() -> None:
    world = queued_world(preemptionBudget=4)
    for launch in range(4):
        serve(world, launch)
        preempt(world)
    assert (world.group(0).attempt, world.group(0).preemptions) == (4, 4)
    world.run.pop("status")
    world.settle()
    assert world.group(0).preemptions == 4, "the Job records them"
    make_ready(world)
    world.lose_job(world.engine())
    world.settle()
    assert (world.group(0).state, world.group(0).attempt) == (GroupState.QUEUED, 5), "the first loss"
    assert world.launched == ["demo-g0-0", "demo-g0-5"]


@pytest.mark.parametrize("budget", [0, 2])
def test_an_exhausted_preemption_budget_fails_the_arm_and_removes_its_job(budget: int) -> None:
    world = queued_world(preemptionBudget=budget)
    for launch in range(budget + 1):
        serve(world, launch)
        preempt(world)
    row = world.group(0)
    assert (row.state, row.reason, row.attempt) == (GroupState.FAILED, "Preempted", budget)
    assert f"preempted {budget + 1} times, more than spec.placement.preemptionBudget ({budget})" in row.message
    assert world.engine(0) not in world.jobs, "a deadline would not end a Job that is suspended"
    assert world.launched == [world.engine(0), world.engine(1)], "the other arm continues"


def preempted_by_the_scheduler(world: ClusterWorld, engine: str) -> None:
    world.crash(engine, 137)
    world.change_pod(engine, disrupted="preempting to accommodate a higher priority pod")


def on_a_tainted_node(world: ClusterWorld, engine: str) -> None:
    world.change_pod(engine, deleted_at=world.now, disrupted="Taint manager: deleting due to NoExecute taint")


def on_a_node_that_shuts_down(world: ClusterWorld, engine: str) -> None:
    world.change_pod(engine, phase="Failed", reason="Terminated", disrupted="in response to imminent node shutdown")


def gone_with_its_node(world: ClusterWorld, engine: str) -> None:
    world.lose_pods(engine)
    world.fail_job(engine, "PodFailurePolicy")


DISRUPTIONS: dict[str, Callable[[ClusterWorld, str], None]] = {
    "preempted by the scheduler": preempted_by_the_scheduler,
    "node tainted": on_a_tainted_node,
    "node shutdown": on_a_node_that_shuts_down,
    "node gone": gone_with_its_node,
}


@pytest.mark.parametrize("disruption", DISRUPTIONS)
def test_a_disrupted_engine_is_preempted_and_launched_as_another_job(disruption: str) -> None:
    world = launched()
    for attempt in range(4):
        world.start_pod(world.engine(0, attempt), ready=True)
        world.settle()
        DISRUPTIONS[disruption](world, world.engine(0, attempt))
        world.settle()
        assert (world.group(0).attempt, world.group(0).preemptions) == (attempt + 1, attempt + 1)
    assert world.status_and_reason(ConditionType.QUEUED) == ("False", "NotQueued"), "the run has no queue"
    verdict = world.jobs[world.engine(0, 0)].verdict
    assert verdict is not None
    assert (verdict.reason, verdict.scope) == ("Preempted", FailureScope.LAUNCH)
    world.run.pop("status")
    world.settle()
    assert world.group(0).preemptions == 4, "the Jobs record them"


@pytest.mark.parametrize("disruption", DISRUPTIONS)
def test_disruptions_use_the_preemption_budget_and_are_counted_once(disruption: str) -> None:
    world = launched(operator_run({"spec.placement": {"gpus": 2, "preemptionBudget": 0}}))
    world.start_pod(world.engine(), ready=True)
    world.settle()
    DISRUPTIONS[disruption](world, world.engine())
    world.settle()
    row = world.group(0)
    assert (row.state, row.reason) == (GroupState.FAILED, "Preempted")
    world.settle()
    assert world.group(0) == row
    assert world.jobs[world.engine()].verdict is not None
    assert world.launched == [world.engine(0), world.engine(1)]


@pytest.mark.parametrize("measuring", [True, False])
def test_a_suspended_run_leaves_its_queue_and_rejoins_it_when_resumed(world: ClusterWorld, measuring: bool) -> None:
    if measuring:
        serve(world)
        world.hold_back(world.engine())
    world.suspend()
    assert world.jobs == {}
    assert (world.status.phase, world.status_and_reason(ConditionType.QUEUED)) == (
        Phase.SUSPENDED,
        ("False", "NotQueued"),
    )
    world.suspend(suspend=False)
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions, row.preemptions) == (GroupState.QUEUED, 1, 1, 0)


def test_a_stopped_and_suspended_job_is_deleted() -> None:
    """Its deadline does not run while suspended, so its queue could start it again."""
    world = queued_world()
    job = world.jobs[world.engine()]
    verdict = LaunchVerdict(FailureScope.GROUP, "Crashed", "exit code 1", world.now)
    world.jobs[world.engine()] = replace(job, verdict=verdict)
    world.settle()
    assert world.engine() not in world.jobs


def test_a_job_that_failed_while_suspended_has_ended(world: ClusterWorld) -> None:
    world.admit(world.engine())
    world.start_pod(world.engine())
    world.crash(world.engine(), message="no such model")
    world.jobs[world.engine()] = replace(
        world.jobs[world.engine()], suspended=True, failure=JobFailure("BackoffLimitExceeded", "", world.now)
    )
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_a_suspended_client_is_reported_and_fails_the_group_after_its_deadline(world: ClusterWorld) -> None:
    make_ready(world)
    world.jobs[world.client()] = replace(world.jobs[world.client()], suspended=True, started_at=None)
    world.settle()
    assert "suspended, and not by specbench" in world.group(0).message
    world.settle(after_s=world.settings.client_start_deadline_s)
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ClientNotStarted")
    assert "suspended, and not by specbench" in world.group(0).message


# Why Kueue does not admit a Job, from its Workload, or from events if Workloads may not be read.

JOB = Job(
    ObjectRef("Job", "demo-g0-0", "job-uid"), "run-uid", ChildKey("engine", 0, 0), NOON, suspended=True, queue="bench"
)
PENDING = "couldn't assign flavors to pod set main: insufficient unused quota"
FORBIDDEN = Forbidden("Forbidden", "workloads is forbidden")


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


WORKLOAD = "job-demo-g0-0-1a2b3"


def workload(
    *conditions: dict[str, str],
    at: str = "2026-01-02T12:00:00Z",
    name: str = WORKLOAD,
    uid: str = "job-uid",
    **spec: Any,
) -> Raw:
    labels = {"kueue.x-k8s.io/job-uid": uid}
    meta = {"name": name, "creationTimestamp": at, "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}


def kueue_api(lists: Mapping[str, list[Raw] | OperatorError]) -> FakeApi:
    """An API server with these objects or errors by kind. It does not know other kinds of Workloads."""
    api = FakeApi()
    for kind, found in {**dict.fromkeys(WORKLOADS, NotFound("Missing", "404")), **lists}.items():
        if isinstance(found, OperatorError):
            api.refuse["list", kind] = found
        else:
            api.objects |= {(kind, raw["metadata"]["name"]): raw for raw in found}
    return api


def wait_of(lists: Mapping[str, list[Raw] | OperatorError], job: Job = JOB) -> QueueWait | None:
    api: Any = kueue_api(lists)
    return queue_wait(api, "bench", job)


WORKLOAD_WAITS: dict[str, tuple[dict[str, Any], QueueWait]] = {
    "no quota": (
        workload(condition("QuotaReserved", "False", "Pending", PENDING)),
        QueueWait(PENDING),
    ),
    "no queue": (
        workload(condition("QuotaReserved", "False", "Inadmissible", "LocalQueue bench doesn't exist")),
        QueueWait("LocalQueue bench doesn't exist", inadmissible=True),
    ),
    "checks": (
        workload(
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus"),
            condition("Admitted", "False", "NoChecks", "The workload waits for its checks"),
        ),
        QueueWait("The workload waits for its checks"),
    ),
    "checks without a message": (
        workload(condition("QuotaReserved", "True", "QuotaReserved", "")),
        QueueWait("its quota is reserved; waiting for its admission checks"),
    ),
    "given up": (
        workload(condition("Evicted", "True", "Deactivated", "exceeded the requeue limit"), active=False),
        QueueWait(
            "Kueue has deactivated the Workload job-demo-g0-0-1a2b3: exceeded the requeue limit",
            inadmissible=True,
        ),
    ),
    "switched off": (
        workload(active=False),
        QueueWait(
            "Kueue has deactivated the Workload job-demo-g0-0-1a2b3: its spec.active is false",
            inadmissible=True,
        ),
    ),
    "nothing yet": (workload(active=True), QueueWait("waiting for Kueue to evaluate it")),
}


@pytest.mark.parametrize("case", WORKLOAD_WAITS)
def test_the_workload_explains_why_its_job_waits(case: str) -> None:
    given, expected = WORKLOAD_WAITS[case]
    assert wait_of({WORKLOADS[0]: [given]}) == expected


def test_the_youngest_workload_with_the_jobs_uid_counts() -> None:
    older = workload(condition("QuotaReserved", "False", "Pending", "old words"), at="2026-01-01T00:00:00Z", name="a")
    younger = workload(condition("QuotaReserved", "False", "Pending", PENDING))
    another = workload(
        condition("QuotaReserved", "False", "Pending", "of another"), at="2026-01-03T00:00:00Z", name="b", uid="x"
    )
    assert wait_of({WORKLOADS[0]: [younger, older, another]}) == QueueWait(PENDING)


def test_falls_back_to_an_older_kueue_api_version() -> None:
    assert wait_of({WORKLOADS[1]: [workload(condition("QuotaReserved", "False", "Pending", PENDING))]}) == QueueWait(
        PENDING
    )
    assert [path_of(kind, "a") for kind in WORKLOADS] == [
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads",
        "/apis/kueue.x-k8s.io/v1beta1/namespaces/a/workloads",
    ]


def test_a_missing_kueue_or_unmanaged_namespace_is_reported() -> None:
    assert wait_of({}) == QueueWait(NO_KUEUE, inadmissible=True)
    assert wait_of({WORKLOADS[0]: []}) == QueueWait(NO_WORKLOAD)


def test_without_permission_to_read_workloads_the_reason_is_unknown() -> None:
    assert wait_of({WORKLOADS[0]: FORBIDDEN}) is None


def test_a_job_without_a_queue_is_not_looked_up() -> None:
    api: Any = kueue_api({WORKLOADS[0]: Retry("ApiBusy", "busy")})
    assert queue_wait(api, "bench", Job(JOB.ref, None, JOB.key, NOON, suspended=True)) is None


def test_an_api_server_error_is_raised() -> None:
    with pytest.raises(Retry, match="busy"):
        wait_of({WORKLOADS[0]: Retry("ApiBusy", "busy")})
