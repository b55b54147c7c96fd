"""Two replicas of the operator: when the leader is killed, paused or partitioned, the other one takes over.

Runs are in progress during each fault, and one is created while nobody leads. Engines and clients are simulated;
`specbench_testing.simulated_site` describes what this does not cover.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specbench_cluster import Cluster as Ground
from specbench_operator.app import LEASE_LOST
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.fault_proxy import FaultProxy, ForwardedWrite, Writer, api_upstream
from specbench_testing.kwok_nodes import KwokNodes, placement
from specbench_testing.operator_process import LEASE, OperatorProcess, OperatorSite, eventually
from specbench_testing.simulated_site import NO_IMAGE, QUICK, SimulatedSite, all_end, simulated_site


@dataclass(frozen=True)
class Replica:
    """One replica and its way to the API server."""

    process: OperatorProcess
    proxy: FaultProxy

    @property
    def name(self) -> str:
        """Its identity in the Lease."""
        return self.process.pod

    def writes(self, since: float = 0.0) -> list[ForwardedWrite]:
        """Its writes since then. The Lease is not one of them, nor is a question about its own rights, sent by POST."""
        return [
            write
            for write in list(self.proxy.forwarded)
            if write.at >= since and "/leases" not in write.path and "/selfsubjectaccessreviews" not in write.path
        ]

    def signal(self, signal_number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        assert self.process.process is not None
        self.process.process.send_signal(signal_number)

    def restart(self) -> None:
        """Start the process again in the same pod, as the kubelet does, and do not wait."""
        self.process.process = None
        self.process.launch()


@dataclass(frozen=True)
class Replicas:
    """Both replicas."""

    site: OperatorSite
    pair: tuple[Replica, Replica]

    def holder(self) -> str:
        """The holder in the Lease; empty if there is none."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.site.namespace}/leases"
        leases = self.site.cluster.call("GET", path)["items"]
        found = [row["spec"].get("holderIdentity") for row in leases if row["metadata"]["name"] == LEASE]
        return str(found[0] or "") if found else ""

    def roles(self) -> tuple[Replica, Replica]:
        """Leader and standby."""
        first, second = self.pair
        leads = eventually(lambda: self.holder() in (first.name, second.name) and self.holder(), "no replica leads")
        return (first, second) if first.name == leads else (second, first)


@dataclass(frozen=True)
class HandOver:
    """What one fault led to. Times are in seconds after the fault."""

    fault: str
    lease_taken_s: float
    first_write_s: float


@dataclass(frozen=True)
class Fault:
    """A fault of the leader: what causes it, and what follows once the other replica leads."""

    name: str
    cause: Callable[[Replica], None]
    end: Callable[[Replica], None]
    delivers_late: bool = False
    """Requests that the leader sent while it led arrive when the fault ends."""


def _kill(leader: Replica) -> None:
    leader.process.end(signal.SIGKILL)


def _no_more(leader: Replica) -> None:
    """Nothing is left to end."""


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("killed", _kill, _no_more),
        Fault("paused", lambda leader: leader.signal(signal.SIGSTOP), lambda leader: leader.signal(signal.SIGCONT)),
        Fault("disconnected", lambda leader: leader.proxy.cut(), lambda leader: leader.proxy.heal()),
        Fault("delayed", lambda leader: leader.proxy.hold(), lambda leader: leader.proxy.heal(), True),
    )
}
"""`disconnected` and `delayed` are partitions; the latter delivers all requests when it ends."""


def hand_over(replicas: Replicas, fault: Fault, during: Callable[[], object]) -> HandOver:
    """Cause a fault of the leader, call `during`, wait until the standby acts, end the fault, and restart the replica.

    Fails if the former leader writes anything after the other replica took the Lease, or if it does not end. What
    arrives late must do no harm, which the caller checks.
    """
    leader, standby = replicas.roles()
    eventually(standby.process.ready, f"{standby.name} does not become ready")
    assert standby.writes() == [], "a standby wrote"
    fault.cause(leader)
    began = time.monotonic()
    during()
    eventually(lambda: replicas.holder() == standby.name, f"{standby.name} does not take over", 60)
    taken = time.monotonic()
    eventually(lambda: standby.writes(began), f"{standby.name} writes nothing", 60)
    fault.end(leader)
    if leader.process.process is not None:
        code = leader.process.process.wait(60)
        assert code == LEASE_LOST, f"{leader.name} ended with {code}: {leader.process.log.read_text()[-2000:]}"
    late = leader.writes(taken)
    assert late == [] or fault.delivers_late, "the former leader wrote after the hand-over"
    leader.proxy.forwarded.clear()  # it starts as a standby
    leader.restart()
    return HandOver(fault.name, taken - began, standby.writes(began)[0].at - began)


@contextmanager
def two_replicas(site: SimulatedSite, folder: Path) -> Iterator[Replicas]:
    """Start two replicas beside the site's operator, which leads until it is stopped."""
    with ExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            own = folder / name
            own.mkdir()
            proxy = stack.enter_context(FaultProxy(api_upstream(site.site.cluster), Writer()))
            process = OperatorProcess(site.site, own, NO_IMAGE, QUICK, pod=name, server=proxy.url)
            stack.callback(_end, process)
            process.launch()
            pair.append(Replica(process, proxy))
        yield Replicas(site.site, (pair[0], pair[1]))
        assert [line for replica in pair for line in replica.process.bugs()] == []


def _end(process: OperatorProcess) -> None:
    if process.process:
        process.end(signal.SIGKILL)


pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(3600)]

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
    print("\n".join(str(row) for row in results))  # noqa: T201 -- the times are in docs/concepts/high-availability.md
    assert len(results) == sum(map(len, faults.values()))


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
