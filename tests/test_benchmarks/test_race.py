"""The race of the benchmark, on arms of known speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from known_truth.race import run_race

GAINS = {"none": 0.0, "a": 0.1, "b": 0.6, "c": 0.3}
NOISE = (0.001, -0.002, 0.0005, 0.003, -0.001, 0.002)


@pytest.mark.parametrize(("rounds", "ended"), [(1, False), (9, True)])
def test_a_race_ends_when_the_best_arm_of_every_load_is_known(rounds: int, ended: bool) -> None:
    def truth(arm: str, load: int) -> float:
        return GAINS[arm] if load == 1 else -0.2 * (arm != "none")

    def launch(arm: str) -> Callable[[int], float]:
        launches.append(arm)
        return lambda load: truth(arm, load) + NOISE[len(launches) % len(NOISE)]

    launches: list[str] = []
    found = run_race(["a", "b", "c"], [1, 64], truth, launch, rounds)
    assert (found.chosen, found.ended, found.launches) == ({1: "b", 64: "none"}, ended, len(launches))
    assert found.pays == {1: ended, 64: False}
    assert launches.count("none") == max(map(launches.count, "abc")), "every round has a baseline"
    assert (found.points == 8) == (rounds == 1)
