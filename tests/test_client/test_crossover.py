"""Crossovers: a known crossover is found and covered by its interval, and unclear cases are reported as such."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.analysis.curves.axes import CONCURRENCY, CurveAxis
from specbench_client.analysis.curves.crossover import (
    find_crossover,
    first_fall_to_zero,
    joint_replicates,
    nearest_falling,
    zero_crossings,
)
from specbench_client.analysis.statistics.confidence_sequence import confidence_sequence
from specbench_client.analysis.statistics.effects import Effect
from specbench_client.documents.curves import Crossover, CrossoverKind
from specbench_testing.present import present
from specbench_testing.speedup_experiment import SpeedupExperiment

TRUTH = 20.0
LOADS = (1.0, 4.0, 16.0, 64.0)


def straight(slope: float = -0.12, truth: float = TRUTH) -> dict[float, float]:
    """Return speed-ups whose log is linear in the log of the load, and 0 at the true crossover."""
    return {load: float(np.exp(slope * np.log(load / truth))) for load in LOADS}


def answer(world: SpeedupExperiment, seed: int = 1) -> Crossover:
    return find_crossover(CONCURRENCY, world.measured_places(seed), (), 0)


def test_known_crossover_is_found_with_its_interval() -> None:
    found = answer(SpeedupExperiment(straight(), prompts=200))
    assert found.kind is CrossoverKind.REACHED
    assert found.at.value == pytest.approx(TRUTH, rel=0.2)
    assert found.interval is not None
    assert present(found.interval.low) < TRUTH < present(found.interval.high)
    assert found.at.interval is not None
    assert [each.falls for each in found.crossings] == [True]
    assert found.message.startswith("falls to 1 at concurrency ")


@pytest.mark.long
@pytest.mark.draws
@pytest.mark.parametrize(
    "world",
    [
        SpeedupExperiment(straight(), repeats=5, launch_noise=0.02, run_noise=0.02),
        SpeedupExperiment(straight()),
        SpeedupExperiment(straight(), launch_noise=0.03),
        SpeedupExperiment(straight(), repeats=5, run_noise=0.04),
        SpeedupExperiment(straight(), prompts=30, spread=0.25, run_noise=0.002),
    ],
    ids=["both", "quiet", "noisy launches", "noisy runs", "diverse prompts"],
)
def test_interval_covers_the_truth_at_its_level(world: SpeedupExperiment) -> None:
    covered = 0
    for seed in range(200):
        interval = present(answer(world, seed).interval)
        covered += (interval.low or 0) <= TRUTH <= (interval.high or np.inf)
    assert 0.90 <= covered / 200 <= 0.99


@pytest.mark.draws
def test_launches_that_are_slow_at_all_loads_are_not_independent_noise() -> None:
    """Between two loads independent noise would average out; noise of one launch does not."""
    noisy = SpeedupExperiment(
        {10.0: 1.1, 40.0: 1 / 1.1}, repeats=5, spread=0.0, launch_noise=0.05, run_noise=0.0, jitter=0.0
    )
    widths = []
    for seed in range(40):
        drawn = joint_replicates([rung.effect for rung in noisy.measured_places(seed)], seed=0)
        widths.append(drawn.mean(axis=1).std() / drawn[:, 0].std())
    assert np.mean(widths) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("last", "truth"), [(1.2, 0.4), (2.0, 0.0), (2.5, -0.25)])
def test_loss_from_the_first_load_to_the_last_has_an_interval(last: float, truth: float) -> None:
    found = present(answer(SpeedupExperiment({1.0: 2.0, 8.0: 1.6, 64.0: last}, prompts=200)).lost)
    assert found.value == pytest.approx(truth, abs=0.05)
    assert present(found.interval).low < truth < present(found.interval).high
    assert found.definition.startswith("Share of the speed-up that is lost from concurrency 1 to concurrency 64")


def test_crossover_interval_is_open_if_the_last_speedup_is_near_1() -> None:
    found = answer(SpeedupExperiment({1.0: 1.6, 8.0: 1.3, 64.0: 1.01}, run_noise=0.03))
    assert found.interval is not None
    assert 8 < present(found.interval.low) < 64
    assert found.interval.high is None
    assert "or more, perhaps beyond 64" in found.message


@pytest.mark.parametrize(
    ("world", "kind", "bounds", "falls", "words"),
    [
        (
            SpeedupExperiment({1.0: 2.0, 8.0: 1.6, 64.0: 1.3}),
            CrossoverKind.NOT_REACHED,
            (64.0, None),
            [],
            "crossover not reached up to concurrency 64: above 1 all the way (95%: beyond 64)",
        ),
        (
            SpeedupExperiment({1.0: 0.8, 8.0: 0.6}),
            CrossoverKind.BELOW_SMALLEST,
            (None, 1.0),
            [],
            "(95%: below 1)",
        ),
        (
            SpeedupExperiment({1.0: 1.0, 8.0: 1.0, 64.0: 1.0}, run_noise=0.03),
            CrossoverKind.INDISTINGUISHABLE,
            None,
            None,
            "indistinguishable from 1 between concurrency 1 and concurrency 64",
        ),
        (
            SpeedupExperiment({1.0: 1.4, 4.0: 0.7, 16.0: 1.4, 64.0: 0.7}),
            CrossoverKind.NOT_MONOTONE,
            None,
            [True, False, True],
            "through 1 at concurrency",
        ),
        (SpeedupExperiment({1.0: 0.7, 64.0: 1.4}), CrossoverKind.NOT_MONOTONE, None, [False], "through 1 at"),
    ],
    ids=["above 1", "below 1", "equal", "several crossings", "rising"],
)
def test_curves_without_a_single_fall_have_no_crossover(
    world: SpeedupExperiment,
    kind: CrossoverKind,
    bounds: tuple[float | None, float | None] | None,
    falls: list[bool] | None,
    words: str,
) -> None:
    found = answer(world)
    assert (found.kind, found.at.value, found.at.interval) == (kind, None, None)
    assert (found.interval and (found.interval.low, found.interval.high)) == bounds
    assert falls is None or [each.falls for each in found.crossings] == falls
    assert words in found.message


def test_single_rise_along_another_axis_is_a_crossover() -> None:
    found = along_lengths(SpeedupExperiment({64.0: 0.8, 1024.0: 1.25}, prompts=100))
    assert found.kind is CrossoverKind.REACHED
    assert found.at.value == pytest.approx(256, rel=0.2)
    assert found.message.startswith("rises to 1 at output tokens ")


@pytest.mark.parametrize(("speedup", "side"), [(1.4, "above"), (0.7, "below")])
def test_nothing_is_extrapolated_along_another_axis(speedup: float, side: str) -> None:
    found = along_lengths(SpeedupExperiment({64.0: speedup, 1024.0: speedup}))
    assert (found.kind, found.interval) == (CrossoverKind.NOT_REACHED, None)
    assert found.message == f"crossover not reached from output tokens 64 to output tokens 1,024: {side} 1 all the way"
    near = along_lengths(SpeedupExperiment({64.0: 1.05, 1024.0: 1.05}, run_noise=0.05))
    assert near.kind is CrossoverKind.INDISTINGUISHABLE


def test_noise_about_1_does_not_count_as_several_crossings() -> None:
    world = SpeedupExperiment({1.0: 1.5, 4.0: 1.0, 8.0: 1.0, 16.0: 1.0, 64.0: 0.7}, run_noise=0.02)
    answers = [answer(world, seed) for seed in range(5)]
    assert {each.kind for each in answers} == {CrossoverKind.REACHED}
    assert max(len(each.crossings) for each in answers) > 1, "the measured curve crosses 1 several times"


def test_maximum_above_1_does_not_hide_the_crossover() -> None:
    found = answer(SpeedupExperiment({1.0: 1.1, 4.0: 2.0, 16.0: 1.2, 64.0: 0.8}, prompts=100))
    assert found.kind is CrossoverKind.REACHED
    assert found.at.value == pytest.approx(16 * 4 ** (np.log(1.2) / np.log(1.2 / 0.8)), rel=0.2)


@pytest.mark.parametrize(
    ("loads", "words"), [({8.0: 1.4}, "no crossover: only concurrency 8 has a usable"), ({}, "no crossover: no load")]
)
def test_fewer_than_two_places_are_insufficient_data_with_a_reason(loads: dict[float, float], words: str) -> None:
    places = SpeedupExperiment(loads).measured_places(1)
    found = find_crossover(CONCURRENCY, places, ["concurrency 16: invalid (ServerSaturated)"], 0)
    assert (found.kind, found.at.value, found.lost) == (CrossoverKind.INSUFFICIENT_DATA, None, None)
    assert words in found.message
    assert found.message.endswith("concurrency 16: invalid (ServerSaturated)")


LENGTHS = CurveAxis("output-tokens", "tokens", logarithmic=True)


def along_lengths(world: SpeedupExperiment) -> Crossover:
    return find_crossover(LENGTHS, world.measured_places(1), (), 0)


@pytest.mark.parametrize(("seed", "repeats", "over_repeats"), [(1, 3, {True}), (2, 3, {True, False}), (1, 4, {False})])
def test_replicates_have_the_spread_of_each_places_interval(seed: int, repeats: int, over_repeats: set[bool]) -> None:
    """From four repeats on, an interval's quantile combines both levels, and none is over repeats only."""
    rungs = SpeedupExperiment(straight(), run_noise=0.05, repeats=repeats).measured_places(seed)
    assert {rung.effect.chosen.over_repeats for rung in rungs if rung.effect.chosen} == over_repeats
    assert_spread_is_that_of_the_intervals([rung.effect for rung in rungs])


def test_replicates_of_a_stopped_run_have_the_spread_of_its_confidence_sequence() -> None:
    rungs = SpeedupExperiment(straight(), run_noise=0.05, repeats=6).measured_places(seed=1)
    runs = [present(rung.effect.draws).runs for rung in rungs]
    assert_spread_is_that_of_the_intervals(
        [
            replace(rung.effect, value=float(each.mean()), chosen=confidence_sequence(each))
            for rung, each in zip(rungs, runs, strict=True)
        ]
    )


def assert_spread_is_that_of_the_intervals(effects: list[Effect]) -> None:
    for column, effect in zip(joint_replicates(effects, seed=0).T, effects, strict=True):
        assert effect.chosen is not None
        low, high = np.quantile(column, [0.025, 0.975])
        width = effect.chosen.bounds.high - effect.chosen.bounds.low
        assert low == pytest.approx(effect.chosen.bounds.low, abs=0.1 * width)
        assert high == pytest.approx(effect.chosen.bounds.high, abs=0.1 * width)


curves = st.lists(st.floats(-1, 1).filter(lambda value: abs(value) > 1e-6), min_size=2, max_size=8)


@given(curves)
def test_zero_crossings_are_zeros_of_the_curve_with_alternating_direction(values: list[float]) -> None:
    x, y = np.arange(len(values), dtype=float), np.array(values)
    found = zero_crossings(x, y)
    assert all(np.interp(each.at, x, y) == pytest.approx(0, abs=1e-9) for each in found)
    assert all(one.falls != other.falls for one, other in pairwise(found))
    assert len(found) % 2 == (np.sign(y[0]) != np.sign(y[-1]))
    first = next((each.at for each in found if each.falls), np.inf)
    assert first_fall_to_zero(x, y[np.newaxis])[0] == pytest.approx(-np.inf if y[0] < 0 else first)


@given(curves)
def test_nearest_falling_curve_never_rises_and_keeps_the_mean(values: list[float]) -> None:
    y = np.array([values])
    found = nearest_falling(y, np.ones(len(values)))[0]
    assert (np.diff(found) <= 1e-12).all()
    assert found.sum() == pytest.approx(y.sum(), abs=1e-9)
    if (np.diff(y[0]) <= 0).all():
        assert found == pytest.approx(y[0])


@pytest.mark.long
@pytest.mark.draws
def test_interval_of_the_loss_covers_the_truth_at_its_level() -> None:
    world, covered = SpeedupExperiment({1.0: 2.0, 64.0: 1.5}, repeats=5, launch_noise=0.02, run_noise=0.02), 0
    for seed in range(200):
        found = present(answer(world, seed).lost)
        covered += present(found.interval).low <= 0.25 <= present(found.interval).high
    assert 0.90 <= covered / 200 <= 0.99
