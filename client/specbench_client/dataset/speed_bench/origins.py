"""Where texts come from: a data set of the hub at a pinned revision, or files; a folder of one's own first. Act."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench_api.spec.workload import Source
from specbench_client.dataset.length.ruler import Ruler, load_ruler
from specbench_client.dataset.speed_bench.row import Unresolved
from specbench_client.errors import BadInput
from specbench_client.workload.rows import read_rows


@dataclass(frozen=True, slots=True)
class Origin:
    """A table of a source. `files` (addresses that the `datasets` library opens) instead of a data set of the hub.

    `folder`: its name below `--sources`, for machines that reach no hub. `revision` None: its publisher pins none.
    """

    folder: str
    hub: str | None = None
    config: str | None = None
    revision: str | None = None
    files: tuple[str, ...] = ()
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """Rows by their number, and columns by their name, whoever holds them."""

    size: int
    at: Callable[[int], Mapping[str, Any]]
    column: Callable[[str], Sequence[Any]]


def records_of(rows: Sequence[Mapping[str, Any]]) -> Records:
    """Rows in memory."""
    return Records(len(rows), rows.__getitem__, lambda name: [row.get(name) for row in rows])


class Origins:
    """Loads each table once; what cannot be loaded is told once, and then of every row that needs it."""

    def __init__(self, sources: Path | None = None, table: Path | None = None) -> None:
        self._sources = sources
        self._table = table
        self._loaded: dict[Origin, Records] = {}
        self._failed: dict[Origin, str] = {}
        self._places: dict[tuple[Origin, str], dict[Any, int]] = {}

    def records(self, origin: Origin) -> Records:
        """The table. Raises Unresolved with what to do where it cannot be had."""
        if origin in self._failed:
            raise Unresolved(self._failed[origin])
        if origin not in self._loaded:
            try:
                self._loaded[origin] = self._load(origin)
            except Unresolved as error:
                self._failed[origin] = str(error)
                raise
        return self._loaded[origin]

    def by(self, origin: Origin, column: str, value: str) -> Mapping[str, Any]:
        """The first row with this value. Raises Unresolved where there is none."""
        records = self.records(origin)
        if (origin, column) not in self._places:
            values = list(records.column(column))
            self._places[origin, column] = {values[row]: row for row in reversed(range(len(values)))}
        places = self._places[origin, column]
        if value not in places:
            raise Unresolved(f"{origin.folder} has no row whose {column} is {value!r}: is it of another revision?")
        return records.at(places[value])

    def ruler(self) -> Ruler:
        """What lengths are counted with. Raises Unresolved with what to do where its table is missing."""
        try:
            return load_ruler(self._table)
        except BadInput as error:
            raise Unresolved(str(error)) from error

    def numbered(self, origin: Origin, number: str) -> Mapping[str, Any]:
        """The row of this number, from 0. Raises Unresolved where there is none."""
        records = self.records(origin)
        if not number.isdecimal() or int(number) >= records.size:
            raise Unresolved(
                f"{origin.folder} has {records.size:,} rows, and no row {number}: is it of another revision?"
            )
        return records.at(int(number))

    def _load(self, origin: Origin) -> Records:
        folder = self._sources / origin.folder if self._sources else None
        if folder and folder.is_dir():
            return _local(folder)
        return _remote(origin)


def _local(folder: Path) -> Records:
    """All Parquet, JSON Lines and JSON files of the folder, in the order of their names."""
    files = sorted([*folder.rglob("*.parquet"), *folder.rglob("*.jsonl"), *folder.rglob("*.json")])
    rows = [row for file in files for row in _rows(file)]
    if not rows:
        raise Unresolved(f"{folder} holds no .parquet, .jsonl or .json file")
    return records_of(rows)


def _rows(file: Path) -> list[Mapping[str, Any]]:
    """The file's rows. A JSON document is a list of rows, or one row."""
    try:
        if file.suffix != ".json":
            return [
                row.columns for row in read_rows(file, Source.PARQUET if file.suffix == ".parquet" else Source.JSONL)
            ]
        held = json.loads(file.read_text(encoding="utf-8"))
    except BadInput as error:
        raise Unresolved(str(error)) from error
    except (OSError, ValueError) as error:
        raise Unresolved(f"{file}: cannot be read as JSON: {error}") from error
    return list(held) if isinstance(held, list) else [held]


def _remote(origin: Origin) -> Records:
    import datasets  # noqa: PLC0415  two seconds, which `--help` need not pay

    try:
        if origin.files:
            found = datasets.load_dataset("json", data_files={"test": list(origin.files)}, split="test")
        else:
            found = datasets.load_dataset(origin.hub, origin.config, split="test", revision=origin.revision)
    except Exception as error:  # the hub's client lets through the errors of whichever HTTP library it stands on
        raise Unresolved(_why(origin, error)) from error
    return Records(len(found), found.__getitem__, lambda name: found[name])


def _why(origin: Origin, error: Exception) -> str:
    what = origin.hub or origin.files[0]
    said = str(error).strip().split("\n")[0][:300] or type(error).__name__
    here = f"or put its files into {origin.folder}/ of the folder given with --sources"
    if origin.gated:
        ask = f"it is gated: ask for access on its page of the hub, log in (hf auth login, or HF_TOKEN), {here}"
        return f"{what} cannot be loaded ({said}): {ask}"
    return f"{what} cannot be loaded ({said}): run this where it can be reached, {here}"
