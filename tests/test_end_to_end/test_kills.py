"""A run survives kills: it completes, measures nothing twice and leaves no objects behind.

`make test` kills each component once in one run; `make test-long` ten times at random times, and prints the seed.
SPECBENCH_CHAOS_SEED repeats the same times.
"""

from __future__ import annotations

import os
import secrets
from random import Random
from typing import Any

import pytest

from specbench_testing.cluster_run import ClusterRun
from specbench_testing.component_kills import KINDS, STAGES, KillMoment, kill, stage_of
from specbench_testing.installed_product import SLOW, InstalledProduct
from specbench_testing.operator_process import eventually
from specbench_testing.run_watcher import RunWatcher
from specbench_testing.s3_results import StoredRun

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1800)]

ROUNDS = 10
DRAWS = 3
"""How often a kill is repeated with another time because the run had already ended."""
SEED = os.environ.get("SPECBENCH_CHAOS_SEED") or secrets.token_hex(4)


def test_a_run_survives_a_kill_of_each_component(product: InstalledProduct) -> None:
    """Two kills during the first point, and three during the second, each after requests have ended."""
    nothing_accepted = {"spec.drafters[0].args": ["--acceptance=0"]}  # so that the second point is as long as the first
    run, stored = product.begin("kills", {"spec.engine.args": SLOW, **nothing_accepted})
    earlier = None

    def measuring(points: int) -> bool:
        return len(stored.manifests()) == points and stored.under_way() not in (None, earlier)

    with RunWatcher(run, stored) as watcher:
        for points, kinds in ((0, ("operator", "s3")), (1, ("api-server", "client")), (1, ("engine",))):
            eventually(lambda points=points: measuring(points), f"point {points} is not measured", 300)  # type: ignore[misc]
            earlier = stored.under_way()
            for kind in kinds:
                assert kill(kind, product, run, Random(kind))
        status = end_of_killed(run, stored, watcher)
    assert [row["attempt"] for row in status["groups"]] == [0, 1], "only the engine was killed"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_run_survives_a_kill_at_a_random_time_of(product: InstalledProduct, kind: str, number: int) -> None:
    chance = Random(f"{SEED} {kind} {number}")
    print(f"SPECBENCH_CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it when it fails
    for _ in range(DRAWS):
        if run_with_kill(product, kind, KillMoment.drawn(kind, chance), chance):
            return
    pytest.fail(f"each of {DRAWS} runs ended before the kill")


def run_with_kill(product: InstalledProduct, kind: str, moment: KillMoment, chance: Random) -> bool:
    """One run with one kill: returns whether it was killed before its end."""
    run, stored = product.begin(f"kill-{kind}", {"spec.engine.args": SLOW})
    with RunWatcher(run, stored) as watcher:
        moment.wait(run)
        stage = [*STAGES, "over", "not begun"][stage_of(run)]
        killed = kill(kind, product, run, chance)
        print(f"{run.name}: killed {killed} at stage: {stage}")  # noqa: T201
        status = end_of_killed(run, stored, watcher)
    lost = sum(row["attempt"] for row in status["groups"])
    assert lost <= (kind == "engine"), f"launches were lost: {status['groups']}"
    return killed is not None


def end_of_killed(run: ClusterRun, stored: StoredRun, watcher: RunWatcher) -> dict[str, Any]:
    """The status at the end of the run. Fails on any violation."""
    status = run.ends()
    eventually(lambda: run.active_objects() == [], f"left behind: {run.active_objects()}")
    assert watcher.violations == stored.violations() == []
    assert status["progress"] == "2/2"
    assert run.gpus() == 0
    assert all(row["state"] == "Done" for row in status["groups"])
    assert len(watcher.launches) == sum(row["attempt"] + 1 for row in status["groups"]), watcher.launches
    return status
