"""A run survives kills: it completes, measures nothing twice and leaves no objects behind.

`make test` runs one kill of each kind; `make test-chaos` runs ten of each at random times and prints the seed.
SPECBENCH_CHAOS_SEED repeats the same times.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from random import Random

import pytest

from specbench_testing.cluster_run import ClusterRun
from specbench_testing.component_kills import KINDS, STAGES, KillMoment, kill, stage_of
from specbench_testing.installed_product import SLOW, InstalledProduct
from specbench_testing.operator_process import eventually
from specbench_testing.run_watcher import RunWatcher
from specbench_testing.s3_results import StoredRun

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(900)]

ROUNDS = 10
DRAWS = 3
"""How often a kill is repeated with another time because the run had already ended."""
SEED = os.environ.get("SPECBENCH_CHAOS_SEED") or secrets.token_hex(4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_the_kill_of(product: InstalledProduct, kind: str) -> None:
    def half_measured(_: ClusterRun, stored: StoredRun) -> None:
        eventually(lambda: stored.versions(".parquet"), "no records are stored in S3", 120)
        assert not stored.manifests(), "the first point ended before the kill"

    stored = run_with_kill(product, kind, half_measured, Random(kind))
    assert stored
    if kind in ("client", "engine"):
        assert stored.unnamed(), "records from before the kill are kept without a manifest"


@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_run_survives_a_kill_at_a_random_time_of(product: InstalledProduct, kind: str, number: int) -> None:
    chance = Random(f"{SEED} {kind} {number}")
    print(f"SPECBENCH_CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it when it fails
    for _ in range(DRAWS):
        moment = KillMoment.drawn(kind, chance)

        def at_random_time(run: ClusterRun, _: StoredRun, at: KillMoment = moment) -> None:
            at.wait(run)

        if run_with_kill(product, kind, at_random_time, chance):
            return
    pytest.fail(f"each of {DRAWS} runs ended before the kill")


def run_with_kill(
    product: InstalledProduct, kind: str, until: Callable[[ClusterRun, StoredRun], None], chance: Random
) -> StoredRun | None:
    """One run with one kill: returns its stored results, or None if it ended before. Fails on any violation."""
    run, stored = product.begin(f"kill-{kind}", {"spec.engine.args": SLOW})
    with RunWatcher(run, stored) as watcher:
        until(run, stored)
        stage = [*STAGES, "over", "not begun"][stage_of(run)]
        killed = kill(kind, product, run, chance)
        print(f"{run.name}: killed {killed} at stage: {stage}")  # noqa: T201
        status = run.ends()
        eventually(lambda: run.active_objects() == [], f"left behind: {run.active_objects()}")
    assert watcher.violations == []
    assert stored.violations() == []
    assert status["progress"] == "2/2"
    assert run.gpus() == 0
    assert all(row["state"] == "Done" for row in status["groups"])
    assert len(watcher.launches) == sum(row["attempt"] + 1 for row in status["groups"]), watcher.launches
    lost = sum(row["attempt"] for row in status["groups"])
    assert lost <= (kind == "engine"), f"launches were lost: {status['groups']}"
    return stored if killed else None
