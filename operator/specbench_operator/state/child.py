"""What a child is called, and which part of a run it plays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ref:
    """One child, with the UID that every deletion and patch of it is fenced by."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Place:
    """Which part of a run a child plays, as its labels say. `group` and `attempt` only for engines and clients."""

    role: str
    group: int | None = None
    attempt: int | None = None
