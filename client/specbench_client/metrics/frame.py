"""Records as tidy rows, so that every metric reads one form.

Records come from Python, from Parquet, from several engines: nulls are None or NaN, lists are lists or arrays, and
integers with nulls have become floats. Here, once: numbers are float64 with NaN for missing (exact for times up to
104 days), lists are float64 arrays or None, texts are str or None, and warm-up rows are gone.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.load.fillers import is_filler

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]

SKIPPED = "skipped_after_error"
"""Error class of a turn that was never sent, because an earlier turn of its conversation had failed."""

COLUMNS = tuple(column.name for column in fields(Record))
LISTS = ("chunk_ns", "chunk_tokens", "chunk_gathered", "step_accepted", "output_token_ids")
TEXTS = (
    "request_id",
    "prompt_id",
    "category",
    "conversation_id",
    "phase",
    "clock",
    "acceptance_source",
    "finish_reason",
    "error_class",
    "error",
    "output_sha256",
    "output_text",
)
NUMBERS = tuple(name for name in COLUMNS if name not in LISTS and name not in TEXTS)


def tidy(frame: pd.DataFrame, point: str = "") -> pd.DataFrame:
    """Return the measured rows (warm-up left out) in the one form, with five columns more.

    `point`: as given, or as it stands in the frame. `filler`: sent to hold the load, not to be measured. `tokens`:
    output tokens as the engine counts them, else as the client does. `ok`: no error. `steady`: in the steady state and
    ok; only these rows enter figures.
    """
    given = frame.reindex(columns=[*COLUMNS, "point"])
    data: dict[str, object] = {}
    data |= {name: pd.to_numeric(given[name]).to_numpy(np.float64, na_value=np.nan) for name in NUMBERS}
    data |= {name: _objects([_text(value) for value in given[name]]) for name in TEXTS}
    data |= {name: _objects([_array(value) for value in given[name]]) for name in LISTS}
    data["point"] = _objects([_text(value) or point for value in given["point"]])
    rows = pd.DataFrame(data)
    rows["tokens"] = rows["output_tokens"].fillna(rows["output_tokens_client"])
    rows["filler"] = [is_filler(prompt or "") for prompt in rows["prompt_id"]]
    rows["ok"] = rows["error_class"].isna().to_numpy(bool)
    rows["steady"] = rows["ok"].to_numpy(bool) & (rows["phase"] == RecordPhase.STEADY.value).to_numpy(bool)
    return rows[(rows["phase"] != RecordPhase.WARMUP.value).to_numpy(bool)].reset_index(drop=True)


def numbers(rows: pd.DataFrame, name: str) -> Values:
    """Return a numeric column; missing is NaN."""
    return rows[name].to_numpy(np.float64)


def flags(rows: pd.DataFrame, name: str) -> Mask:
    """Return a boolean column."""
    return rows[name].to_numpy(np.bool_)


def arrays(rows: pd.DataFrame, name: str) -> list[Values | None]:
    """Return a column of lists; missing is None."""
    return list(rows[name])


def steady(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that enter figures."""
    return rows[flags(rows, "steady")].reset_index(drop=True)


def sent(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of requests that were really tried: all but the turns skipped after an error."""
    return rows[(rows["error_class"] != SKIPPED).to_numpy(bool)].reset_index(drop=True)


def total(values: Values) -> float | None:
    """Return the sum of what is known, or None where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.sum()) if known.size else None


def _objects(values: list[object]) -> pd.Series:
    """One object a row, None staying None: pandas would make NaN of it, numpy a matrix of equally long lists."""
    column = np.empty(len(values), dtype=np.object_)
    for index, value in enumerate(values):
        column[index] = value
    return pd.Series(column, dtype=object)


def _text(value: object) -> str | None:
    return None if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)) else str(value)


def _array(value: object) -> Values | None:
    if value is None or value is pd.NA or isinstance(value, float):
        return None
    return np.array(list(value), dtype=np.float64)  # type: ignore[call-overload]
