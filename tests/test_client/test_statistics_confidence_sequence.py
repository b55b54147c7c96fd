"""The confidence sequence is the mixture test of a linear model, inverted, and is valid at every look."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specbench_client.analysis.statistics.bootstrap import LEVEL, deviations
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value, confidence_sequence
from specbench_client.columns import Values

ABBA = np.tile([1.0, -1.0], 50)
LOOKS = range(4, 51, 2)
"""As `--until-sure` looks: after every second repeat from the fourth on."""
BLOCKS = [0.9, 1.4, 1.1, 1.6, 0.8, 1.5]


def turns_of(count: int, *, alternating: bool) -> Values | None:
    return ABBA[:count] if alternating else None


@pytest.mark.parametrize(("count", "alternating"), [(6, True), (6, False), (2, False)])
@pytest.mark.parametrize("shift", [0.0, -0.9])
def test_p_value_is_that_of_the_mixture_test_of_a_linear_model(shift: float, count: int, alternating: bool) -> None:
    """Its e-value is the ratio of marginal likelihoods with the variance, and the drift if any, integrated out."""
    blocks, growth, drift = np.array(BLOCKS[:count]) + shift, 1 + count * 10.0, [ABBA[:count]] if alternating else []
    rest, without = (
        float(np.linalg.lstsq(np.stack(columns, axis=1), blocks, rcond=None)[1][0]) if columns else blocks @ blocks
        for columns in ([np.ones(count), *drift], drift)
    )
    shrunk = rest + (without - rest) / growth
    expected = growth**0.5 * (without / shrunk) ** (-(count - len(drift)) / 2)
    assert anytime_p_value(blocks, turns_of(count, alternating=alternating)) == pytest.approx(min(1.0, expected))


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=40), st.floats(-2, 2), st.booleans())
@settings(max_examples=50, deadline=None)
def test_values_at_the_bounds_have_a_p_value_of_5_percent(values: list[float], shift: float, alternating: bool) -> None:
    blocks = np.array(values) + shift
    turns = turns_of(blocks.size, alternating=alternating)
    assume(np.abs(deviations(blocks, turns)).max() > 1e-3)
    chosen = confidence_sequence(blocks, turns)
    if chosen is None:  # So few blocks exclude no mean, however far away.
        assert anytime_p_value(blocks + 1e6, turns) > 1 - LEVEL
        return
    assert chosen.bounds.low < blocks.mean() < chosen.bounds.high
    for bound in (chosen.bounds.low, chosen.bounds.high):
        assert anytime_p_value(blocks - bound, turns) == pytest.approx(1 - LEVEL, rel=1e-3)


@pytest.mark.parametrize(
    ("blocks", "p_value", "freedom"),
    [
        ([], 1.0, None),
        ([1.0], 1.0, None),
        ([1.0, np.nan, 1.1, 1.2], 1.0, None),
        ([1.0, 1.1], None, None),
        ([1.0, 1.1, 1.2], None, 2),
        ([2.0] * 8, 1.0, 7),  # no noise at all
    ],
)
def test_few_or_missing_blocks_give_no_sequence(
    blocks: list[float], p_value: float | None, freedom: float | None
) -> None:
    chosen = confidence_sequence(np.array(blocks))
    assert (chosen.freedom if chosen else None) == freedom
    assert p_value is None or anytime_p_value(np.array(blocks)) == p_value


def test_a_sequence_states_its_method_and_narrows() -> None:
    blocks, halves = np.random.default_rng(5).normal(0, 1, 50), []
    for count in (50, 16, 8, 4):
        chosen = confidence_sequence(blocks[:count], ABBA[:count])
        assert chosen is not None
        assert (chosen.freedom, chosen.over_repeats) == (count - 2, True)
        halves.append((chosen.bounds.high - chosen.bounds.low) / 2)
        assert chosen.method == (
            f"anytime-valid confidence sequence (mixture t) over {count} repeats, without the drift between their two"
            " orders, unit: repeat"
        )
    assert halves == sorted(halves)


SHAPES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Values]] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "heavy tails": lambda rng, shape: rng.standard_t(5, shape),
    "skewed": lambda rng, shape: rng.lognormal(0, 0.3, shape) - np.exp(0.3**2 / 2),
}


@pytest.mark.long
@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("blocks", SHAPES)
def test_a_sequence_ever_excludes_the_truth_in_at_most_5_percent(blocks: str, alternating: bool) -> None:
    """1,000 sequences: at most 5 % and three standard errors. An ordinary interval would exclude it in a third."""
    many = 1000
    drawn = SHAPES[blocks](np.random.default_rng(11), (many, LOOKS[-1]))
    ever = sum(
        any(anytime_p_value(each[:count], turns_of(count, alternating=alternating)) < 1 - LEVEL for count in LOOKS)
        for each in drawn
    )
    assert 0 < ever / many < 0.05 + 3 * np.sqrt(0.05 * 0.95 / many)
