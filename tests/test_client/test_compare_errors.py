"""Error rates of a gate: false alarms, missed regressions, and the smallest regression that it detects reliably."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from specbench_api.outcome.gate_report import GateTestOutcome
from specbench_api.spec.gate import GateMetric, Tolerance
from specbench_client.analysis.compare.comparison import ComparisonRow, comparable_metric
from specbench_client.analysis.compare.figures import ComparedArm, FigureOnBothSides, speedup
from specbench_client.analysis.compare.gate import GateTrial, gate_outcomes
from specbench_testing.present import present
from specbench_testing.result_pairs import TwoResults

pytestmark = pytest.mark.draws

TOLERANCE = Tolerance(metric=GateMetric.SPEEDUP)
LIMIT = float(np.log(0.95))
CONFIDENCE = 0.95


def compared_speedup(two: TwoResults, seed: int) -> FigureOnBothSides:
    return present(speedup(ComparedArm(*two.measured(seed)), seed))


def trial(two: TwoResults, seed: int) -> GateTrial:
    row = ComparisonRow(("ngram", "chat", "1"), comparable_metric(GateMetric.SPEEDUP), compared_speedup(two, seed))
    return GateTrial(row, TOLERANCE, LIMIT, row.result.effect)


def gates(two: TwoResults, cells: int, experiments: int) -> Iterator[list[GateTestOutcome]]:
    """Yield the outcomes of all cells of each gate; cells are independent of each other."""
    for number in range(experiments):
        yield gate_outcomes([trial(two, number * cells + cell) for cell in range(cells)], CONFIDENCE)


def outcome_counts(two: TwoResults, experiments: int) -> Counter[GateTestOutcome]:
    return Counter(verdict for (verdict,) in gates(two, 1, experiments))


@pytest.mark.long
@pytest.mark.parametrize(
    "two",
    [TwoResults(run_noise=0.05), TwoResults(run_noise=0.0, jitter=0.1, prompts=8, own=0.05)],
    ids=["noisy", "few prompts with individual changes"],
)
def test_unchanged_gate_of_eight_cells_fails_at_most_once_in_twenty(two: TwoResults) -> None:
    alarms = sum(GateTestOutcome.FAILED in verdicts for verdicts in gates(two, cells=8, experiments=40))
    assert alarms <= 0.05 * 40


@pytest.mark.long
def test_eight_cells_at_the_tolerance_fail_no_more_often_than_one() -> None:
    """This is the worst case for Holm's correction: 5 % of 60 plus two standard errors."""
    at_the_limit = TwoResults(run_noise=0.02, slower=1 / 0.95)
    alarms = sum(GateTestOutcome.FAILED in verdicts for verdicts in gates(at_the_limit, cells=8, experiments=60))
    assert alarms <= 6


@pytest.mark.long
@pytest.mark.parametrize("two", [TwoResults(run_noise=0.02), TwoResults(run_noise=0.02, repeats=6)], ids=["3", "6"])
def test_regression_of_exactly_the_tolerance_keeps_both_error_rates(
    two: TwoResults,
) -> None:
    at_the_limit = TwoResults(**{**two.__dict__, "slower": 1 / 0.95})
    counts = outcome_counts(at_the_limit, 200)
    assert counts[GateTestOutcome.PASSED] <= 0.1 * 200, "wrong passes: at most 5 % plus three standard errors of 200"
    assert counts[GateTestOutcome.FAILED] <= 0.1 * 200


@pytest.mark.long
@pytest.mark.parametrize(("repeats", "power"), [(3, 0.7), (5, 0.95)])
def test_regression_of_15_percent_in_one_of_eight_cells_is_detected(repeats: int, power: float) -> None:
    same, worse = (TwoResults(run_noise=0.01, repeats=repeats, slower=slower) for slower in (1.0, 1 / 0.85))
    seen: Counter[GateTestOutcome] = Counter()
    for number in range(40):
        trials = [trial(same, 8 * number + cell) for cell in range(7)]
        seen[gate_outcomes([*trials, trial(worse, 8 * number + 7)], CONFIDENCE)[-1]] += 1
    assert seen[GateTestOutcome.FAILED] >= power * 40
    assert seen[GateTestOutcome.PASSED] == 0


def test_quiet_gate_without_a_change_passes() -> None:
    assert outcome_counts(TwoResults(run_noise=0.005, prompts=40), 100)[GateTestOutcome.PASSED] >= 95


def test_noise_above_the_tolerance_makes_a_gate_inconclusive() -> None:
    counts = outcome_counts(TwoResults(run_noise=0.05), 100)
    assert counts[GateTestOutcome.INCONCLUSIVE] >= 80


def test_common_prompts_narrow_the_interval() -> None:
    """Without pairing, the variation between prompts (30 %) would count as noise of the comparison."""
    estimate = present(compared_speedup(TwoResults(run_noise=0.002), 1).effect)
    assert estimate.high(0.975) - estimate.low(0.975) < 0.1
