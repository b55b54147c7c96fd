"""Columns in unnamed temporary files, which disappear with the process."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specbench_client.errors import NotDurable
from specbench_client.numpy_columns import Array, Column, RaggedColumn, TextCodes, entry_places
from specbench_client.store.store import StoreErrorReason

PREFIX = "specbench-"
COPY_BYTES = 2**16
"""Bytes of a file that are in memory while it is copied."""


@dataclass(frozen=True)
class StoredArray:
    """An array in an unnamed temporary file: `array[at]` reads values by indices or by a slice. None stay in memory."""

    file: mmap.mmap
    kind: np.dtype[Any]
    size: int
    start: int
    """Of the first byte in the file."""

    def __getitem__(self, at: Any) -> Array:
        values: Array = np.frombuffer(self.file, self.kind, self.size, self.start)[at]
        values = values.copy() if isinstance(at, slice) else values
        self.file.madvise(mmap.MADV_DONTNEED)  # Pages that were read would count as this process's memory.
        return values


@dataclass(frozen=True)
class StoredColumn:
    """A column on disk: `column[at]` reads rows by indices or by a slice."""

    arrays: Sequence[StoredArray]
    texts: NDArray[np.object_] | None
    """The texts by code, of a column of texts."""

    def __len__(self) -> int:
        return self.arrays[0].size

    def __getitem__(self, at: Any) -> Column:
        values, *lists = self.arrays
        if lists:
            starts, entries = lists
            sizes = values[at]
            return RaggedColumn(sizes, entries[entry_places(starts[at], sizes)])
        return values[at] if self.texts is None else TextCodes(values[at], self.texts)


class ColumnWriter(ExitStack[None]):
    """Writes the columns of a table to an unnamed temporary file (`TMPDIR`), which disappears with the process.

    Until all rows are there, each array has a file of its own. They are closed at the end of the `with` block. Methods
    raise NotDurable if the disk is full.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arrays: dict[str, list[tuple[BinaryIO, np.dtype[Any]]]] = {}
        self._codes: dict[str, dict[str, int]] = {}
        self._entries: Counter[str] = Counter()
        """How many entries of each column of lists are written."""

    def __exit__(self, *details: Any) -> None:  # noqa: PYI036 -- three, as the base has them
        with _report_full_disk():  # What a file could not write yet, it tries to write again when it is closed.
            super().__exit__(*details)

    def append(self, columns: Mapping[str, Column]) -> None:
        """Write further rows, of the same columns."""
        with _report_full_disk():
            for name, column in columns.items():
                arrays = self._arrays_of(name, column)
                if name not in self._arrays:
                    files = [self.enter_context(tempfile.TemporaryFile(prefix=PREFIX)) for _ in arrays]  # noqa: SIM115 -- entered
                    kinds = [np.dtype((each.dtype, each.shape[1:])) for each in arrays]
                    self._arrays[name] = list(zip(files, kinds, strict=True))
                for (file, _), values in zip(self._arrays[name], arrays, strict=True):
                    file.write(np.ascontiguousarray(values).data)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was appended."""
        return not self._arrays

    def finish(self) -> dict[str, StoredColumn]:
        """Move all arrays to one file, and return the columns."""
        with _report_full_disk(), tempfile.TemporaryFile(prefix=PREFIX) as whole:
            spans = {name: [_moved(*each, whole) for each in arrays] for name, arrays in self._arrays.items()}
            whole.flush()
            data = mmap.mmap(whole.fileno(), 0, prot=mmap.PROT_READ)
        texts = {name: np.array([*known], dtype=np.object_) for name, known in self._codes.items()}
        return {
            name: StoredColumn([StoredArray(data, *each) for each in spans[name]], texts.get(name)) for name in spans
        }

    def _arrays_of(self, name: str, column: Column) -> list[Array]:
        if isinstance(column, RaggedColumn):
            starts = column.starts.astype(np.int64) + self._entries[name]
            self._entries[name] += len(column.entries)
            return [column.sizes, starts, column.entries]
        if isinstance(column, TextCodes):
            return [column.numbered(self._codes.setdefault(name, {}))]
        return [column]


def _moved(file: BinaryIO, kind: np.dtype[Any], whole: BinaryIO) -> tuple[np.dtype[Any], int, int]:
    """Append a file to another, aligned, and delete it. Return the type, the size and the first byte of its array."""
    with file:
        size = file.tell()
        whole.write(bytes(-whole.tell() % kind.itemsize))
        start = whole.tell()
        file.seek(0)
        shutil.copyfileobj(file, whole, COPY_BYTES)
    return kind, size // kind.itemsize, start


@contextmanager
def _report_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"{tempfile.gettempdir()}: {error.strerror}"
        remedy = "a summary needs up to 400 bytes per record of two arms there: free some space, or set TMPDIR"
        raise NotDurable(f"{where}: {remedy}", StoreErrorReason.DISK_FULL) from error
