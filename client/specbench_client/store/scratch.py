"""Scratch directories, removed when their owner exits, and columns in unnamed temporary files.

A killed process cleans up nothing, and its unfinished records may be gigabytes. So each directory contains a file that
its owner has locked. The kernel releases the lock when the process ends, however it ended, and the next process removes
directories whose lock is free. Directories without such a file belong to other programs and are left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specbench_client.columns import Array, ColumnHandle
from specbench_client.errors import NotDurable
from specbench_client.store.store import StoreErrorReason

PREFIX = "specbench-"
OWNER = "owner.lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a scratch directory that is removed at the end; first remove those of killed processes."""
    parent = Path(tempfile.gettempdir())
    _remove_stale(parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))  # Hidden until it is locked.
    lock = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):  # On a file system without locks it is never considered stale.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = folder.rename(parent / folder.name.removeprefix("."))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # In use, another user's, or being removed by another process.
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


class DiskColumnStore:
    """Stores columns one after the other in an unnamed temporary file (`TMPDIR`), which disappears with the process.

    Columns are read on demand and not memory-mapped, so they use no memory until then. Raises NotDurable if the disk is
    full.
    """

    def __init__(self) -> None:
        self._file = _UnnamedFile()
        self._end = 0

    def put(self, values: Array) -> ColumnHandle:
        """Store a column."""
        offset, self._end = self._end, self._end + values.nbytes
        _write_at(self._file.fd, values.tobytes(), offset)
        return _OnDiskColumn(self._file, offset, values.size, values.dtype)


class _UnnamedFile:
    """A file without a name; its descriptor is closed when this object is garbage-collected."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="specbench-") as file:
            self.fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.fd)


@dataclass(frozen=True)
class _OnDiskColumn:
    """A column at a byte offset of the file."""

    file: _UnnamedFile
    offset: int
    size: int
    kind: np.dtype

    def read(self) -> Array:
        data = os.pread(self.file.fd, self.size * self.kind.itemsize, self.offset)
        return np.frombuffer(data, dtype=self.kind)


def _write_at(fd: int, data: bytes, offset: int) -> None:
    written = 0
    while written < len(data):
        try:
            written += os.pwrite(fd, data[written:], offset + written)
        except OSError as error:
            where = f"{tempfile.gettempdir()}: {error.strerror}"
            remedy = "a summary needs up to 300 bytes per record of two arms there: free some space, or set TMPDIR"
            raise NotDurable(f"{where}: {remedy}", StoreErrorReason.DISK_FULL) from error
