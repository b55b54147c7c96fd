"""What a run reports in each phase, and decisions that only write its status: tables of single decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.fence.model import Limits
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase
from specbench_api.spec.status import Condition, GroupStatus, RunStatus
from specbench_operator.errors import OperatorError, Retry, Stop
from specbench_operator.run.decide import decide_run, only_reports_progress, status_after_error
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_operator.state.objects import ChildKey, FailureScope, LaunchVerdict, ObjectRef, QueueWait, Relaunch
from specbench_operator.state.run import NORMAL, KubernetesEvent, RelaunchJob, ResumeJob, RunDecision, StopJob
from specbench_operator.state.timestamps import parse_timestamp
from specbench_testing.cluster_world import AWAY, ClusterWorld, finish_other_arm, finished, launched
from specbench_testing.operator_builders import NOON, fenced, operator_run

QUEUED: dict[str, Any] = {"spec.placement": {"gpus": 2, "queueName": "bench"}}
Situation = Callable[[], ClusterWorld]


def running(edits: dict[str, Any] | None = None) -> ClusterWorld:
    return launched(operator_run(edits))


def measured(**fields: Any) -> ClusterWorld:
    """Both groups are measured, and the report Job exists."""
    world = running()
    world.measure_all()
    for name, value in fields.items():
        setattr(world, name, value)
    return world


def queued(*, written: bool) -> ClusterWorld:
    world = ClusterWorld(operator_run(QUEUED))
    if written:
        world.settle()
        world.jobs[world.engine()] = replace(world.jobs[world.engine()], waits=QueueWait("2 more needed"))
    return world


def older_runs(*owners: str | None) -> ClusterWorld:
    world = ClusterWorld()
    for number, owner in enumerate(owners):
        name = f"older-{number}"
        world.older_run_left(name, ChildKey("engine", 0, number))
        world.jobs[name] = replace(world.jobs[name], owner=owner)
    return world


def lost_engine() -> ClusterWorld:
    world = running()
    world.serve()
    world.lose_job(world.engine())
    return world


def last_engine_ends() -> ClusterWorld:
    world = running()
    world.measure(0)
    world.serve(1)
    world.finish_client(1)
    return world


def bad_input_in_the_second_group() -> ClusterWorld:
    world = running()
    world.measure(0)
    world.serve(1)
    world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3", group=1)
    world.settle()
    return world


def report_ended(**how: Any) -> ClusterWorld:
    world = measured()
    world.start_pod(world.report)
    world.crash(world.report, 1, **how)
    return world


def report_without_results() -> ClusterWorld:
    world = measured()
    world.store_results()
    world.results = None
    return world


FIRST = "arm none: group 1 of 2"
S3_AWAY = f"no engine is launched while S3 cannot be read: {AWAY.message}"
OLDER = "an earlier run of this name left Job older-0"
REMOVED = "waiting for Kubernetes to remove them"
NO_OWNER = (
    "Kubernetes does not remove Job older-1, because nobody owns them: delete them by hand (kubectl delete), or rename"
    " the run"
)
NEXT = "the next engine is launched when the last one has released its GPUs"
LAST = "the last engine has not released its GPUs yet"
REPORT_FAILED = "the report failed: the client ended with exit code 1: Error: bug"
NO_RESULTS = "the report Job succeeded, but status.json is missing in S3"
REPORT_REMEDY = "; all measurements are kept; delete Job demo-report to make the report again"
FIVE = ", Job older-1, Job older-2, Job older-3, Job older-4"
PHASES: dict[str, tuple[Situation, Phase, str, str]] = {
    "new": (ClusterWorld, Phase.STARTING, "Starting", FIRST),
    "last engine ends": (last_engine_ends, Phase.ANALYZING, "WaitingForRelease", LAST),
    "S3 away": (lambda: ClusterWorld(trouble=AWAY), Phase.PENDING, "S3Away", S3_AWAY),
    "to be queued": (lambda: queued(written=False), Phase.QUEUED, "WaitingForQuota", FIRST),
    "queued": (lambda: queued(written=True), Phase.QUEUED, "WaitingForQuota", f"{FIRST}: 2 more needed"),
    "older run": (lambda: older_runs("x"), Phase.PENDING, "WaitingForRemoval", f"{OLDER}: {REMOVED}"),
    "older runs": (lambda: older_runs(*"xxxxxx"), Phase.PENDING, "WaitingForRemoval", f"{OLDER}{FIVE}: {REMOVED}"),
    "orphan": (
        lambda: older_runs("x", None),
        Phase.PENDING,
        "WaitingForRemoval",
        f"{OLDER}, Job older-1: {NO_OWNER}",
    ),
    "lost engine": (lost_engine, Phase.STARTING, "WaitingForRelease", NEXT),
    "bad input": (bad_input_in_the_second_group, Phase.FAILED, "BadInput", "row 3"),
    "report": (measured, Phase.ANALYZING, "Analyzing", "the report is being made: its pod is not created yet"),
    "report, S3 away": (lambda: measured(trouble=AWAY), Phase.ANALYZING, "S3Away", AWAY.message),
    "report failed": (
        lambda: report_ended(message="bug"),
        Phase.FAILED,
        "ClientFailed",
        f"{REPORT_FAILED}{REPORT_REMEDY}",
    ),
    "no results": (report_without_results, Phase.FAILED, "ResultsMissing", f"{NO_RESULTS}{REPORT_REMEDY}"),
    "finished": (lambda: finished(ClusterWorld()), Phase.SUCCEEDED, "Finished", "ngram is 1.83 times as fast"),
}


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_has_a_reason_and_a_message(name: str) -> None:
    situation, phase, reason, message = PHASES[name]
    world = situation()
    world.reconcile()
    assert (world.status.phase, world.condition(ConditionType.READY).reason) == (phase, reason)
    assert world.condition(ConditionType.READY).message == message


@pytest.mark.parametrize("trouble", [None, AWAY])
@pytest.mark.parametrize(("situation", "phase"), [(ClusterWorld, Phase.PENDING), (measured, Phase.ANALYZING)])
def test_nothing_is_created_before_s3_was_read(situation: Situation, phase: Phase, trouble: Any) -> None:
    world = situation()
    world.jobs.pop(world.report, None)
    decision = decide_run(replace(world.observed(), stored=trouble), world.settings, world.now)
    ready = next(row for row in decision.status.conditions if row.type is ConditionType.READY)
    assert (decision.status.phase, ready.reason) == (phase, trouble.reason if trouble else "WaitingForS3")
    assert {item["kind"] for item in decision.apply} <= {"ConfigMap"}
    assert decision.requeue_after_s == (15.0 if trouble else None)


OBJECT = ObjectRef("Job", "demo-g0-0", "uid-1")
VERDICT = LaunchVerdict(FailureScope.LAUNCH, SUSPENDED, "", NOON)
NOON_TEXT = "2026-01-02T12:00:00Z"
READY = Condition(
    type=ConditionType.READY, status=ConditionStatus.FALSE, reason="Running", last_transition_time=NOON_TEXT
)
MEASURING = GroupStatus(index=0, arm="none", state=GroupState.MEASURING)
RUNNING = RunStatus(phase=Phase.RUNNING, conditions=[READY], groups=[MEASURING])


@pytest.mark.parametrize(
    ("previous", "changes", "status", "only"),
    [
        (RUNNING, {}, {}, True),
        (RUNNING, {}, {"gpu_seconds_held": 9, "groups": [MEASURING.model_copy(update={"measured": 1})]}, True),
        (RUNNING, {}, {"conditions": [READY.model_copy(update={"message": "more"})]}, True),
        (RUNNING, {}, {"conditions": [READY.model_copy(update={"reason": "S3Away"})]}, False),
        (RUNNING, {}, {"conditions": [READY.model_copy(update={"status": ConditionStatus.TRUE})]}, False),
        (RUNNING, {}, {"groups": [MEASURING.model_copy(update={"attempt": 1})]}, False),
        (RUNNING, {}, {"groups": [MEASURING.model_copy(update={"state": GroupState.DONE})]}, False),
        (RUNNING, {}, {"phase": Phase.ANALYZING}, False),
        (RUNNING, {}, {"start_time": NOON_TEXT}, False),
        (RUNNING, {}, {"completion_time": NOON_TEXT}, False),
        (RUNNING, {"events": (KubernetesEvent(NORMAL, "EngineReady", ""),)}, {}, False),
        (RUNNING, {"delete": (OBJECT,)}, {}, False),
        (RUNNING, {"apply": ({"kind": "Job"},)}, {}, False),
        (RUNNING, {"stop": (StopJob(OBJECT, VERDICT, ended=False),)}, {}, False),
        (RUNNING, {"relaunch": (RelaunchJob(OBJECT, Relaunch(1, 1, "")),)}, {}, False),
        (RUNNING, {"resume": (ResumeJob(OBJECT, "uid"),)}, {}, False),
        (RunStatus(), {"events": (KubernetesEvent(NORMAL, "Queued", ""),)}, {}, True),
        (RunStatus(), {"apply": ({"kind": "Job"},)}, {}, False),
    ],
)
def test_a_decision_only_reports_progress_if_nothing_but_numbers_and_texts_change(
    previous: RunStatus, changes: dict[str, Any], status: dict[str, Any], only: bool
) -> None:
    assert only_reports_progress(previous, RunDecision(RUNNING.model_copy(update=status), **changes)) is only


FOR_TOOLS = tuple(ConditionType(name) for name in ("Ready", "Reconciling", "Stalled"))


@pytest.mark.parametrize(
    ("error", "reason", "true"),
    [
        (Retry("ApiFailing", "the API server answered 503"), "ApiFailing", {ConditionType.RECONCILING}),
        (Stop("Forbidden", "jobs.batch is forbidden"), "Forbidden", {ConditionType.STALLED}),
    ],
)
def test_an_error_is_retried_or_stalls_the_run_and_never_ends_it(
    error: OperatorError, reason: str, true: set[ConditionType]
) -> None:
    world = running()
    world.run["metadata"]["generation"] = 7
    idle = [world.group(0).model_copy(update={"idle_since": NOON_TEXT}), world.group(1)]
    intended = world.status.model_copy(update={"groups": idle, "phase": Phase.RUNNING})
    found = status_after_error(world.run, intended, error, world.now)
    rows = {row.type: row for row in found.conditions}
    assert {kind for kind in FOR_TOOLS if rows[kind].status is ConditionStatus.TRUE} == true
    assert {(rows[kind].reason, rows[kind].message) for kind in true} == {(reason, str(error))}
    assert {rows[kind].reason for kind in {*FOR_TOOLS} - true - {ConditionType.READY}} == {str(kind) for kind in true}
    assert (found.observed_generation, found.problem, found.phase) == (7, reason, world.status.phase)
    assert [(row.idle_since, row.message) for row in found.groups] == [
        (NOON_TEXT, str(error)),
        (None, world.group(1).message),
    ]


def test_an_error_does_not_change_the_status_of_a_finished_run() -> None:
    world = finished(ClusterWorld())
    assert status_after_error(world.run, RunStatus(), Stop("Forbidden", ""), world.now) == world.status
    del world.run["metadata"]["generation"], world.run["status"]["completionTime"]
    assert status_after_error(world.run, RunStatus(), Stop("Forbidden", ""), world.now).observed_generation == 0


@pytest.mark.parametrize(
    ("fields", "stopped", "deleted"),
    [
        ({}, True, False),
        ({"deleting": True}, False, False),
        ({"suspended": True}, False, True),
        ({"complete": True}, False, False),
        ({"verdict": VERDICT}, False, False),
    ],
    ids=["starts", "is deleted", "queued", "ended", "stops"],
)
def test_the_engine_of_a_run_that_becomes_invalid_is_stopped_if_its_launch_is_not_in_status(
    fields: dict[str, Any], stopped: bool, deleted: bool
) -> None:
    world = running()
    world.lose_status()
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], **fields)
    world.run["spec"]["engine"]["kind"] = "unheard-of"
    decision = decide_run(world.observed(), world.settings, world.now)
    engine = world.jobs[world.engine()].ref
    assert ([stop.ref for stop in decision.stop], engine in decision.delete) == ([engine] if stopped else [], deleted)
    assert decision.at_rest
    assert ConditionType.GATE_PASSED not in {row.type for row in decision.status.conditions}


@pytest.mark.parametrize(
    ("ttl_s", "limit_s", "passed_s", "left_s"),
    [
        (86_400, 0, 400, 86_000),
        (86_400, 3600, 400, 3200),
        (600, 3600, 400, 200),
        (600, 0, 600, None),
        (600, 0, 599, 1),
        (None, 0, 86_399, 1),
    ],
)
def test_children_of_a_finished_run_are_kept_for_the_shorter_of_its_ttl_and_the_clusters(
    ttl_s: int | None, limit_s: int, passed_s: float, left_s: float | None
) -> None:
    world = finished(ClusterWorld())
    world.run["spec"].pop("ttlSecondsAfterFinished", None)
    world.run["spec"] |= {} if ttl_s is None else {"ttlSecondsAfterFinished": ttl_s}
    settings = fenced(limits=Limits(ttl_seconds_after_finished=limit_s))
    ended = parse_timestamp(world.status.completion_time)
    assert ended is not None
    decision = decide_run(world.observed(), settings, ended + timedelta(seconds=passed_s))
    assert (decision.requeue_after_s, decision.at_rest) == (left_s, left_s is not None)
    expected = {job.ref for job in world.jobs.values()} | {child.ref for child in world.objects.values()}
    assert set(decision.delete) == (set() if left_s else expected)
    leaving = world.jobs[world.report] = replace(world.jobs[world.report], deleting=True)
    later = decide_run(world.observed(), settings, ended + timedelta(seconds=passed_s))
    assert set(later.delete) == set(decision.delete) - {leaving.ref}
    world.jobs, world.objects = {}, {}
    alone = decide_run(world.observed(), settings, ended + timedelta(seconds=passed_s))
    assert (alone.requeue_after_s, alone.at_rest, alone.delete) == (None, True, ())


def suspended(*, settled: bool, pods: bool = False) -> ClusterWorld:
    """A run that is suspended while its first engine serves; `pods`: those of the engine still exist."""
    world = running()
    world.serve()
    world.run["spec"]["suspend"] = True
    for _ in range(2 if settled else 0):
        world.reconcile()
    world.pods = world.pods if pods else {}
    return world


@pytest.mark.parametrize(
    ("situation", "at_rest"),
    [
        (lambda: ClusterWorld(operator_run({"spec.suspend": True})), True),
        (lambda: suspended(settled=True), True),
        (lambda: suspended(settled=True, pods=True), False),
        (lambda: suspended(settled=False), False),
        (running, False),
        (measured, False),
        (lambda: finished(ClusterWorld()), True),
    ],
    ids=["created suspended", "suspended", "its pod is left", "its Jobs are left", "running", "analysing", "finished"],
)
def test_the_resync_skips_a_run_only_if_nothing_is_left_to_do(situation: Situation, at_rest: bool) -> None:
    world = situation()
    assert decide_run(world.observed(), world.settings, world.now).at_rest is at_rest


# How runs end when something failed, and invalid specs, such as files that a client must not read.


def test_a_run_with_one_failed_arm_succeeds_with_the_other_arm(world: ClusterWorld) -> None:
    world.fail_engine(137, reason="OOMKilled")
    finish_other_arm(world)
    status = world.status
    assert (status.phase, status.problem) == (Phase.SUCCEEDED, "OOMKilled (none)")
    assert (status.points.measured, status.points.failed, status.progress) == (1, 1, "1/2")
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    assert world.status_and_reason(ConditionType.MEASUREMENT_COMPLETE) == ("False", "OOMKilled")
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "OOMKilled")
    assert "arm none" in world.condition(ConditionType.MEASUREMENT_COMPLETE).message


def test_a_run_without_any_measurement_fails_and_creates_no_report(world: ClusterWorld) -> None:
    for group in (0, 1):
        world.fail_engine(1, group=group, message="no CUDA device")
    assert world.status.phase is Phase.FAILED
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "Crashed")
    assert world.status_and_reason(ConditionType.READY) == ("False", "Crashed")
    assert "no CUDA device" in world.condition(ConditionType.READY).message
    assert world.report not in world.jobs
    assert world.status.completion_time is not None


def test_a_failed_run_is_not_retried_when_its_children_are_gone(world: ClusterWorld) -> None:
    for group in (0, 1):
        world.fail_engine(1, group=group)
    world.settle(after_s=86_400)
    world.settle()
    assert world.jobs == {}
    assert len(world.launched) == 2


def test_a_report_that_cannot_be_stored_is_reported(world: ClusterWorld) -> None:
    world.measure_all()
    world.start_pod(world.report)
    message = Termination(code=5, reason="CredentialsRefused", message="denied").to_message()
    world.end_pod(world.report, 5, message=message)
    world.reconcile()
    assert world.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "CredentialsRefused")
    assert world.status.phase is Phase.ANALYZING


def test_a_report_that_cannot_start_is_waited_for_because_it_holds_no_gpus(world: ClusterWorld) -> None:
    world.measure_all()
    world.start_pod(world.report, phase="Pending", unschedulable="0/3 nodes")
    world.reconcile()
    world.settle(after_s=100_000)
    assert world.status_and_reason(ConditionType.RECONCILING) == ("True", "Analyzing")
    assert "0/3 nodes" in world.condition(ConditionType.RECONCILING).message
    world.finish_report()
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")


def test_a_failed_report_is_created_again_when_its_job_is_deleted(world: ClusterWorld) -> None:
    world.measure_all()
    world.start_pod(world.report)
    world.crash(world.report, 1, message="bug")
    world.settle()
    assert world.status.completion_time is None, "the measurements are not reported yet"
    assert f"delete Job {world.report}" in world.condition(ConditionType.STALLED).message
    world.lose_job(world.report)
    world.settle()
    assert world.status_and_reason(ConditionType.STALLED)[0] == "False"
    world.finish_report()
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    assert len(world.launched) == 2


def test_a_point_deleted_during_the_report_is_measured_again_first(world: ClusterWorld) -> None:
    world.measure_all()
    assert world.report in world.jobs
    world.measured -= {point.hash for point in world.plan.groups[1].points}
    world.settle()
    assert world.report not in world.jobs
    assert world.launched[-1] == world.engine(1, 1)


def test_bad_input_ends_the_run_when_its_jobs_are_deleted_before_the_gpus_are_free(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3")
    world.reconcile()
    for job in list(world.jobs):
        world.lose_job(job)
    world.settle()
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "BadInput")
    assert world.status.completion_time is not None
    assert world.launched == [world.engine()]


@pytest.mark.parametrize(
    ("phase", "kind", "message"),
    [("Succeeded", ConditionType.READY, "ngram is 1.83 times as fast"), ("Failed", ConditionType.STALLED, "row 3")],
)
def test_a_finished_run_restores_its_conditions_when_they_are_overwritten(
    phase: str, kind: ConditionType, message: str
) -> None:
    world = ClusterWorld()
    if phase == "Succeeded":
        finished(world)
    else:
        world.settle()
        world.serve()
        world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3")
        world.settle()
    conditions = {row.type: (row.status, row.reason) for row in world.status.conditions}
    for row in world.run["status"]["conditions"]:
        if row["type"] in ("Ready", "Reconciling", "Stalled"):
            reconciling = "True" if row["type"] == "Reconciling" else "False"
            row |= {"status": reconciling, "reason": "ApiUnreachable", "message": "no answer"}
    world.settle()
    assert world.status.phase == phase
    assert world.status_and_reason(kind)[0] == "True"
    assert world.condition(kind).message.endswith(message)
    assert {row.type: (row.status, row.reason) for row in world.status.conditions} == conditions


def test_an_unsupported_spec_creates_nothing_and_reports_the_field_and_a_remedy() -> None:
    drafter = {"name": "e", "method": "eagle", "model": "m"}
    world = ClusterWorld(operator_run({"spec.engine.kind": "llama-cpp", "spec.drafters[0]": drafter}))
    decision = world.reconcile()
    assert (decision.apply, decision.at_rest) == ((), True)
    assert world.status.phase is Phase.INVALID
    assert world.status_and_reason(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    message = world.condition(ConditionType.VALIDATED).message
    assert "spec.drafters[0].method" in message
    assert "use draft_model or ngram" in message
    assert world.status_and_reason(ConditionType.STALLED)[0] == "True"
    assert (
        world.status_and_reason(ConditionType.RECONCILING)[0]
        == world.status_and_reason(ConditionType.READY)[0]
        == "False"
    )
    assert [event.reason for event in world.events] == ["Invalid"]
    world.reconcile()
    assert len(world.events) == 1


@pytest.mark.draws
def test_a_plan_that_exceeds_a_config_map_is_an_invalid_spec() -> None:
    many = {"concurrency": list(range(1, 17)), "repeats": 32}
    workloads = [
        {"name": f"workload-of-a-long-name-{number}", "dataset": {"source": "jsonl", "uri": f"{number}.jsonl"}}
        for number in range(4)
    ]
    world = ClusterWorld(operator_run({"spec.load": many, "spec.workloads": workloads}))
    assert world.reconcile().apply == ()
    assert world.status_and_reason(ConditionType.VALIDATED)[0] == "False"
    assert "fewer workloads" in world.condition(ConditionType.VALIDATED).message


def test_a_run_that_becomes_invalid_releases_its_gpus(world: ClusterWorld) -> None:
    world.serve()
    world.run["spec"]["engine"]["kind"] = "unheard-of"
    decision = world.reconcile()
    assert {ref.name for ref in decision.delete} == {world.engine(), world.client()}


# Files that a client must not read.


ENVIRON = "/proc/self/environ"
BY_CLIENT = {"appliedBy": "Client"}
TRACE = {"arrival": {"process": "Trace", "uri": ENVIRON}}
MEMBER = {"name": "m", "weight": 1, "source": "jsonl"}


def _uri(path: str) -> dict[str, Any]:
    return {"spec.workloads[0].dataset": {"source": "jsonl", "uri": path}}


def _template(**fields: str) -> dict[str, Any]:
    return {"spec.workloads[0].chatTemplate": {**BY_CLIENT, **fields}}


def _mix(*paths: str) -> dict[str, Any]:
    members = [{**MEMBER, "name": f"m{at}", "uri": path} for at, path in enumerate(paths)]
    return {"spec.workloads[0].dataset": {"source": "mix", "count": 2, "members": members}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        (_uri(path), "spec.workloads[0].dataset.uri")
        for path in (
            ENVIRON, "/var/run/secrets/kubernetes.io/serviceaccount/token", "/dev/zero", "/", "//proc/self/environ",
            "/usr/share/specbench/../../../proc/self/environ", "/prompts/../etc/passwd", "/promptsx/a.jsonl",
            "../proc/self/environ", "a/../../proc/self/environ", "~/x", "~root/x",
        )
    ),
    (_mix("/prompts/a.jsonl", ENVIRON), "spec.workloads[0].dataset.members[1].uri"),
    (_template(template=ENVIRON), "spec.workloads[0].chatTemplate.template"),
    (_template(tokenizer=ENVIRON), "spec.workloads[0].chatTemplate.tokenizer"),
    ({**_template(), "spec.model.tokenizer": ENVIRON}, "spec.model.tokenizer"),
    ({**_template(), "spec.model.path": ENVIRON}, "spec.model.path"),
    ({"spec.load": {**TRACE, "slots": 4, "requests": 8}}, "spec.load.arrival.uri"),
]  # fmt: skip
ALLOWED: list[dict[str, Any]] = [
    *(
        _uri(path)
        for path in (
            "prompts.jsonl", "/prompts/claim/a.jsonl", "/usr/share/specbench/prompts.jsonl", "/prompts/a/../b.jsonl",
            "../usr/share/specbench/prompts.jsonl", "s3://results/../a", "hf://datasets/a/b/../c",
        )
    ),
    _template(template="s3://results/a.jinja", tokenizer="acme/tiny"),
    _template(template="/prompts/claim/a.jinja", tokenizer="/prompts/claim"),
    {"spec.model.tokenizer": ENVIRON},
    {"spec.model.path": "/models/llama"},
    {**_template(tokenizer="acme/tiny"), "spec.model.path": "/models/llama"},
]  # fmt: skip


@pytest.mark.parametrize(("edits", "path"), REFUSED, ids=str)
def test_a_run_that_names_a_file_outside_the_clients_folders_gets_no_child(edits: dict[str, Any], path: str) -> None:
    world = ClusterWorld(run=operator_run(edits))
    decision = world.reconcile()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    assert world.status_and_reason(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    message = world.condition(ConditionType.VALIDATED).message
    assert message.startswith(f"{path}: ")
    assert "(/prompts, /usr/share/specbench)" in message
    assert "put the file on a volume (dataset.pvc), or give s3://BUCKET/KEY" in message


@pytest.mark.parametrize("edits", ALLOWED, ids=str)
def test_other_files_are_left_to_the_client_and_the_engine(edits: dict[str, Any]) -> None:
    """The engine reads model.path in its own image, and the tokenizer is not read if no client applies a template."""
    assert ClusterWorld(run=operator_run(edits)).reconcile().apply
