"""Reads the timestamps of an arrival trace: one column of a JSONL or CSV file, as seconds.

A row without a valid timestamp is an error: skipping it would make the load lighter than the recording.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from specbench_client.errors import BadInput
from specbench_client.load.arrival_schedule import Offsets

_MAX_SHOWN_PROBLEMS = 5
_NAMED = "rename the column of the timestamps to {!r}, or set arrival.column in the spec to its name"
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


def load_trace(uri: str, column: str, base_dir: Path, fetch: Callable[[str], bytes] | None = None) -> Offsets:
    """Return the timestamps of a file. `base_dir`: the folder of relative paths. Raises BadInput."""
    if uri.startswith("s3://"):
        if fetch is None:
            raise BadInput(f"{uri}: S3 is not available here: give a local file")
        return read_trace(fetch(uri), uri, column)
    if "://" in uri:
        raise BadInput(f"{uri}: a trace is read from a path or from s3://BUCKET/KEY: download the file first")
    path = base_dir / Path(uri).expanduser()
    try:
        data = path.read_bytes()
    except OSError as error:
        remedy = (
            "relative paths start at the spec's folder, or at the working directory (in a pod: in the client's image)"
        )
        raise BadInput(f"{path}: {error.strerror}: {remedy}") from error
    return read_trace(data, str(path), column)


def read_trace(data: bytes, name: str, column: str) -> Offsets:
    """Return the timestamps in the file's order: CSV if the name ends in .csv, else JSON Lines. Raises BadInput."""
    if data.startswith(_GZIP):
        raise BadInput(f"{name}: is compressed: unpack it first (gunzip)")
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}: not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8") from error
    rows = _csv(text, name, column) if name.lower().endswith(".csv") else _jsonl(text, column)
    times: list[float] = []
    problems: list[str] = []
    for number, value in rows:
        seconds = value if isinstance(value, _InvalidTime) else _seconds(value, column)
        if isinstance(seconds, _InvalidTime):
            problems.append(f"{name}, line {number}: {seconds}")
        else:
            times.append(seconds)
    if problems:
        more = len(problems) - _MAX_SHOWN_PROBLEMS
        total = len(times) + len(problems)
        rest = [f"and {more} more of {total} rows"] if more > 0 else []
        raise BadInput("\n".join([*problems[:_MAX_SHOWN_PROBLEMS], *rest]))
    if not times:
        raise BadInput(f"{name}: contains no rows: give one arrival per row")
    return np.array(times)


class _InvalidTime(str):
    """The problem with a row, and its remedy."""

    __slots__ = ()


def _jsonl(text: str, column: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _member(line, column)


def _member(line: str, column: str) -> Any:
    example = f'{{"{column}": 12.5}}'
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _InvalidTime(
            f"not JSON ({error}): every line is one object, such as {example}; a CSV's name ends in .csv"
        )
    if not isinstance(row, dict):
        return _InvalidTime(f"a JSON {type(row).__name__}: write one object per line, such as {example}")
    if column not in row:
        present = ", ".join(map(repr, list(row)[:8])) or "nothing"
        return _InvalidTime(f"has no {column!r}, it has {present}: {_NAMED.format(column)}")
    return row[column]


def _csv(text: str, name: str, column: str) -> Iterator[tuple[int, Any]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [word.strip() for word in next(rows, [])]
        if column not in header:
            present = ", ".join(map(repr, header[:8])) or "nothing"
            remedy = f"the first line contains the column names; {_NAMED.format(column)}"
            raise BadInput(f"{name}, line 1: has no column {column!r}, it has {present}: {remedy}")
        index = header.index(column)
        for row in rows:
            if row:
                short = _InvalidTime(f"has {len(row)} fields, but {column!r} is column {index + 1}: write all fields")
                yield rows.line_num, row[index] if index < len(row) else short
    except csv.Error as error:
        remedy = "correct the quotes of this line"
        raise BadInput(f"{name}, line {rows.line_num}: not CSV: {error}: {remedy}") from error


def _seconds(value: Any, column: str) -> float | _InvalidTime:
    if isinstance(value, str):
        value = _number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        remedy = "give seconds, such as 12.5, or RFC 3339, such as 2026-01-31T09:30:00.5Z"
        return _InvalidTime(f"{column} is {value!r:.60}: {remedy}")
    return float(value)


def _number(text: str) -> float | str:
    """Parse seconds or RFC 3339; return the text itself if it is neither. A time without an offset is UTC."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
