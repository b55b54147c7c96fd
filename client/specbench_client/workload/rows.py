"""Rows of a prompts file with the place of each, so that a fault can be told by its line.

Parquet is read through the `datasets` library's builder, in a cache folder that is gone afterwards: a cache that
outlives its file is a way to measure yesterday's prompts. JSON Lines are not: seen with datasets 5.2, its JSON builder
guesses types from the first chunk, so a prompt that reads like a date becomes a timestamp, ids 1 and 2.5 become floats,
and a column that first shows up after 10 MB fails the whole file. A prompt must reach the engine letter by letter, so
lines are parsed one by one, and a broken one is named.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench_api.spec.workload import Source
from specbench_client.errors import BadInput
from specbench_client.store.scratch import scratch_folder
from specbench_client.workload.arrays import array_rows
from specbench_client.workload.files import LINE_BYTES_MAX, numbered_lines, text_of
from specbench_client.workload.tables import csv_rows, is_array


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it lies in the file; `place` is `line 3` or `row 3`, from 1. Columns without a value are None."""

    place: str
    columns: dict[str, Any]


def read_rows(path: Path, source: Source, line_bytes_max: int = LINE_BYTES_MAX) -> list[Row]:
    """All rows, in the file's order. The shape is the source's, else the file name's. Raises BadInput."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder, and this dataset is one file: give the file's path in it")
    if not path.is_file():
        remedy = "a path counts from the spec's own folder (in a pod: it lies in the client's image); or give s3://BUCKET/KEY"
        raise BadInput(f"{path}: there is no such file: {remedy}")
    shape = _shape(path, source)
    if shape == "parquet":
        rows = _parquet(path)
    elif shape == "csv":
        rows = [Row(place, columns) for place, columns in csv_rows(path, line_bytes_max)]
    elif shape == "json" and is_array(path):
        rows = [Row(place, columns) for place, columns in array_rows(path, line_bytes_max)]
    else:
        rows = list(_lines(path, line_bytes_max))
    if not rows:
        raise BadInput(f"{path}: holds no rows: one prompt a row is needed")
    return rows


def _shape(path: Path, source: Source) -> str:
    """Of one's own files it is said; the others lie about in several, and their names tell."""
    if source in (Source.JSONL, Source.PARQUET, Source.CSV):
        return str(source)
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


def _lines(path: Path, most: int) -> Iterator[Row]:
    for number, line in numbered_lines(path, most):
        if line.strip():
            yield Row(f"line {number}", _object(line, f"{path}, line {number}"))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text_of(line, where))
    except json.JSONDecodeError as error:
        remedy = 'every line is one JSON object, such as {"id": "q1", "category": "qa", "prompt": "…"}'
        raise BadInput(f"{where}: not JSON: {error.msg} at column {error.colno}: {remedy}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        raise BadInput(f"{where}: not JSON that anyone reads: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{where}: a JSON {type(found).__name__}, where one object a line is needed")
    return found


def _parquet(path: Path) -> list[Row]:
    import datasets  # noqa: PLC0415 -- two seconds, which `--help` and JSON Lines need not pay
    import pyarrow.parquet as pq  # noqa: PLC0415

    with scratch_folder() as cache, quiet():
        try:
            if not pq.read_metadata(path).num_rows:  # the builder asks for batches of as many rows
                return []
            found = datasets.Dataset.from_parquet(str(path), cache_dir=str(cache), keep_in_memory=True)
        except (datasets.exceptions.DatasetBuildError, ValueError, OSError) as error:
            raise BadInput(f"{path}: cannot be read as Parquet: {error.__cause__ or error}") from error
        return [Row(f"row {number}", dict(columns)) for number, columns in enumerate(found, start=1)]


@contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars and log lines of the library: its errors come back as ours."""
    import datasets  # noqa: PLC0415 -- see above

    shown, verbosity = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    hub.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        hub.setLevel(level)
        datasets.logging.set_verbosity(verbosity)
        if not shown:
            datasets.enable_progress_bars()
