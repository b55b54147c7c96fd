"""Twelve concurrent runs on 64 simulated GPUs and a real control plane, while the operator is killed five times.

Engines and clients are simulated; `specbench_testing.simulated_site` describes what this does not cover.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from peers.kwok.stages import CRASHES, NEVER_READY, OUT_OF_MEMORY
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.kwok_nodes import placement
from specbench_testing.operator_kills import OperatorKills
from specbench_testing.operator_process import eventually
from specbench_testing.simulated_site import POINTS, SimulatedSite, all_end, simulated_site

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

KILLS = 5
WITHIN_S = 300.0
HEALTHY = [f"healthy-{number}" for number in range(8)]
FAILING = {"oom": (OUT_OF_MEMORY, "OOMKilled"), "mute": (NEVER_READY, "NeverReady"), "crash": (CRASHES, "Crashed")}
SLOW = "--base-ms=96"
"""Makes points last twenty times as long, so that events can occur during them."""


@pytest.fixture
def site(cluster: Cluster, crd: Definition, tmp_path: Path) -> Iterator[SimulatedSite]:
    if cluster.ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    with simulated_site(cluster, tmp_path) as found:
        yield found


def edits(fault: str | None = None) -> dict[str, Any]:
    """Edits of a run whose engines have four GPUs each; with a fault, the drafter's engine fails."""
    failing = {"spec.drafters[0].args": [fault], "spec.startupDeadlineSeconds": 20} if fault else {}
    return {"spec.placement": placement(4), "spec.engine.args": [SLOW], **failing}


def test_twelve_runs_complete_while_the_operator_is_killed_five_times(site: SimulatedSite) -> None:
    with OperatorKills(site.operator, KILLS, "twelve runs") as kills:
        healthy = [site.create(name, edits()) for name in HEALTHY]
        failing = {name: site.create(name, edits(fault)) for name, (fault, _) in FAILING.items()}
        paused = site.create("paused", edits())
        suspend_halfway(site, paused)
        ended = all_end([*healthy, *failing.values(), paused], WITHIN_S)
        assert kills.done, f"the runs ended after {len(kills.at)} kills"
    assert max(kills.at) < max(datetime.fromisoformat(status["completionTime"]) for status in ended.values())
    assert site.violations(cut_off=[paused.uid]) == []
    eventually(lambda: site.left() == [] and site.gpus() == 0, f"objects are left: {site.left()}")
    for run in (*healthy, paused):
        check_complete(site, run, ended[run.name])
    for name, (_, reason) in FAILING.items():
        rows = {row["arm"]: row for row in ended[name]["groups"]}
        assert (rows["none"]["state"], rows["ngram"]["reason"]) == ("Done", reason)
        assert failing[name].condition("EngineReady")[:2] == ("False", reason)
        assert POINTS // 2 <= len(site.measured(failing[name])) < POINTS


def suspend_halfway(site: SimulatedSite, run: ClusterRun) -> None:
    """Suspend the run after its first point, wait until its GPUs are free, and resume it."""
    eventually(lambda: site.measured(run), f"nothing of {run.name} is measured: {run.status()}", WITHIN_S)
    run.suspend(suspended=True)
    run.wait_for_phase("Suspended")
    eventually(lambda: run.gpus() == 0, f"{run.name} holds GPUs although it is suspended")
    run.suspend(suspended=False)


def check_complete(site: SimulatedSite, run: ClusterRun, status: dict[str, Any]) -> None:
    """The run has results, and S3 contains every point once."""
    stored = site.stored(run)
    assert (status["phase"], status["progress"]) == ("Succeeded", f"{POINTS}/{POINTS}"), status
    assert sorted(site.measured(run)) == sorted(stored.points())
    assert len(stored.manifests()) == POINTS
    assert stored.json("summary.json")["pointsMeasured"] == POINTS
