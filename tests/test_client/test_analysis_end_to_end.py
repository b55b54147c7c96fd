"""End-to-end figures: closed-form values of speed-ups, requests per hour and cost saved."""

from __future__ import annotations

import numpy as np
import pytest

from specbench_api.outcome.summary import Cell
from specbench_client.analysis.estimates.speedups import end_to_end, figures_by_name
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_testing.present import present
from specbench_testing.speedup_experiment import TOKENS, pairs_of
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

PROMPTS = 40


def pairs(arm_ms: list[float], baseline_ms: list[float]) -> Pairs:
    prompt = np.arange(len(arm_ms))
    pace = {ARM: np.array(arm_ms) / TOKENS, BASELINE: np.array(baseline_ms) / TOKENS}
    return pairs_of(prompt, np.zeros_like(prompt), pace)


def test_ratio_of_means_differs_from_the_median_of_ratios() -> None:
    found = end_to_end(pairs([100, 100, 1000], [300, 200, 1000]), 4, seed=0)
    assert found.speedup.value == pytest.approx(1500 / 1200)
    assert found.median_speedup.value == pytest.approx(2.0)


def test_requests_per_hour_are_streams_over_mean_e2e_latency() -> None:
    found = end_to_end(pairs([100, 100, 1000], [300, 200, 1000]), 4, seed=0)
    assert found.requests_per_hour.value == pytest.approx(4 * 3600 / 0.4)
    assert found.baseline_requests_per_hour.value == pytest.approx(4 * 3600 / 0.5)
    assert found.cost_saved.value == pytest.approx(1 - 0.4 / 0.5)
    assert found.requests_per_hour.unit == "requests/h"


def test_bounds_of_cost_saved_follow_from_the_speedup() -> None:
    rng = np.random.default_rng(1)
    baseline = rng.uniform(200, 400, PROMPTS)
    found = end_to_end(pairs(list(baseline / rng.uniform(1.2, 1.6, PROMPTS)), list(baseline)), 1, seed=0)
    speedup, cost = found.speedup.interval, found.cost_saved.interval
    assert speedup is not None
    assert cost is not None
    assert (cost.low, cost.high) == pytest.approx((1 - 1 / speedup.low, 1 - 1 / speedup.high))
    assert cost.low < 1 - 1 / 1.4 < cost.high
    assert present(found.median_speedup.interval).low < 1.4 < present(found.median_speedup.interval).high


def test_open_loop_has_speedups_but_no_requests_per_hour() -> None:
    found = end_to_end(pairs([100] * 5, [200] * 5), None, seed=0)
    assert found.speedup.value == pytest.approx(2)
    for figure in (found.requests_per_hour, found.baseline_requests_per_hour, found.cost_saved):
        assert (figure.value, figure.interval, figure.n) == (None, None, 0)


def test_streams_that_wait_have_no_requests_per_hour_by_the_law_of_little() -> None:
    summary = run_of_world(SyntheticRun(edits={"spec.workloads[0].thinkTime": {"seconds": 2}}))
    (found,) = (cell.end_to_end for cell in summary.cells if cell.end_to_end is not None)
    assert found.speedup.value is not None
    assert {figure.value for figure in (found.requests_per_hour, found.cost_saved)} == {None}


def test_no_pairs_give_no_figures() -> None:
    found = end_to_end(pairs([], []), 4, seed=0)
    assert {figure.value for figure in figures_by_name(found).values()} == {None}


def test_median_of_few_pairs_has_no_interval() -> None:
    assert end_to_end(pairs([100] * 5, [200] * 5), 1, seed=0).median_speedup.interval is None


@pytest.fixture(scope="module")
def drafted() -> Cell:
    summary = run_of_world(SyntheticRun(prompts=PROMPTS))
    return next(cell for cell in summary.cells if cell.arm == "ngram")


def test_cells_and_categories_have_end_to_end_figures_except_the_baseline(drafted: Cell) -> None:
    assert drafted.end_to_end is not None
    assert drafted.end_to_end.speedup.value == pytest.approx(present(drafted.speedup).value), (
        "answers have equal lengths on both sides"
    )
    for figures in drafted.by_category.values():
        assert figures.keys() >= figures_by_name(drafted.end_to_end).keys()
        assert figures["e2e_speedup"].interval is not None
    hours = [figures["requests_per_hour"].value for figures in drafted.by_category.values()]
    assert min(hour for hour in hours if hour) <= present(drafted.end_to_end.requests_per_hour.value)
