"""Folders on this machine's disk for what is not stored yet, and nobody's once its owner is gone.

A killed process cleans up nothing, and its unfinished records may be gigabytes. So in each folder lies a file that its
owner has locked: the kernel lets go of the lock when the process is gone, however it ended, and whoever starts next
removes what nobody holds any more. What has no such file is somebody else's, and is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "specbench-"
OWNER = "owner.lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is gone at the end. First, those of killed processes go."""
    parent = Path(tempfile.gettempdir())
    _remove_stale(parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))  # a name that is not looked for, until it is held
    lock = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):  # a file system without locks: nobody will find it stale
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = folder.rename(parent / folder.name.removeprefix("."))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # held by the living, another user's, or somebody else removes it right now
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
