"""Log ratios of sums by repeat and prompt, compared with values by hand and with their own resamples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specbench_client.analysis.statistics.bootstrap import ChosenInterval, IntervalBounds, draw_and_sum
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value
from specbench_client.analysis.statistics.intervals import ratio_influence
from specbench_client.analysis.statistics.log_ratio import (
    LogRatio,
    LogRatioInputs,
    exponentiated_interval,
    log_of_product,
    log_ratio,
)
from specbench_client.analysis.statistics.p_values import interval_p_value
from specbench_client.analysis.statistics.row_layout import CellSums, layout_of
from specbench_client.columns import Values
from specbench_testing.present import present
from specbench_testing.tables import table_of

approx: Any = pytest.approx
"""Of type Any, because it stands for a float in tuples and intervals."""

PROMPTS = 8
FEW = 2
SIGNS = {"a": 1, "b": -1}
RUNS = np.array([1.0, 1.3, 0.9, 1.1])


def sums_of(a: Values, b: Values) -> CellSums:
    """Sums of two parts, shape (repeats, prompts), each from one row."""
    repeats, prompts = a.shape
    names = np.array([f"p{number}" for number in range(prompts)], dtype=object)
    rows = {"repeat": np.repeat(np.arange(repeats), prompts), "prompt_id": np.tile(names, repeats), "category": "c"}
    sums = CellSums(layout_of(table_of(pd.DataFrame(rows))), 2)
    sums.add([a.ravel(), b.ravel()])
    return sums


def inputs_of(a: Values, b: Values) -> LogRatioInputs:
    return LogRatioInputs.of(SIGNS, sums_of(a, b), seed=4)


def drawn(repeats: int, prompts: int = PROMPTS) -> tuple[Values, Values]:
    rng = np.random.default_rng(2)
    return rng.lognormal(-6, 0.4, (repeats, prompts)), rng.lognormal(-5, 0.4, (repeats, prompts))


@pytest.mark.parametrize(("repeats", "prompts"), [(1, PROMPTS), (2, PROMPTS), (3, PROMPTS), (3, FEW)])
def test_a_log_ratio_has_its_value_resamples_and_repeats(repeats: int, prompts: int) -> None:
    a, b = drawn(repeats, prompts)
    found, summed = inputs_of(a, b).log_ratio(SIGNS), [a, b] if repeats < 3 else [a.sum(0)[None], b.sum(0)[None]]
    assert found is not None
    assert found.value == approx(np.log(a.sum() / b.sum()))
    assert found.runs == approx(np.log(a.sum(axis=1) / b.sum(axis=1)))
    assert (found.repeats.tolist(), found.prompts) == (list(range(repeats)), prompts)
    logs = np.log(draw_and_sum(summed, np.zeros(prompts, np.intp), 4, 2000))
    inflation = np.sqrt(prompts / (prompts - 1)) if found.chosen else 1
    np.testing.assert_allclose(found.samples, found.value + (logs[:, 0] - logs[:, 1] - found.value) * inflation)
    assert (found.chosen is None) == (prompts == FEW)
    inverse = present(inputs_of(a, b).log_ratio({"b": 1, "a": -1}))
    assert inverse.value == approx(-found.value)
    plain = present(log_ratio(sums_of(a, b), [1, -1], seed=4))
    assert (plain.value, plain.chosen) == (found.value, found.chosen)


def test_equal_prompts_leave_only_the_variation_of_runs() -> None:
    a = np.repeat(RUNS[:, np.newaxis], PROMPTS, axis=1)
    found = present(inputs_of(a, np.ones_like(a)).log_ratio(SIGNS))
    whole = found.value
    by_influence = (a.sum(axis=1) / a.sum() - 1 / 4).std(ddof=1) * np.sqrt(4)
    over_repeats = np.log(RUNS).std(ddof=1) / np.sqrt(4)
    half = stats.t.ppf(0.975, 3) * max(by_influence, over_repeats)
    assert (present(found.chosen).bounds.low, present(found.chosen).bounds.high) == approx((whole - half, whole + half))


def test_a_ratio_of_sums_has_the_influences_of_the_delta_method() -> None:
    a, b = drawn(4)
    figure = inputs_of(a, b).ratio("a", "b")
    assert figure.value == approx(a.sum() / b.sum())
    assert figure.repeats == approx(a.sum(axis=1) / b.sum(axis=1))
    np.testing.assert_allclose(figure.influence, ratio_influence(a, b))


ZEROS = np.zeros((3, PROMPTS))


def test_sums_that_are_not_positive_have_no_logarithm() -> None:
    a, _ = drawn(3)
    assert inputs_of(a, ZEROS).log_ratio(SIGNS) is None
    assert log_ratio(sums_of(np.full_like(a, np.nan), a), [1, -1], seed=4) is None
    assert log_ratio(sums_of(a, a), [1, -1], seed=4) is not None
    assert log_of_product(np.array([[2.0, 4.0], [0.0, 1.0]]), [1, -1]).tolist() == [approx(-np.log(2)), -np.inf]


def test_a_run_that_may_stop_reports_the_mean_of_its_repeats() -> None:
    a, b = drawn(4)
    inputs = inputs_of(a, b)
    found = present(replace(inputs, layout=replace(inputs.layout, anytime=True)).log_ratio(SIGNS))
    assert found.value == approx(np.log(a.sum(axis=1) / b.sum(axis=1)).mean())
    assert found.p_value == anytime_p_value(found.runs)
    assert found.figure("d").definition == "d; geometric mean over repeats"


BOUNDS = ChosenInterval(IntervalBounds(np.log(2), np.log(8)), "m", 5)


@pytest.mark.parametrize(("repeats", "chosen", "supported"), [(3, BOUNDS, True), (2, BOUNDS, False), (3, None, False)])
def test_a_claim_needs_an_interval_and_three_repeats(
    repeats: int, chosen: ChosenInterval | None, supported: bool
) -> None:
    numbers = np.arange(float(repeats))
    found = LogRatio(np.log(4), 7, np.empty(0), numbers, numbers, chosen)
    assert found.supports_claim == supported
    assert found.p_value == (interval_p_value(np.log(4), BOUNDS.bounds, 5) if supported else None)
    figure = found.figure("d", "tokens", 10)
    assert (figure.value, figure.n, figure.unit, figure.definition, figure.source) == (
        approx(40), 7, "tokens", "d", "both",
    )  # fmt: skip
    assert figure.interval == (exponentiated_interval(BOUNDS, 10) if chosen else None)


def test_bounds_are_exponentiated_and_scaled() -> None:
    found = exponentiated_interval(BOUNDS, 10)
    assert (found.low, found.high, found.method) == (approx(20), approx(80), "m, on the log ratio")
    assert (found.freedom, exponentiated_interval(BOUNDS).low) == (5, approx(2))
