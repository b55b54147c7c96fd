"""Requests before a launch's first point: as long as the measured ones, and never the very same.

A prompt that was sent before may lie in the engine's prompt cache or in a drafter's memory of past text, and would be
measured too well. So a warm-up request is a prompt with its words in reverse order: its length and its vocabulary are
the workload's, its prefix and its n-grams are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from specbench_client.chat import Message
from specbench_client.load.conversations import Conversation
from specbench_client.workload.reading import Prompt


def warmup_conversations(prompts: Sequence[Prompt], count: int) -> Iterator[Conversation]:
    """`count` conversations of one turn."""
    for index in range(count):
        prompt = prompts[index % len(prompts)]
        name = f"warmup-{index}"
        yield Conversation(index, name, name, prompt.category, (tuple(_reversed(m) for m in prompt.turns[0]),))


def _reversed(message: Message) -> Message:
    return replace(message, content=" ".join(reversed(message.content.split())))
