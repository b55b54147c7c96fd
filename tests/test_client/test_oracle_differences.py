"""Differences of two drafters: each block is the mean over its answers and positions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.analysis.what_if.answers import DraftedAnswer, PositionAcceptance, SharedAnswers, shared_answers
from specbench_client.analysis.what_if.oracle import drafter_differences

PAIRS = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12), max_size=8)


def both_of(answers: list[list[tuple[int, int]]]) -> SharedAnswers:
    """Return answers with accepted drafts of both drafters at each position."""
    sides = [
        {
            (f"p{number}", 0, 0): DraftedAnswer(
                f"p{number}", None, 0, 5, PositionAcceptance(np.array([pair[side] for pair in answer], dtype=np.int64))
            )
            for number, answer in enumerate(answers)
        }
        for side in (0, 1)
    ]
    return shared_answers(sides[0], sides[1], unchecked=True)


@given(PAIRS, st.integers(1, 5), st.integers(1, 5))
def test_cells_are_means_over_their_answers_and_positions(
    answers: list[list[tuple[int, int]]], rows: int, columns: int
) -> None:
    found = drafter_differences(both_of(answers), rows, columns)
    assert len(found.rows) <= rows
    assert len(found.columns) <= columns
    ordered = sorted(answers, key=len)
    parts = np.array_split(np.arange(len(ordered)), min(rows, len(ordered))) if ordered else []
    for part, block, values in zip(parts, found.rows, found.values, strict=True):
        mine = [ordered[index] for index in part]
        assert (block.first, block.last) == (len(mine[0]), len(mine[-1]))
        for column, value in zip(found.columns, values, strict=True):
            gains = [
                second - first
                for answer in mine
                for place, (first, second) in enumerate(answer)
                if column.first <= place <= column.last
            ]
            assert (np.isnan(value) and not gains) or np.isclose(value, np.mean(gains))


def test_first_token_is_left_out_and_shorter_answers_have_empty_cells() -> None:
    found = drafter_differences(both_of([[(9, 0), (1, 3)], [(9, 0), (2, 2), (0, 4), (0, 4)]]), 2, 3)
    assert [each.label for each in found.rows] == ["2", "4"]
    assert [each.label for each in found.columns] == ["1", "2", "3"]
    assert np.array_equal(found.values, [[2.0, np.nan, np.nan], [0.0, 4.0, 4.0]], equal_nan=True)
