"""What a store promises, whatever lies beneath it: objects under keys that are created once and never overwritten.

Only what is derived and may be made again (progress, the run's summary and report) is replaced. Both adapters pass
one and the same suite of tests. Failures are NotDurable with a reason of `Refusal`, and a message that says what to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Refusal(StrEnum):
    """Why a store did not take or give something; the reason of a NotDurable."""

    CONFLICT = "Conflict"
    """The key holds other content already: two writers, or a damaged result."""
    BUCKET_MISSING = "BucketMissing"
    """The bucket (or the folder's parent) does not exist."""
    CREDENTIALS_REFUSED = "CredentialsRefused"
    """No credentials, wrong ones, or ones without the right."""
    CLOCK_WRONG = "ClockWrong"
    """This machine's clock is too far from the server's, which therefore trusts no signature."""
    AWAY = "S3Away"
    """The server cannot be reached, or is failing; a retry may help."""
    DISK_FULL = "DiskFull"
    """No room for the folder store or for the spool."""
    NOT_WRITABLE = "NotWritable"
    """The folder may not be written."""
    DAMAGED = "Damaged"
    """What lies there is not what the manifest says."""
    REFUSED = "StoreRefused"
    """The server answered something else; the message has its words."""


class Store(Protocol):
    """One run's results, or any other prefix. Safe for use from several threads."""

    def put(self, key: str, data: bytes) -> None:
        """Create. The same content again is fine; other content is NotDurable(Conflict) and changes nothing."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Create or replace, atomically. Only for what is derived."""
        ...

    def get(self, key: str) -> bytes | None:
        """The content, or None where there is none."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """All keys that begin with the prefix, sorted."""
        ...

    def uri(self, key: str = "") -> str:
        """Where a person finds it."""
        ...

    def below(self, prefix: str) -> Store:
        """The same store, with every key below a prefix."""
        ...
