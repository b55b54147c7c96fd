"""Honest runs beside runs with hostile stores, on a real control plane with the real operator process.

Engines and clients are simulated; `specbench_testing.simulated_site` describes what this does not cover.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from specbench_cluster import Cluster as Ground
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.hostile_stores import BEHAVIOURS, hostile_store
from specbench_testing.kwok_nodes import placement
from specbench_testing.operator_process import BackgroundThread, OperatorProcess, eventually
from specbench_testing.simulated_site import SimulatedSite, all_end, simulated_site

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(2400)]

HOSTILE = ("drips a body", "pages without end", "giant listing", "redirects to a metadata address")
HONEST = 20
WITHIN_S = 600.0
MEMORY_LIMIT_MIB = 512
"""The operator's memory limit in the chart."""


@pytest.fixture
def site(cluster: Cluster, ground: Ground, crd: Definition, tmp_path: Path) -> Iterator[SimulatedSite]:
    settings = {"SPECBENCH_WORKER_STUCK_S": "10", "SPECBENCH_S3_LOOK_DEADLINE_S": "15"}
    with simulated_site(cluster, tmp_path, settings=settings) as found:
        yield found


def test_honest_runs_end_beside_four_hostile_stores(
    site: SimulatedSite, record_property: Callable[[str, object], None]
) -> None:
    alone_s = run_honest(site, "alone")
    with ExitStack() as stack:
        stores = [stack.enter_context(hostile_store(name)) for name in HOSTILE]
        hostile = [
            site.create(
                f"hostile-{number}", {"spec.placement": placement(2), "spec.results.s3": s3_of(site, store.url)}
            )
            for number, store in enumerate(stores)
        ]
        for run, name in zip(hostile, HOSTILE, strict=True):
            reason = BEHAVIOURS[name][1]
            wait_for_reason(run, reason)
        with UnhealthyTimes(site.operator) as unhealthy:
            beside_s = run_honest(site, "beside")
        assert unhealthy.found == []
        assert site.operator.ended is None, "the operator restarted"
        assert all(run.children("jobs") == [] for run in hostile), "no engine is launched without a readable store"
        memory_mib = peak_memory_mib(site.operator)
        assert memory_mib < MEMORY_LIMIT_MIB
    figures = {"honest": HONEST, "alone_s": alone_s, "beside_s": beside_s, "memory_mib": memory_mib}
    for name, value in figures.items():
        record_property(name, value)  # benchmarks/hostile-stores reads them


def run_honest(site: SimulatedSite, name: str) -> float:
    """Create the honest runs and wait until all have succeeded; returns how long that took, in seconds."""
    began = time.monotonic()
    ended = all_end(
        [site.create(f"{name}-{number}", {"spec.placement": placement(2)}) for number in range(HONEST)], WITHIN_S
    )
    assert {status["phase"] for status in ended.values()} == {"Succeeded"}
    return time.monotonic() - began


def wait_for_reason(run: ClusterRun, reason: str) -> None:
    """Wait until the run reports this reason for not reading its results."""
    eventually(lambda: run.condition("ResultsStored")[1] == reason, f"{run.name} does not report {reason}", WITHIN_S)


def s3_of(site: SimulatedSite, endpoint: str) -> dict[str, Any]:
    """The store of the honest runs with another endpoint."""
    return {**site.spec()["results"]["s3"], "endpoint": endpoint}


def peak_memory_mib(operator: OperatorProcess) -> int:
    """The largest resident memory of the process so far, in MiB."""
    assert operator.process is not None
    lines = Path(f"/proc/{operator.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


class UnhealthyTimes(BackgroundThread):
    """The times at which the liveness probe failed, asked for every second until the end of the block."""

    def __init__(self, operator: OperatorProcess) -> None:
        super().__init__("liveness probe")
        self.found: list[float] = []
        self._operator = operator

    def work(self) -> None:
        """Probe every second."""
        while not self.over.wait(1):
            if not self._operator.healthy():
                self.found.append(time.monotonic())
