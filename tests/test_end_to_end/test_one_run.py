"""The test helpers wait for a run: the operator acts, then writes status, then posts Events."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.operator_process import OperatorSite

LATE = 3
"""The read from which on the answer is complete."""


class SlowServer:
    """A minimal API server whose answers are complete from the third read on."""

    def __init__(self) -> None:
        self.reads = 0

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        if method == "POST":
            return {"status": {"allowed": True}}
        self.reads += 1
        there = self.reads >= LATE
        if path.endswith("/events"):
            return {"items": [{"reason": "First"}, *([{"reason": "Second"}] if there else [])]}
        row = {"type": "Ready", "status": "True" if there else "False", "reason": "Done", "message": f"{self.reads}"}
        status = {"phase": "Succeeded" if there else "Running", "conditions": [row]}
        return {"status": status | ({"completionTime": "now"} if self.reads > LATE else {})}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_testing.operator_process.time.sleep", lambda _: None)


@pytest.fixture
def server() -> SlowServer:
    return SlowServer()


@pytest.fixture
def run(server: SlowServer) -> ClusterRun:
    cluster: Cluster = server  # type: ignore[assignment]
    return ClusterRun(cluster, "default", "demo", "uid")


@pytest.fixture
def site(server: SlowServer) -> OperatorSite:
    cluster: Cluster = server  # type: ignore[assignment]
    return OperatorSite(cluster, "default")


def test_helpers_wait_for_events(run: ClusterRun, site: OperatorSite, server: SlowServer) -> None:
    run.wait_for_events("First", "Second")
    assert server.reads == LATE
    server.reads = 0
    site.wait_for_events("First", "Second")
    assert server.reads == LATE


def test_helpers_return_the_observed_state_without_another_read(
    run: ClusterRun, site: OperatorSite, server: SlowServer
) -> None:
    assert site.wait_for_phase("demo", "Succeeded")["conditions"][0]["message"] == f"{LATE}"
    server.reads = 0
    assert site.wait_for_condition("demo", "Ready", "True", "Done") == f"{LATE}"
    server.reads = 0
    assert run.ends()["conditions"][0]["message"] == f"{LATE + 1}"


def test_a_condition_that_does_not_occur_is_reported(site: OperatorSite) -> None:
    with pytest.raises(AssertionError, match="demo does not report Ready=\\('Unknown',\\)"):
        site.wait_for_condition("demo", "Ready", "Unknown", within_s=0.05)
