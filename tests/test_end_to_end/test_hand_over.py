"""Two replicas of the operator: when the leader is killed, paused or partitioned, the other one takes over.

Runs are in progress during each fault, and one is created while nobody leads. Engines and clients are simulated;
`specbench_testing.simulated_site` describes what this does not cover.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specbench_cluster import Cluster as Ground
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.kwok_nodes import KwokNodes, placement
from specbench_testing.operator_process import eventually
from specbench_testing.operator_replicas import FAULTS, HandOver, hand_over, two_replicas
from specbench_testing.simulated_site import SimulatedSite, all_end, simulated_site

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(3600)]

HAND_OVER_MAX_S = 20.0
WITHIN_S = 300.0
SLOW = "--base-ms=48"
LAUNCHES = ("arm", "state", "attempt", "suspensions", "preemptions")
PARTITIONS = ["disconnected", "delayed"]


@pytest.fixture
def nodes(cluster: Cluster, ground: Ground, crd: Definition) -> KwokNodes:
    return KwokNodes(cluster)


@pytest.mark.parametrize("half", [1, 2])
def test_ten_hand_overs_of_each_kind(nodes: KwokNodes, tmp_path: Path, half: int) -> None:
    """Each kind has a namespace with its own replicas, at the same time."""
    partitions = [*PARTITIONS, *PARTITIONS, PARTITIONS[half - 1]]
    faults = {"killed": ["killed"] * 5, "paused": ["paused"] * 5, "partitioned": partitions}
    with nodes, ThreadPoolExecutor(len(faults)) as threads:
        started = []
        for kind, names in faults.items():
            (tmp_path / kind).mkdir()
            started.append(threads.submit(check_site, nodes, tmp_path / kind, names))
        results = [result for each in started for result in each.result()]
    late = [row for row in results if row.first_write_s >= HAND_OVER_MAX_S]
    print("\n".join(str(row) for row in results))  # noqa: T201 -- pytest shows it when the test fails, and with -s
    assert late == []


def check_site(nodes: KwokNodes, folder: Path, faults: Sequence[str]) -> list[HandOver]:
    """Each run is treated like the first one, which no fault affects: the same Jobs, Events and points, once each."""
    results: list[HandOver] = []
    with simulated_site(nodes.cluster, folder, shared_nodes=nodes) as site:
        undisturbed = create(site, "undisturbed")
        with two_replicas(site, folder) as replicas:
            all_end([undisturbed], WITHIN_S)
            runs = [create(site, "run-0")]
            eventually(lambda: all(replica.process.healthy() for replica in replicas.pair), "a standby is not healthy")
            assert site.operator.end(signal.SIGTERM) == 0
            for name in faults:
                await_first_point(site, runs[-1])
                results.append(hand_over(replicas, FAULTS[name], partial(create_further_run, site, runs)))
            ended = all_end(runs, WITHIN_S)
            eventually(lambda: site.left() == [], f"objects are left: {site.left()}")
            for replica in replicas.pair:
                # One that was restarted last may still be starting, and not handle the signal yet.
                eventually(replica.process.healthy, f"{replica.name} does not become healthy")
                assert replica.process.end(signal.SIGTERM) == 0
        assert {status["phase"] for status in ended.values()} == {"Succeeded"}
        assert site.violations() == []
        for run in runs:
            assert sorted(site.measured(run)) == sorted(site.stored(run).points())
            assert history(site, run) == history(site, undisturbed)
    return results


def create(site: SimulatedSite, name: str) -> ClusterRun:
    return site.create(name, {"spec.placement": placement(4), "spec.engine.args": [SLOW]})


def create_further_run(site: SimulatedSite, runs: list[ClusterRun]) -> None:
    runs.append(create(site, f"run-{len(runs)}"))


def await_first_point(site: SimulatedSite, run: ClusterRun) -> None:
    eventually(lambda: site.measured(run), f"nothing of {run.name} is measured: {run.status()}", WITHIN_S)


def history(site: SimulatedSite, run: ClusterRun) -> dict[str, Any]:
    """What was done for a run: its Jobs by role, its Events by reason, and its launches."""
    jobs = [job for job in site.site.items("jobs") if job["metadata"]["labels"]["specbench.io/run"] == run.name]
    path = f"/api/v1/namespaces/{site.site.namespace}/events"
    query = {"fieldSelector": f"involvedObject.kind=SpecBenchRun,involvedObject.name={run.name}"}
    events = site.site.cluster.call("GET", path, query=query)["items"]
    assert events
    return {
        "jobs": Counter(job["metadata"]["labels"]["specbench.io/role"] for job in jobs),
        "events": Counter(event["reason"] for event in events),
        "launches": [[row.get(key, 0) for key in LAUNCHES] for row in run.status()["groups"]],
    }
