"""The nodes on which engines run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A node as far as it bears on a measurement."""

    name: str
    labels: Mapping[str, str]
    kernel: str = ""
    kubelet: str = ""
    cores: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class NodeUnread:
    """A node that could not be looked at, and why."""

    name: str
    reason: str
