"""How often a gate is wrong: false alarms, regressions that pass, and how large a regression it surely sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from specbench_api.outcome.gate import Shown
from specbench_api.spec.gate import GateMetric, Tolerance
from specbench_client.analysis.compare.cells import Row
from specbench_client.analysis.compare.figures import Found, speedup
from specbench_client.analysis.compare.gate import Trial, verdicts
from specbench_client.analysis.compare.metrics import comparable
from specbench_testing.two_results import TwoResults

pytestmark = pytest.mark.draws

TOLERANCE = Tolerance(metric=GateMetric.SPEEDUP)
LIMIT = float(np.log(0.95))
CONFIDENCE = 0.95


def found(two: TwoResults, seed: int) -> Found:
    compared = speedup(*two.measured(seed), seed)
    assert compared is not None
    return compared


def trial(two: TwoResults, seed: int) -> Trial:
    row = Row(("ngram", "chat", "1"), comparable(GateMetric.SPEEDUP), found(two, seed))
    return Trial(row, TOLERANCE, LIMIT, row.told)


def gates(two: TwoResults, cells: int, experiments: int) -> Iterator[list[Shown]]:
    """What every cell of so many gates shows; cells are independent of each other."""
    for number in range(experiments):
        yield verdicts([trial(two, number * cells + cell) for cell in range(cells)], CONFIDENCE)


def shown(two: TwoResults, experiments: int) -> Counter[Shown]:
    return Counter(verdict for (verdict,) in gates(two, 1, experiments))


@pytest.mark.parametrize(
    "two",
    [TwoResults(run_noise=0.05), TwoResults(run_noise=0.0, jitter=0.1, prompts=8, own=0.05)],
    ids=["noisy", "few prompts, each changed in its own way"],
)
def test_without_a_change_a_gate_of_eight_cells_fails_in_no_more_than_one_of_twenty(two: TwoResults) -> None:
    alarms = sum(Shown.FAILED in verdicts for verdicts in gates(two, cells=8, experiments=40))
    assert alarms <= 0.05 * 40


def test_eight_cells_at_the_very_tolerance_fail_together_no_more_often_than_one_would() -> None:
    """The worst that Holm's correction has to bear. 5 % of 60 and two standard errors."""
    at_the_limit = TwoResults(run_noise=0.02, slower=1 / 0.95)
    alarms = sum(Shown.FAILED in verdicts for verdicts in gates(at_the_limit, cells=8, experiments=60))
    assert alarms <= 6


@pytest.mark.parametrize("two", [TwoResults(run_noise=0.02), TwoResults(run_noise=0.02, repeats=6)], ids=["3", "6"])
def test_a_regression_of_just_the_tolerance_is_called_neither_good_nor_bad_more_often_than_it_says(
    two: TwoResults,
) -> None:
    at_the_limit = TwoResults(**{**two.__dict__, "slower": 1 / 0.95})
    counts = shown(at_the_limit, 200)
    assert counts[Shown.PASSED] <= 0.1 * 200, "a pass is wrong in one of twenty: 5 % and three standard errors of 200"
    assert counts[Shown.FAILED] <= 0.1 * 200


@pytest.mark.parametrize(("repeats", "power"), [(3, 0.7), (5, 0.95)])
def test_a_regression_of_fifteen_percent_in_one_of_eight_cells_is_seen_and_never_passed(
    repeats: int, power: float
) -> None:
    same, worse = (TwoResults(run_noise=0.01, repeats=repeats, slower=slower) for slower in (1.0, 1 / 0.85))
    seen: Counter[Shown] = Counter()
    for number in range(40):
        trials = [trial(same, 8 * number + cell) for cell in range(7)]
        seen[verdicts([*trials, trial(worse, 8 * number + 7)], CONFIDENCE)[-1]] += 1
    assert seen[Shown.FAILED] >= power * 40
    assert seen[Shown.PASSED] == 0


def test_a_quiet_gate_without_a_change_passes() -> None:
    assert shown(TwoResults(run_noise=0.005, prompts=40), 100)[Shown.PASSED] >= 95


def test_noise_beyond_the_tolerance_makes_a_gate_inconclusive_and_no_pass() -> None:
    counts = shown(TwoResults(run_noise=0.05), 100)
    assert counts[Shown.INCONCLUSIVE] >= 80


def test_the_same_prompts_on_both_sides_make_it_surer_than_their_spread_would() -> None:
    """Without the pairing the spread of prompts (30 %) would be counted as noise of the comparison."""
    estimate = found(TwoResults(run_noise=0.002), 1).estimate
    assert estimate is not None
    assert estimate.high(0.975) - estimate.low(0.975) < 0.1
