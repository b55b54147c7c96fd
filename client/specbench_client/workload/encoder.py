"""What makes token ids of a text, and whose ids they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Encoder:
    """`encode`: the ids of a text. `told`: whose they are, in words."""

    encode: Callable[[str], list[int]]
    told: str
