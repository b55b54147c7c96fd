"""The rule of a race of arms, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from known_truth.race import Race, SpeedModel, run_race

GAINS = {0: 0.0, 1: 0.1, 2: 0.6, 3: 0.3}
NOISE = (0.001, -0.002, 0.0005, 0.003, -0.001, 0.002)


def speeds_of(
    gains: Mapping[int, float], rounds: int, drift: float = 0.0, noise: float = 1.0
) -> dict[tuple[int, int], float]:
    """Speeds with a little noise; every round is faster than the one before by `drift`."""
    return {
        (arm, number): gain + drift * number + noise * NOISE[(2 * arm + 3 * number) % len(NOISE)]
        for arm, gain in gains.items()
        for number in range(rounds)
    }


def test_what_all_arms_of_a_round_share_is_no_difference_between_arms() -> None:
    later_only = {(3, 1): 0.3 + 5.0}
    speeds = {key: value for key, value in speeds_of(GAINS, 2, drift=5.0).items() if key[0] != 3} | later_only
    model = SpeedModel.fit(speeds)
    assert model.leader() == 2
    assert [model.difference(arm, 0, 0.05).value for arm in (1, 2, 3)] == pytest.approx([0.1, 0.6, 0.3], abs=0.01)
    assert model.freedom == len(speeds) - 4 - 1


def test_a_single_round_decides_nothing() -> None:
    race, models = Race(3, [1]), {1: SpeedModel.fit(speeds_of(GAINS, 1))}
    assert set(race.open_arms(models)) == {1, 2, 3}
    assert list(race.next_round(models, 2)) == [2, 3], "the fastest first"


@pytest.mark.parametrize(
    ("gains", "noise", "open_arms"),
    [
        (GAINS, 1, set()),
        ({**GAINS, 3: 0.57}, 10, set()),
        ({0: 0.0, 1: 0.02, 2: -0.3, 3: 0.0}, 1, set()),
        ({0: 0.0, 1: 0.02, 2: -0.3, 3: -0.3}, 10, set()),
        ({0: 0.0, 1: 0.02, 2: -0.3, 3: -0.3}, 20, {1}),
        ({0: 0.0, 1: 0.3, 2: 0.35, 3: -0.3}, 20, {1, 2}),
    ],
    ids=[
        "the best is known",
        "another is as good but for what matters",
        "nothing pays",
        "the best gains too little to matter",
        "the best may pay",
        "one of two",
    ],
)
def test_an_arm_is_launched_only_while_it_may_change_the_answer(
    gains: Mapping[int, float], noise: float, open_arms: set[int]
) -> None:
    models = {1: SpeedModel.fit(speeds_of(gains, 4, noise=noise))}
    assert set(Race(3, [1]).open_arms(models)) == open_arms


@pytest.mark.parametrize(("rounds", "ended"), [(1, False), (9, True)])
def test_a_race_ends_when_the_best_arm_of_every_load_is_known(rounds: int, ended: bool) -> None:
    def truth(arm: int, load: int) -> float:
        return GAINS[arm] if load == 1 else -0.2 * (arm > 0)

    def launch(arm: int) -> Callable[[int], float]:
        launches.append(arm)
        return lambda load: truth(arm, load) + NOISE[len(launches) % len(NOISE)]

    launches: list[int] = []
    found = run_race(Race(3, [1, 64]), truth, launch, rounds)
    assert (found.chosen, found.ended, found.launches) == ({1: 2, 64: 0}, ended, len(launches))
    assert found.pays == {1: ended, 64: False}
    assert launches.count(0) == max(map(launches.count, (1, 2, 3))), "every round has a baseline"
    assert math.isclose(found.points, 8) == (rounds == 1)
