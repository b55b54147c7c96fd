"""The confidence sequence, and the removal of a drift between repeats in which the arms change their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specbench_client.analysis.statistics.bootstrap import LEVEL, IntervalBounds, deviations, t_bounds
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value, confidence_sequence
from specbench_client.metrics.tidy_frame import Values

ABBA = np.tile([1.0, -1.0], 50)
LOOKS = range(4, 51, 2)
"""As `--until-sure` looks: after every second repeat from the fourth on."""
BLOCKS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Values]] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "heavy tails": lambda rng, shape: rng.standard_t(5, shape),
    "skewed": lambda rng, shape: rng.lognormal(0, 0.3, shape) - np.exp(0.3**2 / 2),
}


def turns_of(count: int, *, alternating: bool) -> Values | None:
    return ABBA[:count] if alternating else None


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=40), st.floats(-2, 2), st.booleans())
@settings(max_examples=200, deadline=None)
def test_zero_is_outside_the_sequence_exactly_if_p_is_below_5_percent(
    values: list[float], shift: float, alternating: bool
) -> None:
    blocks = np.array(values) + shift
    turns = turns_of(blocks.size, alternating=alternating)
    assume(np.abs(deviations(blocks, turns)).max() > 1e-6)
    chosen, p_value = confidence_sequence(blocks, turns), anytime_p_value(blocks, turns)
    assume(abs(p_value - (1 - LEVEL)) > 1e-9)
    outside = chosen is not None and not chosen.bounds.low <= 0 <= chosen.bounds.high
    assert outside == (p_value < 1 - LEVEL)


@pytest.mark.draws
@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_sequence_ever_excludes_the_truth_in_at_most_5_percent(blocks: str, alternating: bool) -> None:
    """1,000 sequences: at most 5 % and three standard errors. An ordinary interval would exclude it in a third."""
    rng, many = np.random.default_rng(11), 1000
    drawn = BLOCKS[blocks](rng, (many, LOOKS[-1]))
    ever = sum(any(excludes(each[:count], alternating=alternating) for count in LOOKS) for each in drawn)
    assert ever / many < 0.05 + 3 * np.sqrt(0.05 * 0.95 / many)
    assert ever > 0


def excludes(blocks: Values, *, alternating: bool) -> bool:
    return anytime_p_value(blocks, turns_of(blocks.size, alternating=alternating)) < 1 - LEVEL


def test_a_sequence_is_unbounded_after_few_blocks_and_then_narrows() -> None:
    blocks = np.random.default_rng(5).normal(0, 1, 50)
    assert confidence_sequence(blocks[:2]) is None
    halves = []
    for count in (4, 8, 16, 50):
        chosen = confidence_sequence(blocks[:count], ABBA[:count])
        assert chosen is not None
        assert chosen.freedom == count - 2
        halves.append((chosen.bounds.high - chosen.bounds.low) / 2)
    assert halves == sorted(halves, reverse=True)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(-10, 10))
@settings(max_examples=60, deadline=None)
def test_a_drift_that_alternates_with_the_order_does_not_widen_an_interval(half: list[float], drift: float) -> None:
    values = np.concatenate([half, np.square(half)])
    turns = ABBA[: values.size]
    steady, drifting = (t_bounds(float(each.mean()), each, turns) for each in (values, values + drift * turns))
    assert steady is not None
    assert drifting is not None
    assert (drifting.low, drifting.high) == pytest.approx((steady.low, steady.high), abs=1e-9)


@pytest.mark.parametrize("turns", [None, ABBA[:5], np.ones(4)])
def test_nothing_is_removed_if_the_orders_are_not_equally_frequent(turns: Values | None) -> None:
    values = np.arange(5.0 if turns is None else turns.size) ** 2
    assert t_bounds(1.0, values, turns) == t_bounds(1.0, values)
    assert deviations(values, turns) == pytest.approx(values - values.mean())


@pytest.mark.draws
@pytest.mark.parametrize("repeats", [4, 6, 8])
def test_interval_of_drifting_repeats_contains_the_mean_in_95_percent(repeats: int) -> None:
    """With a drift as large as the noise. If it counted as noise, it would be more than 98 %."""
    rng, many, turns = np.random.default_rng(3), 4000, ABBA[:repeats]
    drawn = rng.normal(0, 1, (many, repeats)) + turns
    removed, kept = (
        np.mean([holds(t_bounds(float(each.mean()), each, given)) for each in drawn]) for given in (turns, None)
    )
    assert removed == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / many))
    assert kept > 0.98


def holds(bounds: IntervalBounds | None) -> bool:
    assert bounds is not None
    return bounds.low <= 0 <= bounds.high


def test_the_sequence_of_two_orders_is_the_mixture_test_of_a_linear_model() -> None:
    """Its e-value is the ratio of marginal likelihoods with the variance and the drift integrated out."""
    blocks, turns, growth = np.array([0.9, 1.4, 1.1, 1.6, 0.8, 1.5]), ABBA[:6], 1 + 6 * 10.0
    design = np.stack([np.ones(6), turns], axis=1)
    rest = [float(np.linalg.lstsq(columns, blocks, rcond=None)[1][0]) for columns in (design, design[:, 1:])]
    shrunk = rest[0] + (rest[1] - rest[0]) / growth
    log_e = -0.5 * np.log(growth) + 2.5 * np.log(rest[1] / shrunk)
    assert anytime_p_value(blocks, turns) == pytest.approx(np.exp(-log_e))
