"""Properties that hold for any order of events: never two engines, never another run's children, one decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from specbench_api.outcome.termination import Exit
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase
from specbench_api.spec.status import RunStatus
from specbench_operator.run.decide import decide_run
from specbench_operator.state.objects import ChildKey, Job
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import AWAY, NO_BUCKET, ClusterWorld
from specbench_testing.health_checks import ArgoScript, kstatus
from specbench_testing.operator_builders import OLDER_UID, UID, operator_run, waiting

EVENTS = (
    "start", "ready", "wait", "crash", "oom", "evict", "delete pod", "delete engine", "delete client", "delete objects",
    "finish", "client lost", "client refused", "client bad", "client not durable", "report", "report fails",
    "report deleted", "s3 away", "s3 refuses", "s3 back", "suspend", "resume", "status lost", "seconds", "minutes",
    "hours", "reap", "older run", "older run gone", "results deleted", "admit", "preempt", "preempt unseen",
)  # fmt: skip
ARGO_SCRIPT = ArgoScript()


def live(world: ClusterWorld, role: str) -> list[Job]:
    return [job for job in world.jobs.values() if job.key.role == role and job.owner == UID and not job.ended]


def engines(world: ClusterWorld) -> list[Job]:
    return live(world, ROLE_ENGINE)


def with_pod(world: ClusterWorld, jobs: list[Job]) -> list[str]:
    """Names of the jobs that have an active pod."""
    held = {pod.job for pod in world.pods.values() if pod.alive and pod.deleted_at is None}
    return [job.ref.name for job in jobs if job.ref.name in held]


def apply_event(world: ClusterWorld, event: str) -> None:
    """Apply one event to the cluster; does nothing if it cannot occur now."""
    clients, reports = with_pod(world, live(world, "client")), with_pod(world, live(world, "report"))
    if event.startswith("client ") and clients:
        apply_client_event(world, event, world.jobs[clients[0]].key)
    elif event == "finish" and clients:
        key = world.jobs[clients[0]].key
        world.finish_client(key.group or 0, key.attempt or 0)
    elif event == "delete client" and clients:
        world.lose_job(clients[0])
    elif event == "report" and reports:
        world.finish_report()
    elif event == "report fails" and reports:
        world.crash(world.report, 1)
    elif event == "report deleted" and world.report in world.jobs and world.jobs[world.report].failure:
        world.lose_job(world.report)
    else:
        apply_engine_event(world, event)
        apply_other_event(world, event)


def apply_client_event(world: ClusterWorld, event: str, key: ChildKey) -> None:
    code, reason = {
        "client lost": (Exit.ENGINE_FAILED, "EngineLost"),
        "client refused": (Exit.ENGINE_FAILED, "FirstRequestFailed"),
        "client bad": (Exit.BAD_INPUT, "BadInput"),
        "client not durable": (Exit.RESULTS_NOT_STORED, "S3Away"),
    }[event]
    world.fail_client(code, reason, group=key.group or 0, attempt=key.attempt or 0)


def apply_engine_event(world: ClusterWorld, event: str) -> None:
    on_pods = {
        "ready": {"ready": True, "waiting": None, "phase": "Running"},
        "wait": waiting("ImagePullBackOff"),
        "evict": {"phase": "Failed", "reason": "Evicted", "ready": False},
        "delete pod": {"deleted_at": world.now + timedelta(seconds=5)},
    }
    running = with_pod(world, engines(world))
    if event == "start":
        for job in [*engines(world), *live(world, "client"), *live(world, "report")]:
            if not job.suspended and not [pod for pod in world.pods.values() if pod.job_uid == job.ref.uid]:
                world.start_pod(job.ref.name, ready=job.key.role != ROLE_ENGINE)
    elif event in on_pods and running:
        world.change_pod(running[0], **on_pods[event])
    elif event in ("crash", "oom") and running:
        world.crash(running[0], 137, reason="OOMKilled" if event == "oom" else "Error")
    elif event == "delete engine" and engines(world):
        world.lose_job(engines(world)[0].ref.name)
    else:
        apply_queue_event(world, event, running)


def apply_queue_event(world: ClusterWorld, event: str, running: list[str]) -> None:
    held_back = [job.ref.name for job in engines(world) if job.suspended]
    if event == "admit" and held_back:
        world.admit(held_back[0])
    elif event in ("preempt", "preempt unseen") and running:
        world.hold_back(running[0])
        if event == "preempt unseen":
            world.reap()
            world.admit(running[0])
            world.start_pod(running[0])


def apply_other_event(world: ClusterWorld, event: str) -> None:
    if event == "delete objects":
        world.objects.clear()
        world.plan_json = None
    elif event in ("s3 away", "s3 refuses", "s3 back"):
        world.trouble = {"s3 away": AWAY, "s3 refuses": NO_BUCKET, "s3 back": None}[event]
    elif event in ("suspend", "resume"):
        world.run["spec"]["suspend"] = event == "suspend"
    elif event == "status lost":
        world.run.pop("status", None)
    elif event in ("seconds", "minutes", "hours"):
        world.pass_time({"seconds": 3, "minutes": 90, "hours": 2000}[event])
    elif event == "reap":
        world.reap()
    elif event == "older run" and "demo-g0-9" not in world.jobs:
        world.older_run_left("demo-g0-9", ChildKey(ROLE_ENGINE, 0, 9))
    elif event == "older run gone":
        world.jobs.pop("demo-g0-9", None)
    elif event == "results deleted":
        world.measured.clear()


def check(world: ClusterWorld, decision: RunDecision) -> None:
    """Check what must hold for every decision."""
    holding = [pod for pod in world.pods.values() if pod.alive and pod.key.role == ROLE_ENGINE]
    fresh = [pod for pod in holding if pod.deleted_at is None or world.now < pod.deleted_at + timedelta(seconds=120)]
    launches = [item for item in decision.apply if is_engine_job(item)]
    assert len(launches) <= 1
    if launches:
        assert not engines(world), "another engine may still start"
        assert not fresh, "another engine holds GPUs"
        assert world.trouble is None, "the measured points are unknown"
    touched = {ref.uid for ref in decision.delete} | {stop.ref.uid for stop in decision.stop}
    foreign = {job.ref.uid for job in world.jobs.values() if job.owner == OLDER_UID}
    assert not touched & foreign
    assert all(item["metadata"]["ownerReferences"][0]["uid"] == UID for item in decision.apply)
    rows = {row.type: row for row in decision.status.conditions}
    gated = {ConditionType.GATE_PASSED} if "gate" in world.run["spec"] else set()
    assert set(rows) == {*set(ConditionType) - {ConditionType.GATE_PASSED}, *gated}
    both = {rows[ConditionType.RECONCILING].status, rows[ConditionType.STALLED].status}
    assert both != {ConditionStatus.TRUE}
    assert (decision.status.phase is Phase.SUCCEEDED) is (rows[ConditionType.READY].status is ConditionStatus.TRUE)
    assert rows[ConditionType.COMPLETE].status is rows[ConditionType.READY].status
    failed = rows[ConditionType.FAILED].status is ConditionStatus.TRUE
    assert not failed or rows[ConditionType.STALLED].status is ConditionStatus.TRUE
    assert decision.status.completion_time is None or failed is (decision.status.phase is Phase.FAILED)
    check_reported_health(world, decision.status)


def check_reported_health(world: ClusterWorld, status: RunStatus) -> None:
    """kstatus and Argo CD report the state of the run and never contradict each other."""
    item = world.run | {"status": status.to_dict()}
    kstatus_state, argo_state = kstatus(item), ARGO_SCRIPT(item).status
    assert (kstatus_state == "Current") is (status.phase is Phase.SUCCEEDED)
    assert (kstatus_state == "Failed") is (status.phase in (Phase.FAILED, Phase.INVALID))
    assert (argo_state == "Suspended") is (status.phase is Phase.SUSPENDED)
    allowed = {"InProgress": ("Progressing", "Suspended"), "Failed": ("Degraded",), "Current": ("Healthy", "Degraded")}
    assert argo_state in allowed[kstatus_state]


def is_engine_job(manifest: object) -> bool:
    assert isinstance(manifest, dict)
    return (manifest["kind"], manifest["metadata"]["labels"]["specbench.io/role"]) == ("Job", ROLE_ENGINE)


def step(world: ClusterWorld) -> None:
    observed = world.observed()
    decision = decide_run(observed, world.settings, world.now)
    assert decision == decide_run(observed, world.settings, world.now), "equal observations lead to equal decisions"
    check(world, decision)
    world.follow(decision)
    check_clients(world)


def check_clients(world: ClusterWorld) -> None:
    """An active client measures the pod for which it was created, and no other."""
    for client in live(world, "client"):
        engine = [job for job in engines(world) if (job.key.group, job.launch) == (client.key.group, client.launch)]
        pods = [pod for job in engine for pod in world.pods.values() if pod.job_uid == job.ref.uid]
        assert {pod.ref.uid for pod in pods if pod.alive and pod.deleted_at is None} <= {client.engine_pod}
        assert not [job for job in engine if job.suspended]


QUEUED = {"spec.placement": {"gpus": 2, "queueName": "bench"}}
TAKING = ("preempt", "preempt unseen", "evict", "delete pod")
"""Events after which the same Job may have another pod."""


def check_event_order(events: list[str], queued: bool) -> None:
    """Apply the events to a run; `step` checks the invariants."""
    edits = {"spec.load": {"concurrency": [1], "repeats": 2}, **(QUEUED if queued else {})}
    world = ClusterWorld(operator_run(edits))
    step(world)
    for event in events:
        apply_event(world, event)
        step(world)
    counted = sum(row.preemptions for row in world.status.groups)
    assert counted <= sum(event in TAKING for event in events), "a preemption was counted twice"


@pytest.mark.draws
@given(st.lists(st.sampled_from(EVENTS), max_size=40), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_order_of_events_launches_two_engines_or_modifies_another_run(events: list[str], queued: bool) -> None:
    check_event_order(events, queued)


@pytest.mark.long
@given(st.lists(st.sampled_from(EVENTS), max_size=40), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_many_orders_of_events_keep_the_same_invariants(events: list[str], queued: bool) -> None:
    check_event_order(events, queued)


BUSY = {
    "serve": ("reap", "admit", "start", "ready"),
    "load": ("reap", "admit", "start"),
    **{
        event: (event,)
        for event in ("start", "preempt", "preempt unseen", "reap", "finish", "client lost", "delete pod")
    },
}
"""What can happen to a queued engine at one moment, as a sequence of events."""


@pytest.mark.draws
@given(st.lists(st.tuples(st.sampled_from(sorted(BUSY)), st.booleans()), max_size=25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_preemption_and_admission_never_start_a_client_for_another_pod(events: list[tuple[str, bool]]) -> None:
    """With `torn`, the event occurs after Jobs are listed and before pods are listed."""
    world = ClusterWorld(operator_run(QUEUED))
    for event, torn in events:
        jobs = world.observed().jobs
        for single in BUSY[event]:
            apply_event(world, single)
        if torn and {job.ref for job in jobs} == {job.ref for job in world.jobs.values()}:
            world.follow(decide_run(replace(world.observed(), jobs=jobs), world.settings, world.now))
        step(world)
    counted = sum(row.preemptions for row in world.status.groups)
    assert counted <= sum(event in TAKING for event, _ in events), "a preemption was counted twice"
    for _ in range(12):  # short enough that a stuck engine does not fail as NeverReady
        for event in ("reap", "admit", "start", "ready", "finish", "report", "minutes"):
            apply_event(world, event)
            step(world)
    assert world.status.completion_time is not None, "the run waits for something that never happens"


@pytest.mark.draws
@example([*("start", "ready", "start", "finish", "reap") * 2, "start", "report fails"], False)
@given(st.lists(st.sampled_from(EVENTS), max_size=25), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_run_ends_after_any_sequence_of_events(events: list[str], queued: bool) -> None:
    world = ClusterWorld(operator_run(QUEUED if queued else {}))
    for event in events:
        step(world)
        apply_event(world, event)
    for event in ("s3 back", "resume", "older run gone"):
        apply_event(world, event)
    for _ in range(12):
        for event in ("reap", "admit", "start", "ready", "finish", "report deleted", "report", "seconds", "minutes"):
            apply_event(world, event)
            step(world)
    assert world.status.phase in (Phase.SUCCEEDED, Phase.FAILED)
    assert world.status.completion_time is not None
    assert not engines(world)


@pytest.mark.parametrize("state", list(GroupState))
def test_wrong_group_rows_in_status_launch_no_second_engine(state: GroupState) -> None:
    world = ClusterWorld()
    world.settle()
    rows = [replace_row(row, state) for row in world.run["status"]["groups"]]
    world.run["status"]["groups"] = rows
    step(world)
    assert len(world.launched) == 1


def replace_row(row: dict[str, object], state: GroupState) -> dict[str, object]:
    return {**row, "state": state, "attempt": 2}


def test_a_job_without_an_owner_is_not_adopted_as_the_report() -> None:
    world = ClusterWorld()
    world.older_run_left("demo-report", ChildKey("report"))
    world.jobs["demo-report"] = replace(world.jobs["demo-report"], owner=None)
    step(world)
    assert world.launched == []
