"""One at a time: a name in a folder that one process holds, and that says who.

The kernel lets go of it with the process, however that ended. In S3 nothing holds: conditional writes decide there,
which is enough for the results. On one machine it is not: two runs of a spec would measure each other's engines.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from specbench_client.errors import BadInput
from specbench_client.store.folder import refusals

TRIES = 1_000
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_log = logging.getLogger(__name__)


@contextmanager
def held(path: Path, who: str) -> Iterator[None]:
    """Hold the file, with its folder made where that is missing; nothing of both is left behind.

    Raises BadInput(AlreadyRunning) with the words of whoever holds it, NotDurable where the folder refuses.
    """
    with refusals(path):
        made = [folder for folder in path.parents if not folder.exists()]
        lock = _locked(path)
        os.truncate(lock, 0)
        os.write(lock, who.encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)
        with suppress(OSError):  # what lies there now is kept
            for folder in made:
                folder.rmdir()


def _locked(path: Path) -> int:
    """A holder that leaves removes file and folder, between any two of our steps: once or twice, not for ever."""
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError, FileExistsError):
            if (lock := _tried(path)) is not None:
                return lock
    if (lock := _tried(path)) is not None:
        return lock
    raise FileNotFoundError(errno.ENOENT, "others take it away again and again", str(path))


def _tried(path: Path) -> int | None:
    """The file, open and locked; None where its holder removed it since we opened it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with ExitStack() as stack:
        stack.callback(os.close, lock)
        _lock(lock, path)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                stack.pop_all()
                return lock
    return None


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 500, 0).decode(errors="replace") or "another process"
        remedy = "wait for its end, or give another --results folder"
        raise BadInput(f"{holder} is at work on this very spec in {path.parent}: {remedy}", "AlreadyRunning") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _log.warning("%s cannot be locked (%s): nobody would notice a second run of this spec", path, error.strerror)
