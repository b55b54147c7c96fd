"""Scratch directories, removed when their owner exits, and arrays in unnamed temporary files.

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
from pathlib import Path

import numpy as np

from specbench_client.columns import Array, ReadArray, StoreArray
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


def arrays_on_disk() -> StoreArray:
    """Return a function that stores arrays one after the other in an unnamed temporary file (`TMPDIR`).

    The file disappears with the process. Arrays are read on demand and not memory-mapped, so they use no memory until
    then. Raises NotDurable if the disk is full.
    """
    file, end = _UnnamedFile(), 0

    def store(values: Array) -> ReadArray:
        nonlocal end
        offset, size, kind, end = end, values.nbytes, values.dtype, end + values.nbytes
        _write_at(file.fd, values.tobytes(), offset)
        return lambda: np.frombuffer(os.pread(file.fd, size, offset), dtype=kind)

    return store


class _UnnamedFile:
    """A file without a name; its descriptor is closed when this object is garbage-collected."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="specbench-") as file:
            self.fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.fd)


def _write_at(fd: int, data: bytes, offset: int) -> None:
    written = 0
    while written < len(data):
        try:
            written += os.pwrite(fd, data[written:], offset + written)
        except OSError as error:
            where = f"{tempfile.gettempdir()}: {error.strerror}"
            remedy = "a summary needs up to 300 bytes per record of two arms there: free some space, or set TMPDIR"
            raise NotDurable(f"{where}: {remedy}", StoreErrorReason.DISK_FULL) from error
