"""Columns on this machine's disk, in a file that has no name: it is gone with the process, however that ends."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import IO

import numpy as np

from specbench_client.errors import NotDurable
from specbench_client.metrics.shelf import Column, Slot
from specbench_client.store.store import Refusal


class DiskShelf:
    """Lays columns one behind the other into a file among the temporary ones (`TMPDIR`).

    They are read by whoever asks and not mapped: what is not looked at takes no memory of the process. Raises
    NotDurable where the disk is full.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="specbench-")  # noqa: SIM115  closed when its last slot is gone
        self._end = 0

    def lay(self, values: Column) -> Slot:
        """Lay a column down."""
        data = np.ascontiguousarray(values)
        begun, self._end = self._end, self._end + data.nbytes
        _write(self._file, data, begun)
        return _OnDisk(self._file, begun, data.size, data.dtype)


@dataclass(frozen=True)
class _OnDisk:
    """`begun`: its first byte in the file."""

    file: IO[bytes]
    begun: int
    size: int
    kind: np.dtype

    def read(self) -> Column:
        data = os.pread(self.file.fileno(), self.size * self.kind.itemsize, self.begun)
        return np.frombuffer(data, dtype=self.kind)


def _write(file: IO[bytes], data: Column, begun: int) -> None:
    left, written = data.tobytes(), 0
    while written < len(left):
        try:
            written += os.pwrite(file.fileno(), left[written:], begun + written)
        except OSError as error:
            where = f"{tempfile.gettempdir()}: {error.strerror}"
            remedy = "a summary lays some 300 bytes a record of two arms there: make room, or set TMPDIR"
            raise NotDurable(f"{where}: {remedy}", Refusal.DISK_FULL) from error
