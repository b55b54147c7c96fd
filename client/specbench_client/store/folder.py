"""A store in a local folder with the rules of S3: objects appear completely or not at all, and are created once.

A file is written under a temporary name, synced, and then hard-linked to its final name. `link` fails if the name
exists, so that two writers cannot both succeed (a rename would overwrite silently). The folder is synced as well:
otherwise a power failure may lose the name of a file whose content is safe.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specbench_client.errors import NotDurable
from specbench_client.store.store import StoreErrorReason

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
        path = self._path(key)
        with translate_os_errors(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def keys(self, prefix: str = "") -> list[str]:
        start = self._root / prefix.rpartition("/")[0]
        with translate_os_errors(start):
            keys = (path.relative_to(self._root).as_posix() for path in _files(start))
            return sorted(key for key in keys if key.startswith(prefix))

    def uri(self, key: str = "") -> str:
        return str(self._root / key) if key else str(self._root)

    def below(self, prefix: str) -> FolderStore:
        return FolderStore(self._path(prefix))

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or any(part.startswith(".") for part in parts):
            raise ValueError(f"{key!r} is not a valid key: its parts must not be empty or begin with a dot")
        return self._root.joinpath(*parts)


def _files(start: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(start, onerror=_raise_unless_missing):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        yield from (Path(folder) / name for name in names if not name.startswith("."))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _write_temporary(path: Path, data: bytes) -> Path:
    """Write the data to a synced temporary file in the folder of `path`, creating that folder if it is missing."""
    _make_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # With mkstemp's 0600, other users could not read the results.
    except OSError:
        temporary.unlink()
        raise
    return temporary


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
            raise NotDurable(
                f"{problem}: free some space and run again; finished points are kept", StoreErrorReason.DISK_FULL
            ) from error
        if error.errno in _LINK_UNSUPPORTED_ERRORS:
            remedy = "this file system has no hard links, which specbench needs; choose another folder"
            raise NotDurable(f"{problem}: {remedy}", StoreErrorReason.NOT_WRITABLE) from error
        if error.errno in (*_PERMISSION_ERRORS, errno.ENOTDIR, errno.EEXIST):
            remedy = "results cannot be written or read there; choose another folder or change its owner"
            raise NotDurable(f"{problem}: {remedy}", StoreErrorReason.NOT_WRITABLE) from error
        raise NotDurable(problem, StoreErrorReason.REFUSED) from error
