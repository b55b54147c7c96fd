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
from specbench_operator.reconcile.decide import decide_run
from specbench_operator.state.objects import ChildKey, Job
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import AWAY, NO_BUCKET, ClusterWorld
from specbench_testing.health_checks import ArgoScript, kstatus
from specbench_testing.operator_builders import OLDER_UID, UID, operator_run, waiting

FATES = (
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
    """Names of those that have a living pod."""
    held = {pod.job for pod in world.pods.values() if pod.alive and pod.deleted_at is None}
    return [job.ref.name for job in jobs if job.ref.name in held]


def befall(world: ClusterWorld, fate: str) -> None:
    """One thing that may happen in a cluster; nothing where it cannot happen now."""
    clients, reports = with_pod(world, live(world, "client")), with_pod(world, live(world, "report"))
    if fate.startswith("client ") and clients:
        befall_client(world, fate, world.jobs[clients[0]].key)
    elif fate == "finish" and clients:
        place = world.jobs[clients[0]].key
        world.finish_client(place.group or 0, place.attempt or 0)
    elif fate == "delete client" and clients:
        world.lose_job(clients[0])
    elif fate == "report" and reports:
        world.finish_report()
    elif fate == "report fails" and reports:
        world.crash(world.report, 1)
    elif fate == "report deleted" and world.report in world.jobs and world.jobs[world.report].failure:
        world.lose_job(world.report)
    else:
        befall_engine(world, fate)
        befall_elsewhere(world, fate)


def befall_client(world: ClusterWorld, fate: str, place: ChildKey) -> None:
    code, reason = {
        "client lost": (Exit.ENGINE_FAILED, "EngineLost"),
        "client refused": (Exit.ENGINE_FAILED, "FirstRequestFailed"),
        "client bad": (Exit.BAD_INPUT, "BadInput"),
        "client not durable": (Exit.RESULTS_NOT_STORED, "S3Away"),
    }[fate]
    world.fail_client(code, reason, group=place.group or 0, attempt=place.attempt or 0)


def befall_engine(world: ClusterWorld, fate: str) -> None:
    on_pods = {
        "ready": {"ready": True, "waiting": None, "phase": "Running"},
        "wait": waiting("ImagePullBackOff"),
        "evict": {"phase": "Failed", "reason": "Evicted", "ready": False},
        "delete pod": {"deleted_at": world.now + timedelta(seconds=5)},
    }
    running = with_pod(world, engines(world))
    if fate == "start":
        for job in [*engines(world), *live(world, "client"), *live(world, "report")]:
            if not job.suspended and not [pod for pod in world.pods.values() if pod.job_uid == job.ref.uid]:
                world.start_pod(job.ref.name, ready=job.key.role != ROLE_ENGINE)
    elif fate in on_pods and running:
        world.change_pod(running[0], **on_pods[fate])
    elif fate in ("crash", "oom") and running:
        world.crash(running[0], 137, reason="OOMKilled" if fate == "oom" else "Error")
    elif fate == "delete engine" and engines(world):
        world.lose_job(engines(world)[0].ref.name)
    else:
        befall_queue(world, fate, running)


def befall_queue(world: ClusterWorld, fate: str, running: list[str]) -> None:
    held_back = [job.ref.name for job in engines(world) if job.suspended]
    if fate == "admit" and held_back:
        world.admit(held_back[0])
    elif fate in ("preempt", "preempt unseen") and running:
        world.hold_back(running[0])
        if fate == "preempt unseen":
            world.reap()
            world.admit(running[0])
            world.start_pod(running[0])


def befall_elsewhere(world: ClusterWorld, fate: str) -> None:
    if fate == "delete objects":
        world.objects.clear()
        world.plan_json = None
    elif fate in ("s3 away", "s3 refuses", "s3 back"):
        world.trouble = {"s3 away": AWAY, "s3 refuses": NO_BUCKET, "s3 back": None}[fate]
    elif fate in ("suspend", "resume"):
        world.run["spec"]["suspend"] = fate == "suspend"
    elif fate == "status lost":
        world.run.pop("status", None)
    elif fate in ("seconds", "minutes", "hours"):
        world.pass_time({"seconds": 3, "minutes": 90, "hours": 2000}[fate])
    elif fate == "reap":
        world.reap()
    elif fate == "older run" and "demo-g0-9" not in world.jobs:
        world.older_run_left("demo-g0-9", ChildKey(ROLE_ENGINE, 0, 9))
    elif fate == "older run gone":
        world.jobs.pop("demo-g0-9", None)
    elif fate == "results deleted":
        world.measured.clear()


def check(world: ClusterWorld, decision: RunDecision) -> None:
    """What must hold of every decision."""
    holding = [pod for pod in world.pods.values() if pod.alive and pod.key.role == ROLE_ENGINE]
    fresh = [pod for pod in holding if pod.deleted_at is None or world.now < pod.deleted_at + timedelta(seconds=120)]
    launches = [item for item in decision.apply if is_engine_job(item)]
    assert len(launches) <= 1
    if launches:
        assert not engines(world), "another engine may still start"
        assert not fresh, "another engine holds GPUs"
        assert world.trouble is None, "nobody knows what is measured already"
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
    check_what_tools_say(world, decision.status)


def check_what_tools_say(world: ClusterWorld, status: RunStatus) -> None:
    """kstatus and Argo CD call nothing finished that is not, nothing failed that goes on, and never contradict."""
    item = world.run | {"status": status.to_dict()}
    kstatus_says, argo_says = kstatus(item), ARGO_SCRIPT(item).status
    assert (kstatus_says == "Current") is (status.phase is Phase.SUCCEEDED)
    assert (kstatus_says == "Failed") is (status.phase in (Phase.FAILED, Phase.INVALID))
    assert (argo_says == "Suspended") is (status.phase is Phase.SUSPENDED)
    allowed = {"InProgress": ("Progressing", "Suspended"), "Failed": ("Degraded",), "Current": ("Healthy", "Degraded")}
    assert argo_says in allowed[kstatus_says]


def is_engine_job(manifest: object) -> bool:
    assert isinstance(manifest, dict)
    return (manifest["kind"], manifest["metadata"]["labels"]["specbench.io/role"]) == ("Job", ROLE_ENGINE)


def step(world: ClusterWorld) -> None:
    observed = world.observed()
    decision = decide_run(observed, world.settings, world.now)
    assert decision == decide_run(observed, world.settings, world.now), "the same was decided differently"
    check(world, decision)
    world.follow(decision)
    check_clients(world)


def check_clients(world: ClusterWorld) -> None:
    """A client that may run measures the pod that it was made for, and no other."""
    for client in live(world, "client"):
        engine = [job for job in engines(world) if (job.key.group, job.launch) == (client.key.group, client.launch)]
        pods = [pod for job in engine for pod in world.pods.values() if pod.job_uid == job.ref.uid]
        assert {pod.ref.uid for pod in pods if pod.alive and pod.deleted_at is None} <= {client.engine_pod}
        assert not [job for job in engine if job.suspended]


QUEUED = {"spec.placement": {"gpus": 2, "queueName": "bench"}}
TAKING = ("preempt", "preempt unseen", "evict", "delete pod")
"""Fates after which another pod may be seen under the same Job."""


def hold_whatever_befalls(fates: list[str], queued: bool) -> None:
    """Let fate have its way with a run; `step` holds it to what must always hold."""
    edits = {"spec.load": {"concurrency": [1], "repeats": 2}, **(QUEUED if queued else {})}
    world = ClusterWorld(operator_run(edits))
    step(world)
    for fate in fates:
        befall(world, fate)
        step(world)
    counted = sum(row.preemptions for row in world.status.groups)
    assert counted <= sum(fate in TAKING for fate in fates), "one was counted twice"


@given(st.lists(st.sampled_from(FATES), max_size=40), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_order_of_events_brings_two_engines_or_touches_another_run(fates: list[str], queued: bool) -> None:
    hold_whatever_befalls(fates, queued)


@pytest.mark.draws
@given(st.lists(st.sampled_from(FATES), max_size=40), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_none_of_many_orders_of_events_does(fates: list[str], queued: bool) -> None:
    hold_whatever_befalls(fates, queued)


BUSY = {
    "serve": ("reap", "admit", "start", "ready"),
    "load": ("reap", "admit", "start"),
    **{fate: (fate,) for fate in ("start", "preempt", "preempt unseen", "reap", "finish", "client lost", "delete pod")},
}
"""What befalls an engine that is queued, at one moment: the fates of which that consists."""


@pytest.mark.draws
@given(st.lists(st.tuples(st.sampled_from(sorted(BUSY)), st.booleans()), max_size=25))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_queue_that_takes_and_gives_brings_no_client_before_another_pod(fates: list[tuple[str, bool]]) -> None:
    """Where it is torn, fate strikes after Jobs were listed and before pods are."""
    world = ClusterWorld(operator_run(QUEUED))
    for fate, torn in fates:
        jobs = world.observed().jobs
        for one in BUSY[fate]:
            befall(world, one)
        if torn and {job.ref for job in jobs} == {job.ref for job in world.jobs.values()}:
            world.follow(decide_run(replace(world.observed(), jobs=jobs), world.settings, world.now))
        step(world)
    counted = sum(row.preemptions for row in world.status.groups)
    assert counted <= sum(fate in TAKING for fate, _ in fates), "one was counted twice"
    for _ in range(12):  # not so long that an engine which is waited for in vain would be given up as never ready
        for fate in ("reap", "admit", "start", "ready", "finish", "report", "minutes"):
            befall(world, fate)
            step(world)
    assert world.status.completion_time is not None, "something is waited for that will not come"


@pytest.mark.draws
@example([*("start", "ready", "start", "finish", "reap") * 2, "start", "report fails"], False)
@given(st.lists(st.sampled_from(FATES), max_size=25), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_run_ends_once_fate_has_had_its_way(fates: list[str], queued: bool) -> None:
    world = ClusterWorld(operator_run(QUEUED if queued else {}))
    for fate in fates:
        step(world)
        befall(world, fate)
    for fate in ("s3 back", "resume", "older run gone"):
        befall(world, fate)
    for _ in range(12):
        for fate in ("reap", "admit", "start", "ready", "finish", "report deleted", "report", "seconds", "minutes"):
            befall(world, fate)
            step(world)
    assert world.status.phase in (Phase.SUCCEEDED, Phase.FAILED)
    assert world.status.completion_time is not None
    assert not engines(world)


@pytest.mark.parametrize("state", list(GroupState))
def test_a_status_that_lies_about_groups_does_no_harm(state: GroupState) -> None:
    world = ClusterWorld()
    world.settle()
    rows = [replace_row(row, state) for row in world.run["status"]["groups"]]
    world.run["status"]["groups"] = rows
    step(world)
    assert len(world.launched) == 1


def replace_row(row: dict[str, object], state: GroupState) -> dict[str, object]:
    return {**row, "state": state, "attempt": 2}


def test_another_runs_job_in_place_of_the_plan_is_not_adopted() -> None:
    world = ClusterWorld()
    world.older_run_left("demo-report", ChildKey("report"))
    world.jobs["demo-report"] = replace(world.jobs["demo-report"], owner=None)
    step(world)
    assert world.launched == []
