"""Tables of tidy rows in tests: made of data frames, and compared column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import Array, Column, RaggedColumn, TextCodes


def table_of(frame: pd.DataFrame) -> Table:
    """Return the table with the columns of a data frame, of which those that are no numbers are texts."""
    return Table({str(name): _column(frame[name]) for name in frame})


def _column(series: pd.Series) -> Column:
    if pd.api.types.is_numeric_dtype(series):
        return series.to_numpy()
    return TextCodes.of(series.astype(object).where(series.notna(), None).tolist())


def lists_of(rows: Sequence[Sequence[Any] | None], fields: int | None = None) -> RaggedColumn:
    """Return a column of lists of numbers, or of entries with several fields; None for missing."""
    sizes = np.array([-1 if each is None else len(each) for each in rows], dtype=np.int32)
    entries = np.array([entry for each in rows for entry in each or ()], dtype=np.float32)
    return RaggedColumn(sizes, entries if fields is None else entries.reshape(-1, fields))


def pairs_of_frame(frame: pd.DataFrame) -> Pairs:
    """Return pairs, one for each row of a data frame; columns of one side end with `_arm` or `_baseline`."""
    shared = [name for name in map(str, frame) if not name.endswith(("_arm", "_baseline"))]
    own = (
        {name: name.removesuffix(side) for name in map(str, frame) if name.endswith(side)}
        for side in ("_arm", "_baseline")
    )
    arm, baseline = (table_of(frame[[*shared, *names]].rename(columns=names)) for names in own)
    return Pairs(arm, baseline, len(frame), 0)


def pairs_with(pairs: Pairs, arm: Table, baseline: Table) -> Pairs:
    """Return the pairs of the same rows in other tables."""
    arm, baseline = replace(pairs.arm, columns=arm.columns), replace(pairs.baseline, columns=baseline.columns)
    return replace(pairs, arm=arm, baseline=baseline)


def arrays_of(column: Column) -> list[Array]:
    """Return the arrays that a column consists of; of a column of texts, the texts of the rows."""
    if isinstance(column, TextCodes):
        return [column.by_row]
    return [column.sizes, column.entries] if isinstance(column, RaggedColumn) else [column]


def assert_same_table(found: Table, expected: Table) -> None:
    """Fail if columns, their types or their values differ; missing values are equal."""
    assert list(found.columns) == list(expected.columns)
    for name in found.columns:
        for mine, other in zip(arrays_of(found.column(name)), arrays_of(expected.column(name)), strict=True):
            assert mine.dtype == other.dtype, name
            np.testing.assert_array_equal(mine, other, err_msg=name)


def filled(rows: Table, **values: float | str | None) -> Table:
    """Return the rows with the same value in a whole column: a number, or a text or None."""
    return rows.assign(
        **{
            name: np.full(len(rows), value) if isinstance(value, float) else TextCodes.of([value] * len(rows))
            for name, value in values.items()
        }
    )
