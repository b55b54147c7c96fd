"""The slope of an autocorrelated series, compared with a direct fit for each coefficient, and for known slopes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from specbench_client.analysis.statistics.bootstrap import IntervalBounds
from specbench_client.analysis.statistics.trends import FittedLine, fit_line
from specbench_client.columns import Values
from specbench_testing.present import present

TIMES = np.arange(12.0)
LINE = 4 - 0.05 * TIMES
BUMPS = np.array([0.3, -0.1, 0.2, 0.4, -0.2, -0.5, 0.1, 0.0, 0.3, -0.3, 0.2, -0.1])
THREE = np.repeat([0, 1, 2], [4, 6, 2])
Parts = NDArray[np.intp]


def direct_fits(values: Values, times: Values, parts: Parts, freedom: int) -> tuple[Values, Values, Values]:
    """Slopes, their errors and weights by generalised least squares with the full covariance of each coefficient."""
    design = np.column_stack([parts[:, None] == np.unique(parts), times])
    found = []
    for coefficient in (np.arange(50) + 0.5) / 50:
        apart = np.abs(np.subtract.outer(np.arange(values.size), np.arange(values.size)))
        within = np.equal.outer(parts, parts)
        covariance = np.where(within, coefficient**apart, 0.0) / (1 - coefficient**2)
        precision = np.linalg.inv(covariance)
        information = design.T @ precision @ design
        line = np.linalg.solve(information, design.T @ precision @ values)
        noise = (values - design @ line) @ precision @ (values - design @ line)
        determinants = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(information)[1]
        error = np.sqrt(noise / freedom * np.linalg.inv(information)[-1, -1])
        found.append((line[-1], error, -(determinants + freedom * np.log(noise)) / 2))
    slopes, errors, logs = np.array(found).T
    return slopes, errors, np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()


@pytest.mark.parametrize(("parts", "freedom"), [(None, 10), (THREE, 8)])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_slopes_are_averaged_over_all_coefficients(parts: Parts | None, freedom: int, level: float) -> None:
    part = np.zeros(12, np.intp) if parts is None else parts
    values = LINE + 2 * part + BUMPS
    slopes, errors, weights = direct_fits(values, TIMES, part, freedom)
    found = present(fit_line(values, TIMES, level, parts))
    assert (found.slope, found.freedom) == pytest.approx((float(weights @ slopes), freedom))
    for bound, tail in ((found.bounds.low, (1 - level) / 2), (found.bounds.high, (1 + level) / 2)):
        assert weights @ stats.t.cdf((bound - slopes) / errors, freedom) == pytest.approx(tail)


def without(index: int, values: Values = LINE) -> Values:
    return np.where(np.arange(12) == index, np.nan, values)


TEETH = np.array([5.0, 3.0, 9.0])[np.repeat([0, 1, 2], [4, 7, 1])] - 0.1 * TIMES


@pytest.mark.parametrize(
    ("values", "times", "parts", "expected"),
    [
        (LINE, TIMES, None, (-0.05, 4.0, 3.45, 11, 10)),
        (without(3), TIMES, None, (-0.05, 4.0, 3.45, 11, 9)),
        (LINE, without(0, TIMES), None, (-0.05, 3.95, 3.45, 10, 9)),
        (LINE, TIMES + 100, None, (-0.05, 4.0, 3.45, 11, 10)),
        (-LINE, TIMES, None, (0.05, -4.0, -3.45, 11, 10)),
        (TIMES - 3, TIMES, None, (1, -3, 8, 11, 10)),
        (TEETH, TIMES, np.repeat([0, 1, 2], [4, 7, 1]), (-0.1, 2.6, 2.0, 6, 8)),
        (TEETH, TIMES, np.repeat([3, 7, 8], [4, 7, 1]), (-0.1, 2.6, 2.0, 6, 8)),
        (LINE[:8], TIMES[:8], None, (-0.05, 4.0, 3.65, 7, 6)),
        (LINE[:7], TIMES[:7], None, None),
        (LINE[:9], TIMES[:9], np.repeat([0, 1, 2], 3), None),
        (LINE, TIMES, np.arange(12), None),
        (BUMPS, 0 * TIMES, None, None),
        (1e100 * (1 + TIMES % 3), TIMES, None, None),
        (1e-101 * (1 + TIMES % 3), TIMES, None, None),
        (BUMPS, 1e-102 * TIMES, None, None),
        (BUMPS, 1e100 * TIMES, None, None),
    ],
)
def test_known_slopes(values: Values, times: Values, parts: Parts | None, expected: tuple[float, ...] | None) -> None:
    found = fit_line(values, times, parts=parts)
    if expected is None or found is None:
        assert (found, expected) == (None, None)
        return
    assert (found.slope, found.start, found.end, found.duration, found.freedom) == pytest.approx(expected)
    assert found.slope - 1e-9 < found.bounds.low < found.bounds.high - 1e-14 < found.slope + 1e-9, "but for rounding"


def test_a_constant_series_has_no_slope() -> None:
    expected = FittedLine(0, IntervalBounds(0, 0), 1.1, 1.1, 1, 10)
    assert fit_line(np.full(12, 1.1), TIMES / 11) == expected


def test_a_line_with_extreme_but_computable_values_is_fitted() -> None:
    small, large = (fit_line(size * (2 + BUMPS), TIMES) for size in (1e-90, 1e90))
    assert isinstance(small, FittedLine)
    assert isinstance(large, FittedLine)
    assert large.slope / small.slope == pytest.approx(1e180)


def autocorrelated(coefficient: float, count: int, seed: int) -> Values:
    """Noise of an AR(1) process in its steady state."""
    noise = np.random.default_rng(seed).standard_normal(count + 50)
    for index in range(1, count + 50):
        noise[index] += coefficient * noise[index - 1]
    return noise[50:]


@pytest.mark.long
@pytest.mark.parametrize(
    ("coefficient", "windows", "parts", "least"),
    [(0.0, 8, 1, 0.96), (0.5, 48, 1, 0.93), (0.8, 24, 1, 0.91), (0.5, 12, 3, 0.93)],
)
def test_intervals_of_slopes_contain_the_truth(coefficient: float, windows: int, parts: int, least: float) -> None:
    """Each part has its own level. 300 series."""
    times, part, held = np.arange(float(windows * parts)), np.repeat(np.arange(parts), windows), 0
    for seed in range(300):
        noise = [autocorrelated(coefficient, windows, parts * seed + each) for each in range(parts)]
        line = present(fit_line(np.array([5, 1, 3])[part] - 0.1 * times + np.concatenate(noise), times, parts=part))
        held += line.bounds.low <= -0.1 <= line.bounds.high
    assert held / 300 >= least
