"""Runs with a real Kueue and a quota for one engine: admitted one at a time, preempted, and measured once.

Engines on several nodes also use a real LeaderWorkerSet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peers.kueue.controller import GROUP, Kueue
from peers.lws.controller import LeaderWorkerSets
from specbench_cluster import Cluster as Ground
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.installed_product import small_run
from specbench_testing.operator_process import GROUP_RULES, OperatorProcess, OperatorSite, eventually
from specbench_testing.s3_results import StoredRun
from specbench_testing.shared_cluster import program

VERSION = f"{GROUP}/v1beta2"
GPU = "nvidia.com/gpu"
LOW, HIGH = "nightly", "release"
"""Priorities: one that can be preempted, and one that preempts."""


@dataclass(frozen=True)
class Quota:
    """GPUs for one namespace. Cluster-scoped objects are named after it."""

    kueue: Kueue
    namespace: str
    gpus: int
    queue: str = "bench"

    def grant(self) -> None:
        """Create the quota and the priorities, without a queue."""
        quota = {"name": GPU, "nominalQuota": self.gpus}
        resources = {"coveredResources": [GPU], "flavors": [{"name": self.namespace, "resources": [quota]}]}
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "preemption": preemption, "resourceGroups": [resources]}
        self.kueue.apply(
            _named("ResourceFlavor", self.namespace, spec={}),
            _named("ClusterQueue", self.namespace, spec=spec),
            *(
                _named("WorkloadPriorityClass", self._priority(name), value=value)
                for name, value in _PRIORITIES.items()
            ),
        )

    def open(self) -> None:
        """Create the queue of the namespace."""
        queue = _named("LocalQueue", self.queue, spec={"clusterQueue": self.namespace})
        self.kueue.apply({**queue, "metadata": {"name": self.queue, "namespace": self.namespace}})

    def take_back(self) -> None:
        """Delete the cluster-scoped objects once nothing uses them."""
        priorities = (f"workloadpriorityclass.{GROUP}/{self._priority(name)}" for name in _PRIORITIES)
        self.kueue.delete(
            f"clusterqueue.{GROUP}/{self.namespace}", f"resourceflavor.{GROUP}/{self.namespace}", *priorities
        )

    def placement(self, priority: str | None = None, nodes: int = 1) -> dict[str, Any]:
        """`spec.placement` of a run whose engine takes the whole quota."""
        named = {"queuePriorityClass": self._priority(priority)} if priority else {}
        return {"gpus": self.gpus // nodes, "nodes": nodes, "queueName": self.queue, **named}

    def _priority(self, name: str) -> str:
        return f"{self.namespace}-{name}"


_PRIORITIES = {LOW: 10, HIGH: 1000}


def _named(kind: str, name: str, **fields: Any) -> Mapping[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, **fields}


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

QUICK = {
    "SPECBENCH_ENGINE_LOST_SETTLE_S": "5",
    "SPECBENCH_RESYNC_S": "2",
    "SPECBENCH_LEADER_WORKER_SETS": "true",
}
GPUS = 8
"""All GPUs of the node, so that an engine outside the quota cannot run at the same time as one inside it."""
LONG = ["--base-ms=270"]
"""The baseline's point then takes half a minute, which is enough time for Kueue to preempt it."""
Begin = Callable[..., tuple[ClusterRun, StoredRun]]


@pytest.fixture(scope="module")
def kueue(cluster: Cluster, lws: LeaderWorkerSets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    with Kueue(cluster.kubeconfig, program("kubectl"), tmp_path_factory.mktemp("kueue")).running() as controller:
        yield controller


@pytest.fixture
def site(cluster: Cluster, crd: Definition, ground: Ground) -> Iterator[OperatorSite]:
    with cluster.namespace("queued") as namespace:
        site = OperatorSite(cluster, namespace, tuple(GROUP_RULES))
        site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
        yield site


@pytest.fixture
def quota(kueue: Kueue, lws: LeaderWorkerSets, site: OperatorSite) -> Iterator[Quota]:
    quota = Quota(kueue, site.namespace, GPUS)
    lws.manage([site.namespace])
    kueue.manage([site.namespace])
    quota.grant()
    yield quota
    path = f"/apis/specbench.io/v1alpha1/namespaces/{site.namespace}/specbenchruns"
    site.cluster.call("DELETE", path)
    eventually(lambda: not site.names("jobs", "engine"), "engines outlive their runs")
    quota.take_back()


@pytest.fixture
def operator(site: OperatorSite, image: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(site, tmp_path, image, QUICK).running() as process:
        yield process


@pytest.fixture
def begin(site: OperatorSite, ground: Ground, operator: OperatorProcess) -> Begin:
    """Create a small run: two engines, one point each."""

    def create(
        name: str, placement: dict[str, Any], edits: dict[str, Any] | None = None
    ) -> tuple[ClusterRun, StoredRun]:
        # Pods and the operator outside the cluster use the same endpoint.
        results = {"spec.results.s3.endpoint": ground.s3.endpoint}
        created = site.runs.create(small_run(name, {"spec.placement": placement, **results, **(edits or {})}))
        return ClusterRun.of(site.cluster, created), StoredRun(ground.s3, created)

    return create


def engines(site: OperatorSite) -> int:
    """Number of active engine pods, without terminating ones: Kueue reassigns quota while a pod terminates."""
    pods = [pod for pod in site.items("pods", "engine") if "deletionTimestamp" not in pod["metadata"]]
    return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in pods)


def wait_for_queued(run: ClusterRun, status: str, reason: str, words: str = "") -> None:
    """Wait for this state of the condition Queued. Fails with the run's status, its Jobs and Kueue's workloads."""

    def is_reached() -> bool:
        *condition, message = run.condition("Queued")
        return condition == [status, reason] and words in message

    try:
        eventually(is_reached)
    except AssertionError:
        workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{run.namespace}/workloads"
        diagnostics = (run.status(), run.children("jobs"), run.cluster.call("GET", workloads)["items"])
        pytest.fail(f"Queued is not {status}, {reason}, {words!r}: {json.dumps(diagnostics, indent=1)}", pytrace=False)


def uids(run: ClusterRun, kind: str) -> set[str]:
    """UIDs of a run's engine Jobs or engine pods."""
    return {row["metadata"]["uid"] for row in run.children(kind, "engine")}


def test_runs_are_admitted_one_at_a_time_and_report_why_they_wait(
    site: OperatorSite, quota: Quota, begin: Begin
) -> None:
    first, first_stored = begin("first", quota.placement())
    wait_for_queued(first, "True", "Inadmissible", "LocalQueue bench doesn't exist")
    assert first.condition("Stalled")[0] == "False"
    assert first.phase() == "Queued"
    quota.open()
    first.wait_for_phase("Starting", "Running")
    second, second_stored = begin("second", quota.placement())
    wait_for_queued(second, "True", "WaitingForQuota", "insufficient")
    status = second.status()
    assert (status["phase"], status["gpuSecondsHeld"]) == ("Queued", 0)
    assert second.children("pods") == []

    most = 0

    def finished() -> bool:
        nonlocal most
        most = max(most, engines(site))
        return {first.phase(), second.phase()} == {"Succeeded"}

    eventually(finished, "the runs do not finish", 400)
    assert most == 1
    for run, stored in ((first, first_stored), (second, second_stored)):
        assert stored.violations() == []
        assert run.condition("Queued")[:2] == ("False", "NotQueued")
        run.wait_for_events("EngineQueued", "EngineStarting", "EngineReady", "ResultsReady")
        assert sum(row.get("preemptions", 0) for row in run.status()["groups"]) == 0


def test_a_preempted_run_reports_it_stores_no_result_and_is_measured_once_later(
    site: OperatorSite, quota: Quota, begin: Begin
) -> None:
    quota.open()
    nightly, nightly_stored = begin("nightly", quota.placement(LOW), {"spec.engine.args": LONG})
    nightly.wait_for_phase("Running")
    eventually(lambda: nightly.living("client"), "no client pod is active")
    eventually(nightly_stored.under_way, "no request has ended before the preemption")
    engine_jobs = uids(nightly, "jobs")
    engine_pods = uids(nightly, "pods")

    # One engine only: between two engines, the other run would be admitted and then preempted again.
    release, release_stored = begin("release", quota.placement(HIGH), {"spec.drafters": []})
    wait_for_queued(nightly, "True", "Preempted", "preempted 1 times")
    assert nightly.phase() == "Queued"
    row = nightly.status()["groups"][0]
    assert (row["state"], row["attempt"], row["preemptions"], row["measured"]) == ("Queued", 1, 1, 0)
    eventually(lambda: nightly.living() == [], "a queued run still has pods")
    assert nightly_stored.manifests() == {}
    assert uids(nightly, "jobs") == engine_jobs, "the queued Jobs were recreated"
    held = nightly.status()["gpuSecondsHeld"]

    nightly.wait_for_phase("Running", within_s=400)
    assert uids(nightly, "jobs") == engine_jobs
    assert uids(nightly, "pods").isdisjoint(engine_pods)
    release.ends()
    assert release_stored.violations() == []
    nightly.ends(within_s=400)
    assert nightly_stored.violations() == [], "a point is missing, incomplete or duplicated"
    status = nightly.status()
    assert status["gpuSecondsHeld"] > held
    assert [row.get("preemptions", 0) for row in status["groups"]] == [1, 0]
    nightly.wait_for_events("Preempted")
    assert "EngineLost" not in nightly.reasons()
    launches = {nightly_stored.json(key)["attempt"].partition("-")[0] for key in nightly_stored.manifests()}
    assert launches == {"1", "0"}, "expected the baseline's second launch and the drafter's first"


def scheduled(site: OperatorSite) -> int:
    """Number of engine pods that hold GPUs, without terminating ones."""
    pods = [pod for pod in site.items("pods", "engine") if "deletionTimestamp" not in pod["metadata"]]
    return sum("nodeName" in pod["spec"] and pod["status"]["phase"] in ("Pending", "Running") for pod in pods)


def test_engines_on_two_nodes_wait_are_preempted_and_measured_once(
    site: OperatorSite, quota: Quota, begin: Begin
) -> None:
    nightly, nightly_stored = begin("nightly", quota.placement(LOW, nodes=2), {"spec.engine.args": LONG})
    wait_for_queued(nightly, "True", "Inadmissible", "LocalQueue bench doesn't exist")
    eventually(lambda: len(nightly.living("engine")) == 2, "the gated pods are not created")
    assert (scheduled(site), nightly.phase(), nightly.status()["gpuSecondsHeld"]) == (0, "Queued", 0)
    quota.open()
    eventually(nightly_stored.under_way, "no request has ended before the preemption", 200)
    release, release_stored = begin("release", quota.placement(HIGH, nodes=2), {"spec.drafters": []})
    wait_for_queued(nightly, "True", "Preempted", "preempted 1 times")
    most = 0

    def finished() -> bool:
        nonlocal most
        most = max(most, scheduled(site))
        return {nightly.phase(), release.phase()} == {"Succeeded"}

    eventually(finished, "the runs do not finish", 500)
    assert most == 2
    assert (nightly_stored.violations(), release_stored.violations()) == ([], [])
    assert [row.get("preemptions", 0) for row in nightly.status()["groups"]] == [1, 0]
    assert "EngineLost" not in nightly.reasons()
