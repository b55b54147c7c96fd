"""Files that are one JSON array, read row by row: ShareGPT's is 673 MB, and as one text it would be several times that.

What stands after the array, or between its rows, is refused: two files that were joined would silently be one.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from specbench_client.errors import BadInput
from specbench_client.workload.files import LINE_BYTES_MAX, opened

Placed = tuple[str, dict[str, Any]]
"""`row 3`, and its columns."""
_AT_ONCE = 4 * 1024 * 1024
_SPACE = " \t\r\n"


class _Window:
    """The part of a text that is looked at: what was used is dropped, and what is needed is read. Raises BadInput."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text = ""
        self.at = 0
        self.ended = False

    def grow(self) -> None:
        """Read as much again as is there, so that a long row is not tried too often."""
        left = self.text[self.at :]
        data = self._file.read(max(_AT_ONCE, len(left)))
        self.ended = not data
        try:
            self.text, self.at = left + self._decoder.decode(data, final=self.ended), 0
        except UnicodeDecodeError as error:
            raise BadInput(f"{self._where}: not UTF-8 ({error.reason}): save the file as UTF-8") from error

    def next_character(self) -> str:
        """What comes after white space; empty at the file's end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.grow()


def array_rows(path: Path, most: int = LINE_BYTES_MAX) -> Iterator[Placed]:
    """Objects of one JSON array, with their places from `row 1`. `most`: characters of a row. Raises BadInput."""
    with opened(path) as file:
        window = _Window(file, str(path))
        begin = window.next_character()
        if begin != "[":
            raise BadInput(f"{path}: is no JSON array: it begins with {begin!r}")
        window.at += 1
        number = 0
        if window.next_character() != "]":
            for number, row in enumerate(_objects(window, path, most), start=1):
                yield f"row {number}", row
        window.at += 1
        if window.next_character():
            remedy = "two files in one? Give each as a file of its own"
            raise BadInput(f"{path}: goes on after the end of its array, after {number} rows: {remedy}")


def _objects(window: _Window, path: Path, most: int) -> Iterator[dict[str, Any]]:
    """Up to the closing bracket, which is next then."""
    number = 0
    while True:
        number += 1
        yield _object(window, f"{path}, row {number}", most)
        after = window.next_character()
        if after == "]":
            return
        if not after:
            raise BadInput(f"{path}: ends within its array, after {number} rows: it was cut; get it anew")
        if after != ",":
            raise BadInput(f"{path}, after row {number}: not JSON: {after!r} where a comma or ] is needed")
        window.at += 1


def _object(window: _Window, where: str, most: int) -> dict[str, Any]:
    window.next_character()
    while True:
        try:
            found, window.at = json.JSONDecoder().raw_decode(window.text, window.at)
            break
        except (ValueError, RecursionError) as error:
            if len(window.text) - window.at > most:
                remedy = "one object a row is needed, and a prompt that long is none"
                raise BadInput(
                    f"{where}: is longer than {most:,} characters, or not JSON: {error}: {remedy}"
                ) from error
            if window.ended or isinstance(error, RecursionError):
                raise BadInput(f"{where}: not JSON: {error}") from error
            window.grow()
    if not isinstance(found, dict):
        raise BadInput(f"{where}: a JSON {type(found).__name__}, where one object a row is needed")
    return found
