"""Prompts as conversations: each pass of a prompt is one conversation with an identity of its own.

Names and seeds are derived from what is asked and never drawn, so that every arm, every retry and every machine asks
the very same requests in the same order: what is paired later was the same question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specbench_client.chat import Message

_SEED_SPACE = 2**31


class Prompt(Protocol):
    """What is needed of a row of the workload. `turns`: the messages that each turn adds before it asks."""

    @property
    def id(self) -> str: ...
    @property
    def category(self) -> str | None: ...
    @property
    def turns(self) -> tuple[tuple[Message, ...], ...]: ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """One pass of one prompt. `index` counts the conversations of a point from 0."""

    index: int
    id: str
    prompt_id: str
    category: str | None
    turns: tuple[tuple[Message, ...], ...]


def conversation_at(prompts: Sequence[Prompt], index: int) -> Conversation:
    """The conversation of this number: the prompts in their order, and round again when they are used up."""
    lap, place = divmod(index, len(prompts))
    prompt = prompts[place]
    return Conversation(index, f"{prompt.id}#{lap}", prompt.id, prompt.category, prompt.turns)


def request_seed(seed: int, repeat: int, conversation_id: str, turn: int) -> int:
    """This request's sampling seed: the same on every arm, another one for each repeat, lap and turn."""
    digest = hashlib.sha256(f"{seed}/{repeat}/{turn}/{conversation_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEED_SPACE
