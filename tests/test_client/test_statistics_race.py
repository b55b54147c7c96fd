"""The rule of a race of arms, by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from specbench_api.spec.load import Level
from specbench_client.analysis.statistics.race import SpeedModel, next_round, open_arms

PLACE = ("chat", Level(concurrency=1))
WORTH = 0.05
GAINS = {"none": 0.0, "a": 0.1, "b": 0.6, "c": 0.3}
NOISE = (0.001, -0.002, 0.0005, 0.003, -0.001, 0.002)


def speeds_of(
    gains: Mapping[str, float], rounds: int, drift: float = 0.0, noise: float = 1.0
) -> dict[tuple[str, int], float]:
    """Speeds with a little noise; every round is faster than the one before by `drift`."""
    return {
        (arm, number): gain + drift * number + noise * NOISE[(2 * row + 3 * number) % len(NOISE)]
        for row, (arm, gain) in enumerate(gains.items())
        for number in range(rounds)
    }


def model_of(gains: Mapping[str, float], rounds: int, noise: float = 1.0) -> SpeedModel:
    return SpeedModel.fit(speeds_of(gains, rounds, noise=noise))


def test_what_all_arms_of_a_round_share_is_no_difference_between_arms() -> None:
    later_only = {("c", 1): 0.3 + 5.0}
    speeds = {key: value for key, value in speeds_of(GAINS, 2, drift=5.0).items() if key[0] != "c"} | later_only
    model = SpeedModel.fit(speeds)
    assert model.leader() == "b"
    assert [model.gain(arm).value for arm in ("a", "b", "c")] == pytest.approx([0.1, 0.6, 0.3], abs=0.01)
    assert model.freedom == len(speeds) - 4 - 1


def test_a_single_round_decides_nothing() -> None:
    models = {PLACE: model_of(GAINS, 1)}
    assert set(open_arms(models, WORTH)) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("gains", "noise", "expected"),
    [
        (GAINS, 1, set()),
        ({**GAINS, "c": 0.57}, 10, set()),
        ({"none": 0.0, "a": 0.02, "b": -0.3, "c": 0.0}, 1, set()),
        ({"none": 0.0, "a": 0.02, "b": -0.3, "c": -0.3}, 10, set()),
        ({"none": 0.0, "a": 0.02, "b": -0.3, "c": -0.3}, 20, {"a"}),
        ({"none": 0.0, "a": 0.3, "b": 0.35, "c": -0.3}, 20, {"a", "b"}),
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
    gains: Mapping[str, float], noise: float, expected: set[str]
) -> None:
    assert set(open_arms({PLACE: model_of(gains, 4, noise)}, WORTH)) == expected


@pytest.mark.parametrize(("rounds", "arms"), [(1, 4), (2, 3), (9, 3)])
def test_a_round_has_half_as_many_arms_as_the_one_before_and_the_baseline(rounds: int, arms: int) -> None:
    gains = {"none": 0.0, **{f"arm{row}": 0.1 * row for row in range(8)}}
    other = ("chat", Level(concurrency=8))
    models = {PLACE: model_of(gains, 1), other: model_of({arm: -gain for arm, gain in gains.items()}, 1)}
    found = next_round(models, WORTH, rounds)
    assert next(iter(found)) == "arm0", "the leader at the second load"
    assert list(found)[-1] == "none"
    assert len(found) == arms + 1
    assert set(found["none"]) == {PLACE, other}


def test_a_race_ends_when_the_best_arm_of_every_load_is_known() -> None:
    assert next_round({PLACE: model_of(GAINS, 4)}, WORTH, 4) == {}
    assert next_round({}, WORTH, 1) == {}
