"""Twelve runs at once on 64 GPUs that are not there, on a real control plane, while the operator is killed five times.

Engines and clients are played (`specbench_testing.played_site` says what that means and what it does not show).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from peers.kwok.stages import NEVER_READY, OUT_OF_MEMORY
from specbench_testing.cluster import Cluster
from specbench_testing.kwok_nodes import placement
from specbench_testing.one_run import OneRun
from specbench_testing.operating import eventually
from specbench_testing.operator_kills import OperatorKills, drawn_seed
from specbench_testing.played_site import POINTS, PlayedSite, all_end, played_site
from specbench_testing.runs import Definition

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600), pytest.mark.xdist_group("end-to-end")]

KILLS = 5
WITHIN_S = 300.0
HEALTHY = [f"healthy-{number}" for number in range(9)]
FAILING = {"oom": (OUT_OF_MEMORY, "OOMKilled"), "mute": (NEVER_READY, "NeverReady")}


@pytest.fixture
def site(cluster: Cluster, crd: Definition, tmp_path: Path) -> Iterator[PlayedSite]:
    if cluster.ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    with played_site(cluster, tmp_path) as found:
        yield found


SLOW = {"spec.engine.args": ["--base-ms=48"]}
"""Points last ten times as long: time in which something can happen to them."""


def edits(fault: str | None = None) -> dict[str, Any]:
    """Of a run whose engines have four GPUs each; the drafter's fails where a fault is given."""
    failing = {"spec.drafters[0].args": [fault], "spec.startupDeadlineSeconds": 10} if fault else {}
    return {"spec.placement": placement(4), **failing}


def test_twelve_runs_come_to_their_answers_although_the_operator_is_killed_five_times(site: PlayedSite) -> None:
    healthy = [site.create(name, edits()) for name in HEALTHY]
    failing = {name: site.create(name, edits(fault)) for name, (fault, _) in FAILING.items()}
    paused = site.create("paused", edits() | SLOW)
    eventually(lambda: site.measured(paused), f"nothing of it is measured: {paused.status()}", WITHIN_S)
    paused.suspend(suspended=True)
    with OperatorKills(site.operator, KILLS, drawn_seed(), lives_s=(0.5, 6.0)) as kills:
        paused.reaches("Suspended")
        eventually(lambda: paused.gpus() == 0, "it holds GPUs although it is suspended")
        paused.suspend(suspended=False)
        ended = all_end([*healthy, *failing.values(), paused], WITHIN_S)
        assert kills.done, f"it was over after {len(kills.at)} kills"
    assert max(kills.at) < max(datetime.fromisoformat(status["completionTime"]) for status in ended.values())

    assert site.wrongs(cut_off=[paused.uid]) == []
    eventually(lambda: site.left() == [] and site.gpus() == 0, f"something is left: {site.left()}")
    for run in (*healthy, paused):
        measured_whole(site, run, ended[run.name])
    for name, (_, reason) in FAILING.items():
        rows = {row["arm"]: row for row in ended[name]["groups"]}
        assert (rows["none"]["state"], rows["ngram"]["reason"]) == ("Done", reason)
        assert failing[name].said("EngineReady")[:2] == ("False", reason)
        assert len(site.measured(failing[name])) == POINTS // 2


def measured_whole(site: PlayedSite, run: OneRun, status: dict[str, Any]) -> None:
    """The answer is there, and S3 holds every point once."""
    stored = site.stored(run)
    assert (status["phase"], status["progress"]) == ("Succeeded", f"{POINTS}/{POINTS}"), status
    assert sorted(site.measured(run)) == sorted(stored.points())
    assert len(stored.manifests()) == POINTS
    assert stored.json("summary.json")["pointsMeasured"] == POINTS
