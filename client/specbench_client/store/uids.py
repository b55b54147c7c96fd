"""UIDs of the runs of this machine: they hold the moment at which they were made (UUID version 7).

A cluster's runs have the UID that the API server gave them, which holds none; by that the two are told apart.
"""

from __future__ import annotations

import uuid


def new_uid(now_ms: int) -> str:
    """A UUID of version 7: 48 bits of milliseconds, then chance."""
    chance = uuid.uuid4().int
    bits = (now_ms << 80) | (7 << 76) | (chance & (0xFFF << 64)) | (0b10 << 62) | (chance & ((1 << 62) - 1))
    return str(uuid.UUID(int=bits))


def made_ms(uid: str) -> int:
    """When a UID of ours was made, in milliseconds since 1970; 0 for one that does not hold it."""
    try:
        found = uuid.UUID(uid)
    except ValueError:
        return 0
    return found.int >> 80 if found.version == 7 else 0
