"""Engines on two nodes with a real LeaderWorkerSet: served, measured, relaunched, and removed completely."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peers.lws.controller import LeaderWorkerSets
from specbench_cluster import Cluster as Ground
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import GROUP_RULES, OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

WITHIN_S = 400.0
SETTINGS = {"SPECBENCH_RESYNC_S": "5", "SPECBENCH_LEADER_WORKER_SETS": "true"}
WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
SHORTEST_DEADLINE_S = 60
Make = Callable[..., Resource]


@pytest.fixture
def site(cluster: Cluster, crd: Definition, ground: Ground, lws: LeaderWorkerSets) -> Iterator[OperatorSite]:
    with cluster.namespace("lws") as namespace:
        lws.manage([namespace])
        site = OperatorSite(cluster, namespace, tuple(GROUP_RULES))
        site.enforce("restricted")
        site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
        yield site
        for name in [row["metadata"]["name"] for row in sets(site)]:
            cluster.call("DELETE", f"{root(site)}/{name}")
        eventually(lambda: not site.names("pods", "engine"), "engine pods outlive their test")


@pytest.fixture
def operator(site: OperatorSite, image: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(site, tmp_path, image, SETTINGS).running() as process:
        yield process


@pytest.fixture
def make(site: OperatorSite, ground: Ground) -> Make:
    """Create an edited run on the simulator; each engine uses two nodes with four GPUs each."""

    def create(edits: dict[str, Any] | None = None) -> Resource:
        s3 = {"bucket": ground.s3.bucket, "endpoint": ground.s3.endpoint, "credentialsSecretRef": {"name": "bench-s3"}}
        dataset = {"source": "jsonl", "uri": "/usr/share/specbench/prompts.jsonl", "count": 8}
        given = {
            "spec.model.name": "simulated",
            "spec.workloads[0]": {"name": "mixed", "dataset": dataset, "output": {"maxTokens": 24}},
            "spec.load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1},
            "spec.placement": {"gpus": 4, "nodes": 2},
            "spec.results": {"s3": {**s3, "prefix": "lws"}},
            **(edits or {}),
        }
        return site.runs.create(resource(given))

    return create


def root(site: OperatorSite) -> str:
    return f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{site.namespace}/leaderworkersets"


def sets(site: OperatorSite) -> list[Resource]:
    return list(site.cluster.call("GET", root(site))["items"])


def stateful_sets(site: OperatorSite) -> list[Resource]:
    return list(site.cluster.call("GET", f"/apis/apps/v1/namespaces/{site.namespace}/statefulsets")["items"])


def pods_by_worker(site: OperatorSite) -> dict[str, Resource]:
    return {pod["metadata"]["labels"][WORKER]: pod for pod in site.items("pods", "engine")}


def is_torn_down(site: OperatorSite) -> bool:
    return not (sets(site) or stateful_sets(site) or site.names("pods", "engine"))


def client_runs(site: OperatorSite) -> bool:
    return any(pod["status"]["phase"] == "Running" for pod in site.items("pods", "client"))


def test_a_group_of_two_nodes_serves_a_run_and_is_removed_completely(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make()
    most = 0
    served: set[frozenset[str]] = set()

    def finished() -> bool:
        nonlocal most
        pods = [pod for pod in site.items("pods", "engine") if pod["status"]["phase"] in ("Pending", "Running")]
        most = max(most, len(pods))
        if client_runs(site):
            served.add(frozenset(pod["metadata"]["labels"][WORKER] for pod in pods))
        return site.phase("demo") in ("Succeeded", "Failed", "Invalid")

    eventually(finished, "the run does not finish", WITHIN_S)
    status = site.status("demo")
    assert status["phase"] == "Succeeded", (status, operator.log.read_text()[-3000:])
    assert status["progress"] == "2/2"
    assert frozenset({"0", "1"}) in served
    assert most == 2, "two groups ran at the same time"
    assert [row["attempt"] for row in status["groups"]] == [0, 0]
    assert status["gpuSecondsHeld"] > 8
    assert status["engineNodes"] == [site.items("pods", "client")[0]["spec"]["nodeName"]]
    eventually(lambda: is_torn_down(site), "the group outlives the measurement")


def test_a_lost_worker_is_a_lost_engine_and_the_engine_is_relaunched(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.drafters": [], "spec.engine.args": ["--base-ms=60"]})
    eventually(lambda: client_runs(site), "the client does not start", WITHIN_S)
    lost = pods_by_worker(site)["1"]["metadata"]
    site.delete("pods", lost["name"])
    status = site.wait_for_phase("demo", "Succeeded", WITHIN_S)
    (group,) = status["groups"]
    assert (group["state"], group["attempt"]) == ("Done", 1)
    site.wait_for_events("EngineLost")
    eventually(lambda: is_torn_down(site), "the group outlives the measurement")


def test_engine_pods_are_removed_after_the_operator_is_killed(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    """Cleans up without the operator: by the Job's deadline, its TTL and the garbage collector."""
    make({"spec.activeDeadlineSeconds": SHORTEST_DEADLINE_S, "spec.engine.args": ["--base-ms=2000"]})
    eventually(lambda: client_runs(site), "the client does not start", WITHIN_S)
    operator.end(signal.SIGKILL)
    operator.process = None
    assert len(pods_by_worker(site)) == 2
    eventually(lambda: is_torn_down(site), "engine pods are not removed", SHORTEST_DEADLINE_S + 60 + 60)


def test_deleting_a_run_removes_its_engine_pods(site: OperatorSite, operator: OperatorProcess, make: Make) -> None:
    make({"spec.engine.args": ["--base-ms=2000"]})
    eventually(lambda: client_runs(site), "the client does not start", WITHIN_S)
    site.delete_run("demo")
    eventually(lambda: is_torn_down(site), "children outlive their run")
