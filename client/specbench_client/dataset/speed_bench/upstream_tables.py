"""Loads the datasets that texts come from: a local folder first, then the hub at a pinned revision. Does I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench_api.spec.workload import Source
from specbench_client.dataset.speed_bench.rows import Unresolved
from specbench_client.dataset.tokenizers import ReferenceTokenizer, load_reference_tokenizer
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_files import read_rows


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    """A table of a source: a dataset on the hub, or `files` (addresses that the `datasets` library opens).

    `folder`: its name below `--sources`, for machines without access to the hub. `revision` is None if the publisher
    pins none.
    """

    folder: str
    hub: str | None = None
    config: str | None = None
    revision: str | None = None
    files: tuple[str, ...] = ()
    gated: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamRecords:
    """Access to a table's rows by number and columns by name, independent of its storage."""

    size: int
    at: Callable[[int], Mapping[str, Any]]
    column: Callable[[str], Sequence[Any]]


def in_memory_records(rows: Sequence[Mapping[str, Any]]) -> UpstreamRecords:
    """Wrap rows that are in memory."""
    return UpstreamRecords(len(rows), rows.__getitem__, lambda name: [row.get(name) for row in rows])


class UpstreamTables:
    """Loads each table once. A failed load is remembered and reported for every row that needs the table."""

    def __init__(self, sources: Path | None = None, table: Path | None = None) -> None:
        self._sources = sources
        self._table = table
        self._loaded: dict[UpstreamTable, UpstreamRecords] = {}
        self._failed: dict[UpstreamTable, str] = {}
        self._places: dict[tuple[UpstreamTable, str], dict[Any, int]] = {}

    def records(self, origin: UpstreamTable) -> UpstreamRecords:
        """Return the table. Raises Unresolved with a remedy if it cannot be loaded."""
        if origin in self._failed:
            raise Unresolved(self._failed[origin])
        if origin not in self._loaded:
            try:
                self._loaded[origin] = self._load(origin)
            except Unresolved as error:
                self._failed[origin] = str(error)
                raise
        return self._loaded[origin]

    def by(self, origin: UpstreamTable, column: str, value: str) -> Mapping[str, Any]:
        """Return the first row with this value. Raises Unresolved if there is none."""
        records = self.records(origin)
        if (origin, column) not in self._places:
            values = list(records.column(column))
            self._places[origin, column] = {values[row]: row for row in reversed(range(len(values)))}
        places = self._places[origin, column]
        if value not in places:
            raise Unresolved(
                f"{origin.folder} has no row whose {column} is {value!r}: check that it is the right revision"
            )
        return records.at(places[value])

    def ruler(self) -> ReferenceTokenizer:
        """Return the tokenizer that measures lengths. Raises Unresolved with a remedy if its table is missing."""
        try:
            return load_reference_tokenizer(self._table)
        except BadInput as error:
            raise Unresolved(str(error)) from error

    def numbered(self, origin: UpstreamTable, number: str) -> Mapping[str, Any]:
        """Return the row with this number, starting at 0. Raises Unresolved if there is none."""
        records = self.records(origin)
        if not number.isdecimal() or int(number) >= records.size:
            raise Unresolved(
                f"{origin.folder} has {records.size:,} rows, so no row {number}: check that it is the right revision"
            )
        return records.at(int(number))

    def _load(self, origin: UpstreamTable) -> UpstreamRecords:
        folder = self._sources / origin.folder if self._sources else None
        if folder and folder.is_dir():
            return _local(folder)
        return _remote(origin)


def _local(folder: Path) -> UpstreamRecords:
    """Read all Parquet, JSON Lines and JSON files of a folder, in order of their names."""
    files = sorted([*folder.rglob("*.parquet"), *folder.rglob("*.jsonl"), *folder.rglob("*.json")])
    rows = [row for file in files for row in _rows(file)]
    if not rows:
        raise Unresolved(f"{folder} contains no .parquet, .jsonl or .json file")
    return in_memory_records(rows)


def _rows(file: Path) -> list[Mapping[str, Any]]:
    """Read a file's rows. A JSON document is a list of rows, or one row."""
    try:
        if file.suffix != ".json":
            return [
                row.columns for row in read_rows(file, Source.PARQUET if file.suffix == ".parquet" else Source.JSONL)
            ]
        document = json.loads(file.read_text(encoding="utf-8"))
    except BadInput as error:
        raise Unresolved(str(error)) from error
    except (OSError, ValueError) as error:
        raise Unresolved(f"{file}: cannot be read as JSON: {error}") from error
    return list(document) if isinstance(document, list) else [document]


def _remote(origin: UpstreamTable) -> UpstreamRecords:
    import datasets  # noqa: PLC0415  importing it takes two seconds

    try:
        if origin.files:
            found = datasets.load_dataset("json", data_files={"test": list(origin.files)}, split="test")
        else:
            found = datasets.load_dataset(origin.hub, origin.config, split="test", revision=origin.revision)
    except Exception as error:  # the hub's client raises errors of several HTTP libraries
        raise Unresolved(_load_error(origin, error)) from error
    return UpstreamRecords(len(found), found.__getitem__, lambda name: found[name])


def _load_error(origin: UpstreamTable, error: Exception) -> str:
    name = origin.hub or origin.files[0]
    reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
    alternative = f"or put its files into {origin.folder}/ in the folder given with --sources"
    if origin.gated:
        remedy = f"it is gated: request access on its hub page, log in (hf auth login, or HF_TOKEN), {alternative}"
        return f"{name} cannot be loaded ({reason}): {remedy}"
    return f"{name} cannot be loaded ({reason}): run this on a machine that can reach it, {alternative}"
