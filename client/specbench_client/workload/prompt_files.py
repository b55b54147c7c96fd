"""Reads prompt files (JSON Lines, JSON arrays, CSV, Parquet) into rows with their line or row number.

Every value is kept exactly as it is in the file, because a changed prompt is a different prompt:

- Parquet is read with the `datasets` library, in a temporary cache folder, so that a stale cache is never measured.
- JSON Lines are parsed line by line with the standard library. The JSON builder of datasets 5.2 guesses types from the
  first chunk: a prompt that looks like a date becomes a timestamp, ids 1 and 2.5 become floats, and a column that first
  appears after 10 MB fails the whole file.
- A JSON array is parsed row by row with the standard library, because ShareGPT's file is 673 MB. ijson's C backend
  replaces lone surrogates by `?` without an error and rejects integers of more than 64 bits.
- A CSV cell stays text: no dates, numbers or missing values are guessed. Columns that contain lists are JSON.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from specbench_api.spec.workload import Source
from specbench_client.errors import BadInput
from specbench_client.store.scratch import scratch_folder

LINE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of one line or row. A prompt of a million tokens takes about a tenth of it."""
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


@contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading and decompress it if it is gzip. Read errors inside the block become BadInput."""
    try:
        with path.open("rb") as file:
            is_gzip = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if not is_gzip:
                yield file
                return
            with gzip.open(file) as content:
                yield cast("BinaryIO", content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path}: the gzip data cannot be decompressed ({error}): the file is truncated or damaged; download it"
            " again"
        ) from error
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def numbered_lines(path: Path, most: int = LINE_BYTES_MAX) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, starting at 1; only a byte order mark is removed. Raises BadInput.

    `most`: maximum bytes in a line. A longer line is rejected without reading the rest of it.
    """
    number = 0
    with open_decompressed(path) as file:
        while line := file.readline(most + 1):
            number += 1
            if len(line) > most:
                remedy = "a JSON Lines or CSV file has one prompt per line; check that its line ends are not missing"
                raise BadInput(f"{path}, line {number}: is longer than {most:,} bytes: {remedy}")
            yield number, line.removeprefix(_BOM) if number == 1 else line


def decode_line(line: bytes, where: str) -> str:
    """Decode a line as UTF-8. `where` is the prefix of the error message. Raises BadInput."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8") from error


_LISTS = ("turns", "messages", "token_ids")
"""CSV columns whose cells are JSON lists."""
_NOT_A_VALUE = ("nan", "none", "null", "<na>")
"""Spellings of a missing value in exported tables, in lower case."""
_CONTENT = ("prompt", *_LISTS)
_ROW_EXAMPLE = '{"id": "q1", "category": "qa", "prompt": "…"}'


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One row of a file. `place` is `line 3` or `row 3`, starting at 1. Columns without a value are None."""

    place: str
    columns: dict[str, Any]
    published: dict[str, Any] | None = None
    """The columns as they are in the file, if `columns` were converted to ours."""


@contextmanager
def _collected(faults: list[str] | None) -> Iterator[None]:
    """Keep the error of a row that cannot be read, instead of raising it, if there is a list for it."""
    try:
        yield
    except BadInput as error:
        if faults is None:
            raise
        faults.append(str(error))


def csv_rows(path: Path, most: int, faults: list[str] | None = None) -> Iterator[PromptRow]:
    """Yield the rows of a CSV file with a header; an empty cell is a missing value. Raises BadInput."""
    csv.field_size_limit(most)
    lines = (decode_line(line, f"{path}, line {number}") for number, line in numbered_lines(path, most))
    reader = csv.reader(lines, strict=True)
    try:
        header = _header(next(reader, []), path)
        begins = reader.line_num + 1
        for cells in reader:
            place, begins = f"line {begins}", reader.line_num + 1
            if not cells:
                continue
            with _collected(faults):
                if len(cells) != len(header):
                    remedy = 'quote cells that contain commas, such as 1,"Hello, world"'
                    raise BadInput(f"{path}, {place}: has {len(cells)} cells for {len(header)} columns: {remedy}")
                named = zip(header, cells, strict=True)
                yield PromptRow(place, {name: _cell(name, cell, f"{path}, {place}") for name, cell in named})
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: not CSV: {error}: fix the quotes in this line") from error


def is_json_array(path: Path) -> bool:
    """Return whether the file's first character other than white space is `[`."""
    with open_decompressed(path) as file:
        return file.read(64).removeprefix(_BOM).lstrip().startswith(b"[")


def _header(cells: list[str], path: Path) -> list[str]:
    header = [cell.strip() for cell in cells]
    duplicates = [name for index, name in enumerate(header) if name in header[:index]]
    if duplicates:
        raise BadInput(
            f"{path}, line 1: the column {duplicates[0]!r} appears twice in the header: rename or remove one"
        )
    return header


def _cell(name: str, cell: str, where: str) -> Any:
    if cell == "":
        return None
    if name in _CONTENT and cell.strip().lower() in _NOT_A_VALUE:
        remedy = "remove the row, or leave the cell empty"
        raise BadInput(f"{where}: {name} is {cell!r}, which tables write for a missing value: {remedy}")
    if name not in _LISTS:
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError) as error:
        remedy = 'write a JSON list, such as "[""first"", ""second""]"'
        raise BadInput(f"{where}: {name} is not valid JSON: {error}: {remedy}") from error


_CHUNK_BYTES = 4 * 1024 * 1024
_SPACE = " \t\r\n"


class _TextWindow:
    """A sliding window over a file's text: parsed text is dropped and more is read on demand. Raises BadInput."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text = ""
        self.at = 0
        self.ended = False

    def grow(self) -> None:
        """Read more text. The window doubles each time, so that a long row is parsed only a few times."""
        left = self.text[self.at :]
        data = self._file.read(max(_CHUNK_BYTES, len(left)))
        self.ended = not data
        try:
            self.text, self.at = left + self._decoder.decode(data, final=self.ended), 0
        except UnicodeDecodeError as error:
            raise BadInput(f"{self._where}: not UTF-8 ({error.reason}): save the file as UTF-8") from error

    def next_character(self) -> str:
        """Skip white space and return the next character without consuming it; empty at the end of the file."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.grow()


def json_array_rows(path: Path, most: int = LINE_BYTES_MAX, faults: list[str] | None = None) -> Iterator[PromptRow]:
    """Yield the objects of a file that is one JSON array. `most`: maximum characters in a row. Raises BadInput.

    Text after the array is an error: two files that were concatenated would otherwise lose the second one silently.
    """
    with open_decompressed(path) as file:
        window = _TextWindow(file, str(path))
        begin = window.next_character()
        if begin != "[":
            raise BadInput(f"{path}: is not a JSON array: it begins with {begin!r}")
        window.at += 1
        number = 0
        if window.next_character() != "]":
            for number, row in enumerate(_array_elements(window, path, most), start=1):
                with _collected(faults):
                    if not isinstance(row, dict):
                        kind = f"{_json_kind(row)}: each row is one JSON object, such as {_ROW_EXAMPLE}"
                        raise BadInput(f"{path}, row {number}: is {kind}")
                    yield PromptRow(f"row {number}", row)
        window.at += 1
        if window.next_character():
            remedy = "if two files were concatenated, split them again"
            raise BadInput(f"{path}: there is more text after the end of the array, row {number}: {remedy}")


def _array_elements(window: _TextWindow, path: Path, most: int) -> Iterator[Any]:
    """Yield the array's elements; stop in front of the closing bracket."""
    number = 0
    while True:
        number += 1
        yield _array_element(window, f"{path}, row {number}", most)
        after = window.next_character()
        if after == "]":
            return
        if not after:
            raise BadInput(
                f"{path}: the file ends inside the array, after row {number}: it is truncated; download it again"
            )
        if after != ",":
            raise BadInput(f"{path}, after row {number}: not JSON: found {after!r}, expected a comma or ]")
        window.at += 1


def _array_element(window: _TextWindow, where: str, most: int) -> Any:
    window.next_character()
    while True:
        try:
            found, window.at = json.JSONDecoder().raw_decode(window.text, window.at)
        except (ValueError, RecursionError) as error:
            if len(window.text) - window.at > most:
                remedy = "each element of the array is one object with one prompt"
                raise BadInput(
                    f"{where}: is longer than {most:,} characters, or not JSON: {error}: {remedy}"
                ) from error
            if window.ended or isinstance(error, RecursionError):
                raise BadInput(f"{where}: not JSON: {error}") from error
            window.grow()
        else:
            return found


def read_rows(
    path: Path, source: Source, line_bytes_max: int = LINE_BYTES_MAX, faults: list[str] | None = None
) -> list[PromptRow]:
    """Read all rows in file order. The format follows from the source, or else from the file name. Raises BadInput.

    `faults`: gets the errors of rows that cannot be read; None: the first one is raised.
    """
    if path.is_dir():
        raise BadInput(f"{path}: is a folder: give the path of a file in it")
    if not path.is_file():
        remedy = (
            "relative paths start at the folder of the spec (in a pod, the file must be in the client's image);"
            " or give s3://BUCKET/KEY"
        )
        raise BadInput(f"{path}: no such file: {remedy}")
    file_format = _format(path, source)
    if file_format == "parquet":
        rows = _parquet(path)
    elif file_format == "csv":
        rows = list(csv_rows(path, line_bytes_max, faults))
    elif file_format in ("json", "jsonl") and is_json_array(path):
        rows = list(json_array_rows(path, line_bytes_max, faults))
    elif source is Source.AGENT_TRACES and _begins_document(path):
        rows = [PromptRow("line 1", _object(b"".join(line for _, line in numbered_lines(path)), str(path)))]
    else:
        rows = list(_lines(path, line_bytes_max, faults))
    if not rows and not faults:
        raise BadInput(f"{path}: contains no rows: add one prompt per row, such as {_ROW_EXAMPLE}")
    return rows


def _begins_document(path: Path) -> bool:
    """Return whether the first line begins a JSON object that is printed over several lines."""
    _, line = next(numbered_lines(path), (1, b""))
    return line.strip() == b"{"


def _format(path: Path, source: Source) -> str:
    """Return the file format: given by `source` for the user's own files, by the file name for published datasets."""
    if source in (Source.JSONL, Source.PARQUET, Source.CSV):
        return str(source)
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


def _lines(path: Path, most: int, faults: list[str] | None) -> Iterator[PromptRow]:
    for number, line in numbered_lines(path, most):
        if line.strip():
            with _collected(faults):
                yield PromptRow(f"line {number}", _object(line, f"{path}, line {number}"))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(decode_line(line, where).rstrip("\r\n"))
    except json.JSONDecodeError as error:
        remedy = f"each line is one JSON object, such as {_ROW_EXAMPLE}"
        raise BadInput(
            f"{where}: not JSON: {error.msg.removesuffix(' at')} at column {error.colno}: {remedy}"
        ) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or extremely deep nesting
        raise BadInput(f"{where}: this JSON cannot be parsed: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{where}: is {_json_kind(found)}: each line is one JSON object, such as {_ROW_EXAMPLE}")
    return found


def _json_kind(value: Any) -> str:
    """Return the JSON name of a value's type, with its article."""
    names = {list: "a JSON array", str: "a JSON string", bool: "a JSON boolean", type(None): "JSON null"}
    return names.get(type(value), "a JSON number")


def _parquet(path: Path) -> list[PromptRow]:
    import datasets  # noqa: PLC0415 -- importing it takes two seconds; `--help` and JSON Lines do without
    import pyarrow.parquet as pq  # noqa: PLC0415

    with scratch_folder() as cache, quiet_datasets_library():
        try:
            if not pq.read_metadata(path).num_rows:  # the builder fails on a batch size of 0
                return []
            found = datasets.Dataset.from_parquet(str(path), cache_dir=str(cache), keep_in_memory=True)
        except (datasets.exceptions.DatasetBuildError, ValueError, OSError) as error:
            raise BadInput(f"{path}: cannot be read as Parquet: {error.__cause__ or error}") from error
        return [PromptRow(f"row {number}", dict(columns)) for number, columns in enumerate(found, start=1)]


@contextmanager
def quiet_datasets_library() -> Iterator[None]:
    """Silence the progress bars and log lines of `datasets` inside the block: its errors are reported as ours."""
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
