"""p-values that match intervals, and Holm's correction, compared with values by hand."""

from __future__ import annotations

import pytest
from scipy import stats

from specbench_client.analysis.statistics.bootstrap import IntervalBounds
from specbench_client.analysis.statistics.p_values import holm_rejections, interval_p_value

T = float(stats.t.ppf(0.975, 10))


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (2.0, 1.0, 9.0, 2 * stats.t.sf(2 * T, 10)),
        (-2.0, -9.0, -1.0, 2 * stats.t.sf(2 * T, 10)),
        (2.0, 0.0, 3.0, 0.05),
        (-2.0, -3.0, 0.0, 0.05),
        (0.5, -1.0, 1.0, 2 * stats.t.sf(T / 3, 10)),
        (-0.5, -0.75, 0.25, 2 * stats.t.sf(T / 1.5, 10)),
        (0.0, -1.0, 1.0, 1.0),
        (0.0, 0.0, 0.0, 1.0),
        (2.0, 2.0, 2.0, 0.0),
        (-2.0, -2.0, -2.0, 0.0),
    ],
)
def test_p_value_matches_the_side_of_the_interval_that_is_nearer_to_0(
    value: float, low: float, high: float, expected: float
) -> None:
    assert interval_p_value(value, IntervalBounds(low, high), 10) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [True, False, False, True]),  # 0.005 ≤ 0.0125, 0.01 ≤ 0.0167, 0.03 > 0.025
        ([0.025, 0.05], [True, True]),
        ([0.026, 0.05], [False, False]),
        ([0.05, None], [True, False]),
        ([None], [False]),
        ([], []),
    ],
)
def test_holm_rejects_the_smallest_until_one_is_too_large(p_values: list[float | None], rejected: list[bool]) -> None:
    assert holm_rejections(p_values, 0.05) == rejected
