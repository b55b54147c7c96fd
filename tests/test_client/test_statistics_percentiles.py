"""Intervals of percentiles, compared with closed forms of the beta and the binomial distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specbench_client.analysis.statistics import percentiles as module
from specbench_client.analysis.statistics.bootstrap import ChosenInterval, IntervalBounds
from specbench_client.analysis.statistics.percentiles import (
    effective,
    jeffreys,
    percentile_intervals,
    percentiles_of,
    prompts_needed,
    ranks,
)
from specbench_client.analysis.statistics.row_layout import RowLayout, layout_of
from specbench_client.columns import TextCodes, Values
from specbench_client.metrics.rows import Table
from specbench_testing.tables import filled

PROMPTS = 72
EACH = 20
"""Requests of each prompt."""


def layout(prompts: int, repeats: int = 1, each: int = 1) -> RowLayout:
    """Return a layout with each prompt `each` times in each repeat, one prompt after the other."""
    names = np.array([f"p{number:04}" for number in range(prompts)], dtype=object)
    repeat = np.repeat(np.arange(repeats), prompts * each)
    return layout_of(
        filled(Table({"repeat": repeat, "prompt_id": TextCodes.of([*names] * (repeats * each))}), category=None)
    )


@pytest.mark.parametrize(
    ("percent", "enough"), [(50, 6), (75, 13), (10, 36), (90, 36), (5, 72), (95, 72), (1, 368), (99, 368)]
)
def test_number_of_prompts_for_a_percentile(percent: int, enough: int) -> None:
    """So many that all are on its larger side with at most 2.5 %: 0.75^13 = 2.4 %, 0.75^12 = 3.2 %."""
    assert prompts_needed(percent / 100) == enough


@pytest.mark.parametrize(("percent", "enough"), [(50, 6), (5, 72), (95, 72)])
def test_no_interval_is_given_from_fewer_prompts(percent: int, enough: int) -> None:
    values = np.random.default_rng(6).lognormal(3, 0.5, enough)
    assert percentile_intervals(values, layout(enough), [percent], seed=1)[0] is not None
    assert percentile_intervals(values[1:], layout(enough - 1), [percent], seed=1)[0] is None


def test_repeats_of_few_prompts_are_not_more_prompts() -> None:
    """Two or three prompts have no interval of any percentile, and twenty none of an outer one, however often sent."""
    for prompts, expected in ((2, []), (3, []), (20, [50])):
        values = np.random.default_rng(5).lognormal(3, 0.5, prompts * 10 * EACH)
        found = percentile_intervals(values, layout(prompts, 10, EACH), [1, 5, 50, 95, 99], seed=1)
        assert [percent for percent, each in zip([1, 5, 50, 95, 99], found, strict=True) if each] == expected


@pytest.mark.parametrize("many", [5, 72, 400.5])
@pytest.mark.parametrize(("tail", "end"), [(0.025, "high"), (0.975, "low")])
def test_the_outer_ranks_have_closed_forms(many: float, tail: float, end: str) -> None:
    """I_p(n, 1) = p^n, and I_p(1, n) = 1 − (1 − p)^n."""
    assert getattr(ranks(tail ** (1 / many), many), end) == pytest.approx(many)
    assert getattr(ranks(1 - (1 - tail) ** (1 / many), many), end) == pytest.approx(1)


@given(st.integers(75, 400), st.sampled_from([0.5, 0.9, 0.95]))
@settings(max_examples=20, deadline=None)
def test_fractional_ranks_are_between_exact_ranks(many: int, share: float) -> None:
    """The exact interval has whole ranks: the innermost that leave out at most 2.5 % on each side."""
    found, below = ranks(share, many), stats.binom(many, share)
    low, high = below.ppf(0.025), below.ppf(0.975) + 1
    assert low <= found.low <= low + 1
    assert high - 1 <= found.high <= high


@pytest.mark.parametrize(
    ("share", "many", "low", "high"),
    [
        (0.5, 1.0, 0.025, 0.975),
        (0.25, 2.0, 1 - 0.975**0.5, 1 - 0.025**0.5),
        (0.75, 2.0, 0.025**0.5, 0.975**0.5),
        (0.3, 0.0, np.sin(np.pi * 0.0125) ** 2, np.sin(np.pi * 0.4875) ** 2),
    ],
    ids=["uniform", "beta (1, 2)", "beta (2, 1)", "arcsine"],
)
def test_jeffreys_bounds_are_quantiles_of_a_beta_distribution(
    share: float, many: float, low: float, high: float
) -> None:
    found = jeffreys(share, many)
    assert (found.low, found.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("half", "requests", "expected"),
    [(1.959964 * (0.21 / 40) ** 0.5, 100, 40), (1.959964 * (0.21 / 40) ** 0.5, 30, 30), (0.0, 30, 30)],
    ids=["as uncertain as 40", "at most all of them", "no uncertainty"],
)
def test_effective_number_of_requests(half: float, requests: int, expected: float) -> None:
    chosen = ChosenInterval(IntervalBounds(0.5 - half, 0.5 + half), "", 1)
    assert effective(0.3, chosen, requests) == pytest.approx(expected)


def test_percentiles_are_interpolated_and_leave_the_values_in_their_order() -> None:
    values = np.array([4.0, 1.0, 2.0])
    assert percentiles_of(values, [0, 25, 50, 100]) == [1.0, 1.5, 2.0, 4.0]
    assert values.tolist() == [4.0, 1.0, 2.0]


@pytest.mark.parametrize("piece", [1_000_000, 100])
def test_intervals_of_equally_distributed_prompts_are_those_of_independent_requests(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values are 0 to 1439, and each prompt has the same share below each percentile, so no share is uncertain."""
    monkeypatch.setattr(module, "PIECE_ROWS", piece)
    many = PROMPTS * EACH
    found = percentile_intervals(np.arange(float(many)), layout(PROMPTS, 1, EACH), [5, 10, 90, 95, 11, 50, 89], seed=1)
    bounds = [(each.bounds.low, each.bounds.high) for each in found if each]
    for (low, high), share in zip(bounds[:4], (0.05, 0.10, 0.90, 0.95), strict=True):
        assert stats.beta(low + 1, many - low).cdf(share) == pytest.approx(0.975)
        assert stats.beta(high + 1, many - high).cdf(share) == pytest.approx(0.025)
    for found_bounds, share in zip(bounds[4:], (0.11, 0.5, 0.89), strict=True):
        beta = stats.beta(share * many + 0.5, (1 - share) * many + 0.5)
        assert found_bounds == pytest.approx(tuple((many - 1) * beta.ppf([0.025, 0.975])))
    assert {each.freedom for each in found if each} == {PROMPTS - 1}


def shares_by_repeat(counts: list[int]) -> tuple[Values, RowLayout]:
    """Values of 72 prompts, 20 requests each a repeat: in each repeat so many of them are 0, the others 1 and more."""
    rows = [np.repeat((np.arange(EACH) >= count) * (1.0 + np.arange(EACH)), PROMPTS) for count in counts]
    return np.concatenate(rows), layout(PROMPTS, len(counts), EACH)


def test_variation_between_repeats_makes_a_percentile_less_certain() -> None:
    """The value 11 is at or below in 12, 10, 11 and 11 of 20 requests: a variance of 0.05² × 2 / 3 between repeats."""
    values, rows = shares_by_repeat([12, 10, 11, 11])
    _, chosen, _ = percentile_intervals(values, rows, [25, 50, 75], seed=1)
    half = stats.t.ppf(0.975, 3) * np.sqrt(0.05**2 * 2 / 3 / 4)
    independent = 0.25 * (stats.norm.ppf(0.975) / half) ** 2
    beta = stats.beta(0.5 * independent + 0.5, 0.5 * independent + 0.5)
    assert chosen is not None
    assert chosen.freedom == pytest.approx(3)
    assert [chosen.bounds.low, chosen.bounds.high] == percentiles_of(
        values, [100 * beta.ppf(at) for at in (0.025, 0.975)]
    )


def test_bounds_beyond_the_values_are_the_outermost_values() -> None:
    """The share varies so much between repeats that the percentiles are as uncertain as those of 40 requests."""
    for counts, percent, end in (([18, 20, 19, 19], 95, "high"), ([2, 0, 1, 1], 5, "low")):
        values, rows = shares_by_repeat(counts)
        (chosen,) = percentile_intervals(values, rows, [percent], seed=1)
        assert chosen is not None
        assert getattr(chosen.bounds, end) == (values.max() if end == "high" else values.min())


def test_repeats_with_hardly_any_common_prompts_have_no_interval() -> None:
    """One of 16 draws of two repeats has neither of its repeats' prompts, and more have only one."""
    table = Table({"repeat": np.array([0, 1, 1, 1, 1, 1]), "prompt_id": TextCodes.of(list("abcdef"))})
    rows = layout_of(filled(table, category=None))
    assert percentile_intervals(np.arange(6.0), rows, [50], seed=1) == [None]
