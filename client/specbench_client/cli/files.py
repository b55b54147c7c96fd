"""A file that somebody named on the command line, written whole or not at all.

What stood there is kept until the new content is safe beside it: a disk that is full leaves no half of a report, and
not the last one's end. A pipe, a device, a link, or a file that was mounted alone or lies where no other may be made,
is written to as it is: nothing can be put in its place.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import click

from specbench_client.errors import BadInput

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FIXED = (errno.EACCES, errno.EPERM, errno.EBUSY)
_NEW_FILE = 0o666


def deliver(option: str, file: Path, data: bytes) -> None:
    """Write the data and tell on stderr where. `option`: the flag that named the file. Raises BadInput."""
    try:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            file.write_bytes(data)
        else:
            _write(file, data)
    except OSError as error:
        full = error.errno in _NO_ROOM
        remedy = "make room, or give a file elsewhere" if full else "give a file in a folder that is there"
        raise BadInput(f"{option} {file}: {error.strerror}: {remedy}") from error
    click.echo(f"written: {file}", err=True)


def _write(file: Path, data: bytes) -> None:
    try:
        _replace(file, data)
    except OSError as error:
        if error.errno not in _FIXED or not file.exists():
            raise
        file.write_bytes(data)


def _replace(file: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".incoming-", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        temporary.chmod(file.stat().st_mode & 0o777 if file.exists() else _NEW_FILE & ~_umask())
        temporary.replace(file)
    except OSError:
        temporary.unlink()
        raise


def _umask() -> int:
    """The process's own; reading it is setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
