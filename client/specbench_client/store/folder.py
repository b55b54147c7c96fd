"""A store in a local folder with the rules of S3: objects appear completely or not at all, and are created once.

A file is written under a temporary name, synced, and then hard-linked to its final name. `link` fails if the name
exists, so that two writers cannot both succeed (a rename would overwrite silently). The folder is synced as well:
otherwise a power failure may lose the name of a file whose content is safe. `exclusive_lock` lets only one run measure
into a folder at a time.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.store import FILE_BYTES_MAX, OBJECT_BYTES_MAX, StoreErrorReason

_TEMPORARY = ".incoming-"
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PERMISSION_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)
_LINK_UNSUPPORTED_ERRORS = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderStore:
    """Objects as files below a folder; keys are relative paths with `/`."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with translate_os_errors(path):
            temporary = _write_temporary(path, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                if path.read_bytes() != data:
                    raise NotDurable(_conflict(path), StoreErrorReason.CONFLICT) from None
            finally:
                temporary.unlink()
            _sync_folder(path.parent)

    def start_upload(self, key: str) -> FolderUpload:
        path = self._path(key)
        with translate_os_errors(path):
            return FolderUpload(path)

    def abort_uploads(self, prefix: str) -> None:
        start, _, name = prefix.rpartition("/")
        folder = self._path(start)
        with translate_os_errors(folder):
            for temporary in folder.glob(f"{_TEMPORARY}{name}*"):
                temporary.unlink(missing_ok=True)

    def remove(self, key: str) -> bool:
        path = self._path(key)
        with translate_os_errors(path):
            path.unlink(missing_ok=True)
        return True

    def replace(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with translate_os_errors(path):
            temporary = _write_temporary(path, data)
            try:
                temporary.replace(path)
            except OSError:
                temporary.unlink()
                raise
            _sync_folder(path.parent)

    def get(self, key: str) -> bytes | None:
        file = self._open(key, OBJECT_BYTES_MAX)
        if file is None:
            return None
        with translate_os_errors(self._path(key)), file:
            return file.read()

    def open(self, key: str) -> BinaryIO | None:
        return self._open(key, FILE_BYTES_MAX)

    def _open(self, key: str, most: int) -> BinaryIO | None:
        """Open the file of a key, of at most this many bytes; None if it does not exist."""
        path = self._path(key)
        with translate_os_errors(path):
            try:
                found = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            if stat.S_ISDIR(found.st_mode):
                return None
            problem = self._refusal(path, found, most)
            if problem is not None:
                raise NotDurable(f"{path}: {problem}", StoreErrorReason.DAMAGED)
            return path.open("rb")

    def keys(self, prefix: str = "") -> list[str]:
        start = self._root / prefix.rpartition("/")[0]
        with translate_os_errors(start):
            keys = (path.relative_to(self._root).as_posix() for path in _files(start))
            return sorted(key for key in keys if key.startswith(prefix))

    def uri(self, key: str = "") -> str:
        return str(self._root / key) if key else str(self._root)

    def below(self, prefix: str) -> FolderStore:
        return FolderStore(self._path(prefix))

    def _refusal(self, path: Path, found: os.stat_result, most: int) -> str | None:
        """Return why a file is not read, which a stranger's folder may lead to; None if it is read."""
        if not stat.S_ISREG(found.st_mode):
            return "is not a regular file: remove it from the results"
        if not path.resolve().is_relative_to(self._root.resolve()):
            return "is a link to a file outside of the results: copy the file there instead"
        if found.st_size > most:
            return f"is larger than {most // 2**20} MiB, which no such file of a run is: it is damaged"
        return None

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or any(part.startswith(".") for part in parts):
            raise ValueError(f"{key!r} is not a valid key: its parts must not be empty or begin with a dot")
        return self._root.joinpath(*parts)


class FolderUpload:
    """A file that is written in parts under a temporary name, which contains its final name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._temporary = _open_temporary(path)

    def add(self, part: bytes) -> None:
        with translate_os_errors(self._path):
            self._file.write(part)

    def complete(self) -> None:
        with translate_os_errors(self._path):
            with self._file:
                _sync_file(self._file)
            try:
                os.link(self._temporary, self._path)
            except FileExistsError:
                raise NotDurable(_conflict(self._path), StoreErrorReason.CONFLICT) from None
            except FileNotFoundError:
                what = "another client discarded its unfinished file: run again when no other client is running"
                raise NotDurable(f"{self._path}: {what}", StoreErrorReason.REFUSED) from None
            self._temporary.unlink()
            _sync_folder(self._path.parent)

    def abort(self) -> None:
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
        with suppress(OSError):  # Closing writes what is buffered, which fails again on a full disk.
            self._file.close()


def _files(start: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(start, onerror=_raise_unless_missing):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        yield from (Path(folder) / name for name in names if not name.startswith("."))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _write_temporary(path: Path, data: bytes) -> Path:
    """Write the data to a synced temporary file in the folder of `path`, creating that folder if it is missing."""
    file, temporary = _open_temporary(path)
    try:
        with file:
            file.write(data)
            _sync_file(file)
    except OSError:
        temporary.unlink()
        raise
    return temporary


def _open_temporary(path: Path) -> tuple[BinaryIO, Path]:
    _make_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f"{_TEMPORARY}{path.name}-", dir=path.parent)
    return os.fdopen(handle, "wb"), Path(name)


def _sync_file(file: BinaryIO) -> None:
    """Write the content of a temporary file to the disk, and let other users read it: mkstemp's mode is 0600."""
    file.flush()
    os.fchmod(file.fileno(), 0o644)
    os.fsync(file.fileno())


def _make_folder(folder: Path) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _conflict(path: Path) -> str:
    return (
        f"{path} already exists with other content and is never overwritten: another client wrote it, or the folder"
        " belongs to another run; choose another --results folder"
    )


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise NotDurable for every OSError inside."""
    try:
        yield
    except OSError as error:
        problem = f"{path}: {error.strerror}"
        if error.errno in _DISK_FULL_ERRORS:
            raise NotDurable(f"{problem}: free some space", StoreErrorReason.DISK_FULL) from error
        if error.errno in _LINK_UNSUPPORTED_ERRORS:
            remedy = "this file system has no hard links, which specbench needs; choose another folder"
            raise NotDurable(f"{problem}: {remedy}", StoreErrorReason.NOT_WRITABLE) from error
        if error.errno in (*_PERMISSION_ERRORS, errno.ENOTDIR, errno.EEXIST):
            remedy = "results cannot be written or read there; choose another folder or change its owner"
            raise NotDurable(f"{problem}: {remedy}", StoreErrorReason.NOT_WRITABLE) from error
        if error.errno == errno.ENOENT:
            message = f"{path.parent}: the folder cannot be created ({error.strerror}): choose another folder"
            raise NotDurable(message, StoreErrorReason.NOT_WRITABLE) from error
        raise NotDurable(f"{problem}: choose a folder on another disk", StoreErrorReason.REFUSED) from error


# The lock is on a file that contains the description of its holder. The kernel releases it when the process ends, even
# by SIGKILL. S3 has no such lock: there, conditional writes protect the results. On one machine this is not enough,
# because two runs of a spec would measure each other's engines.

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
    try:
        with translate_os_errors(path):
            os.truncate(lock, 0)
            os.write(lock, who.encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)
        with suppress(OSError):  # A folder that contains results by now is not removed.
            for folder in created:
                folder.rmdir()


def lock_holder(path: Path) -> str | None:
    """Return the description of the process that holds the lock; None if there is none, or it cannot be known."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with suppress(OSError):
            return path.read_text(errors="replace")
    except OSError:  # no file, or a file system without locks
        pass
    return None


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
