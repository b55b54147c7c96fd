"""Reads prompt files (JSON Lines, JSON, CSV, Parquet, text) into rows with their line or row number.

Format, compression and encoding follow from the content: names are often wrong. Every value is kept exactly as it is in
the file, because a changed prompt is a different prompt:

- JSON Lines are parsed line by line with the standard library. The JSON builder of datasets 5.2 guesses types from the
  first chunk: a prompt that looks like a date becomes a timestamp, ids 1 and 2.5 become floats, and a column that first
  appears after 10 MB fails the whole file.
- A JSON array is parsed row by row with the standard library, because ShareGPT's file is 673 MB. ijson's C backend
  replaces lone surrogates by `?` without an error and rejects integers of more than 64 bits.
- A CSV cell stays text: no dates, numbers or missing values are guessed. Columns that contain lists are JSON.
- Each line of a file named .txt is a prompt, unless the file begins as JSON does, or with the header of a table.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import logging
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from specbench_api.spec.workload import Source
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput

LINE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of one line or row. A prompt of a million tokens takes about a tenth of it."""
_BOM = b"\xef\xbb\xbf"
_PARQUET = b"PAR1"


def _open_zip(file: BinaryIO) -> Any:
    archive = zipfile.ZipFile(file)
    members = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        raise zipfile.BadZipFile(
            f"it contains {len(members)} files: unpack it, and give one of them; save a workbook's sheet as CSV"
        )
    try:
        return archive.open(members[0])
    except RuntimeError as error:  # encrypted, or compressed by a method that Python does not have
        raise zipfile.BadZipFile(f"{error}: unpack it first") from error


def _open_zstd(file: BinaryIO) -> Any:
    import pyarrow as pa  # noqa: PLC0415 -- the workers of a load import this module, and do without

    return io.BufferedReader(cast("Any", pa.CompressedInputStream(file, "zstd")))


_COMPRESSIONS: Mapping[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": _open_zstd,
    **{bytes([first]) + b"\x2a\x4d\x18": _open_zstd for first in range(0x50, 0x60)},  # a skippable frame, as of pzstd
    b"PK\x03\x04": _open_zip,
}
"""The first bytes of compressed files, and how they are opened."""
_NO_DATA = {
    b"version https://git-lfs": "is a pointer of Git LFS, not the data: run `git lfs pull`",
    b"<": "is a page of HTML or XML, not the data: download the file itself",
    b"SQLite format 3": "is a database: export its prompts as JSON Lines or CSV",
    **dict.fromkeys(
        (b"ARROW1", b"\xff\xff\xff\xff"), "is an Arrow file: write it as Parquet (`to_parquet` in datasets)"
    ),
    **dict.fromkeys(
        (b"7z\xbc\xaf", b"Rar!", b"\x04\x22\x4d\x18"), "is compressed in a way that is not read: unpack it"
    ),
    **dict.fromkeys(
        (b"\x80\x04", b"\x80\x05", b"\x93NUMPY", b"ORC", b"Obj\x01", b"%PDF"),
        "is no file of text: export its prompts as JSON Lines, CSV or Parquet",
    ),
}
_TAR_BLOCK = 512
"""Bytes of the first header of a tar archive."""
_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file, decompressed and as UTF-8 if it is UTF-16. Read errors inside the block become BadInput."""
    try:
        with path.open("rb") as file:
            begin = file.read(8)
            file.seek(0)
            opener = next((found for magic, found in _COMPRESSIONS.items() if begin.startswith(magic)), None)
            with io.BufferedReader(opener(file)) if opener else file as content:
                is_utf_16 = content.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
                yield io.BytesIO(content.read().decode("utf-16").encode()) if is_utf_16 else content
    except UnicodeDecodeError as error:  # only of a stream of UTF-16: lines are decoded by their readers
        raise BadInput(f"{path}: not UTF-16 ({error.reason}): save the file as UTF-8") from error
    except _DAMAGED as error:
        raise BadInput(
            f"{path}: cannot be decompressed ({error}): if it is truncated or damaged, download it again"
        ) from error
    except OSError as error:  # bz2 and zstd raise it for damaged data
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


_OLD_LINE_END = re.compile(r"(?<=\r)(?!\n)")
"""Where a line ends that an old Macintosh wrote."""
_LISTS = ("turns", "messages", "token_ids")
"""CSV columns whose cells are JSON lists."""
_NOT_A_VALUE = ("nan", "none", "null", "<na>")
"""Spellings of a missing value in exported tables, in lower case."""
_CONTENT = ("prompt", *_LISTS)
_JSON_BEGINS = re.compile(rb'\{\s*"|\[\s*["\[{]')
"""What a text file with JSON begins with, unlike a prompt that begins with [INST] or {{name}}."""
_CELL = rb' *+"?\w*+"? *+'
_NAMED = rb' *+"?(?:prompt|question|instruction)"? *+'
_HEADER = re.compile(
    rb"(?:(?:%(cell)s[,;\t|])+%(named)s(?:[,;\t|]%(cell)s)*+|%(named)s(?:[,;\t|]%(cell)s)++)[\r\n]"
    % {b"cell": _CELL, b"named": _NAMED},
    re.IGNORECASE,
)
"""The header of a table with prompts; a column alone may be a prompt of one word."""
_ROW_EXAMPLE = '{"id": "q1", "category": "qa", "prompt": "…"}'


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One row of a file. `place` is `line 3` or `row 3`, starting at 1. Columns without a value are None."""

    place: str
    columns: dict[str, Any]
    published: dict[str, Any] | None = None
    """The columns as they are in the file, if `columns` were converted to ours."""


def _csv_rows(path: Path, most: int) -> Iterator[PromptRow | BadInput]:
    """Yield the rows of a CSV file with a header; an empty cell is a missing value, an empty row none.

    Raises BadInput.
    """
    csv.field_size_limit(most)
    numbered = numbered_lines(path, most)
    above, first = next(((number - 1, line) for number, line in numbered if line.strip()), (0, b""))
    delimiter = max(",;\t|", key=first.partition(b"\r")[0].decode(errors="replace").count)
    spaced = re.compile(rf'{re.escape(delimiter)} +"[^"{re.escape(delimiter)}\r\n]')
    lines = (
        _csv_line(line, f"{path}, line {number}", spaced) for number, line in chain([(above + 1, first)], numbered)
    )
    ended = (line for text in lines for line in _OLD_LINE_END.split(text) if line)
    reader = csv.reader(ended, strict=True, delimiter=delimiter)
    try:
        if first.startswith(b"sep="):  # Excel's name of the delimiter
            next(reader)
        header = _header(next(reader, []), f"{path}, line 1")
        begins = above + reader.line_num + 1
        for cells in reader:
            place, begins = f"line {begins}", above + reader.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            try:
                yield PromptRow(place, _columns(header, cells, f"{path}, {place}"))
            except BadInput as error:
                yield error
    except csv.Error as error:
        raise BadInput(
            f"{path}, line {above + reader.line_num}: not CSV: {error}: fix the quotes in this line"
        ) from error


def _csv_line(line: bytes, where: str, spaced: re.Pattern[str]) -> str:
    """Decode a line. `spaced`: a blank before a quote, which would make both part of the text. Raises BadInput."""
    text = decode_line(line, where)
    if spaced.search(text):
        raise BadInput(f'{where}: has a blank before a quote: remove it, as in 1,"Hello, world"')
    return text


def _header(cells: list[str], where: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    duplicates = [name for index, name in enumerate(header) if name and name in header[:index]]
    if duplicates:
        raise BadInput(f"{where}: the column {duplicates[0]!r} appears twice: rename or remove one")
    return header


def _columns(header: list[str], cells: list[str], where: str) -> dict[str, Any]:
    if len(cells) != len(header):
        remedy = 'quote cells that contain commas, such as 1,"Hello, world"'
        raise BadInput(f"{where}: has {len(cells)} cells for {len(header)} columns: {remedy}")
    return {name: _cell(name, cell, where) for name, cell in zip(header, cells, strict=True)}


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
_SPACE = " \t\r\n\x1e"  # JSON text sequences (RFC 7464) have a record separator before each value.


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


def _document_values(path: Path, most: int) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a file that are not one per line, with their places; arrays are read row by row.

    `most`: maximum characters in a row. An array of messages is one value: a conversation. Raises BadInput.
    """
    number, arrays = 0, 0
    with open_decompressed(path) as file:
        window = _TextWindow(file, str(path))
        while begin := window.next_character():
            in_array = begin == "["
            if in_array:
                found = _array_elements(window, path, most, number)
            else:
                found = iter([_json_value(window, f"{path}, row {number + 1}", most)])
            arrays += in_array
            for value in found:
                number += 1
                if arrays > 1 and isinstance(value, str):  # rows as lists of cells
                    remedy = f"each row is one JSON object, such as {_ROW_EXAMPLE}"
                    raise BadInput(f"{path}: has arrays of texts in several lines: {remedy}")
                yield f"row {number}", [value, *found] if in_array and is_message(value) else value


_MESSAGE = ({"role", "content"}, {"role", "tool_calls"}, {"from", "value"})


def is_message(value: Any) -> bool:
    """Return whether this is a message of a conversation, in OpenAI's or ShareGPT's form."""
    return isinstance(value, Mapping) and any(names <= value.keys() for names in _MESSAGE)


def _array_elements(window: _TextWindow, path: Path, most: int, number: int) -> Iterator[Any]:
    """Yield the elements of the array that begins here; stop behind it. `number`: rows before it."""
    window.at += 1
    if window.next_character() == "]":
        window.at += 1
        return
    while True:
        number += 1
        yield _json_value(window, f"{path}, row {number}", most)
        after = window.next_character()
        if not after:
            raise BadInput(
                f"{path}: the file ends inside the array, after row {number}: it is truncated; download it again"
            )
        if after not in ",]":
            raise BadInput(f"{path}, after row {number}: not JSON: found {after!r}, expected a comma or ]")
        window.at += 1
        if after == "]":
            return


def _json_value(window: _TextWindow, where: str, most: int) -> Any:
    window.next_character()
    while True:
        try:
            found, window.at = json.JSONDecoder().raw_decode(window.text, window.at)
        except (ValueError, RecursionError) as error:
            if len(window.text) - window.at > most:
                remedy = "each row is one object with one prompt"
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
    """Read all rows in file order. Raises BadInput.

    `faults`: gets what is wrong with each row that cannot be read, with its place; None: the first one is raised.
    """
    rows = list[PromptRow]()
    for row in iterate_rows(path, source, line_bytes_max):
        if isinstance(row, PromptRow):
            rows.append(row)
        elif faults is None:
            raise row
        else:
            faults.append(str(row).removeprefix(f"{path}, "))
    if not rows and not faults:
        raise BadInput(f"{path}: contains no rows: add one prompt per row, such as {_ROW_EXAMPLE}")
    return rows


def iterate_rows(path: Path, source: Source, most: int = LINE_BYTES_MAX) -> Iterator[PromptRow | BadInput]:
    """Yield each row, or the error of one that cannot be read. Raises BadInput for errors of the whole file."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder: give the path of a file in it")
    if not path.is_file():
        remedy = (
            "relative paths start at the spec's folder (in a pod, the file must be in the client's image);"
            " or give s3://BUCKET/KEY"
        )
        raise BadInput(f"{path}: no such file: {remedy}")
    with open_decompressed(path) as file:
        block = file.read(_TAR_BLOCK)
    begin = block.removeprefix(_BOM).lstrip()
    no_data = next((problem for start, problem in _NO_DATA.items() if begin.startswith(start)), None)
    if block[257:262] == b"ustar":
        no_data = "is a tar archive: unpack it, and give one of its files"
    if no_data is not None:
        raise BadInput(f"{path}: {no_data}")
    is_json = begin.startswith((b"{", b"["))
    is_table = is_named(path.name) or _HEADER.match(begin)
    if is_named(path.name, "txt") and not (is_table or _JSON_BEGINS.match(begin)):
        return _text_rows(path, most)
    if begin.startswith(_PARQUET) or (source is Source.PARQUET and not is_json):
        return _parquet_rows(path)
    if source is Source.CSV or (not is_json and is_table):
        return _csv_rows(path, most)
    in_lines = not begin.startswith((b"[", b"\x1e")) and not _spans_lines(path, most)
    return _json_rows(path, _line_values(path, most) if in_lines else _document_values(path, most))


def _text_rows(path: Path, most: int) -> Iterator[PromptRow]:
    """Yield a row for each line of a text that is not blank. Raises BadInput."""
    for number, line in numbered_lines(path, most):
        text = decode_line(line, f"{path}, line {number}").rstrip("\r\n")
        if text.strip():
            yield PromptRow(f"line {number}", {"prompt": text})


def is_named(name: str, formats: str = "csv|tsv") -> bool:
    """Return whether a file's name has one of these endings, also if it is compressed."""
    return re.search(rf"\.({formats})(\.(gz|bz2|xz|zst|zip))?$", name, re.IGNORECASE) is not None


def _spans_lines(path: Path, most: int) -> bool:
    """Return whether the first JSON value does not have a line of its own, or ends with an old Macintosh's line end."""
    with open_decompressed(path) as file:
        window = _TextWindow(file, str(path))
        try:
            if window.next_character() != "{":
                return False
            _json_value(window, str(path), most)
        except BadInput:  # the reader of lines reports where it is broken
            return False
        is_multiline = "\n" in window.text[: window.at].lstrip()
        rest = window.text[window.at : window.at + 2].lstrip(" \t")
        return is_multiline or rest.startswith("{") or (rest.startswith("\r") and rest != "\r\n")


_LINE_IS_OBJECT = f"each line is one JSON object, such as {_ROW_EXAMPLE}, unless the file is named .csv, .tsv or .txt"
_SERVER_LOG = (
    "vLLM logs prompts after its chat template, which would be applied again: record requests before it, by a proxy or"
    " by OpenTelemetry"
)
_WRAPPERS = ("data", "rows", "examples", "prompts", "items", "records", "samples")


def _json_rows(path: Path, values: Iterator[tuple[str, Any]]) -> Iterator[PromptRow | BadInput]:
    """Yield a row for each JSON value: an object, a prompt's text, or the messages of a conversation.

    A file that is one object with a list of rows has these rows. A value of another kind than the first is an error.
    """
    place, first = next(values, ("", None))
    following = next(values, None)
    if following is None and isinstance(first, dict) and first.keys().isdisjoint(_CONTENT):
        wrapped = next((first[name] for name in _WRAPPERS if isinstance(first.get(name), list)), None)
        if wrapped is not None:
            values = ((f"row {number}", value) for number, value in enumerate(wrapped, start=1))
            place, first = next(values, ("", None))
    if not place:
        return
    first = _decoded(first)
    kind = str if isinstance(first, str) else dict
    for where, found in chain([(place, first)], filter(None, [following]), values):
        value = _decoded(found) if kind is dict else found
        if isinstance(value, BadInput):
            yield value
        elif isinstance(value, list) and value and all(map(is_message, value)):
            yield PromptRow(where, {"conversations" if "from" in value[0] else "messages": value})
        elif not isinstance(value, kind):
            yield BadInput(
                f"{path}, {where}: is {_json_kind(value)}: each row is one JSON object, such as {_ROW_EXAMPLE}"
            )
        else:
            yield PromptRow(where, value if isinstance(value, dict) else {"prompt": value})


def _decoded(value: Any) -> Any:
    """Return the row whose JSON text is a value that was encoded twice; anything else unchanged."""
    try:
        found = parse_json(value) if isinstance(value, str) and value.startswith("{") else None
    except ValueError:
        return value
    return found if isinstance(found, dict) and not found.keys().isdisjoint(_CONTENT) else value


def _line_values(path: Path, most: int) -> Iterator[tuple[str, Any]]:
    """Yield the JSON value of each line, or the BadInput that describes what is wrong with it."""
    for number, line in numbered_lines(path, most):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                # Files that were joined may have a byte order mark each.
                yield f"line {number}", json.loads(decode_line(line.removeprefix(_BOM), where).rstrip("\r\n"))
            except json.JSONDecodeError as error:
                problem = f"{error.msg.removesuffix(' at')} at column {error.colno}"
                remedy = _SERVER_LOG if b"Received request " in line else _LINE_IS_OBJECT
                yield f"line {number}", BadInput(f"{where}: not JSON: {problem}: {remedy}")
            except BadInput as error:
                yield f"line {number}", error
            except (ValueError, RecursionError) as error:  # a number of thousands of digits, or extremely deep nesting
                yield f"line {number}", BadInput(f"{where}: this JSON cannot be parsed: {error}")


def _json_kind(value: Any) -> str:
    """Return the JSON name of a value's type, with its article."""
    names = {list: "a JSON array", str: "a JSON string", bool: "a JSON boolean", type(None): "JSON null"}
    return names.get(type(value), "a JSON number")


def _parquet_rows(path: Path) -> Iterator[PromptRow]:
    import pyarrow as pa  # noqa: PLC0415 -- see above
    import pyarrow.parquet as pq  # noqa: PLC0415

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            _header(file.schema_arrow.names, str(path))
            for batch in file.iter_batches():
                for columns in batch.to_pylist(maps_as_pydicts="strict"):
                    number += 1
                    yield PromptRow(f"row {number}", columns)
    # pyarrow checks neither names nor texts, and Python has no times after the year 9999.
    except (pa.ArrowException, ArithmeticError, LookupError, ValueError, OSError) as error:
        raise BadInput(f"{path}: cannot be read as Parquet: {error}: if it was cut, download it again") from error


@contextmanager
def quiet_datasets_library() -> Iterator[None]:
    """Silence the progress bars and log lines of `datasets` inside the block: its errors are reported as ours."""
    import datasets  # noqa: PLC0415 -- importing it takes two seconds; `--help` and files do without

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
