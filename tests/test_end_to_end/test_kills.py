"""What may die under a run: the run ends well all the same, nothing is measured twice, nothing is left behind.

One of each kind is part of `make test`; `make test-chaos` kills ten times as often, at moments that are drawn. The seed
is printed; SPECBENCH_CHAOS_SEED gives the same moments again.
"""

from __future__ import annotations

import os
import secrets
from random import Random

import pytest

from specbench_testing.installed import SLOW, Installed
from specbench_testing.kills import KINDS, Moment, kill
from specbench_testing.operating import eventually
from specbench_testing.witness import Witness

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.xdist_group("end-to-end")]

ROUNDS = 10
DRAWS = 3
"""So often a moment is drawn again, where the run had ended before there was anything to kill."""
SEED = os.environ.get("SPECBENCH_CHAOS_SEED") or secrets.token_hex(4)
WHILE_MEASURED = Moment(stage=1, wait_s=3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_the_death_of(product: Installed, kind: str) -> None:
    assert survives(product, kind, WHILE_MEASURED, Random(kind))


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_at_any_moment_the_death_of(product: Installed, kind: str, number: int) -> None:
    chance = Random(f"{SEED} {kind} {number}")
    print(f"SPECBENCH_CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it when it fails
    assert any(survives(product, kind, Moment.drawn(kind, chance), chance) for _ in range(DRAWS))


def survives(product: Installed, kind: str, moment: Moment, chance: Random) -> bool:
    """One run with one kill; False where it had ended before. Fails for anything that is not as it should be."""
    run, stored = product.begin(f"kill-{kind}", {"spec.engine.args": SLOW})
    with Witness(run, stored) as witness:
        moment.wait(run)
        killed = kill(kind, product, run, chance)
        print(f"{run.name}: killed {killed}, {moment}")  # noqa: T201
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
    return killed is not None
