"""One chat message: the one word that workloads, dialects and load share, and so it lies beneath them all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One message in OpenAI's form: `role` is system, user or assistant."""

    role: str
    content: str
