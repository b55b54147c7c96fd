"""Runs and campaigns under a fence: refused before any child exists, forced values, and waiting for limits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.fence.check import repository_of
from specbench_api.fence.model import Fence
from specbench_api.outcome.layout import PLAN, PLAN_DIGEST_VARIABLE
from specbench_api.plan.canonical import digest, plan_digest
from specbench_api.plan.expansion import expand, lay_out
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignPhase
from specbench_api.spec.conditions import ConditionStatus, ConditionType, Phase
from specbench_api.spec.parsing import parse_run
from specbench_operator.cluster.parsing import parse_namespace_run
from specbench_operator.cluster.run_observer import RunObserver
from specbench_operator.render.client_jobs import CLIENT_IMAGE, PLAN_SHA256, plan_config_map
from specbench_operator.run.decide import decide_run
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.run import (
    NamespaceRun,
    RunDecision,
    RunObservation,
    StoredResults,
    StoreFailure,
)
from specbench_testing.campaign_world import CampaignWorld
from specbench_testing.cluster_world import AWAY, NO_BUCKET, ClusterWorld, finished
from specbench_testing.fake_api import FakeApi, FakeResults, observe
from specbench_testing.fenced_runs import BASE, Edits
from specbench_testing.operator_builders import NOON, SETTINGS, operator_run
from specbench_testing.resources import edit
from specbench_testing.tenant_attacks import ATTACKS, TENANT_FENCE, Attack, Open
from specbench_testing.tenant_site import SECRETS, base_run, contains

OPEN: dict[str, Any] = {
    "nodeLabels": ["*"],
    "tolerations": ["*"],
    "gpuResources": ["*"],
    "queues": ["*"],
    "stores": [{"endpoint": "*", "bucket": "*", "operatorIdentity": True}],
    "secretsOptIn": False,
}
"""A fence that allows what the runs of these tests use."""


def fenced(**values: Any) -> OperatorSettings:
    """Settings with a fence of these values."""
    return replace(SETTINGS, fence=Fence.from_json(json.dumps({**OPEN, **values})))


def world_of(settings: OperatorSettings, edits: Edits | None = None) -> ClusterWorld:
    """A run under these settings."""
    return ClusterWorld(operator_run({**BASE, **(edits or {})}), settings=settings)


def test_an_engine_is_stopped_when_the_fence_is_tightened() -> None:
    world = world_of(fenced())
    world.settle()
    world.start_pod(world.engine(), ready=True)
    world.settings = fenced(gpuResources=[])
    decision = world.reconcile()
    assert {ref.name for ref in decision.delete} | {stop.ref.name for stop in decision.stop} == {world.engine()}
    assert world.status_and_reason(ConditionType.VALIDATED) == ("False", "NotAllowed")
    world.reap()
    world.settings = fenced()
    world.settle()
    assert world.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    assert world.jobs, "the run continues when the fence allows it again"


def test_no_run_of_the_operators_own_namespace_is_executed() -> None:
    """With watchAllNamespaces and without the admission policy, nothing else refuses them."""
    world = world_of(replace(fenced(), operator_namespace="default"), {})
    decision = world.reconcile()
    (row,) = [row for row in decision.status.conditions if row.type is ConditionType.VALIDATED]
    assert (row.reason, decision.apply) == ("NotAllowed", ())
    assert row.message.startswith("metadata.namespace: ")
    assert world_of(replace(fenced(), operator_namespace="specbench-system"), {}).reconcile().apply
    assert world_of(replace(fenced(enabled=False), operator_namespace="default"), {}).reconcile().apply


def test_the_gate_of_a_finished_run_outside_the_fence_gets_no_job() -> None:
    gate = {"baselineRef": {"uri": "s3://results/else"}}
    world = finished(world_of(fenced(), {"spec.gate": gate}))
    observed = world.observed()
    assert decide_run(observed, fenced(), world.now).apply
    decision = decide_run(observed, fenced(stores=[]), world.now)
    (condition,) = [row for row in decision.status.conditions if row.type is ConditionType.GATE_PASSED]
    assert (decision.apply, condition.reason) == ((), "NotAllowed")
    assert decision.status.phase is Phase.SUCCEEDED, "its results stay"


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.gate": {"baselineRef": {"uri": "s3://prod-data/x"}}},
        {"spec.activeDeadlineSeconds": 90_000},
        {"spec.ttlSecondsAfterFinished": 700_000},
    ],
    ids=str,
)
def test_a_spec_that_is_changed_after_its_admission_is_checked_again(edits: Edits) -> None:
    """The fields that may change in a run that exists. Its engine is stopped, as when the fence is tightened."""
    limits = {"activeDeadlineSeconds": 86_400, "ttlSecondsAfterFinished": 604_800}
    stores = [{"endpoint": "*", "bucket": "results", "operatorIdentity": True}]
    world = world_of(fenced(stores=stores, limits=limits))
    world.settle()
    for path, value in edits.items():
        edit(world.run, path, value)
    world.run["metadata"]["generation"] = 2
    decision = world.reconcile()
    assert decision.apply == ()
    assert {ref.name for ref in decision.delete} | {stop.ref.name for stop in decision.stop} == {world.engine()}
    assert world.condition(ConditionType.VALIDATED).message.startswith(next(iter(edits)))


@pytest.mark.parametrize(("uri", "allowed"), [("s3://results/x", True), ("s3://prod-data/x", False)])
def test_the_gate_reads_no_baseline_of_another_run_outside_the_fence(uri: str, allowed: bool) -> None:
    """The other run may have another endpoint, or be older than the fence, so its bucket is checked for this run."""
    settings = fenced(stores=[{"endpoint": "*", "bucket": "results", "operatorIdentity": True}])
    world = finished(world_of(settings, {"spec.gate": {"baselineRef": {"run": "main"}}}))
    earlier = NamespaceRun("main", "main-uid", "2026-01-01T00:00:00Z", "Succeeded", uri, "")
    decision = decide_run(replace(world.observed(), earlier=(earlier,)), settings, world.now)
    (condition,) = [row for row in decision.status.conditions if row.type is ConditionType.GATE_PASSED]
    assert (bool(decision.apply), condition.reason) == (allowed, "Evaluating" if allowed else "NotAllowed")
    if not allowed:
        assert condition.message.startswith("spec.gate.baselineRef: bucket prod-data at AWS is not allowed")


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("a/b", "a/b"),
        ("a/b:1", "a/b"),
        ("host:5000/a/b", "host:5000/a/b"),
        ("host:5000/a/b:1@sha256:ab", "host:5000/a/b"),
        ("b:1", "b"),
    ],
)
def test_the_repository_of_an_image(image: str, repository: str) -> None:
    assert repository_of(image) == repository


# Forced values


TOLERATION = {"key": "pool", "operator": "Equal", "value": "bench"}
FORCE = {"nodeSelector": {"pool": "bench"}, "tolerations": [TOLERATION]}


def engine_of(decision: RunDecision) -> dict[str, Any]:
    """The engine's Job among the manifests."""
    (job,) = [item for item in decision.apply if item["kind"] == "Job"]
    return dict(job)


def test_forced_values_are_set_on_engines_and_win() -> None:
    own = {"spec.placement.nodeSelector": {"pool": "mine", "gpu": "h100"}, "spec.placement.tolerations": [{"key": "x"}]}
    for edits in (own, {**own, "spec.placement.tolerations": [{"key": "x"}, TOLERATION]}):
        pod = engine_of(world_of(fenced(force=FORCE), edits).reconcile())["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"pool": "bench", "gpu": "h100"}
        assert pod["tolerations"] == [{"key": "x", "operator": "Equal"}, TOLERATION]


def test_a_forced_queue_holds_the_engine_back_and_is_reported() -> None:
    world = world_of(fenced(force={"queueName": "shared"}), {"spec.placement.queueName": "mine"})
    job = engine_of(world.reconcile())
    assert (job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], job["spec"]["suspend"]) == ("shared", True)
    assert world.status.phase is Phase.QUEUED


def test_forced_values_do_not_change_points() -> None:
    world = world_of(fenced(force=FORCE))
    world.settle()
    assert Plan.from_json(world.plan_data[PLAN]) == expand(parse_run(world.run))


def test_what_a_forced_queue_does_not_support_is_refused() -> None:
    settings, edits = fenced(force={"queueName": "shared"}), {"spec.placement.pinNode": "Require"}
    world = world_of(settings, edits)
    assert world.reconcile().apply == ()
    assert world.condition(ConditionType.VALIDATED).message.startswith("spec.placement.pinNode: ")
    assert world_of(replace(settings, fence=fenced().fence), edits).reconcile().apply


def test_a_forced_queue_admits_the_set_of_an_engine_on_several_nodes() -> None:
    settings = replace(fenced(force={"queueName": "shared"}), leader_worker_sets=True)
    world = world_of(settings, {"spec.placement.nodes": 2})
    world.settle()
    assert (world.jobs[world.engine()].queue, world.status.phase) == ("shared", Phase.QUEUED)


# Fields without a fence: what they change in an engine's pod


def differences(one: Any, other: Any, path: str = "") -> set[str]:
    """Paths at which two manifests differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        return {found for name in names for found in differences(one.get(name), other.get(name), f"{path}.{name}")}
    if path.endswith(".containers"):
        return {found for pair in zip(one, other, strict=True) for found in differences(*pair, path)}
    return set() if one == other else {path.removeprefix(".")}


PVC = {"claimName": "models", "path": "m"}
CACHE = {"claimName": "models"}
MOUNTED = {"spec.engine": {"kind": "vllm"}, "spec.model.pvc": PVC, "spec.placement.modelCache": CACHE}


@pytest.mark.parametrize(
    ("edits", "changed"),
    [
        ({"spec.engine.args": ["--trust-remote-code", "--middleware", "evil"]}, {"containers.args"}),
        ({"spec.engine.args": ["$(AWS_SECRET_ACCESS_KEY)"]}, {"containers.args"}),
        ({"spec.model.tokenizer": "/proc/self/environ"}, {"containers.args"}),
        ({"spec.model.pvc": {**PVC, "path": "proc/self/environ"}}, {"containers.args"}),
        (
            {"spec.placement.securityContext": {"runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}},
            {
                "securityContext.runAsUser",
                "securityContext.runAsGroup",
                "securityContext.fsGroup",
                "securityContext.fsGroupChangePolicy",
            },
        ),
        (
            {"spec.placement.securityContext": {"runAsUser": 7, "runAsNonRoot": False}},
            {"securityContext.runAsUser", "securityContext.runAsNonRoot", "containers.env"},
        ),
    ],
    ids=["code", "variable", "tokenizer", "path of a claim", "root", "another user"],
)
def test_a_field_without_a_fence_changes_only_this_of_an_engines_pod(edits: Edits, changed: set[str]) -> None:
    """So arguments and users reach no other image, volume, Secret or account than the fence allows."""
    settings = fenced(claims=["models"])
    pods = [
        engine_of(world_of(settings, {**MOUNTED, **more}).reconcile())["spec"]["template"]["spec"]
        for more in ({}, edits)
    ]
    assert differences(*pods) == changed
    claims = [volume["persistentVolumeClaim"] for volume in pods[1]["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"claimName": "models", "readOnly": True}] * 2, "fsGroup changes files of writable volumes only"
    assert pods[1]["automountServiceAccountToken"] is False
    assert "secretKeyRef" not in json.dumps(pods[1])


def test_a_run_with_an_unlabelled_secret_is_also_told_what_else_is_not_allowed() -> None:
    run = operator_run({**BASE, "spec.engine.image": "evil.example/vllm:v0.30.0"})
    run["spec"]["results"]["s3"]["credentialsSecretRef"] = {"name": "bench-s3"}
    decision = decide_run(RunObservation(run, secret_uses={}), fenced(secretsOptIn=True), NOON)
    (row,) = [row for row in decision.status.conditions if row.type is ConditionType.VALIDATED]
    assert (row.reason, decision.apply) == ("NotAllowed", ())
    assert "spec.engine.image: " in row.message
    assert "spec.results.s3.credentialsSecretRef.name: " in row.message


# Limits of a namespace


def other(name: str, created: str = "2026-01-01T00:00:00Z", **more: Any) -> NamespaceRun:
    """Another run of the namespace, older than the run of these tests unless `created` is later."""
    return NamespaceRun(name, f"uid-{name}", created, **more)


LATER = "2026-02-01T00:00:00Z"


def decide_beside(others: list[NamespaceRun], edits: Edits | None = None, **limits: Any) -> RunDecision:
    """The decision about a run that was created at NOON and has not begun."""
    run = operator_run({**BASE, **(edits or {})})
    run["metadata"]["creationTimestamp"] = "2026-01-02T12:00:00Z"
    observed = RunObservation(run, stored=StoredResults(), namespace_runs=tuple(others))
    return decide_run(observed, fenced(limits=limits), NOON)


def reason_of(decision: RunDecision) -> str:
    """Reason of the condition Reconciling."""
    (row,) = [row for row in decision.status.conditions if row.type is ConditionType.RECONCILING]
    assert row.status is ConditionStatus.TRUE
    return row.reason


@pytest.mark.parametrize(
    ("ahead", "waits"),
    [
        (other("a"), True),
        (other("a", phase="Pending"), True),
        (other("a", LATER, phase="Running"), True),
        (other("a", LATER, phase="Queued"), True),
        (other("a", phase="Running", suspended=True), True),
        (other("a", phase="Running", deleting=True), True),
        (other("a", phase="Suspended"), True),
        (other("a", phase="Suspended", reason="Suspended"), True),
        (other("a", phase="Pending", reason="WaitingForRuns"), True),
        (other("a", phase="Running", reason="S3Away"), True),
        (other("a", phase="Pending", reason="BucketMissing"), False),
        (other("a", LATER), False),
        (other("a", LATER, phase="Pending"), False),
        (other("a", phase="Suspended", suspended=True), False),
        (other("a", suspended=True), False),
        (other("a", deleting=True), False),
        (other("a", phase="Invalid"), False),
        (other("a", phase="Failed"), False),
        (other("a", phase="Succeeded", ended=True), False),
        (other("demo-a", "2026-01-02T12:00:00Z"), False),
        (other("a", "2026-01-02T12:00:00Z"), True),
    ],
    ids=str,
)
def test_a_run_waits_for_runs_in_progress_and_older_ones(ahead: NamespaceRun, waits: bool) -> None:
    decision = decide_beside([ahead], runs=1)
    assert (reason_of(decision) == "WaitingForRuns") is waits
    assert (decision.apply == ()) is waits
    assert decision.awaits == ({ahead.name} if waits else frozenset())
    assert decision.status.phase is (Phase.PENDING if waits else Phase.STARTING)


@pytest.mark.parametrize("failure", [NO_BUCKET, AWAY], ids=lambda failure: failure.reason)
def test_a_run_whose_store_cannot_be_read_does_not_stop_the_others(failure: StoreFailure) -> None:
    first = operator_run(BASE)
    first["metadata"] |= {"name": "first", "uid": "first", "creationTimestamp": "2026-01-01T00:00:00Z"}
    decision = decide_run(RunObservation(first, stored=failure), fenced(limits={"runs": 1}), NOON)
    assert decision.status.phase is Phase.PENDING
    first["status"] = decision.status.to_dict()
    assert decide_beside([parse_namespace_run(first)], runs=1).apply


def test_every_waiting_run_begins_once_and_in_order() -> None:
    """Each run decides from the same or an older list than the others: never more than the limit are in progress."""
    limits, begun = fenced(limits={"runs": 2}), []
    runs = []
    for number in range(6):
        run = operator_run(BASE)
        created = f"2026-01-01T00:0{number // 2}:00Z"  # two are created in the same second
        run["metadata"] |= {"name": f"r{number}", "uid": f"u{number}", "creationTimestamp": created}
        runs.append(run)
    for _ in range(20):
        listed = tuple(parse_namespace_run(run) for run in runs)
        for run in reversed(runs):
            if "status" in run and run["status"]["phase"] == Phase.STARTING:
                run["status"] = {"phase": "Succeeded", "completionTime": "2026-01-02T00:00:00Z"}
            elif (run.get("status") or {}).get("phase") in (None, Phase.PENDING):
                observed = RunObservation(run, stored=StoredResults(), namespace_runs=listed)
                run["status"] = decide_run(observed, limits, NOON).status.to_dict()
                if run["status"]["phase"] == Phase.STARTING:
                    begun.append(run["metadata"]["name"])
        assert sum(run["status"]["phase"] == Phase.STARTING for run in runs) <= 2
    assert [sorted(begun[at : at + 2]) for at in (0, 2, 4)] == [["r0", "r1"], ["r2", "r3"], ["r4", "r5"]]


def test_the_limit_counts_all_runs_ahead_and_none_if_it_is_zero() -> None:
    two = [other("a"), other("b")]
    assert [bool(decide_beside(two, runs=limit).apply) for limit in (0, 1, 2, 3)] == [True, False, False, True]
    (row,) = [row for row in decide_beside(two, runs=2).status.conditions if row.type is ConditionType.RECONCILING]
    assert "2 runs of a namespace" in row.message
    assert "a, b come first" in row.message


def test_a_limit_stops_no_run_in_progress() -> None:
    world = world_of(fenced())
    world.settle()
    world.settings = fenced(limits={"runs": 1})
    busy = (other("a", phase="Running"),)
    decision = decide_run(replace(world.observed(), namespace_runs=busy), world.settings, world.now)
    assert (decision.stop, decision.delete) == ((), ())
    world.run["status"] = {}
    decision = decide_run(replace(world.observed(), namespace_runs=busy), world.settings, world.now)
    assert (decision.stop, decision.delete, reason_of(decision)) == ((), (), "Starting"), "also if status is lost"


def created_at_noon(phase: str) -> dict[str, Any]:
    run = operator_run()
    run["metadata"]["creationTimestamp"] = "2026-01-02T12:00:00Z"
    return {**run, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("phase", "limits", "names"),
    [
        ("Pending", {"runs": 1}, ["demo"]),
        ("Pending", {}, []),
        ("Running", {"runs": 1}, []),
    ],
)
def test_runs_of_the_namespace_are_read_only_for_a_limit_and_a_run_that_has_not_begun(
    phase: str, limits: dict[str, int], names: list[str]
) -> None:
    observed = observe(FakeApi.of(created_at_noon(phase)), limits=fenced(limits=limits).limits)
    seen = [(run.name, run.created, run.phase) for run in observed.namespace_runs]
    assert seen == [(name, "2026-01-02T12:00:00Z", phase) for name in names]


class SlowLists(FakeApi):
    """An API server of which a list of all runs takes a second."""

    def seconds(self) -> float:
        return self.now.timestamp()

    def each(self, kind: str, namespace: str | None, **selectors: Any) -> Any:
        self.now += timedelta(seconds=1)
        return super().each(kind, namespace, **selectors)


def test_a_thousand_waiting_runs_do_not_list_each_other_without_end() -> None:
    """A list that takes one second is made every ten seconds at most, however many runs wait."""
    server = SlowLists.of(created_at_noon("Pending"))
    store: Any = FakeResults()
    limits = fenced(limits={"runs": 1}).limits
    observer = RunObserver(server, store, limits=limits, clock=server.seconds)
    for _ in range(1000):
        observer.observe_cluster("default", "demo")
        server.now += timedelta(seconds=0.03)
    assert server.now > NOON + timedelta(seconds=30)
    assert 3 <= [kind for _, kind, _ in server.requests].count("SpecBenchRun") - 1000 <= 5


# Campaigns


def campaign_world(fence: OperatorSettings, edits: Edits | None = None) -> CampaignWorld:
    """A campaign under a fence."""
    world = CampaignWorld({**(edits or {})})
    world.reconciler = replace(world.reconciler, fence=fence.fence_check)
    return world


def test_a_campaign_whose_template_is_not_allowed_creates_no_run() -> None:
    world = campaign_world(fenced(gpuResources=[]))
    world.reconcile()
    assert (world.runs, world.status.phase) == ({}, CampaignPhase.INVALID)
    status, reason = world.status_and_reason(CampaignConditionType.VALIDATED)
    assert (status, reason) == (ConditionStatus.FALSE, "NotAllowed")
    message = world.message(CampaignConditionType.VALIDATED)
    assert message.startswith("spec.template.spec.placement.gpuResourceName: ")
    assert message.count("gpuResourceName") == 1, "the runs repeat what the template says"


def test_a_cell_that_is_not_allowed_is_named() -> None:
    axis = {"path": "engine.image", "values": ["vllm/vllm-openai:v0.30.0", "evil.example/vllm:v0.30.0"]}
    world = campaign_world(fenced(), {"spec.axes": [axis]})
    world.reconcile()
    assert world.runs == {}
    message = world.message(CampaignConditionType.VALIDATED)
    assert message.startswith("[image=evil.example/vllm:v0.30.0] spec.engine.image: evil.example/")


# What the operator decides about each attack of a tenant, under a fence and without one.
#
# `test_tenant_attacks` has what the API server refuses, and some of these attacks against the operator process.

ALL = [attack for attacks in ATTACKS for attack in attacks if not attack.by_schema]
FENCED = replace(SETTINGS, fence=Fence.model_validate(TENANT_FENCE), operator_namespace="specbench-system")
TENANT_RUN = base_run("http://s3.example:9000")
USES = {name: use or "" for name, use in SECRETS.items()}


def named(attack: Attack) -> str:
    return attack.name


def tenant_world(settings: Any, edits: Any) -> ClusterWorld:
    return ClusterWorld(operator_run({**TENANT_RUN, **edits}), settings=settings, secret_uses=USES)


def manifests(world: ClusterWorld) -> list[Any]:
    """All manifests of the engine and, once it is ready, of its client."""
    found = list(world.reconcile().apply)
    if world.launched:
        world.start_pod(world.engine(), ready=True)
        found += world.reconcile().apply
    return found


@pytest.mark.parametrize("attack", ALL, ids=named)
def test_the_fence_refuses_the_run_and_names_its_field(attack: Attack) -> None:
    world = tenant_world(FENCED, attack.edits)
    decision = world.reconcile()
    row = world.condition(ConditionType.VALIDATED)
    if not attack.condition:
        assert (row.status, bool(decision.apply)) == ("True", True), "only the admission policies refuse it"
        return
    assert (decision.apply, decision.stop, decision.delete, world.status.phase) == ((), (), (), Phase.INVALID)
    assert row.reason == world.status.problem
    assert row.reason in ("NotAllowed", "InvalidSpec")
    for kind, status in ((ConditionType.READY, "False"), (ConditionType.STALLED, "True")):
        assert world.status_and_reason(kind) == (status, row.reason)
    assert f"spec.{attack.condition}: " in row.message
    assert re.search(r"\(.+\)$", row.message), "the remedy follows in brackets"


@pytest.mark.parametrize("attack", ALL, ids=named)
def test_what_happens_without_the_fence(attack: Attack) -> None:
    world = tenant_world(SETTINGS, attack.edits)
    found = manifests(world)
    assert bool(found) is (attack.without is not Open.REFUSED)
    if attack.without is Open.SUCCEEDS:
        assert contains(found, attack.gets)


def without_plan(found: list[Any]) -> list[Any]:
    """The manifests without the plan's ConfigMap, and without the digest of its text that clients get."""
    for job in (each for each in found if each["kind"] == "Job"):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["env"] = [row for row in container.get("env", []) if row["name"] != PLAN_DIGEST_VARIABLE]
    return [each for each in found if each["kind"] != "ConfigMap"]


NOT_PLANNABLE = {
    "placement.template.metadata.annotations": {"container.apparmor.security.beta.kubernetes.io/engine": "unconfined"},
    "placement.affinity.nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}},
}
"""Values that no fence allows, and that are only found when a spec is expanded."""


@pytest.mark.parametrize("path", NOT_PLANNABLE)
def test_a_plan_in_a_config_map_does_not_hide_what_no_spec_may_have(path: str) -> None:
    world = tenant_world(FENCED, {f"spec.{path}": NOT_PLANNABLE[path]})
    world.plan_data = forged({})
    assert manifests(world) == []
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "PlanNotAllowed")
    assert f"spec.{path}" in world.condition(ConditionType.STALLED).message


PLANNED = ("model.", "engine.", "workloads", "load")
"""Fields of the spec of which engines and clients get what the plan contains."""


def forged(edits: Any) -> dict[str, str]:
    """The data of a ConfigMap with the plan of a run with these edits, and the digest that belongs to it."""
    plan = lay_out(parse_run(operator_run({**TENANT_RUN, **edits})))
    return {PLAN: plan.to_json(), PLAN_SHA256: plan_digest(plan), CLIENT_IMAGE: FENCED.client_image}


@pytest.mark.parametrize("attack", ALL, ids=named)
def test_a_forged_plan_gets_nothing_that_the_fence_refuses(attack: Attack) -> None:
    """Whoever may write ConfigMaps puts the plan of the attacking run into that of a run that the fence allows.

    Plans have no Secrets, and engines get the placement of the spec.
    """
    world = tenant_world(FENCED, {})
    world.plan_data = forged(attack.edits)
    launches, refused = without_plan(manifests(world)), ("True", "PlanNotAllowed")
    assert (launches == []) == (world.status_and_reason(ConditionType.STALLED) == refused)
    if launches:
        assert not attack.condition.startswith(PLANNED) or "SecretRef" in attack.condition
        assert launches == without_plan(manifests(tenant_world(FENCED, {})))


@pytest.mark.parametrize(
    ("edits", "name", "read", "launched"),
    [
        ({}, "demo-plan", True, True),
        ({"spec.engine.image": "vllm/vllm-openai:v1"}, "demo-plan", True, False),
        ({"spec.engine.image": "vllm/vllm-openai:v1"}, "another", False, True),
    ],
)
def test_a_config_map_that_exists_before_the_run_is_reconciled_is_checked(
    edits: dict[str, Any], name: str, *, read: bool, launched: bool
) -> None:
    """It has the labels and the owner of the run's own. One of another name is none of the run."""
    run, begun = operator_run(TENANT_RUN), forged(edits)
    plan = Plan.from_json(begun[PLAN])
    config_map = plan_config_map(parse_run(run), plan, begun[CLIENT_IMAGE], begun[PLAN_SHA256])
    config_map["metadata"]["name"] = name
    api = FakeApi.of(run)
    api.put(config_map)
    observed = replace(observe(api), secret_uses=USES, stored=StoredResults())
    assert (PLAN in observed.plan_data) == read
    decision = decide_run(observed, FENCED, NOON)
    assert bool(decision.apply) == launched
    assert decision.status.problem == ("" if launched else "PlanNotAllowed")


def test_files_of_an_engine_that_nobody_planned_launch_nothing() -> None:
    """They are in the ConfigMap of the plan."""
    edits = {"spec.engine": {"kind": "tensorrt-llm"}}
    world = ClusterWorld(operator_run(edits))
    plan = expand(parse_run(world.run))
    data = dict(plan_config_map(parse_run(world.run), plan, SETTINGS.client_image, plan_digest(plan))["data"])
    (file,) = (key for key in data if key.startswith("none"))
    world.plan_data = {**data, file: data[file] + "trust_remote_code: true\n"}
    world.settle()
    assert world.launched == []
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "PlanNotAllowed")
    world.plan_data = data
    world.settle()
    assert world.launched == [world.engine()]


def test_the_engine_of_a_plan_that_is_edited_later_is_stopped() -> None:
    world = tenant_world(FENCED, {})
    world.settle()
    world.serve()
    world.plan_data |= forged({"spec.engine.image": "evil.example/miner:1"})
    world.settle()
    assert not [pod for pod in world.pods.values() if pod.alive]
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "PlanNotAllowed")


def measured_again(plan: dict[str, Any]) -> None:
    """More points than a run may have: the same ones, with other hashes."""
    (point,) = plan["groups"][0]["points"]
    plan["groups"][0]["points"] = [{**point, "hash": f"{number:064x}"} for number in range(5000)]


def launched_often(plan: dict[str, Any]) -> None:
    (point,) = plan["groups"][0]["points"]
    plan["groups"] = [
        {"index": number, "arm": point["arm"], "points": [{**point, "hash": f"{number:064x}"}]} for number in range(600)
    ]


def served_elsewhere(plan: dict[str, Any]) -> None:
    """Load on a server that the engine of the plan does not have."""
    plan["arms"][0]["endpoint"] = {"name": "none", "url": "http://prod:8000"}


def in_another_order(plan: dict[str, Any]) -> None:
    """The operator would serve an arm whose points the client does not measure."""
    for group, index in zip(plan["groups"], (1, 0), strict=True):
        group["index"] = index


FORGERIES: dict[str, Any] = {
    "another request": lambda plan: plan["workloads"][0].update(extraBody={"max_tokens": 1}),
    "another number of repeats": lambda plan: plan["load"].update(repeats=2),
    "repeats that nobody planned": lambda plan: plan.update(plannedRepeats=-5),
    "a drafter of the baseline": lambda plan: plan["arms"][0].update(drafter=plan["arms"][1]["drafter"]),
    "an arm with a long name": lambda plan: plan["arms"].append({"name": "a" * 300}),
    "groups in another order": in_another_order,
    "a group without points": lambda plan: plan["groups"].append({"index": 2, "arm": "other", "points": []}),
    "another namespace": lambda plan: plan.update(namespace="prod"),
    "another name": lambda plan: plan.update(name="nightly"),
    "another uid": lambda plan: plan.update(uid="another"),
    "a running engine": lambda plan: plan["engine"].update(kind="external", dialect="vllm"),
    "another engine": lambda plan: plan["engine"].update(kind="vllm"),
    "a method without support": lambda plan: plan["arms"][1]["drafter"].update(method="lookahead"),
    "many points": measured_again,
    "many launches": launched_often,
    "a group twice": lambda plan: plan["groups"][1].update(index=0),
    "a server": served_elsewhere,
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_plan_that_is_not_of_the_run_launches_nothing(forge: Any) -> None:
    """With and without a fence; the digest belongs to the plan. The run continues once the ConfigMap is deleted."""
    world = ClusterWorld(operator_run({"spec.engine": {"kind": "sglang"}}))
    plan = expand(parse_run(world.run)).to_dict()
    forge(plan)
    world.plan_data = {PLAN: json.dumps(plan), PLAN_SHA256: digest(plan)}
    world.settle()
    assert world.launched == []
    status, reason = world.status_and_reason(ConditionType.STALLED)
    assert (status, reason in ("PlanNotAllowed", "PlanOfAnotherVersion")) == ("True", True)
    world.plan_data = {}
    world.settle()
    assert world.launched == [world.engine()]


def test_engines_get_the_placement_of_the_spec() -> None:
    """The arguments too: the plan in the ConfigMap has another number of GPUs, and of nodes."""
    edits = {"spec.engine": {"kind": "vllm", "tensorParallelSize": 2}, "spec.placement": {"gpus": 1, "nodes": 2}}
    settings = replace(SETTINGS, leader_worker_sets=True)
    honest, world = (ClusterWorld(operator_run(edits), settings=settings) for _ in range(2))
    plan = expand(parse_run(operator_run({**edits, "spec.placement": {"gpus": 2}})))
    world.plan_data = {PLAN: plan.to_json(), PLAN_SHA256: plan_digest(plan)}
    applied = [[each for _ in range(2) for each in one.reconcile().apply] for one in (honest, world)]
    sets, forged_sets = ([each for each in found if each["kind"] == "LeaderWorkerSet"] for found in applied)
    assert forged_sets == sets != []


def test_a_reference_to_a_variable_stays_text() -> None:
    found = manifests(tenant_world(FENCED, {"spec.engine.env": [{"name": "MODEL_NOTE", "value": "$(HF_TOKEN)"}]}))
    assert contains(found, {"name": "MODEL_NOTE", "value": "$$(HF_TOKEN)"}), "Kubernetes shows $$( as $("
