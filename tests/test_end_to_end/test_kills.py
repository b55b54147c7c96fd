"""What may die under a run: the run ends well all the same, nothing is measured twice, nothing is left behind.

One of each kind is part of `make test`; `make test-chaos` kills ten times as often, at moments that are drawn. The seed
is printed; SPECBENCH_CHAOS_SEED gives the same moments again.
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

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(900), pytest.mark.xdist_group("end-to-end")]

ROUNDS = 10
DRAWS = 3
"""So often a moment is drawn again, where the run had ended before there was anything to kill."""
SEED = os.environ.get("SPECBENCH_CHAOS_SEED") or secrets.token_hex(4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_the_death_of(product: InstalledProduct, kind: str) -> None:
    def half_measured(_: ClusterRun, stored: StoredRun) -> None:
        eventually(lambda: stored.versions(".parquet"), "no records come to S3", 120)
        assert not stored.manifests(), "the first point was over before anything could happen to it"

    stored = survives(product, kind, half_measured, Random(kind))
    assert stored
    if kind in ("client", "engine"):
        assert stored.unnamed(), "what was measured before the kill is no result, and stays where it is"


@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_run_survives_at_any_moment_the_death_of(product: InstalledProduct, kind: str, number: int) -> None:
    chance = Random(f"{SEED} {kind} {number}")
    print(f"SPECBENCH_CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it when it fails
    for _ in range(DRAWS):
        moment = KillMoment.drawn(kind, chance)

        def its_moment(run: ClusterRun, _: StoredRun, at: KillMoment = moment) -> None:
            at.wait(run)

        if survives(product, kind, its_moment, chance):
            return
    pytest.fail(f"each of {DRAWS} runs had ended before there was anything to kill")


def survives(
    product: InstalledProduct, kind: str, until: Callable[[ClusterRun, StoredRun], None], chance: Random
) -> StoredRun | None:
    """One run with one kill, and what it stored; None where it had ended before. Fails for anything that is wrong."""
    run, stored = product.begin(f"kill-{kind}", {"spec.engine.args": SLOW})
    with RunWatcher(run, stored) as witness:
        until(run, stored)
        stage = [*STAGES, "over", "not begun"][stage_of(run)]
        killed = kill(kind, product, run, chance)
        print(f"{run.name}: killed {killed}, its state being: {stage}")  # noqa: T201
        status = run.ends()
        eventually(lambda: run.at_work() == [], f"left behind: {run.at_work()}")
    assert witness.offences == []
    assert stored.wrongs() == []
    assert status["progress"] == "2/2"
    assert run.gpus() == 0
    assert all(row["state"] == "Done" for row in status["groups"])
    assert len(witness.launches) == sum(row["attempt"] + 1 for row in status["groups"]), witness.launches
    lost = sum(row["attempt"] for row in status["groups"])
    assert lost <= (kind == "engine"), f"launches were lost: {status['groups']}"
    return stored if killed else None
