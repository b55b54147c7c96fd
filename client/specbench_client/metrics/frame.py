"""Records as tidy rows, so that every metric reads one form.

Records come from Python, from Parquet, from several engines: nulls are None or NaN, lists are lists or arrays, and
integers with nulls have become floats. Here, once: numbers are floats with NaN for missing (times exact up to 104 days,
counts up to 16 million), texts are str or None, warm-up rows are gone, and so are lists: what is kept of them is in
`metrics.lists`. A row is some 300 bytes, whatever its answer. Rows may be a million: then they are laid down part by
part and read column by column (`metrics.rows`), and every function here that looks at rows takes either form.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

import numpy as np
import pandas as pd

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.load.fillers import is_filler
from specbench_client.metrics import lists
from specbench_client.metrics.blocks import stacked
from specbench_client.metrics.digests import digests, names
from specbench_client.metrics.lists import TALLY_FIELDS, condensed, objects
from specbench_client.metrics.rows import Columns, Rows, T, among, pieces, read
from specbench_client.metrics.walk import COMPACT_FIELDS
from specbench_client.packed import Packed

Values = lists.Values
Mask = lists.Mask

SKIPPED = "skipped_after_error"
"""Error class of a turn that was never sent, because an earlier turn of its conversation had failed."""

UNREAD = ("request_id", "clock", "error", "connect_ns", "chunk_gathered")
"""Columns of a record that no figure and no check looks at."""
COLUMNS = tuple(column.name for column in fields(Record) if column.name not in UNREAD)
"""All that is read of a record."""
LISTS = ("chunk_ns", "chunk_tokens", "step_accepted")
TEXTS = ("prompt_id", "category", "phase", "acceptance_source", "finish_reason", "error_class")
NAME, DIGEST = "conversation_id", "output_sha256"
"""Texts of which there is another in nearly every row, and which are only compared: kept as numbers."""
ANSWERS = ("output_text", "output_token_ids")
"""Kept where a run asks for them, and no part of a tidy row: who needs an answer's words reads its records again."""
NUMBERS = tuple(name for name in COLUMNS if name not in (*LISTS, *TEXTS, NAME, DIGEST, *ANSWERS))
TIMES = tuple(name for name in NUMBERS if name.endswith("_ns"))
"""Kept in float64; the other numbers are counts, which float32 holds exactly up to 16 million."""


def tidy(parts: Iterable[pd.DataFrame], point: str = "") -> pd.DataFrame:
    """Return the measured rows (warm-up left out) in the one form, with more columns.

    `parts`: the records, cut anywhere; one part after the other is asked for, and none is kept as it came. `point`: as
    given, or as it stands in the frame. `filler`: sent to hold the load, not to be measured. `tokens`: output tokens as
    the engine counts them, else as the client does. `text_bytes`: of the answer's text, where it was kept. `ok`: no
    error. `steady`: in the steady state and ok; only these rows enter figures. What stands for the lists:
    `metrics.lists.condensed`; and what for conversation and answer: `metrics.digests`.
    """
    return stacked(list(tidied(parts, point)))


def tidied(parts: Iterable[pd.DataFrame], point: str = "") -> Iterator[pd.DataFrame]:
    """Yield the tidy rows of one part after the other; of a point without any part one frame without rows."""
    one = False
    for part in parts:
        one = True
        yield _tidy(part, point)
    if not one:
        yield _tidy(pd.DataFrame(columns=COLUMNS), point)


def _tidy(part: pd.DataFrame, point: str) -> pd.DataFrame:
    measured = part[(part["phase"] != RecordPhase.WARMUP.value).to_numpy(bool)]
    given = measured.reindex(columns=[*COLUMNS, "point"]).reset_index(drop=True)
    data: dict[str, object] = {}
    data |= {name: pd.to_numeric(given[name]).to_numpy(_kind(name), na_value=np.nan) for name in NUMBERS}
    data |= {name: objects([_shared(value) for value in given[name]]) for name in TEXTS}
    data[NAME] = names(_text(value) or "" for value in given[NAME])
    data[DIGEST] = digests(_text(value) for value in given[DIGEST])
    data["point"] = objects([_shared(value) or point for value in given["point"]])
    data["text_bytes"] = np.array([_bytes(_text(value)) for value in given["output_text"]], dtype=np.float32)
    rows = pd.DataFrame(data, copy=False)
    rows["tokens"] = rows["output_tokens"].fillna(rows["output_tokens_client"])
    rows["filler"] = np.array([is_filler(prompt or "") for prompt in rows["prompt_id"]], dtype=np.bool_)
    rows["ok"] = rows["error_class"].isna().to_numpy(bool)
    rows["steady"] = rows["ok"].to_numpy(bool) & (rows["phase"] == RecordPhase.STEADY.value).to_numpy(bool)
    edges = flags(rows, "ok") & ~flags(rows, "steady")
    return rows.assign(**condensed(given, rows, edges))


def numbers(rows: Columns, name: str) -> Values:
    """Return a numeric column; missing is NaN."""
    return rows[name].to_numpy(np.float64)


def flags(rows: Columns, name: str) -> Mask:
    """Return a boolean column."""
    return rows[name].to_numpy(np.bool_)


def arrays(rows: Columns, name: str) -> list[Values | None]:
    """Return a column of arrays; missing is None."""
    return list(rows[name])


def tally(rows: Columns, name: str) -> Packed:
    """Return a column of tallies as a whole: their values, and how often each is there."""
    return Packed.of(rows[name], TALLY_FIELDS)


def walks(rows: Columns) -> Packed:
    """Return the walks of all rows as a whole, as `metrics.walk.compact` keeps them."""
    return Packed.of(rows["walk"], COMPACT_FIELDS)


def any_told(rows: Columns, name: str) -> bool:
    """Return whether any row has a value in this column."""
    return any(bool(piece[name].notna().any()) for piece in pieces(rows))


def steady(rows: T) -> T:
    """Return the rows that enter figures."""
    return among(rows, flags(rows, "steady"))


def points_of(rows: pd.DataFrame | Rows, columns: Sequence[str]) -> Iterator[pd.DataFrame | Rows]:
    """Yield each point's rows, of which only these columns are asked for. One point after the other, as `by_point`."""
    return rows.by_point() if isinstance(rows, Rows) else by_point(rows, columns)


def by_point(rows: pd.DataFrame | Rows, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield these columns of each point's rows. One point after the other: grouping would copy all rows at once."""
    if isinstance(rows, Rows):
        return (read(each, columns) for each in rows.by_point())
    points = rows["point"]
    return (rows.loc[(points == point).to_numpy(bool), list(columns)] for point in sorted(points.unique()))


def sent(rows: T) -> T:
    """Return the rows of requests that were really tried: all but the turns skipped after an error."""
    return among(rows, (rows["error_class"] != SKIPPED).to_numpy(bool))


def total(values: Values) -> float | None:
    """Return the sum of what is known, or None where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.sum()) if known.size else None


def _kind(name: str) -> type[np.floating]:
    return np.float64 if name in TIMES else np.float32


def _text(value: object) -> str | None:
    return None if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)) else str(value)


def _shared(value: object) -> str | None:
    """Each text once, however many rows have it: prompts, categories and hashes come back in every repeat."""
    text = _text(value)
    return None if text is None else sys.intern(text)


def _bytes(text: str | None) -> float:
    return np.nan if text is None else float(len(text.encode()))
