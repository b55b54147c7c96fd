"""Columns on this machine's disk, in a file that has no name: it is gone with the process, however that ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from dataclasses import dataclass

import numpy as np

from specbench_client.errors import NotDurable
from specbench_client.shelf import Column, Slot
from specbench_client.store.store import Refusal


class DiskShelf:
    """Lays columns one behind the other into a file among the temporary ones (`TMPDIR`).

    They are read by whoever asks and not mapped: what is not looked at takes no memory of the process. Raises
    NotDurable where the disk is full.
    """

    def __init__(self) -> None:
        self._file = _File()
        self._end = 0

    def lay(self, values: Column) -> Slot:
        """Lay a column down."""
        begun, self._end = self._end, self._end + values.nbytes
        _write(self._file.number, values.tobytes(), begun)
        return _OnDisk(self._file, begun, values.size, values.dtype)


class _File:
    """A file without a name, by its descriptor: closed when nobody refers to it any more."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="specbench-") as file:
            self.number = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.number)


@dataclass(frozen=True)
class _OnDisk:
    """`begun`: its first byte in the file."""

    file: _File
    begun: int
    size: int
    kind: np.dtype

    def read(self) -> Column:
        data = os.pread(self.file.number, self.size * self.kind.itemsize, self.begun)
        return np.frombuffer(data, dtype=self.kind)


def _write(file: int, data: bytes, begun: int) -> None:
    written = 0
    while written < len(data):
        try:
            written += os.pwrite(file, data[written:], begun + written)
        except OSError as error:
            where = f"{tempfile.gettempdir()}: {error.strerror}"
            remedy = "a summary lays up to 300 bytes a record of two arms there: make room, or set TMPDIR"
            raise NotDurable(f"{where}: {remedy}", Refusal.DISK_FULL) from error
