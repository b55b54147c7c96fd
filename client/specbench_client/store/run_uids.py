"""UIDs of local runs: UUIDs of version 7, which contain their creation time.

Runs of a cluster have the UID of the API server, which is of another version; this distinguishes the two.
"""

from __future__ import annotations

import uuid


def new_run_uid(now_ms: int) -> str:
    """Return a UUID of version 7: 48 bits of milliseconds, then random bits."""
    random = uuid.uuid4().int
    bits = (now_ms << 80) | (7 << 76) | (random & (0xFFF << 64)) | (0b10 << 62) | (random & ((1 << 62) - 1))
    return str(uuid.UUID(int=bits))


def uid_created_ms(uid: str) -> int:
    """Return the creation time in a UID, in milliseconds since 1970; 0 if it is not a UUID of version 7."""
    try:
        parsed = uuid.UUID(uid)
    except ValueError:
        return 0
    return parsed.int >> 80 if parsed.version == 7 else 0
