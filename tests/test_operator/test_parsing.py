"""Conversion of raw Kubernetes objects to the operator's values, and what the observer reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from specbench_api.campaign.names import ANNOTATION_COMBINATION, LABEL_CAMPAIGN
from specbench_api.outcome.layout import PLAN
from specbench_api.plan.expansion import expand, with_another_round
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER, ROLE_ENGINE
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionType, Phase
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.results import S3
from specbench_api.spec.secret_refs import SecretRef
from specbench_operator.cluster.kubernetes_api import JOB, POD, RUN, WORKLOADS
from specbench_operator.cluster.parsing import (
    kept_fields,
    leader_worker_set_owners,
    parse_child_object,
    parse_job,
    parse_node,
    parse_pod,
)
from specbench_operator.cluster.results import known_results_uid, newest_matching_results, with_adopted_uid
from specbench_operator.cluster.run_observer import RunObserver
from specbench_operator.cluster.s3 import Listing
from specbench_operator.cluster.store_session import StoreError
from specbench_operator.render.job_annotations import (
    ANNOTATION_ENGINE_NODES,
    ANNOTATION_PRIOR_LAUNCHES,
    ANNOTATION_RELAUNCH,
    ANNOTATION_VERDICT,
    format_relaunch,
    format_verdict,
    with_engine_nodes,
    with_prior_launches,
)
from specbench_operator.run.decide import decide_run
from specbench_operator.state.objects import (
    ChildKey,
    ContainerTerminated,
    ContainerWaiting,
    FailureScope,
    JobFailure,
    LaunchVerdict,
    Node,
    PriorLaunches,
    QueueWait,
    Relaunch,
)
from specbench_operator.state.run import REMEMBERED_BYTES_MAX, NamespaceRun, RunObservation, StoredResults, parsed_run
from specbench_testing.cluster_world import AWAY, ClusterWorld
from specbench_testing.fake_api import FakeApi, FakeBucket, FakeResults, Raw, observe
from specbench_testing.gate_reports import EARLIER, GATE, digest_of, gate_status
from specbench_testing.operator_builders import OLDER_UID, SETTINGS, UID, operator_run
from specbench_testing.resources import MISSING, edit, endpoint_edits

AT = "2026-01-02T12:00:00Z"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LABELS = {
    "specbench.io/role": "engine",
    "specbench.io/group": "3",
    "specbench.io/attempt": "1",
    "specbench.io/run-uid": "u",
}
CHILD_LABELS = {**LABELS, LABEL_MANAGED: MANAGER, LABEL_RUN: "demo"}


def meta(**more: Any) -> dict[str, Any]:
    return {
        "name": "demo-g3-1",
        "namespace": "default",
        "uid": "child",
        "creationTimestamp": AT,
        "labels": LABELS,
        "ownerReferences": [{"uid": "other"}, {"uid": "u", "name": "demo", "controller": True}],
        **more,
    }


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": AT, **more}


def raw_job(*conditions: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"metadata": meta(**more), "status": {"conditions": list(conditions), "startTime": AT}}


def raw_pod(*conditions: dict[str, str], state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": "engine", "state": state or {}}]
    return {
        "metadata": meta(ownerReferences=[{"uid": "j", "name": "demo-g3-1", "controller": True}]),
        "spec": {"containers": [{"name": "engine"}, {"name": "sidecar"}]},
        "status": {"phase": "Pending", "conditions": list(conditions), "containerStatuses": statuses, **more},
    }


def gated_pod(gate: str) -> dict[str, Any]:
    raw = raw_pod()
    raw["metadata"]["labels"] = {**CHILD_LABELS, "kueue.x-k8s.io/prebuilt-workload-name": "w"}
    return {**raw, "spec": {**raw["spec"], "schedulingGates": [{"name": gate}]}}


def fields_of(parsed: object, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a parsed object that a row of a table names."""
    return {name: getattr(parsed, name) for name in expected}


VERDICT = LaunchVerdict(FailureScope.LAUNCH, "EngineLost", "gone", NOON)
FAILED = JobFailure("BackoffLimitExceeded", "no", NOON)
NEW = {"owner": "u", "key": ChildKey("engine", 3, 1), "created_at": NOON, "ended": False, "suspended": False,
       "deleting": False, "started_at": None, "queue": "", "engine_pod": ""}  # fmt: skip
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "new": ({"metadata": meta()}, NEW),
    "complete": (raw_job(condition("Complete")), {"complete": True}),
    "about to be complete": (raw_job(condition("SuccessCriteriaMet")), {"complete": True}),
    "failed": (raw_job(condition("Failed", reason=FAILED.reason, message="no")), {"ended": True, "failure": FAILED}),
    "about to fail": (raw_job(condition("FailureTarget", reason=FAILED.reason, message="no")), {"failure": FAILED}),
    "false conditions": (raw_job(condition("Complete", "False"), condition("Failed", "False")), {"ended": False}),
    "suspended and being deleted": (
        {**raw_job(deletionTimestamp=AT), "spec": {"suspend": True}},
        {"suspended": True, "deleting": True},
    ),
    "with a verdict": (raw_job(annotations={ANNOTATION_VERDICT: format_verdict(VERDICT)}), {"verdict": VERDICT}),
    "without labels and owner": (
        {"metadata": meta(labels={}, ownerReferences=[])},
        {"owner": None, "key": ChildKey("")},
    ),
    "in a queue": (raw_job(labels={**LABELS, "kueue.x-k8s.io/queue-name": "bench"}), {"queue": "bench"}),
    "with a LeaderWorkerSet in a queue": (raw_job(annotations={"specbench.io/queue": "bench"}), {"queue": "bench"}),
    "client": (raw_job(annotations={"specbench.io/engine-pod": "pod-uid"}), {"engine_pod": "pod-uid"}),
    "with pods": (
        {"metadata": meta(), "status": {"active": 1, "ready": 1, "terminating": 2, "failed": 4}},
        {"unlisted_pods": 3},
    ),
    "of an older Kubernetes": (
        {"metadata": meta(), "status": {"active": 1, "terminating": None}},
        {"unlisted_pods": 1},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_parsed(name: str) -> None:
    raw, expected = JOBS[name]
    assert fields_of(parse_job(raw), expected) == expected


def test_a_job_has_the_warning_about_its_pods() -> None:
    assert parse_job({"metadata": meta()}, "exceeded quota").warning == "exceeded quota"


@pytest.mark.parametrize("text", ["by hand", "{}", '{"scope": "World"}', "[]"])
def test_an_unreadable_verdict_still_ends_the_launch(text: str) -> None:
    verdict = parse_job(raw_job(annotations={ANNOTATION_VERDICT: text})).verdict
    assert verdict == LaunchVerdict(FailureScope.GROUP, "Stopped", text, NOON)


def test_a_relaunch_round_trips() -> None:
    relaunch = Relaunch(launch=4, preemptions=2, previous_pod="pod-uid")
    job = parse_job(raw_job(annotations={ANNOTATION_RELAUNCH: format_relaunch(relaunch)}))
    assert (job.relaunch, job.launch, job.key.attempt) == (relaunch, 4, 1)


def test_prior_launches_and_engine_nodes_round_trip() -> None:
    bare: dict[str, Any] = {"metadata": {"name": "demo-g3-1"}}
    engine, client = with_prior_launches(bare, PriorLaunches(2, 1)), with_engine_nodes(bare, ["gpu-1", "gpu-2"])
    assert parse_job(raw_job(annotations=engine["metadata"]["annotations"])).prior_launches == PriorLaunches(2, 1)
    assert parse_job(raw_job(annotations=client["metadata"]["annotations"])).engine_nodes == ("gpu-1", "gpu-2")
    assert (with_prior_launches(bare, PriorLaunches()), with_engine_nodes(bare, [])) == (bare, bare), (
        "empty values add no annotation"
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", "yes", '{"suspensions": null, "preemptions": 1}'])
def test_unreadable_prior_launches_are_ignored(text: str) -> None:
    job = parse_job(raw_job(annotations={ANNOTATION_PRIOR_LAUNCHES: text, ANNOTATION_ENGINE_NODES: text and ","}))
    assert (job.prior_launches, job.engine_nodes) == (PriorLaunches(), ())


@pytest.mark.parametrize("text", ["", "by hand", "{}", "[]", '{"launch": "x", "preemptions": 1, "previous_pod": ""}'])
def test_an_unreadable_relaunch_is_ignored(text: str) -> None:
    job = parse_job(raw_job(annotations={ANNOTATION_RELAUNCH: text}))
    assert (job.relaunch, job.launch) == (None, 1)


def test_parses_the_node_image_and_command_of_a_running_pod() -> None:
    raw = raw_pod(condition("Ready"), state={"running": {"startedAt": AT}}, phase="Running")
    raw["spec"]["nodeName"] = "gpu-1"
    raw["spec"]["containers"][0] |= {"image": "acme/engine:1", "command": ["serve"], "args": ["--port", "1"]}
    raw["status"]["containerStatuses"][1] |= {"image": "acme/twin:1", "imageID": "acme/engine@sha256:ab"}
    pod = parse_pod(raw)
    assert (pod.node, pod.image, pod.image_id) == ("gpu-1", "acme/engine:1", "acme/engine@sha256:ab")
    assert (pod.command, pod.started_at, pod.probe) == (("serve", "--port", "1"), NOON, None)


def test_a_finished_probe_is_separate_from_the_engine() -> None:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": "== gpus"}}
    statuses = [{"name": "other", "state": {}}, {"name": "probe", "state": ended}]
    pod = parse_pod(raw_pod(state={"running": {}}, phase="Running", initContainerStatuses=statuses))
    assert (pod.probe, pod.terminated) == (ContainerTerminated(0, "Completed", "== gpus"), None)


def test_parses_a_node() -> None:
    status = {
        "nodeInfo": {"kernelVersion": "6.8.0", "kubeletVersion": "v1.34.1"},
        "capacity": {"cpu": "96", "memory": "1056Ki", "nvidia.com/gpu": "8"},
    }
    raw = {"metadata": {"name": "gpu-1", "labels": {"a": "b"}}, "status": status}
    assert parse_node(raw) == Node("gpu-1", {"a": "b"}, "6.8.0", "v1.34.1", 96, 1056 * 1024)


@pytest.mark.parametrize(
    ("quantity", "expected"), [("7", 7), ("2Mi", 2 << 20), ("3Gi", 3 << 30), ("1e3", 1000), ("some", None), ("", None)]
)
def test_node_memory_is_parsed_or_none(quantity: str, expected: int | None) -> None:
    node = parse_node({"metadata": {"name": "n"}, "status": {"capacity": {"memory": quantity}}})
    assert (node.memory_bytes, node.cores, node.labels) == (expected, None, {})


ENDED = {"exitCode": 137, "reason": "OOMKilled", "message": "m", "startedAt": AT, "finishedAt": AT}
PODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unschedulable": (
        raw_pod(condition("PodScheduled", "False", reason="Unschedulable", message="0/1 nodes")),
        {"unschedulable": "0/1 nodes", "scheduled_at": None, "ready": False, "alive": True, "run_uid": "u",
         "job": "demo-g3-1"},
    ),
    "ready": (
        raw_pod(condition("PodScheduled"), condition("Ready"), state={"running": {}}, phase="Running"),
        {"scheduled_at": NOON, "ready": True, "waiting": None, "terminated": None},
    ),
    "waiting": (
        raw_pod(state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
        {"waiting": ContainerWaiting("ErrImagePull", "not found")},
    ),
    "terminated": (
        raw_pod(state={"terminated": ENDED}, phase="Failed"),
        {"terminated": ContainerTerminated(137, "OOMKilled", "m", NOON, NOON), "alive": False},
    ),
    "disrupted": (raw_pod(condition("DisruptionTarget", message="preempted")), {"disrupted": "preempted"}),
    "disrupted, with a reason": (raw_pod(condition("DisruptionTarget", reason="Taint")), {"disrupted": "Taint"}),
    "disrupted, without a reason": (raw_pod(condition("DisruptionTarget")), {"disrupted": "disrupted"}),
    "evicted by Kueue": (raw_pod(condition("TerminationTarget", message="preempted")), {"disrupted": "preempted"}),
    "not disrupted": (raw_pod(condition("DisruptionTarget", "False")), {"disrupted": None}),
    "gated by Kueue": (gated_pod("kueue.x-k8s.io/admission"), {"gated": True, "workload": "w"}),
    "gated by others": (gated_pod("example.com/gate"), {"gated": False}),
    "without a status": (
        {"metadata": meta(ownerReferences=[]), "spec": {"containers": []}},
        {"phase": "Pending", "job": "", "ready": False, "scheduled_at": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_parsed(name: str) -> None:
    raw, expected = PODS[name]
    assert fields_of(parse_pod(raw), expected) == expected
    assert fields_of(parse_pod(kept_fields("Pod", raw)), expected) == expected


def test_parses_a_service() -> None:
    child = parse_child_object("Service", {"metadata": meta(), "spec": {"ports": []}})
    assert child.spec == {"ports": []}
    assert (child.ref.kind, child.owner, child.key, child.deleting) == ("Service", "u", ChildKey("engine", 3, 1), False)


def grouped(worker: str, **status: Any) -> dict[str, Any]:
    raw = raw_pod(state={"running": {"startedAt": AT}})
    raw["metadata"]["labels"] = {
        **LABELS,
        "leaderworkerset.sigs.k8s.io/name": "demo-g3-1-n",
        "leaderworkerset.sigs.k8s.io/worker-index": worker,
    }
    raw["status"]["containerStatuses"][1] |= status
    return raw


def test_a_leader_worker_set_pod_belongs_to_the_job_that_owns_the_set() -> None:
    owner = {"uid": "the-job", "name": "demo-g3-1", "controller": True}
    sets = leader_worker_set_owners([{"metadata": {**meta(name="demo-g3-1-n"), "ownerReferences": [owner]}}])
    pod = parse_pod(grouped("1"), sets)
    assert (pod.job, pod.job_uid, pod.worker, pod.restarts) == ("demo-g3-1", "the-job", 1, 0)
    assert parse_pod(grouped("0")).job_uid == "j", "its set is gone, so its own controller counts"
    assert parse_pod(raw_pod(), sets).worker is None


def test_a_restarted_container_reports_its_last_termination() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": AT}}
    pod = parse_pod(grouped("0", restartCount=2, lastState=last))
    assert pod.restarts == 2
    assert pod.terminated is not None
    assert (pod.terminated.exit_code, pod.terminated.reason) == (137, "OOMKilled")
    assert parse_pod(grouped("0", restartCount=0)).terminated is None


def test_a_set_without_an_owner_is_ignored() -> None:
    assert leader_worker_set_owners([{"metadata": {"name": "x", "uid": "y"}}]) == {}


def test_a_run_is_parsed_once_until_it_changes() -> None:
    resource = operator_run()
    run = parsed_run(resource)
    assert parsed_run({**resource, "status": {"phase": "Running"}}) is run
    edited = {**resource, "spec": {**resource["spec"], "suspend": True}}
    assert (parsed_run(edited).spec.suspend, run.spec.suspend) == (True, False)
    labelled = {**resource, "metadata": {**resource["metadata"], "labels": {"team": "a"}}}
    assert parsed_run(labelled).metadata.labels == {"team": "a"}


def test_a_large_run_is_not_kept_in_memory() -> None:
    resource = operator_run()
    resource["metadata"]["labels"] = {"large": "x" * REMEMBERED_BYTES_MAX}
    assert parsed_run(resource) is not parsed_run(resource)


# What the observer reads: the results that `adopt: Latest` finds, and a gate with its baseline runs.

ROOT = "team/runs/default/demo"
LATEST = {"spec.results.adopt": "Latest"}


def plan_of(uid: str, edits: Mapping[str, Any] | None = None) -> Plan:
    run = operator_run(edits)
    run["metadata"]["uid"] = uid
    return expand(parse_run(run))


CELLS = {point.cell for point in plan_of("a").points}
FORGED = plan_of("a").to_json().replace('"args": []', '"args": ["--other"]')
"""A plan with other arguments of the engine, and unchanged hashes."""


@pytest.mark.parametrize(
    ("plans", "found"),
    [
        ({}, None),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("a").to_json())}, "a"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("a", {"spec.load.repeats": 2}).to_json())}, "b"),
        ({"a": (12, plan_of("a", {"spec.placement.queueName": "elsewhere"}).to_json())}, "a"),
        ({"a": (12, '{"schemaVersion": "specbench.io/plan/v0"}')}, None),
        ({"a": (12, plan_of("a", {"spec.drafters[0].name": "renamed"}).to_json())}, None),
        ({"a": (12, plan_of("a", {"spec.load.order": "Sequential"}).to_json())}, None),
        ({"b": (9, plan_of("b").to_json()), "A_": (12, plan_of("A_").to_json())}, "b"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, plan_of("b").to_json())}, "b"),
        ({"b": (9, plan_of("b").to_json()), "a": (12, FORGED)}, "b"),
        ({"a": (12, with_another_round(plan_of("a"), CELLS).to_json())}, "a"),
        ({"a": (12, plan_of("a").to_json().replace('"args": []', '"args": [], "flux": 8'))}, None),
    ],
    ids=[
        "none", "newest", "same points", "other queue", "other schema version",
        "renamed arm", "other order of repeats", "not a UID", "copied", "forged", "a round was added", "unknown field",
    ],
)  # fmt: skip
def test_finds_the_newest_results_of_the_same_plan(plans: Mapping[str, tuple[int, str]], found: str | None) -> None:
    stored = {f"{ROOT}/{uid}/plan.json": plan for uid, plan in plans.items()}
    bucket: Any = FakeBucket({**stored, f"{ROOT}/half-written/x": (13, "")})
    assert newest_matching_results(bucket, ROOT, plan_of(UID), {}) == found


@dataclass
class SlowBucket(FakeBucket):
    """A bucket of which each look can list four folders below the root."""

    listed: list[str] = field(default_factory=list)

    def listing(self, prefix: str) -> Listing:
        self.listed.append(prefix)
        if len(self.listed) > 5:
            raise StoreError(AWAY)
        return super().listing(prefix)


def test_a_search_through_many_results_goes_on_where_the_last_look_ended() -> None:
    newest_first = enumerate("dgcaebfhij")
    plans = {f"{ROOT}/{uid}/plan.json": (23 - row, plan_of(uid).to_json()) for row, uid in newest_first}
    known: dict[str, datetime] = {}
    for listed in (4, 8):
        with pytest.raises(StoreError):
            newest_matching_results(SlowBucket(plans), ROOT, plan_of(UID), known)  # type: ignore[arg-type]
        assert len(known) == listed
    del plans[f"{ROOT}/d/plan.json"]
    last: Any = SlowBucket(plans)
    assert newest_matching_results(last, ROOT, plan_of(UID), known) == "g", "the newest may have been deleted"
    assert last.listed == [f"{ROOT}/", f"{ROOT}/i/", f"{ROOT}/j/"]


def adopted(results: FakeResults, *others: Raw, status: Raw | None = None) -> str | None:
    """The UID that the observed run adopts, if its spec says Latest."""
    run = {**operator_run(LATEST), "status": status or {}}
    return parse_run(observe(FakeApi.of(run, *others), results).resource).spec.results.adopt


def stored_plan(uid: str) -> Raw:
    labels = {LABEL_MANAGED: MANAGER, LABEL_RUN: "demo", "specbench.io/role": "plan"}
    meta = {"name": "demo-plan", "uid": "p", "labels": labels, "ownerReferences": [{"uid": UID, "controller": True}]}
    return {"kind": "ConfigMap", "metadata": meta, "data": {"plan.json": plan_of(uid).to_json()}}


@pytest.mark.parametrize(
    ("found", "adopts", "read"), [(OLDER_UID, OLDER_UID, OLDER_UID), (None, None, UID)], ids=["found", "none match"]
)
def test_adopts_the_found_results_as_if_their_uid_were_in_the_spec(
    found: str | None, adopts: str | None, read: str
) -> None:
    results = FakeResults(newest=found)
    assert adopted(results) == adopts
    assert results.lookups == ["Latest", read]


@pytest.mark.parametrize("uid", [OLDER_UID, UID], ids=["earlier run", "own"])
def test_keeps_the_first_adopted_uid_when_newer_results_appear(uid: str) -> None:
    expected = None if uid == UID else uid
    results = FakeResults(newest="newer")
    assert adopted(results, stored_plan(uid)) == expected
    assert adopted(results, status={"results": {"uri": f"s3://results/runs/default/demo/{uid}"}}) == expected
    assert results.lookups == [uid, uid], "S3 is not searched again"


@pytest.mark.parametrize("plan_json", [None, "", "{", "[]", "null", "{}"])
def test_an_unreadable_plan_yields_no_known_uid(plan_json: str | None) -> None:
    assert known_results_uid(operator_run(LATEST), {} if plan_json is None else {PLAN: plan_json}) is None


def test_creates_nothing_and_reports_no_uri_while_s3_is_unreachable() -> None:
    results = FakeResults(newest=AWAY)
    observed = observe(FakeApi.of(operator_run(LATEST)), results)
    assert (observed.stored, results.lookups) == (AWAY, ["Latest"])
    world = ClusterWorld(operator_run(LATEST), trouble=AWAY)
    decision = world.reconcile()
    assert (decision.apply, world.launched, world.status.results) == ((), [], None)
    assert "s3:9000 cannot be reached" in world.condition(ConditionType.RECONCILING).message
    world.trouble = None
    edit(world.run, "spec.results.adopt", OLDER_UID)
    world.plan_there = world.plan.to_json()
    world.settle()
    assert world.launched == [world.engine()]


DEFAULT_STORE = S3(bucket="default", credentials_secret_ref=SecretRef(name="bench-s3"))
BEGUN = {"bucket": "begun"}


@pytest.mark.parametrize(
    ("edits", "status", "bucket"),
    [
        ({"spec.results": MISSING}, {}, "default"),
        ({"spec.results": {"adopt": OLDER_UID}}, {}, "default"),
        ({"spec.results": {}}, {"store": BEGUN}, "default"),
        ({"spec.results": {}}, {"store": BEGUN, "phase": "Invalid"}, "default"),
        ({"spec.results": {}}, {"store": BEGUN, "phase": "Invalid", "startTime": AT}, "begun"),
        ({"spec.results": {}}, {"store": BEGUN, "phase": "Analyzing"}, "begun"),
        ({"spec.results": {}}, {"store": BEGUN, "phase": "Succeeded"}, "begun"),
        ({}, {"store": BEGUN, "startTime": AT}, "results"),
    ],
)
def test_a_run_without_a_store_has_the_default_and_keeps_it_once_it_has_begun(
    edits: dict[str, Any], status: dict[str, Any], bucket: str
) -> None:
    observed = observe(FakeApi.of({**operator_run(edits), "status": status}), default_store=DEFAULT_STORE).resource
    assert parsed_run(observed).spec.results.store.bucket == bucket


def test_another_default_store_does_not_move_a_run_that_has_begun() -> None:
    run = operator_run({"spec.results": MISSING, "spec.placement": {}, **endpoint_edits("a")})
    store: Any = FakeResults()
    observed = RunObserver(FakeApi.of(run), store, default_store=DEFAULT_STORE).observe_cluster("default", "demo")
    assert observed is not None
    decision = decide_run(replace(observed, stored=StoredResults()), SETTINGS, NOON)
    (job,) = (made for made in decision.apply if made["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    secrets = {row["valueFrom"]["secretKeyRef"]["name"] for row in container["env"] if "valueFrom" in row}
    assert ("s3://default" in container["args"], secrets) == (True, {"bench-s3"})
    begun = {**run, "status": decision.status.to_dict()}
    for later in (S3(bucket="elsewhere"), None):
        kept = RunObserver(FakeApi.of(begun), store, default_store=later).read_run("default", "demo")
        assert kept is not None
        assert parsed_run(kept).spec.results.s3 == DEFAULT_STORE


def test_a_run_without_a_store_is_refused_where_there_is_no_default() -> None:
    observed = observe(FakeApi.of(operator_run({"spec.results": MISSING})))
    decision = decide_run(observed, SETTINGS, NOON)
    assert (decision.apply, decision.status.phase) == ((), Phase.INVALID)
    assert "spec.results.s3: is not set" in str(decision.status.conditions)


def test_a_spec_with_a_fixed_uid_or_no_adoption_is_unchanged() -> None:
    for edits in ({}, {"spec.results.adopt": OLDER_UID}):
        run, results = operator_run(edits), FakeResults()
        assert observe(FakeApi.of(run), results).resource == run
        assert "Latest" not in results.lookups


def test_adoption_changes_only_the_adopt_field() -> None:
    run = operator_run(LATEST)
    changed = with_adopted_uid(run, OLDER_UID)
    assert run["spec"]["results"]["adopt"] == "Latest", "the input is not modified"
    assert {**changed, "spec": {**changed["spec"], "results": run["spec"]["results"]}} == run


# What is read for a gate.


NIGHTLY = {"baselineRef": {"campaign": "nightly"}}


def observe_gated(gate: Raw | None, /, **status: Any) -> tuple[RunObservation, FakeResults, list[str]]:
    """What is observed of a run that has ended, its store, and the requests for other runs."""
    run = operator_run({"spec.gate": gate} if gate else None)
    run["status"] = {"phase": "Succeeded", "completionTime": "2026-01-02T12:00:00Z", **status}
    meta = {
        "name": "main",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {LABEL_CAMPAIGN: "nightly"},
    }
    meta["annotations"] = {ANNOTATION_COMBINATION: "c"}
    main = {"kind": RUN, "metadata": meta, "status": {"phase": "Succeeded", "results": {"uri": EARLIER}}}
    api, results = FakeApi.of(run, main), FakeResults(gate=gate_status(gate=gate) if gate else None)
    observed = observe(api, results)
    return observed, results, [target for _, kind, target in api.requests if kind == RUN and target != "demo"]


@pytest.mark.parametrize(
    ("state", "phase", "first", "missed"),
    [
        ("Queued", "Queued", 2, {"engine"}),
        ("Queued", "Queued", 1, {"engine"}),
        ("Starting", "Starting", 0, {"engine"}),
        ("Measuring", "Running", 2, {"engine", "client"}),
        ("Waiting", "Pending", 2, set()),
        ("Done", "Analyzing", 2, {"report"}),
        ("Done", "Succeeded", 2, set()),
    ],
)
def test_jobs_of_the_run_that_lost_their_labels_are_found_by_name(
    state: str, phase: str, first: int, missed: set[str]
) -> None:
    # A Job that its queue preempted continues as the next launch, and keeps the name of the first.
    run = operator_run()
    row = {"index": 0, "arm": "none", "state": state, "points": 1, "measured": 0, "attempt": 2}
    run["status"] = {"phase": phase, "groups": [{**row, "preemptions": 2 - first}]}
    names = {"engine": f"demo-g0-{first}", "client": "demo-g0-2-client", "report": "demo-report"}
    owner = {"uid": UID, "controller": True}
    jobs = [{"kind": JOB, **raw_job(name=name, labels={}, ownerReferences=[owner])} for name in names.values()]
    found = {job.key.role: job for job in observe(FakeApi.of(run, *jobs)).jobs}
    assert {role: job.ref.name for role, job in found.items()} == {role: names[role] for role in missed}
    assert {(job.key.group, job.key.attempt) for job in found.values()} <= {(0, first), (None, None)}
    jobs[0]["metadata"]["ownerReferences"] = [{**owner, "uid": "other"}]
    assert ROLE_ENGINE not in {job.key.role for job in observe(FakeApi.of(run, *jobs)).jobs}


@pytest.mark.parametrize("is_listed", [True, False])
def test_pods_that_a_job_counts_have_lost_their_labels_only_if_none_is_listed(*, is_listed: bool) -> None:
    """The pod of a launch that its queue preempted may still be ending when the Job is resumed."""
    job = {"kind": JOB, "metadata": meta(labels=CHILD_LABELS, uid="j"), "status": {"active": 0, "terminating": 1}}
    pod = {"kind": POD, **raw_pod()}
    pod["metadata"] = {**pod["metadata"], "labels": CHILD_LABELS}
    (found,) = observe(FakeApi.of(operator_run(), job, *([pod] if is_listed else []))).jobs
    assert found.unlisted_pods == (0 if is_listed else 1)


def test_a_queued_group_waits_for_the_workload_that_its_pods_name() -> None:
    """Kueue gives the Workload of a LeaderWorkerSet no label with the UID of its Job."""
    queued = meta(labels=CHILD_LABELS, uid="j", annotations={"specbench.io/queue": "bench"})
    job = {"kind": JOB, "metadata": queued, "spec": {"suspend": True}}
    pending = condition("QuotaReserved", "False", reason="Pending", message="full")
    workload = {"kind": WORKLOADS[0], "metadata": {"name": "w"}, "status": {"conditions": [pending]}}
    pod = {"kind": POD, **gated_pod("kueue.x-k8s.io/admission")}
    (found,) = observe(FakeApi.of(operator_run(), job, pod, workload)).jobs
    assert found.waits == QueueWait("full")


MAIN = NamespaceRun("main", "u", "2026-01-01T00:00:00Z", "Succeeded", EARLIER, "c")


@pytest.mark.parametrize(
    ("gate", "requests", "earlier"),
    [
        (GATE, ["main"], (MAIN,)),
        (NIGHTLY, [f"{LABEL_CAMPAIGN}=nightly"], (MAIN,)),
        ({"baselineRef": {"uri": "s3://results/else"}}, [], ()),
        ({"baselineRef": {"run": "gone"}}, ["gone"], ()),
    ],
    ids=["run", "campaign", "uri", "gone"],
)
def test_a_finished_run_reads_its_gate_report_and_its_baseline_runs(
    gate: Raw, requests: list[str], earlier: tuple[NamespaceRun, ...]
) -> None:
    observed, results, requested = observe_gated(gate)
    assert (observed.gate, observed.earlier, requested) == (results.gate, earlier, requests)
    assert results.lookups == ["gate.json"]


@pytest.mark.parametrize(
    ("gate", "status"),
    [
        (None, {}),
        (GATE, {"completionTime": None}),
        (GATE, {"phase": "Failed"}),
        (GATE, {"gate": {"gateDigest": digest_of(), "passed": True, "reason": "Passed"}}),
    ],
    ids=["no gate", "not finished", "failed", "evaluated"],
)
def test_nothing_is_read_when_the_gate_needs_no_evaluation(gate: Raw | None, status: Raw) -> None:
    observed, results, requested = observe_gated(gate, **status)
    assert (observed.gate, observed.earlier, requested) == (None, (), [])
    assert "gate.json" not in results.lookups


def test_a_changed_gate_is_read_again() -> None:
    observed, results, _ = observe_gated(
        GATE, gate={"gateDigest": digest_of(NIGHTLY), "passed": True, "reason": "Passed"}
    )
    assert observed.gate == results.gate
