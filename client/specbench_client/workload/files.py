"""Bytes of a prompts file: gzip is unpacked as it is read, and no line is longer than what memory is meant for."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from specbench_client.errors import BadInput

LINE_BYTES_MAX = 64 * 1024 * 1024
"""Of one line: a prompt of a million tokens is a tenth of it. A file without line ends is refused after so much."""
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's content, unpacked where it is gzip. What is wrong with it, also while it is read, is BadInput."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if not packed:
                yield file
                return
            with gzip.open(file) as content:
                yield cast("BinaryIO", content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path}: is gzip that cannot be unpacked ({error}): it was cut or damaged; get it anew"
        ) from error
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def numbered_lines(path: Path, most: int = LINE_BYTES_MAX) -> Iterator[tuple[int, bytes]]:
    """Every line with its number from 1, as it lies there but for a byte order mark. Raises BadInput.

    `most`: bytes of a line; a longer one is refused without being read to its end.
    """
    number = 0
    with opened(path) as file:
        while line := file.readline(most + 1):
            number += 1
            if len(line) > most:
                remedy = "one row a line is needed, and a prompt that long is none"
                raise BadInput(f"{path}, line {number}: is longer than {most:,} bytes: {remedy}")
            yield number, line.removeprefix(_BOM) if number == 1 else line


def text_of(line: bytes, where: str) -> str:
    """Decode. Raises BadInput."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8") from error
