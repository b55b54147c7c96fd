"""What a test asks of a run is awaited: the operator acts, then writes status, then posts Events."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.operator_process import OperatorSite

LATE = 3
"""At which look what is asked for is there."""


class Slow:
    """As much of an API server as is asked; each of its answers is complete from the third look on."""

    def __init__(self) -> None:
        self.looks = 0

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        if method == "POST":
            return {"status": {"allowed": True}}
        self.looks += 1
        there = self.looks >= LATE
        if path.endswith("/events"):
            return {"items": [{"reason": "First"}, *([{"reason": "Second"}] if there else [])]}
        row = {"type": "Ready", "status": "True" if there else "False", "reason": "Done", "message": f"{self.looks}"}
        status = {"phase": "Succeeded" if there else "Running", "conditions": [row]}
        return {"status": status | ({"completionTime": "now"} if self.looks > LATE else {})}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_testing.operator_process.time.sleep", lambda _: None)


@pytest.fixture
def server() -> Slow:
    return Slow()


@pytest.fixture
def run(server: Slow) -> ClusterRun:
    cluster: Cluster = server  # type: ignore[assignment]
    return ClusterRun(cluster, "default", "demo", "uid")


@pytest.fixture
def site(server: Slow) -> OperatorSite:
    cluster: Cluster = server  # type: ignore[assignment]
    return OperatorSite(cluster, "default")


def test_events_are_waited_for(run: ClusterRun, site: OperatorSite, server: Slow) -> None:
    run.tells("First", "Second")
    assert server.looks == LATE
    server.looks = 0
    site.tells("First", "Second")
    assert server.looks == LATE


def test_what_is_given_is_what_was_looked_at_and_not_a_later_look(
    run: ClusterRun, site: OperatorSite, server: Slow
) -> None:
    assert site.reaches("demo", "Succeeded")["conditions"][0]["message"] == f"{LATE}"
    server.looks = 0
    assert site.comes_to_say("demo", "Ready", "True", "Done") == f"{LATE}"
    server.looks = 0
    assert run.ends()["conditions"][0]["message"] == f"{LATE + 1}"


def test_what_does_not_come_is_told(site: OperatorSite) -> None:
    with pytest.raises(AssertionError, match="demo does not say Ready=\\('Unknown',\\)"):
        site.comes_to_say("demo", "Ready", "Unknown", within_s=0.05)
