"""Diverse selection: pair sums are exact, swaps never increase similarity, small sets are near the optimum."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_client.dataset.diversity import (
    SelectionRequest,
    Vectors,
    mean_similarity,
    random_subset_similarity,
    refine_by_swaps,
    select_diverse_group,
    select_greedily,
    unit_vectors,
)
from specbench_client.errors import BadInput
from specbench_testing.present import present


def vectors_of(seed: int, rows: int, dimensions: int = 6, clusters: int = 3) -> Vectors:
    """Return rows around a few centres, like prompts of a category."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(clusters, dimensions))
    raw = centres[generator.integers(clusters, size=rows)] + 0.7 * generator.normal(size=(rows, dimensions))
    return unit_vectors(raw.astype(np.float32), [str(row) for row in range(rows)])


def naive_sum(vectors: Vectors) -> float:
    exact = vectors.astype(np.float64)
    return sum(float(first @ second) for first, second in combinations(exact, 2))


@st.composite
def sets(draw: st.DrawFn, most: int = 40) -> tuple[Vectors, int]:
    rows = draw(st.integers(2, most))
    return vectors_of(draw(st.integers(0, 10_000)), rows), draw(st.integers(1, rows))


@given(sets())
@settings(deadline=None)
def test_mean_similarity_equals_the_mean_over_all_pairs(case: tuple[Vectors, int]) -> None:
    vectors, _ = case
    pairs = len(vectors) * (len(vectors) - 1) / 2
    assert mean_similarity(vectors) == pytest.approx(naive_sum(vectors) / pairs, abs=1e-5)


@given(sets())
@settings(deadline=None)
def test_greedy_selection_takes_the_row_least_similar_to_those_taken(case: tuple[Vectors, int]) -> None:
    vectors, count = case
    chosen = select_greedily(vectors, count)
    assert len(set(chosen)) == count
    exact = vectors.astype(np.float64)
    for taken in range(1, count):
        loads = exact @ exact[chosen[:taken]].sum(axis=0)
        loads[chosen[:taken]] = np.inf
        assert loads[chosen[taken]] <= loads.min() + 2e-5


@given(sets())
@settings(deadline=None)
def test_swaps_never_increase_similarity_and_end_when_none_helps(case: tuple[Vectors, int]) -> None:
    vectors, count = case
    chosen = select_greedily(vectors, count)
    members, swaps = refine_by_swaps(vectors, chosen)
    assert len(set(members)) == count
    before, after = naive_sum(vectors[chosen]), naive_sum(vectors[members])
    assert after <= before + 1e-9
    if swaps:
        assert after < before
    outside = np.setdiff1d(np.arange(len(vectors)), members)
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    loads = cosines[:, members].sum(axis=1)
    changes = loads[outside][None, :] - loads[members][:, None] + 1 - cosines[np.ix_(np.array(members), outside)]
    assert (changes >= -1e-4).all()


@given(sets(most=9))
@settings(max_examples=60, deadline=None)
def test_small_sets_are_within_the_proven_bound_of_the_optimum(case: tuple[Vectors, int]) -> None:
    vectors, count = case
    found = naive_sum(vectors[refine_by_swaps(vectors, select_greedily(vectors, count))[0]])
    best = min(naive_sum(vectors[list(rows)]) for rows in combinations(range(len(vectors)), count))
    assert best - 1e-6 <= found <= best + min(count, len(vectors) - count) + 1e-6


def test_four_of_ten_are_optimal_in_at_least_four_of_five_cases() -> None:
    hits = 0
    for seed in range(50):
        vectors = vectors_of(seed, 10)
        found = naive_sum(vectors[refine_by_swaps(vectors, select_greedily(vectors, 4))[0]])
        best = min(naive_sum(vectors[list(rows)]) for rows in combinations(range(10), 4))
        hits += found <= best + 1e-5
    assert hits >= 40


def test_first_of_identical_rows_is_taken() -> None:
    axes = np.eye(4, dtype=np.float32)
    vectors = unit_vectors(np.concatenate([axes, axes, axes]), [str(row) for row in range(12)])
    assert sorted(select_greedily(vectors, 4)) == [0, 1, 2, 3]
    assert refine_by_swaps(vectors, [0, 4, 8, 1])[0] == [1, 2, 3, 8]  # 2 and 3 are taken, not their duplicates


def test_each_group_has_its_own_selection_and_random_comparison() -> None:
    vectors = vectors_of(1, 80, dimensions=16)
    for group in {"first": range(40), "second": range(40, 80)}.items():
        rows, found = select_diverse_group(vectors, group, SelectionRequest(10, seed=3, draws=50))
        assert (found.category, found.selected, set(rows) <= set(group[1])) == (group[0], len(rows), True)
        assert found.refined == pytest.approx(mean_similarity(vectors[rows]))
        assert (found.refined or 0) <= present(found.greedy) < present(found.random).low
        assert (rows, found) == select_diverse_group(vectors, group, SelectionRequest(10, seed=3, draws=50))


def test_single_prompt_has_no_similarity() -> None:
    vectors = vectors_of(1, 3)
    assert mean_similarity(vectors[:1]) is None
    assert random_subset_similarity(vectors, 1, 10, 0) is None


@pytest.mark.parametrize(("value", "word"), [(0.0, "all zeros"), (np.nan, "not finite"), (np.inf, "not finite")])
def test_vector_without_a_direction_is_rejected_with_its_prompt(value: float, word: str) -> None:
    raw = np.ones((3, 2), dtype=np.float32)
    raw[1] = value
    with pytest.raises(BadInput, match=f"'b' .*{word}"):
        unit_vectors(raw, ["a", "b", "c"])
