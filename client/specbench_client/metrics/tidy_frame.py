"""Convert records to tidy rows, the one form that every metric reads.

Records come from Python, from Parquet and from several engines: nulls are None or NaN, lists are lists or arrays, and
integers with nulls have become floats. This module normalises them: numbers are floats with NaN for missing (times
exact up to 104 days, counts up to 16 million), texts are str or None, warm-up rows are removed, and lists are condensed
(`metrics.record_lists`). A row takes about 300 bytes, whatever the length of its answer. There may be a million rows:
they are then stored part by part and read column by column (`metrics.rows`), and every function here accepts either
form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.load.conversations import is_filler
from specbench_client.metrics.record_lists import (
    COMPACT_FIELDS,
    POINT_ONLY_COLUMNS,
    TALLY_FIELDS,
    condense_lists,
)
from specbench_client.metrics.rows import (
    POINT,
    Columns,
    LazyColumns,
    Rows,
    T,
    concat_frames,
    fill,
    has_text,
    iter_pieces,
    read_columns,
    select_rows,
    text_codes,
)
from specbench_client.ragged import RaggedColumn

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]

SKIPPED_AFTER_ERROR = "skipped_after_error"
"""Error class of a turn that was never sent, because an earlier turn of its conversation had failed."""

IGNORED_COLUMNS = ("request_id", "timestamp_source", "error", "chunk_coalesced", "connection")
"""Columns of a record that no figure and no check uses."""
COLUMNS = tuple(column.name for column in fields(Record) if column.name not in IGNORED_COLUMNS)
"""Columns that are read from a record."""
LISTS = ("chunk_ns", "chunk_tokens", "step_accepted", "step_drafted")
TEXTS = ("prompt_id", "category", "phase", "acceptance_source", "finish_reason", "error_class", "flaw")
NAME, DIGEST = "conversation_id", "output_sha256"
"""Texts that differ in nearly every row and are only tested for equality: stored as hashes."""
ANSWERS = ("output_text", "output_token_ids")
"""Stored only if the run requests it, and not part of tidy rows: code that needs texts reads the records again."""
JUDGED = "judged"
"""In tidy rows part of `flawed`."""
NUMBERS = tuple(name for name in COLUMNS if name not in (*LISTS, *TEXTS, NAME, DIGEST, JUDGED, *ANSWERS))
TIMES = tuple(name for name in NUMBERS if name.endswith("_ns"))
"""Stored as float64; the other numbers are counts, which float32 represents exactly up to 16 million."""


def tidy(parts: Iterable[pd.DataFrame], point: str = "") -> pd.DataFrame:
    """Return the measured rows (without warm-up) in the normalised form, with derived columns.

    `parts` are the records in any number of parts, which are read one at a time and not kept. `point` is the
    point's hash unless the records contain it. Derived columns:

    - `filler`: sent to keep up the load, not to be measured.
    - `tokens`: output tokens as counted by the engine, else by the client.
    - `text_bytes`: size of the answer's text, if it was stored.
    - `flawed`: 1 if the answer has a flaw, 0 if none was found, NaN if it was not judged.
    - `ok`: without error.
    - `steady`: in the steady state and `ok`; only these rows enter figures.
    - the columns of `metrics.record_lists.condense_lists` instead of the lists, and hashes (`text_digests`)
      instead of the conversation's name and the answer's digest.
    """
    return concat_frames(list(iter_tidy(parts, point)))


def iter_tidy(parts: Iterable[pd.DataFrame], point: str = "") -> Iterator[pd.DataFrame]:
    """Yield the tidy rows of each part; for a point without any part, yield one frame without rows."""
    has_parts = False
    for part in parts:
        has_parts = True
        yield _tidy(part, point)
    if not has_parts:
        yield _tidy(pd.DataFrame(columns=COLUMNS), point)


def _tidy(part: pd.DataFrame, point: str) -> pd.DataFrame:
    measured = part[(part["phase"] != RecordPhase.WARMUP.value).to_numpy(bool)]
    records = measured.reindex(columns=[*COLUMNS, "point"]).reset_index(drop=True)
    data: dict[str, object] = {}
    data |= {name: pd.to_numeric(records[name]).to_numpy(_kind(name), na_value=np.nan) for name in NUMBERS}
    data |= {name: _objects([_interned(value) for value in records[name]]) for name in TEXTS}
    data[NAME] = text_hashes(_text(value) or "" for value in records[NAME])
    data[DIGEST] = text_digests(_text(value) for value in records[DIGEST])
    data["point"] = _objects([_interned(value) or point for value in records["point"]])
    data["text_bytes"] = np.array([_bytes(_text(value)) for value in records["output_text"]], dtype=np.float32)
    rows = pd.DataFrame(data, copy=False)
    rows["tokens"] = rows["output_tokens"].fillna(rows["output_tokens_client"])
    flawed = rows["flaw"].notna().to_numpy(np.float32)
    rows["flawed"] = np.where(records[JUDGED].eq(True).to_numpy(bool), flawed, np.float32(np.nan))
    rows["filler"] = np.array([is_filler(prompt or "") for prompt in rows["prompt_id"]], dtype=np.bool_)
    rows["ok"] = rows["error_class"].isna().to_numpy(bool)
    rows["steady"] = rows["ok"].to_numpy(bool) & (rows["phase"] == RecordPhase.STEADY.value).to_numpy(bool)
    edges = flags(rows, "ok") & ~flags(rows, "steady")
    return rows.assign(**condense_lists(records, rows, edges))


def without_point_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return tidy rows without the columns that only the checks of a single point need."""
    return rows.drop(columns=list(POINT_ONLY_COLUMNS))


def stored_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of one point's tidy rows that are stored with it; their readers know the point."""
    return without_point_columns(rows).drop(columns=[POINT])


def numbers(rows: Columns, name: str) -> Values:
    """Return a numeric column, shape (rows,); missing values are NaN."""
    if not isinstance(rows, LazyColumns):
        return rows[name].to_numpy(np.float64)
    return piecewise(rows, lambda piece: piece[name].to_numpy(np.float64))


def piecewise(rows: Columns, values: Callable[[Columns], Values]) -> Values:
    """Return a number per row, shape (rows,), computed piece by piece: only the result is in memory."""
    found = np.empty(len(rows))
    fill(found, (values(piece) for piece in iter_pieces(rows)))
    return found


def sums_by_text(rows: Columns, name: str, parts: Callable[[Columns], Sequence[Values]]) -> pd.DataFrame:
    """Sum the parts of the rows by the text of a column, piece by piece; one row per text, sorted, indexed by it.

    `parts` returns numbers per row, shape (rows,) each. Rows that lack a part or the text are left out.
    """
    sums: dict[str, Values] = {}
    for piece in iter_pieces(rows):
        values, column = np.stack(parts(piece), axis=1), text_codes(piece, name)
        known = ~np.isnan(values).any(axis=1) & (column.codes >= 0)
        present, codes = np.unique(column.codes[known], return_inverse=True)
        found = np.zeros((present.size, values.shape[1]))
        np.add.at(found, codes, values[known])
        for text, each in zip(column.texts[present], found, strict=True):
            sums[text] = sums[text] + each if text in sums else each
    return pd.DataFrame.from_dict(sums, orient="index").sort_index()


def flags(rows: Columns, name: str) -> Mask:
    """Return a boolean column, shape (rows,)."""
    return rows[name].to_numpy(np.bool_)


def arrays(rows: Columns, name: str) -> list[Values | None]:
    """Return a ragged column of one field as one array per row; missing values are None."""
    return [None if each is None else each[0] for each in RaggedColumn.of(rows[name], 1).arrays()]


def tally(rows: Columns, name: str) -> RaggedColumn:
    """Return all rows' tallies as one ragged column: values and counts, shape (2, entries)."""
    return RaggedColumn.of(rows[name], TALLY_FIELDS)


def step_walks(rows: Columns) -> RaggedColumn:
    """Return all rows' walks as one ragged column, as encoded by `metrics.record_lists.compact_walk`."""
    return RaggedColumn.of(rows["walk"], COMPACT_FIELDS)


def any_known(rows: Columns, name: str) -> bool:
    """Return whether any row has a value in this column."""
    return any(bool(piece[name].notna().any()) for piece in iter_pieces(rows))


def steady_rows(rows: T) -> T:
    """Return the rows that enter figures."""
    return select_rows(rows, flags(rows, "steady"))


def iter_points(rows: pd.DataFrame | Rows, columns: Sequence[str]) -> Iterator[pd.DataFrame | Rows]:
    """Yield each point's rows, with at least these columns, one point at a time."""
    return rows.by_point() if isinstance(rows, Rows) else iter_point_frames(rows, columns)


def iter_point_frames(rows: pd.DataFrame | Rows, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield these columns of each point's rows, one point at a time; `groupby` would copy all rows at once."""
    if isinstance(rows, Rows):
        return (read_columns(each, columns) for each in rows.by_point())
    points = rows["point"]
    return (rows.loc[(points == point).to_numpy(bool), list(columns)] for point in sorted(points.unique()))


def sent_rows(rows: T) -> T:
    """Return the rows of requests that were sent: all except turns skipped after an error."""
    return select_rows(rows, ~has_text(rows, "error_class", SKIPPED_AFTER_ERROR))


def known_sum(values: Values) -> float | None:
    """Return the sum of the known values, or None if there are none."""
    known = values[~np.isnan(values)]
    return float(known.sum()) if known.size else None


def _kind(name: str) -> type[np.floating]:
    return np.float64 if name in TIMES else np.float32


def _text(value: object) -> str | None:
    return None if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)) else str(value)


def _objects(values: Sequence[object]) -> pd.Series:
    """Return an object column with one value per row; unlike pandas' and numpy's constructors it keeps None."""
    column = np.empty(len(values), dtype=np.object_)
    for index, value in enumerate(values):
        column[index] = value
    return pd.Series(column, dtype=object)


def _interned(value: object) -> str | None:
    """Return one shared object per text: prompts, categories and error classes are repeated in many rows."""
    text = _text(value)
    return None if text is None else sys.intern(text)


def _bytes(text: str | None) -> float:
    return np.nan if text is None else float(len(text.encode()))


# Texts that are only tested for equality are stored as hashes: the texts would take hundreds of bytes each.
#
# An answer is identified by its SHA-256 and a conversation by its name, and each is stored as a hash of 8 bytes
# (SipHash with a fixed key: the same text has the same hash everywhere). Of an answer's hash 53 bits are stored, which
# a float represents exactly, and which leaves NaN for missing values: the probability that two different answers have
# the same hash is 1 in 10^16. A conversation always has a name, and its hash has 64 bits.

Hashes = NDArray[np.uint64]

_BITS = 53
"""Bits of an integer that a float64 represents exactly."""
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Constants of the SplitMix64 generator (Steele, Lea and Flood 2014), which mixes all input bits."""


def text_digests(texts: Iterable[str | None]) -> Values:
    """Return a 53-bit hash for each text, shape (texts,); NaN for missing texts."""
    values = list(texts)
    missing = np.array([text is None for text in values], dtype=np.bool_)
    return np.where(missing, np.nan, _cut(text_hashes(text or "" for text in values)))


def text_hashes(texts: Iterable[str]) -> Hashes:
    """Return a 64-bit hash for each text, shape (texts,)."""
    values = list(texts)
    column = np.empty(len(values), dtype=np.object_)
    column[:] = values
    return np.asarray(pd.util.hash_array(column), dtype=np.uint64)


def chain_history(earlier: Values, reply: Values) -> Values:
    """Return a hash of the history so far and the reply to it, shape (rows,); NaN if either is missing."""
    unknown = np.isnan(earlier) | np.isnan(reply)
    before, then = (np.nan_to_num(each).astype(np.uint64) for each in (earlier, reply))
    with np.errstate(over="ignore"):
        mixed = before * _FACTORS[0] + then + _FACTORS[0]
        for shift, factor in zip((30, 27), _FACTORS[1:], strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return np.where(unknown, np.nan, _cut(mixed ^ (mixed >> np.uint64(31))))


def _cut(hashes: Hashes) -> Values:
    return np.asarray((hashes >> np.uint64(64 - _BITS)).astype(np.float64), dtype=np.float64)
