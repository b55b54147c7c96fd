"""Two servers compared in turns in virtual time: `benchmarks/endpoint-comparison` in small, with fixed seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specbench_api.outcome.figure import Verdict
from virtual_time.endpoints import ABAB, ABBA, PAIRS, STEADY, MeasuredRepeats, Outcome, measured_repeats
from virtual_time.endpoints import until_sure as run_until_sure

pytestmark = pytest.mark.draws

DRIFT = 0.2


def last(name: str, **changes: object) -> MeasuredRepeats:
    """Measure a pair on machines that get 20 % slower during its four repeats."""
    *_, measured = measured_repeats(replace(PAIRS[name].drifting(DRIFT, 4), **changes))  # type: ignore[arg-type]
    return measured


def test_a_drift_cancels_in_abba_and_not_if_the_baseline_is_always_first() -> None:
    """Blocks are an eighth of the test apart: the later server is 2.3 % slower in each repeat."""
    biases = {order: np.log(value_of(last("equal", noise=STEADY, turns_of_arms=order))) for order in (ABBA, ABAB)}
    assert abs(biases[ABBA]) < 0.006
    assert biases[ABAB] == pytest.approx(-0.023, abs=0.004)


def value_of(measured: MeasuredRepeats) -> float:
    value = measured.speedup(anytime=False).figure.value
    assert value is not None
    return value


@pytest.mark.parametrize("stops", [False, True])
def test_the_speedup_is_that_of_the_cell_of_a_run(stops: bool) -> None:
    measured = last("drafter", stops=stops)
    cell, found = measured.cell(), measured.speedup(anytime=stops)
    assert cell.valid
    assert cell.speedup == found.figure
    assert found.figure.interval is not None
    assert "without the drift between their two orders" in found.figure.interval.method


def test_intervals_under_a_drift_contain_the_truth() -> None:
    pair = PAIRS["equal"].drifting(DRIFT, 4)
    ends = [Outcome.of(list(measured_repeats(replace(pair, seed=seed)))[-1], anytime=False) for seed in range(5)]
    assert sum(end.holds(1.0) for end in ends) >= 4
    assert np.mean([end.width for end in ends]) < 0.12


def test_a_faster_server_is_recognised_and_the_test_ends() -> None:
    pair = replace(PAIRS["10 % faster"].drifting(DRIFT, 8), repeats=16, stops=True)
    end = run_until_sure(pair)["sequence"]
    assert end.claimed is Verdict.FASTER
    assert end.holds(1.1)
    assert 4 <= end.repeats < 16
