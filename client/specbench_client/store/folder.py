"""A store in a local folder, with S3's rules: an object appears whole or not at all, and is created once.

A file is written beside its final name, synced, and then hard-linked to it: `link` fails where the name exists, so
two writers cannot both win (a rename would overwrite silently). The folder is synced too, or a power cut may forget
the name of a file whose content is safe.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specbench_client.errors import NotDurable
from specbench_client.store.store import Refusal

_TEMPORARY = ".incoming-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_LINKS = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderStore:
    """Objects as files below a folder; keys are relative paths with `/`."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with refusals(path):
            temporary = _write_beside(path, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                if path.read_bytes() != data:
                    raise NotDurable(_conflict(path), Refusal.CONFLICT) from None
            finally:
                temporary.unlink()
            _sync_folder(path.parent)

    def replace(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with refusals(path):
            temporary = _write_beside(path, data)
            try:
                temporary.replace(path)
            except OSError:
                temporary.unlink()
                raise
            _sync_folder(path.parent)

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        with refusals(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def keys(self, prefix: str = "") -> list[str]:
        start = self._root / prefix.rpartition("/")[0]
        with refusals(start):
            found = (path.relative_to(self._root).as_posix() for path in _files(start))
            return sorted(key for key in found if key.startswith(prefix))

    def uri(self, key: str = "") -> str:
        return str(self._root / key) if key else str(self._root)

    def below(self, prefix: str) -> FolderStore:
        return FolderStore(self._path(prefix))

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or any(part.startswith(".") for part in parts):
            raise ValueError(f"{key!r} is no key: parts are not empty and do not begin with a dot")
        return self._root.joinpath(*parts)


def _files(start: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(start, onerror=_raise_unless_missing):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        yield from (Path(folder) / name for name in names if not name.startswith("."))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _write_beside(path: Path, data: bytes) -> Path:
    """The data in a synced temporary file in the folder of `path`, which is made where it is missing."""
    _make_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's 0600 would hide results from the colleague who reads them
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
        f"{path} exists already with other content and is never overwritten: another client wrote it, or the folder"
        " belongs to another run; choose another --results folder"
    )


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Every OSError of this adapter → NotDurable; the one place."""
    try:
        yield
    except OSError as error:
        words = f"{path}: {error.strerror}"
        if error.errno in _NO_ROOM:
            raise NotDurable(
                f"{words}: make room and run again; what is finished is kept", Refusal.DISK_FULL
            ) from error
        if error.errno in _NO_LINKS:
            remedy = "this file system has no hard links, by which files are created once; choose another folder"
            raise NotDurable(f"{words}: {remedy}", Refusal.NOT_WRITABLE) from error
        if error.errno in (*_NO_RIGHT, errno.ENOTDIR, errno.EEXIST):
            remedy = "results cannot be written or read there; choose another folder or change its owner"
            raise NotDurable(f"{words}: {remedy}", Refusal.NOT_WRITABLE) from error
        raise NotDurable(words, Refusal.REFUSED) from error
