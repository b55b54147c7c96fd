"""Ragged columns keep their values through pandas' row operations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.ragged import RaggedColumn, to_ragged

ROWS = st.lists(st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=4), max_size=8)
Row = list[tuple[int, int]] | None


def column(rows: list[Row]) -> pd.Series:
    return to_ragged([None if row is None else np.array(row).reshape(-1, 2).T for row in rows], np.float32)


def restored(series: pd.Series) -> list[Row]:
    return [
        None if each is None else [(int(value), int(often)) for value, often in each.T]
        for each in RaggedColumn.of(series, 2).arrays()
    ]


@given(ROWS)
def test_arrays_are_restored_and_missing_is_not_empty(rows: list[Row]) -> None:
    assert restored(column(rows)) == rows
    assert column(rows).isna().tolist() == [row is None for row in rows]


@pytest.mark.draws
@given(ROWS, ROWS, st.randoms())
def test_ragged_columns_can_be_concatenated_filtered_sorted_and_grouped(
    first: list[Row], second: list[Row], chance: object
) -> None:
    rows = [*first, *second]
    order = sorted(range(len(rows)), key=lambda _: chance.random())  # type: ignore[attr-defined]
    together = pd.concat([column(first), column(second)], ignore_index=True)
    table = pd.DataFrame({"lists": together, "order": np.argsort(order), "odd": np.arange(len(rows)) % 2})
    odd = table[(table["odd"] == 1).to_numpy(bool)].reset_index(drop=True)
    assert restored(odd["lists"]) == rows[1::2]
    assert restored(table.sort_values("order")["lists"]) == [rows[index] for index in order]
    assert {key: restored(part["lists"]) for key, part in table.groupby("odd")} == {
        key: rows[key::2] for key in (0, 1) if rows[key::2]
    }


@given(ROWS)
def test_sums_are_per_row_and_missing_stays_missing(rows: list[Row]) -> None:
    kept = RaggedColumn.of(column(rows), 2)
    expected = [np.nan if row is None else sum(often for value, often in row if value >= 3) for row in rows]
    np.testing.assert_array_equal(kept.sums(kept.fields[1] * (kept.fields[0] >= 3)), np.array(expected, dtype=float))
