"""Requests that hold the load around the measured ones, and are not measured themselves.

Without them the first and the last conversations of every point would be ramp and drain, more of them the higher the
concurrency: loads would be compared over different prompts. So each stream begins with a filler, and what is free when
no measured conversation is left goes on with fillers until the last one has ended. An open loop begins with fillers
that arrive as the measured conversations will, until it is steady, and goes on with them in the same way. All measured
conversations then see the full load from their beginning to their end.

A filler is a prompt of the workload with its words in reverse order behind a number of its own: as long, in the same
words, and no two alike from the first word on, so that neither a prompt cache nor a drafter's memory of past text knows
it, or learns a measured prompt from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench_client.load.conversations import Conversation, Prompt

FIRST_INDEX = 10_000_000
"""Fillers are numbered above all conversations that a point may have."""
_PREFIX = "filler-"


@dataclass(frozen=True, slots=True)
class Fill:
    """`prompts`: what fillers are made of; `streams`: of all workers; `measured`: conversations that are measured."""

    prompts: tuple[Prompt, ...]
    streams: int
    measured: int


def filler(fill: Fill, stream: int, lap: int) -> Conversation:
    """The filler of a stream of this number (over all workers) that is its `lap`-th; one turn."""
    number = lap * fill.streams + stream
    prompt = fill.prompts[number % len(fill.prompts)]
    name = f"{_PREFIX}{number}"
    turn = tuple(message.reversed(number) for message in prompt.turns[0])
    return Conversation(FIRST_INDEX + number, name, name, None, (turn,))


def is_filler(prompt_id: str) -> bool:
    """Whether a record is a filler's, by its prompt."""
    return prompt_id.startswith(_PREFIX)
