"""Lists of numbers, stored flat, keep their values when rows are selected and joined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.numpy_columns import RaggedColumn, TextCodes
from specbench_testing.tables import lists_of

ROWS = st.lists(st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=4), max_size=8)
Row = list[tuple[int, int]] | None


def column(rows: list[Row]) -> RaggedColumn:
    return lists_of(rows, 2)


def restored(column: RaggedColumn) -> list[Row]:
    return [None if each is None else [(int(value), int(often)) for value, often in each] for each in column.arrays()]


@given(ROWS)
def test_arrays_are_restored_and_missing_is_not_empty(rows: list[Row]) -> None:
    assert restored(column(rows)) == rows
    assert column(rows).known.tolist() == [row is not None for row in rows]


@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_lists_can_be_joined_selected_and_sorted(first: list[Row], second: list[Row], chance: object) -> None:
    rows = [*first, *second]
    order = sorted(range(len(rows)), key=lambda _: chance.random())  # type: ignore[attr-defined]
    together = RaggedColumn.joined([column(first), column(second)])
    assert restored(together) == rows
    assert restored(together[np.arange(len(rows)) % 2 == 1]) == rows[1::2]
    assert restored(together[np.array(order, dtype=int)]) == [rows[index] for index in order]
    assert restored(together[1:3]) == rows[1:3]


@given(ROWS)
def test_sums_are_per_row_and_missing_stays_missing(rows: list[Row]) -> None:
    kept = column(rows)
    values, counts = kept.entries.T
    expected = [np.nan if row is None else sum(often for value, often in row if value >= 3) for row in rows]
    np.testing.assert_array_equal(kept.sums(counts * (values >= 3)), np.array(expected, dtype=float))


@pytest.mark.parametrize("parts", [[["a", None, "b"], ["b", "c"]], [[None], []], [[], ["a"]]])
def test_texts_are_restored_and_have_one_code_each(parts: list[list[str | None]]) -> None:
    texts = [text for part in parts for text in part]
    together = TextCodes.joined([TextCodes.of(part) for part in parts])
    assert together.by_row.tolist() == texts
    assert together[::-1].by_row.tolist() == texts[::-1]
    assert together.known.tolist() == [text is not None for text in texts]
    assert len(set(together.texts)) == len(together.texts)
