"""Two replicas of the operator: when the leader is killed, paused or partitioned, the other one takes over.

Runs are in progress during each fault, and one is created while nobody leads. Engines and clients are simulated;
`specbench_testing.simulated_site` describes what this does not cover.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.kwok_nodes import placement
from specbench_testing.operator_process import eventually
from specbench_testing.operator_replicas import FAULTS, HandOver, hand_over, two_replicas
from specbench_testing.simulated_site import SimulatedSite, all_end, simulated_site

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(900), pytest.mark.xdist_group("end-to-end")]

HAND_OVER_MAX_S = 20.0
WITHIN_S = 300.0
SLOW = "--base-ms=96"
KINDS = {
    "killed": ["killed"],
    "paused": ["paused"],
    "partitioned": ["disconnected", "delayed"],
}
FAULTS_OF_EACH_KIND = 10


@pytest.fixture
def site(cluster: Cluster, crd: Definition, tmp_path: Path) -> Iterator[SimulatedSite]:
    if cluster.ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    with simulated_site(cluster, tmp_path) as found:
        yield found


def test_another_replica_takes_over_and_nothing_is_done_twice(site: SimulatedSite, tmp_path: Path) -> None:
    check_hand_overs(site, tmp_path, [names[-1] for names in KINDS.values()])


@pytest.mark.chaos
@pytest.mark.parametrize("half", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_many_hand_overs(site: SimulatedSite, tmp_path: Path, kind: str, half: int) -> None:
    count = FAULTS_OF_EACH_KIND // 2
    check_hand_overs(site, tmp_path, list(islice(cycle(KINDS[kind]), (half - 1) * count, half * count)))


def check_hand_overs(site: SimulatedSite, folder: Path, faults: list[str]) -> None:
    """Each run is treated like the first one, which no fault affects: the same Jobs, Events and points, once each."""
    undisturbed = create(site, "undisturbed")
    all_end([undisturbed], WITHIN_S)
    runs = [create(site, "run-0")]
    results: list[HandOver] = []
    with two_replicas(site, folder) as replicas:
        for name in faults:
            await_first_point(site, runs[-1])
            results.append(hand_over(replicas, FAULTS[name], partial(create_further_run, site, runs)))
            print(results[-1])  # noqa: T201 -- pytest shows it when the test fails, and with -s
        ended = all_end(runs, WITHIN_S)
        eventually(lambda: site.left() == [] and site.gpus() == 0, f"objects are left: {site.left()}")
        for replica in replicas.pair:
            assert replica.process.end(signal.SIGTERM) == 0
    assert {status["phase"] for status in ended.values()} == {"Succeeded"}
    assert site.violations() == []
    for run in runs:
        assert sorted(site.measured(run)) == sorted(site.stored(run).points())
        assert history(site, run) == history(site, undisturbed)
    assert [row for row in results if row.first_write_s >= HAND_OVER_MAX_S] == []


def create(site: SimulatedSite, name: str) -> ClusterRun:
    return site.create(name, {"spec.placement": placement(4), "spec.engine.args": [SLOW]})


def create_further_run(site: SimulatedSite, runs: list[ClusterRun]) -> None:
    runs.append(create(site, f"run-{len(runs)}"))


def await_first_point(site: SimulatedSite, run: ClusterRun) -> None:
    eventually(lambda: site.measured(run), f"nothing of {run.name} is measured: {run.status()}", WITHIN_S)


def history(site: SimulatedSite, run: ClusterRun) -> dict[str, Any]:
    """What was done for a run: its Jobs by role, its Events by reason, the launches in its status."""
    jobs = [job for job in site.site.items("jobs") if job["metadata"]["labels"]["specbench.io/run"] == run.name]
    path = f"/api/v1/namespaces/{site.site.namespace}/events"
    query = {"fieldSelector": f"involvedObject.kind=SpecBenchRun,involvedObject.name={run.name}"}
    events = site.site.cluster.call("GET", path, query=query)["items"]
    return {
        "jobs": Counter(job["metadata"]["labels"]["specbench.io/role"] for job in jobs),
        "events": Counter(event["reason"] for event in events),
        "groups": [
            {key: row[key] for key in ("arm", "state", "launches") if key in row} for row in run.status()["groups"]
        ],
    }
