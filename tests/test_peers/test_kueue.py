"""Runs behind a real Kueue on a quota of one engine: admitted one after the other, preempted, and measured once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peers.kueue.controller import Kueue
from specbench_cluster import Cluster as Ground
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.installed_product import QUICK, small_run
from specbench_testing.kueue_quota import HIGH, LOW, Quota
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.s3_results import StoredRun
from specbench_testing.shared_cluster import program

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.peers,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("operator-on-cluster"),
]

GPUS = 8
"""All that the node has, so that an engine outside the quota could not run beside one inside it."""
LONG = ["--base-ms=270"]
"""The baseline's point takes half a minute: time in which Kueue preempts it."""
Begin = Callable[..., tuple[ClusterRun, StoredRun]]


@pytest.fixture(scope="module")
def ground(cluster: Cluster) -> Ground:
    if cluster.ground is None:
        pytest.skip("the S3 server of hack/cluster is needed, and a machine that the API server's webhooks reach")
    return cluster.ground


@pytest.fixture(scope="module")
def kueue(cluster: Cluster, ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    controller = Kueue(cluster.kubeconfig, program("kubectl"), tmp_path_factory.mktemp("kueue"))
    try:
        yield controller.start()
    finally:
        controller.stop()


@pytest.fixture
def site(cluster: Cluster, crd: Definition, ground: Ground) -> Iterator[OperatorSite]:
    with cluster.namespace("queued") as namespace:
        site = OperatorSite(cluster, namespace)
        site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
        yield site


@pytest.fixture
def quota(kueue: Kueue, site: OperatorSite) -> Iterator[Quota]:
    quota = Quota(kueue, site.namespace, GPUS)
    kueue.manage([site.namespace])
    quota.grant()
    yield quota
    path = f"/apis/specbench.io/v1alpha1/namespaces/{site.namespace}/specbenchruns"
    site.cluster.call("DELETE", path)
    eventually(lambda: not site.names("jobs", "engine"), "engines outlive their runs")
    quota.take_back()


@pytest.fixture
def operator(site: OperatorSite, image: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    process = OperatorProcess(site, tmp_path, image, {**QUICK, "SPECBENCH_RELIST_S": "2"}).start()
    try:
        yield process
        assert process.bugs() == []
    finally:
        if process.process:
            process.end(signal.SIGKILL)


@pytest.fixture
def begin(site: OperatorSite, ground: Ground, operator: OperatorProcess) -> Begin:
    """Create a small run: two engines, one point each."""

    def create(
        name: str, placement: dict[str, Any], edits: dict[str, Any] | None = None
    ) -> tuple[ClusterRun, StoredRun]:
        here = {"spec.results.s3.endpoint": ground.s3.endpoint}  # the same for pods and for the operator beside them
        created = site.runs.create(small_run(name, {"spec.placement": placement, **here, **(edits or {})}))
        return ClusterRun.of(site.cluster, created), StoredRun(ground.s3, created)

    return create


def engines(site: OperatorSite) -> int:
    """Engine pods that have not ended and are not about to: Kueue gives quota on while a pod still ends."""
    pods = [pod for pod in site.items("pods", "engine") if "deletionTimestamp" not in pod["metadata"]]
    return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in pods)


def comes_to_say(run: ClusterRun, status: str, reason: str, words: str = "") -> None:
    """Wait for its condition Queued. Fails with all that Kubernetes and Kueue know of the run."""

    def said() -> bool:
        *told, message = run.condition("Queued")
        return told == [status, reason] and words in message

    try:
        eventually(said)
    except AssertionError:
        workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{run.namespace}/workloads"
        known = (run.status(), run.children("jobs"), run.cluster.call("GET", workloads)["items"])
        pytest.fail(f"it does not say {status}, {reason}, {words!r}: {json.dumps(known, indent=1)}", pytrace=False)


def uids(run: ClusterRun, kind: str) -> set[str]:
    """Of a run's engine Jobs or engine pods."""
    return {row["metadata"]["uid"] for row in run.children(kind, "engine")}


def test_runs_are_admitted_one_after_the_other_and_say_what_they_wait_for(
    site: OperatorSite, quota: Quota, begin: Begin
) -> None:
    first, first_stored = begin("first", quota.placement())
    comes_to_say(first, "True", "Inadmissible", "LocalQueue bench doesn't exist")
    assert first.condition("Stalled")[0] == "False"
    assert first.phase() == "Queued"
    quota.open()
    first.wait_for_phase("Starting", "Running")
    second, second_stored = begin("second", quota.placement())
    comes_to_say(second, "True", "WaitingForQuota", "insufficient")
    status = second.status()
    assert (status["phase"], status["gpuSecondsHeld"]) == ("Queued", 0)
    assert second.children("pods") == []

    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, engines(site))
        return {first.phase(), second.phase()} == {"Succeeded"}

    eventually(over, "they do not come to their ends", 400)
    assert most == 1
    for run, stored in ((first, first_stored), (second, second_stored)):
        assert stored.violations() == []
        assert run.condition("Queued")[:2] == ("False", "NotQueued")
        run.wait_for_events("EngineQueued", "EngineStarting", "EngineReady", "ResultsReady")
        assert sum(row.get("preemptions", 0) for row in run.status()["groups"]) == 0


def test_a_preempted_run_says_so_gives_no_result_and_is_measured_later_once(
    site: OperatorSite, quota: Quota, begin: Begin
) -> None:
    quota.open()
    nightly, nightly_stored = begin("nightly", quota.placement(LOW), {"spec.engine.args": LONG})
    nightly.wait_for_phase("Running")
    eventually(lambda: nightly.living("client"), "no client is at work")
    eventually(nightly_stored.unnamed, "nothing was measured yet that a preemption could spoil")
    engine_jobs = uids(nightly, "jobs")
    engine_pods = uids(nightly, "pods")

    # One engine: between two, the other run would be admitted, and be preempted once more.
    release, release_stored = begin("release", quota.placement(HIGH), {"spec.drafters": []})
    comes_to_say(nightly, "True", "Preempted", "preempted 1 times")
    assert nightly.phase() == "Queued"
    row = nightly.status()["groups"][0]
    assert (row["state"], row["attempt"], row["preemptions"], row["measured"]) == ("Queued", 1, 1, 0)
    eventually(lambda: nightly.living() == [], "it holds pods while it waits")
    assert nightly_stored.manifests() == {}
    spoilt = nightly_stored.unnamed()
    assert spoilt, "what was measured until then is kept, and no result"
    assert uids(nightly, "jobs") == engine_jobs, "it keeps its place in the queue"
    held = nightly.status()["gpuSecondsHeld"]

    nightly.wait_for_phase("Running", within_s=400)
    assert uids(nightly, "jobs") == engine_jobs
    assert uids(nightly, "pods").isdisjoint(engine_pods)
    release.ends()
    assert release_stored.violations() == []
    nightly.ends(within_s=400)
    assert nightly_stored.violations() == [], "every point once, and whole"
    assert nightly_stored.unnamed() >= spoilt
    status = nightly.status()
    assert status["gpuSecondsHeld"] > held
    assert [row.get("preemptions", 0) for row in status["groups"]] == [1, 0]
    nightly.wait_for_events("Preempted")
    assert "EngineLost" not in nightly.reasons()
    launches = {nightly_stored.json(key)["attempt"].partition("-")[0] for key in nightly_stored.manifests()}
    assert launches == {"1", "0"}, "the baseline was measured by its second launch, the drafter by its first"
