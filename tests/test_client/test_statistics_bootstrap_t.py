"""The bootstrap-t interval equals Student's without a tail, and extends further on the side of a tail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from known_truth.coverage import Coverage, truths
from known_truth.experiment import Experiment
from specbench_client.analysis.statistics.bootstrap import ResamplingLayout
from specbench_client.analysis.statistics.intervals import bootstrap_t_interval

FEW = 20


def layout_of(strata: np.ndarray) -> ResamplingLayout:
    return ResamplingLayout(strata.astype(np.intp), 1, strata.size)


def test_interval_equals_students_for_normal_prompts() -> None:
    values = np.random.default_rng(1).normal(10, 1, (1, 400))
    found = bootstrap_t_interval(values, np.ones_like(values), layout_of(np.zeros(400)), seed=1)
    expected = stats.t.interval(0.95, 399, values.mean(), stats.sem(values[0]))
    assert found is not None
    assert (found.low, found.high) == pytest.approx(expected, abs=0.02)


def test_differences_between_strata_are_not_in_the_error() -> None:
    values = np.random.default_rng(2).normal(0, 1, (1, 200)) + np.repeat([0.0, 1000.0], 100)
    found = bootstrap_t_interval(values, np.ones_like(values), layout_of(np.repeat([0, 1], 100)), seed=1)
    assert found is not None
    assert found.high - found.low == pytest.approx(2 * 1.97 / np.sqrt(200), rel=0.15)


def test_interval_extends_further_into_the_tail() -> None:
    values = np.random.default_rng(3).lognormal(0, 0.7, (1, FEW))
    found = bootstrap_t_interval(values, np.ones_like(values), layout_of(np.zeros(FEW)), seed=1)
    assert found is not None
    assert found.high - values.mean() > 1.2 * (values.mean() - found.low)


def test_too_few_or_equal_prompts_have_no_interval() -> None:
    ones = np.ones((1, FEW))
    assert bootstrap_t_interval(ones[:, :2], ones[:, :2], layout_of(np.zeros(2)), seed=1) is None
    assert bootstrap_t_interval(ones, ones, layout_of(np.zeros(FEW)), seed=1) is None


@pytest.mark.draws
def test_intervals_of_long_tailed_means_have_their_coverage() -> None:
    """Twenty prompts, seeds 400 to 599; an interval that was not studentised covered 91.8 % of 1,000."""
    experiment = Experiment(prompts=FEW, repeats=3, run_noise=0.05, population_size=40_000)
    coverage = Coverage(experiment, {"e2e_ms_mean": truths(experiment)["e2e_ms_mean"]})
    coverage.add(range(400, 600))
    assert (coverage.share("e2e_ms_mean") or 0) >= 0.91
