"""The operator against a real Kubernetes: the behaviour of API server, Job controller, scheduler and kubelet.

One operator serves all runs, which need no image of specbench: engines that fail or wait in every real way, and
restarts of the operator. What the operator decides is tested with tables; complete runs are in
tests/test_end_to_end/test_installed_product.py.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from specbench_api.plan.names import (
    LABEL_ARM,
    LABEL_ATTEMPT,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_ROLE,
    LABEL_RUN,
    LABEL_RUN_UID,
)
from specbench_cluster.configuration import PAUSE_IMAGE
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.cluster_run import ClusterRun, is_living
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NO_IMAGE = "registry.invalid/specbench:none"
QUICK = {
    "SPECBENCH_IMAGE_PULL_GRACE_S": "2",
    "SPECBENCH_RESYNC_S": "5",
    "SPECBENCH_CLIENT_START_DEADLINE_S": "5",
    "SPECBENCH_GONE_AFTER_S": "5",
}
GPU_QUOTA = 60
LABELS = (LABEL_MANAGED, LABEL_RUN, LABEL_RUN_UID, LABEL_ROLE, LABEL_GROUP, LABEL_ATTEMPT, LABEL_ARM)


@pytest.fixture(scope="module")
def site(cluster: Cluster, crd: Definition) -> Iterator[OperatorSite]:
    ground = cluster.ground
    if ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    with cluster.namespace("operator") as namespace:
        site = OperatorSite(cluster, namespace)
        site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
        yield site


@pytest.fixture(scope="module")
def operator(site: OperatorSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    with OperatorProcess(site, tmp_path_factory.mktemp("operator"), NO_IMAGE, QUICK).running() as process:
        yield process


Make = Callable[..., ClusterRun]


@pytest.fixture(scope="module")
def make(site: OperatorSite, operator: OperatorProcess) -> Make:
    """Creates a run with two arms, whose engines run but never answer, with these edits."""
    assert site.cluster.ground is not None
    s3 = site.cluster.ground.s3

    def create(name: str, edits: Mapping[str, Any] | None = None) -> ClusterRun:
        given = {
            "spec.load": {"concurrency": [1], "repeats": 1},
            "spec.engine.image": PAUSE_IMAGE,
            "spec.engine.command": ["/pause"],
            "spec.placement": {"gpus": 1},
            "spec.results.s3": {
                "bucket": s3.bucket,
                "endpoint": s3.endpoint,
                "credentialsSecretRef": {"name": "bench-s3"},
            },
            "spec.startupDeadlineSeconds": 600,
            **(edits or {}),
        }
        return ClusterRun.of(site.cluster, site.runs.create(resource(given, name=name)))

    return create


FAILING: dict[str, tuple[dict[str, Any], str, str]] = {
    "image": ({"spec.engine.image": NO_IMAGE}, "ImagePullFailed", "registry.invalid"),
    "command": ({"spec.engine.command": ["no-such-program"]}, "ConfigError", "no-such-program"),
    "silent": ({"spec.startupDeadlineSeconds": 5}, "NeverReady", "startupDeadlineSeconds"),
    "homeless": (
        {"spec.placement.nodeSelector": {"none": "none"}, "spec.startupDeadlineSeconds": 10},
        "Unschedulable",
        "node affinity",
    ),
}
"""Edits of a run both of whose engines fail, the reason, and text that the message must contain."""
WAITING: dict[str, tuple[dict[str, Any], tuple[str, str, str], str]] = {
    "quota": ({"spec.placement.gpus": GPU_QUOTA + 4}, ("EngineReady", "False", "Unschedulable"), "quota"),
    "queue": ({"spec.placement": {"gpus": 8, "queueName": "bench"}}, ("Queued", "True", "Inadmissible"), "no Kueue"),
    "taken": ({}, ("Reconciling", "True", "NameTaken"), "taken-g0-0"),
}
"""Edits of a run that gets no pod, the condition that reports it, and text that its message must contain."""


@pytest.fixture(scope="module")
def begun(site: OperatorSite, make: Make) -> dict[str, ClusterRun]:
    """All runs of both tables, which wait for deadlines at the same time."""
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": str(GPU_QUOTA)}}}
    foreign_service = {"metadata": {"name": "taken-g0-0"}, "spec": {"ports": [{"port": 80}]}}
    for kind, body in (("resourcequotas", quota), ("services", foreign_service)):
        site.cluster.call("POST", f"/api/v1/namespaces/{site.namespace}/{kind}", body)
    return {name: make(name, row[0]) for name, row in (FAILING | WAITING).items()}


def names(run: ClusterRun, kind: str, role: str = "") -> list[str]:
    """Names of its children, without the name of the run."""
    return sorted(row["metadata"]["name"].removeprefix(f"{run.name}-") for row in run.children(kind, role))


def first_group(run: ClusterRun) -> dict[str, Any]:
    """The row of the run's first engine group; empty before its first status."""
    return dict(next(iter(run.status().get("groups", [])), {}))


def await_engine(run: ClusterRun) -> str:
    """The name of the first living pod of an engine."""
    return eventually(lambda: run.living("engine"), f"{run.name} has no engine: {run.status()}")[0]


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_engine_fails_its_arm_and_leaves_no_pod(begun: dict[str, ClusterRun], name: str) -> None:
    run, (_, reason, text) = begun[name], FAILING[name]
    status = run.ends("Failed")
    assert [row["reason"] for row in status["groups"]] == [reason] * 2
    stalled = run.condition("Stalled")
    assert (stalled[:2], text in stalled[2]) == (("True", reason), True), stalled
    eventually(lambda: run.active_objects() == [], f"left: {run.active_objects()}")
    assert names(run, "jobs") == ["g0-0", "g1-0"], "the Jobs are kept as records"
    if name in ("silent", "homeless"):  # the others hold their GPUs for less than the second of a Kubernetes time
        assert (status["gpuSecondsHeld"] > 0) == (name == "silent")
    run.wait_for_events(reason)


@pytest.mark.parametrize("name", WAITING)
def test_a_run_that_waits_has_no_pod_and_reports_what_for(begun: dict[str, ClusterRun], name: str) -> None:
    run, (_, (kind, *expected), text) = begun[name], WAITING[name]

    def is_reported() -> bool:
        *found, message = run.condition(kind)
        return found == expected and text in message

    eventually(is_reported, f"{run.condition(kind)}")
    assert run.children("pods") == []


def test_a_run_continues_when_the_foreign_service_is_gone(site: OperatorSite, begun: dict[str, ClusterRun]) -> None:
    eventually(lambda: begun["taken"].condition("Reconciling")[1] == "NameTaken")
    assert names(begun["taken"], "jobs") == []
    site.delete("services", "taken-g0-0")
    await_engine(begun["taken"])


def test_a_lost_engine_is_launched_three_times_and_a_drained_one_again(site: OperatorSite, make: Make) -> None:
    run = make("lost")
    pod = await_engine(run)
    eventually(lambda: [row for row in run.children("pods", "engine") if row["status"]["phase"] == "Running"])
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    site.cluster.call("POST", f"/api/v1/namespaces/{site.namespace}/pods/{pod}/eviction", body)
    eventually(lambda: first_group(run).get("attempt") == 1, "the drained engine is not launched again")
    assert (first_group(run)["preemptions"], first_group(run).get("suspensions", 0)) == (1, 0)
    (drained,) = (job for job in run.children("jobs", "engine") if job["metadata"]["name"] == "lost-g0-0")
    assert json.loads(drained["metadata"]["annotations"]["specbench.io/verdict"])["reason"] == "Preempted"

    # The drained pod may still be ending.
    (pod,) = eventually(lambda: [name for name in run.living("engine") if "-g0-1-" in name], "no second pod")
    site.delete("pods", pod)
    for attempt in (2, 3):
        job = f"g0-{attempt}"
        eventually(lambda job=job: job in names(run, "jobs", "engine"), f"{job} is not launched")  # type: ignore[misc]
        site.delete("jobs", f"lost-{job}")
    eventually(lambda: first_group(run).get("reason") == "EngineLost", "the number of launches is not limited")
    eventually(lambda: "g1-0" in names(run, "jobs", "engine"), "the other arm does not start")
    eventually(lambda: len(run.living("engine")) == 1, "a pod is left behind")
    run.wait_for_events("Preempted", "EngineLost")


DEAD_NODE = "specbench-dead"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture
def dead_node(site: OperatorSite) -> Iterator[Callable[[], None]]:
    """A node with GPUs and without a kubelet; called, its kubelet is reported to have stopped answering."""
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2100-01-01T00:00:00Z"}]
    has = {"cpu": "8", "memory": "64Gi", "pods": "9", "nvidia.com/gpu": "8"}
    node: dict[str, Any] = {
        "metadata": {"name": DEAD_NODE, "labels": {"kubernetes.io/hostname": DEAD_NODE}},
        "spec": {"taints": [{"key": DEAD_NODE, "effect": "NoSchedule"}]},
        "status": {"capacity": has, "allocatable": has, "conditions": conditions},
    }
    path = f"/api/v1/nodes/{DEAD_NODE}"
    site.cluster.call("POST", "/api/v1/nodes", node)

    def stop_answering() -> None:
        lost = {"status": {"conditions": [{**conditions[0], "status": "Unknown"}]}}
        site.cluster.call("PATCH", f"{path}/status", lost, kind=MERGE)

    yield stop_answering
    site.cluster.call("DELETE", path)
    for pod in site.items("pods", "engine"):
        if pod["spec"].get("nodeName") == DEAD_NODE:
            pods = f"/api/v1/namespaces/{site.namespace}/pods/{pod['metadata']['name']}"
            site.cluster.call("DELETE", pods, {"gracePeriodSeconds": 0})


def test_an_engine_on_a_node_that_never_answers_again_is_launched_again_after_a_while(
    dead_node: Callable[[], None], make: Make
) -> None:
    tolerations = [{"key": DEAD_NODE, "operator": "Exists"}, {**UNREACHABLE, "tolerationSeconds": 1}]
    selector = {"kubernetes.io/hostname": DEAD_NODE}
    run = make("dead", {"spec.placement": {"gpus": 1, "nodeSelector": selector, "tolerations": tolerations}})
    pod = await_engine(run)
    eventually(lambda: [row for row in run.children("pods") if row["spec"].get("nodeName")], "it is not scheduled")
    dead_node()
    eventually(lambda: f"node {DEAD_NODE}" in run.condition("EngineReady")[2], "the condition does not name the node")
    assert run.condition("EngineReady")[1] == "Preempted"
    waits = eventually(lambda: [text for text in run.condition("Reconciling")[1:] if pod in text], "it waits silently")
    assert (DEAD_NODE in waits[0], names(run, "jobs")) == (True, ["g0-0"])
    eventually(lambda: names(run, "jobs") == ["g0-0", "g0-1"], "no other engine is launched")
    assert pod in run.living("engine"), "nobody knows whether the first one still runs"
    run.delete()


def test_a_run_whose_objects_lost_their_labels_has_no_second_engine_beside_the_first(
    site: OperatorSite, make: Make
) -> None:
    def strip(path: str, name: str) -> None:
        labels = dict.fromkeys(LABELS)
        site.cluster.call("PATCH", f"{path}/{name}", {"metadata": {"labels": labels}}, kind=MERGE)

    jobs, core = f"/apis/batch/v1/namespaces/{site.namespace}/jobs", f"/api/v1/namespaces/{site.namespace}"
    run = make("stripped")
    pod = await_engine(run)
    strip(jobs, "stripped-g0-0")
    strip(f"{core}/services", "stripped-g0-0")
    run.suspend(suspended=True)
    eventually(lambda: run.living("engine") == [], "the operator does not find the engine's Job")
    run.suspend(suspended=False)
    (pod,) = eventually(lambda: run.living("engine"), "it does not continue")
    strip(f"{core}/pods", pod)
    eventually(lambda: first_group(run).get("reason") == "EngineLost", "its lost labels are not noticed")
    eventually(lambda: names(run, "jobs", "engine") == ["g0-1", "g0-2"], "it is not launched again")
    found = site.cluster.call("GET", f"{core}/pods", query={"fieldSelector": f"metadata.name={pod}"})["items"]
    assert [row["status"]["phase"] for row in found if is_living(row)] == [], "two engines run"
    run.delete()


def test_a_killed_operator_continues_and_creates_nothing_twice(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    """Meanwhile, the run is suspended and its status is lost."""
    run = make("kept")
    await_engine(run)
    operator.end(signal.SIGKILL)
    run.suspend(suspended=True)
    site.cluster.call("PATCH", f"{run.path}/status", {"status": None}, kind=MERGE)
    operator.start()
    run.wait_for_phase("Suspended")
    eventually(lambda: run.gpus() == 0, "its GPUs are still held")
    assert names(run, "jobs") == ["g0-0"], "the Job is kept as a record"
    run.suspend(suspended=False)
    await_engine(run)
    eventually(lambda: first_group(run).get("attempt") == 1, "the second launch is not in the status")
    assert first_group(run)["suspensions"] == 1
    jobs = {row["metadata"]["uid"] for row in run.children("jobs")}

    operator.end(signal.SIGKILL)
    operator.start()
    site.runs.patch("kept", {"spec": {"startupDeadlineSeconds": 5}})
    status = run.wait_for_phase("Failed")
    assert [row["attempt"] for row in status["groups"]] == [1, 0]
    assert names(run, "jobs") == ["g0-0", "g0-1", "g1-0"]
    assert {row["metadata"]["uid"] for row in run.children("jobs")} > jobs


def test_a_run_keeps_the_image_of_its_start_when_the_operator_is_upgraded(
    operator: OperatorProcess, make: Make
) -> None:
    """Neither image exists. The other engine is launched by the new operator after the first one has failed."""
    simulated = {"spec.engine": {"kind": "simulator"}, "spec.drafters": [{"name": "ngram", "method": "ngram"}]}
    run = make("upgraded", simulated)
    eventually(lambda: names(run, "jobs") == ["g0-0"], "its first engine is not launched")
    operator.end(signal.SIGKILL)
    operator.image = "registry.invalid/specbench:next"
    operator.start()
    run.ends("Failed")
    jobs = run.children("jobs")
    assert [job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs] == [NO_IMAGE] * 2
    assert names(run, "jobs") == ["g0-0", "g1-0"]


def test_a_run_that_is_deleted_without_an_operator_frees_its_gpus_and_its_name(
    operator: OperatorProcess, make: Make
) -> None:
    old = make("again")
    await_engine(old)
    operator.end(signal.SIGKILL)
    old.delete()
    new = make("again")
    operator.start()
    for kind in ("pods", "jobs", "services", "configmaps"):  # Kubernetes guarantees no order
        eventually(lambda kind=kind: not old.children(kind), f"{kind} are not deleted")  # type: ignore[misc]
    await_engine(new)


def test_the_operator_exposes_metrics_and_exits_cleanly_on_sigterm(
    operator: OperatorProcess, begun: dict[str, ClusterRun]
) -> None:
    begun["silent"].wait_for_phase("Failed")
    eventually(lambda: 'specbench_runs{phase="Failed"}' in operator.metric("specbench_runs"), "no metrics")
    assert operator.reconcile_count() > 0
    assert float(operator.metric("specbench_last_watch_event_timestamp_seconds").split()[-1]) > time.time() - 120
    assert operator.healthy()
    assert operator.end(signal.SIGTERM) == 0
