"""An exclusive lock on a file, which contains the description of its holder.

The kernel releases the lock when the process ends, even by SIGKILL. S3 has no such lock: there, conditional writes
protect the results. On one machine this is not enough, because two runs of a spec would measure each other's engines.
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
from specbench_client.store.folder import translate_os_errors

LOCK_ATTEMPTS = 1_000
_LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_log = logging.getLogger(__name__)


@contextmanager
def exclusive_lock(path: Path, who: str) -> Iterator[None]:
    """Lock the file, creating it and missing folders; both are removed at the end.

    `who` describes this process. Raises BadInput(AlreadyRunning) with the description of the current holder, and
    NotDurable if the folder cannot be written.
    """
    with translate_os_errors(path):
        created = [folder for folder in path.parents if not folder.exists()]
        lock = _open_locked(path)
        os.truncate(lock, 0)
        os.write(lock, who.encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)
        with suppress(OSError):  # A folder that contains results by now is not removed.
            for folder in created:
                folder.rmdir()


def _open_locked(path: Path) -> int:
    """Open and lock the file. Retries, because a previous holder may remove file and folder between any two steps."""
    for _ in range(LOCK_ATTEMPTS - 1):
        with suppress(FileNotFoundError, FileExistsError):
            if (lock := _try_open_locked(path)) is not None:
                return lock
    if (lock := _try_open_locked(path)) is not None:
        return lock
    raise FileNotFoundError(errno.ENOENT, "other processes remove it again and again", str(path))


def _try_open_locked(path: Path) -> int | None:
    """Return the open, locked file; None if its previous holder removed it after it was opened. Raises OSError."""
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
        remedy = "wait until it ends, or give another --results folder"
        raise BadInput(f"{holder} is running this spec in {path.parent}: {remedy}", "AlreadyRunning") from None
    except OSError as error:
        if error.errno not in _LOCKS_UNSUPPORTED:
            raise
        _log.warning("%s cannot be locked (%s): a second run of this spec would not be detected", path, error.strerror)
