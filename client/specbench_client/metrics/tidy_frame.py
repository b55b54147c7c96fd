"""Convert records to tidy rows, the one form that every metric reads.

Numbers become floats with NaN for missing (times exact up to 104 days, counts up to 16 million), texts become codes,
warm-up rows are removed, and lists are condensed (`metrics.chunks_and_steps`). A row takes about 300 bytes, whatever
the length of its answer. There may be a million rows: they are then stored part by part and read column by column
(`metrics.rows`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from specbench_client.documents.record import Record, RecordPhase
from specbench_client.load.conversations import is_filler
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics.chunks_and_steps import POINT_ONLY_COLUMNS, condense_lists, stalled_rows
from specbench_client.metrics.rows import POINT, Table, has_text, join_tables
from specbench_client.numpy_columns import Array, TextCodes, Values, fill
from specbench_client.store.records import RECORD_SCHEMA
from specbench_client.transport.error_class import ErrorClass

IGNORED_COLUMNS = ("timestamp_source", "chunk_coalesced", "connection")
"""Columns of a record that no figure and no check uses."""
COLUMNS = tuple(column.name for column in fields(Record) if column.name not in IGNORED_COLUMNS)
"""Columns that are read from a record."""
LISTS = ("chunk_ns", "chunk_tokens", "step_accepted", "step_drafted")
TEXTS = (
    "prompt_id",
    "category",
    "phase",
    "acceptance_source",
    "finish_reason",
    "error_class",
    "error",
    "flaw",
    "token_conflict",
)
REQUEST = "request_id"
"""In tidy rows only of requests that stalled."""
NAME, DIGEST = "conversation_id", "output_sha256"
"""Texts that differ in nearly every row and are only tested for equality: stored as hashes."""
ANSWERS = ("output_text", "output_token_ids")
"""Stored only if the run requests it, and not part of tidy rows: code that needs texts reads the records again."""
JUDGED = "judged"
"""In tidy rows part of `flawed`."""
NUMBERS = tuple(name for name in COLUMNS if name not in (*LISTS, *TEXTS, REQUEST, NAME, DIGEST, JUDGED, *ANSWERS))
NUMBERS_TOGETHER = 262_144
"""Numbers of a column that are read, or added, together: some MB."""
TIMES = tuple(name for name in NUMBERS if name.endswith("_ns"))
"""Stored as float64; the other numbers are counts, which float32 represents exactly up to 16 million."""


PointRecords = Mapping[str, Iterable[pa.Table]]
"""The records of points by hash, each in any number of parts; read on access, and once."""


def tidy(parts: Iterable[pa.Table], point: str = "") -> Table:
    """Return the measured rows (without warm-up) in the normalised form, with derived columns.

    `parts` are the records in any number of parts with at least `COLUMNS`, which are read one at a time and not kept.
    `point` is the point's hash. Derived columns:

    - `filler`: sent to keep up the load, not to be measured.
    - `tokens`: output tokens as counted by the engine, else by the client.
    - `text_bytes`: size of the answer's text, if it was stored.
    - `flawed`: 1 if the answer has a flaw, 0 if none was found, NaN if it was not judged.
    - `ok`: without error.
    - `late_ms`: how late the client began to send it; parts that are by design count until they are known
      (`late_sends`).
    - `timing_fault`: the point's `TimingFault`; NONE until it is known (`checks.client`).
    - `steady`: in the steady state and `ok`; only these rows enter figures.
    - `request_id`: only of requests that stalled (`metrics.chunks_and_steps.stalled_rows`); the others have none.
    - the columns of `metrics.chunks_and_steps.condense_lists` instead of the lists, and hashes (`text_digests`)
      instead of the conversation's name and the answer's digest.
    """
    return join_tables(list(iter_tidy(parts, point)))


def iter_tidy(parts: Iterable[pa.Table], point: str = "") -> Iterator[Table]:
    """Yield the tidy rows of each part; for a point without any part, yield one table without rows."""
    has_parts = False
    for part in parts:
        has_parts = True
        yield _tidy(part, point)
    if not has_parts:
        yield _tidy(RECORD_SCHEMA.empty_table(), point)


def _tidy(part: pa.Table, point: str) -> Table:
    records = part.filter(pc.not_equal(part["phase"], RecordPhase.WARMUP.value))
    rows: dict[str, Array] = {name: records[name].to_numpy().astype(_kind(name)) for name in NUMBERS}
    texts = {name: _text_codes(records[name]) for name in TEXTS}
    rows[NAME] = text_hashes(records[NAME].to_pylist())
    rows[DIGEST] = text_digests(records[DIGEST].to_pylist())
    rows["text_bytes"] = pc.binary_length(records["output_text"]).to_numpy().astype(np.float32)
    rows["tokens"] = np.where(np.isnan(rows["output_tokens"]), rows["output_tokens_client"], rows["output_tokens"])
    late_ns = rows.pop("connect_ns") - rows["intended_ns"]
    rows["late_ms"] = (np.maximum(late_ns, 0.0) / NS_PER_MS).astype(np.float32)
    texts[POINT] = TextCodes(np.zeros(records.num_rows, dtype=np.int32), np.array([point], dtype=np.object_))
    prompts, errors, flaws = texts["prompt_id"], texts["error_class"].codes >= 0, texts["flaw"].codes >= 0
    judged = records[JUDGED].fill_null(False).to_numpy()
    rows["flawed"] = np.where(judged, flaws.astype(np.float32), np.float32(np.nan))
    rows["filler"] = np.array([*map(is_filler, prompts.texts), False], dtype=np.bool_)[prompts.codes]
    rows["ok"], rows["timing_fault"] = ~errors, np.zeros(len(errors), dtype=np.int8)
    rows["steady"] = rows["ok"] & has_text(Table(texts), "phase", RecordPhase.STEADY.value)
    known = Table({**rows, **texts})
    condensed = known.assign(**condense_lists(records, known))
    ids = pc.if_else(pa.array(stalled_rows(condensed)), records[REQUEST], None)
    return condensed.assign(**{REQUEST: _text_codes(ids)})


def _text_codes(column: pa.ChunkedArray) -> TextCodes:
    encoded = column.combine_chunks().dictionary_encode()
    return TextCodes(encoded.indices.fill_null(-1).to_numpy(), encoded.dictionary.to_numpy(zero_copy_only=False))


def without_point_columns(rows: Table) -> Table:
    """Return tidy rows without the columns that only the checks of a single point need."""
    return rows.table(name for name in rows.columns if name not in POINT_ONLY_COLUMNS)


def numbers(rows: Table, name: str) -> Values:
    """Return a numeric column, shape (rows,); missing values are NaN."""
    found = np.empty(len(rows))
    fill(found, (piece.array(name) for piece in rows.pieces(NUMBERS_TOGETHER)))
    return found


def piecewise(rows: Table, values: Callable[[Table], Values]) -> Values:
    """Return a number per row, shape (rows,), computed piece by piece: only the result is in memory."""
    found = np.empty(len(rows))
    fill(found, (values(piece) for piece in rows.pieces()))
    return found


def sums_by_text(pieces: Iterable[tuple[TextCodes, Sequence[Values]]]) -> dict[str, Values]:
    """Sum numbers of rows by the rows' texts, piece by piece: text → sums, shape (parts,), sorted by text.

    A piece has the text of each row, and the parts: numbers per row, shape (rows,) each. Rows that lack a part or the
    text are left out.
    """
    sums: dict[str, Values] = {}
    for column, parts in pieces:
        values = np.stack(parts, axis=1)
        known = ~np.isnan(values).any(axis=1) & (column.codes >= 0)
        present, codes = np.unique(column.codes[known], return_inverse=True)
        found = np.zeros((present.size, values.shape[1]))
        np.add.at(found, codes, values[known])
        for text, each in zip(column.texts[present], found, strict=True):
            sums[text] = sums[text] + each if text in sums else each
    return dict(sorted(sums.items()))


def any_known(rows: Table, name: str) -> bool:
    """Return whether any row has a value in this column."""
    return any(bool(piece.known(name).any()) for piece in rows.pieces())


def steady_rows(rows: Table) -> Table:
    """Return the rows that enter figures."""
    return rows.among(rows.array("steady"))


def sent_rows(rows: Table) -> Table:
    """Return the rows of requests that were sent: all except turns skipped after an error."""
    return rows.among(~has_text(rows, "error_class", ErrorClass.SKIPPED_AFTER_ERROR))


def known_sum(values: Values) -> float | None:
    """Return the sum of the known values, or None if there are none."""
    known = values[~np.isnan(values)]
    return float(known.sum()) if known.size else None


def _kind(name: str) -> type[np.floating]:
    return np.float64 if name in TIMES else np.float32


# Texts that are only tested for equality are stored as hashes: the texts would take hundreds of bytes each.
#
# An answer is identified by its SHA-256 and a conversation by its name, and each is stored as a hash of 8 bytes
# (BLAKE2b: the same text has the same hash everywhere). Of an answer's hash 53 bits are stored, which a float
# represents exactly, and which leaves NaN for missing values: the probability that two different answers have the same
# hash is 1 in 10^16. A conversation always has a name, and its hash has 64 bits.

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
    hashes = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64)


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
