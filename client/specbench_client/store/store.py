"""The `Store` protocol: objects under keys, created once and never overwritten.

Only derived objects that can be computed again (progress, the run's summary and report) are replaced, and nothing of a
run is removed. All implementations pass the same tests. Failures are NotDurable with a `StoreErrorReason` and a message
with the remedy.
"""

from __future__ import annotations

from enum import StrEnum
from typing import BinaryIO, Protocol
from uuid import uuid4

from specbench_api.outcome.layout import (
    CHECK_CONTENT,
    CHECK_OBJECT,
    CHECK_UPLOAD,
    CHECKS,
    CONDITIONAL_WRITES_NEEDED,
)
from specbench_client.errors import NotDurable

OBJECT_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of an object that is read into memory. Only files of records are larger, which are opened instead."""
FILE_BYTES_MAX = 16 * 1024**3
"""Bytes of an object that is opened: the records of fifty million requests without their texts."""
KEYS_MAX = 1_000_000
"""Keys of one listing."""


class StoreErrorReason(StrEnum):
    """Why an operation of a store failed; the reason of a NotDurable."""

    CONFLICT = "Conflict"
    """The key already has other content: two writers, or a damaged result."""
    BUCKET_MISSING = "BucketMissing"
    """The bucket (or the folder's parent) does not exist."""
    CREDENTIALS_REFUSED = "CredentialsRefused"
    """Credentials are missing, wrong, or lack the permission."""
    CLOCK_WRONG = "ClockWrong"
    """The clocks of this machine and of the server differ too much, so the server accepts no signature."""
    AWAY = "S3Away"
    """The server cannot be reached or is failing; a retry may help."""
    DISK_FULL = "DiskFull"
    """No space in the folder of the results or in `TMPDIR`."""
    NOT_WRITABLE = "NotWritable"
    """The folder may not be written."""
    DAMAGED = "Damaged"
    """A stored file differs from the manifest."""
    REFUSED = "StoreRefused"
    """Any other error; the message contains that of the server."""


class Upload(Protocol):
    """An object that is written in parts. It does not exist before `complete`."""

    def add(self, part: bytes) -> None:
        """Append a part: at least 5 MiB, except for the last. A call that raised may be repeated."""
        ...

    def complete(self) -> None:
        """Create the object. Raises NotDurable(Conflict) if the key exists already."""
        ...

    def abort(self) -> None:
        """Discard the parts. Never raises: what cannot be discarded only needs space."""
        ...


class Store(Protocol):
    """Objects below a prefix, such as one run's results. Thread-safe."""

    def put(self, key: str, data: bytes) -> None:
        """Create an object. Existing equal content is accepted; other content raises NotDurable(Conflict)."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Create or replace an object atomically. Only for derived objects."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist."""
        ...

    def open(self, key: str) -> BinaryIO | None:
        """Return a local file with the content of an object, or None if it does not exist. The caller closes it."""
        ...

    def start_upload(self, key: str) -> Upload:
        """Begin to write an object in parts."""
        ...

    def abort_uploads(self, prefix: str) -> None:
        """Discard the unfinished uploads of all keys with the prefix, which killed processes have left."""
        ...

    def remove(self, key: str) -> bool:
        """Remove an object, if it exists. Returns False if the server refuses it, which is no error."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """Return all keys that begin with the prefix, sorted."""
        ...

    def uri(self, key: str = "") -> str:
        """Return the location of an object, for users."""
        ...

    def below(self, prefix: str) -> Store:
        """Return the store of all keys below a prefix."""
        ...


# Servers and proxies that call themselves S3 differ, so a store is tried before an engine is started for it.

CHECK_PARTS = (bytes(5 * 1024 * 1024), b"end")
"""Parts of the upload. The first has the smallest size that S3 accepts."""


def check_s3_server(results: Store) -> None:
    """Write and read as a run will. Does nothing for a folder. Raises NotDurable with what the server cannot do.

    `results`: the root of all results.
    """
    if not results.uri().startswith("s3://"):
        return
    results.replace(CHECK_OBJECT, CHECK_CONTENT)
    try:
        results.put(CHECK_OBJECT, b"other content")
    except NotDurable as refused:
        if refused.reason != StoreErrorReason.CONFLICT:
            raise
    else:
        what = f"the server accepted other content although it exists, or is not S3: {CONDITIONAL_WRITES_NEEDED}"
        raise NotDurable(f"{results.uri(CHECK_OBJECT)}: {what}", StoreErrorReason.REFUSED)
    # Without the right to remove it, every check has to write the same object.
    own = f"{CHECK_UPLOAD}-{uuid4().hex}"
    uploaded = own if results.remove(own) else CHECK_UPLOAD
    _upload_parts(results, uploaded)
    listed = results.keys(CHECKS)
    for key, data in ((CHECK_OBJECT, CHECK_CONTENT), (uploaded, b"".join(CHECK_PARTS))):
        if key not in listed or results.get(key) != data:
            what = "the server does not list it, or does not return what was written: give the address of an S3 server"
            raise NotDurable(f"{results.uri(key)}: {what}", StoreErrorReason.REFUSED)
    if uploaded == own:
        results.remove(own)


def _upload_parts(results: Store, key: str) -> None:
    upload = results.start_upload(key)
    try:
        for part in CHECK_PARTS:
            upload.add(part)
        upload.complete()
    except NotDurable:
        upload.abort()
        raise
