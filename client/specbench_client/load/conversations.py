"""Conversations: each pass over a prompt is one conversation with its own id; and filler conversations.

Ids and seeds are derived from the prompt and never random, so that every arm, retry and machine sends the same requests
in the same order. Records that are paired later have the same input.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.spec.workload import ThinkTime, ThinkTimeDistribution
from specbench_client.workload.row_parsing import Prompt

_SEED_SPACE = 2**31


@dataclass(frozen=True, slots=True)
class Conversation:
    """One pass over one prompt. `index` counts the conversations of a point from 0."""

    index: int
    id: str
    prompt: Prompt


def conversation_at(prompts: Sequence[Prompt], index: int) -> Conversation:
    """Return the conversation of this index: the prompts in order, repeated when all are used."""
    lap, row = divmod(index, len(prompts))
    return Conversation(index, f"{prompts[row].id}#{lap}", prompts[row])


def request_seed(seed: int, repeat: int, conversation_id: str, turn: int) -> int:
    """Return the sampling seed of a request: the same on every arm, different for each repeat, lap and turn."""
    digest = hashlib.sha256(f"{seed}/{repeat}/{turn}/{conversation_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEED_SPACE


def think_time_ns(think_time: ThinkTime, seed: int, repeat: int, conversation_id: str, turn: int) -> int:
    """Return how long a user thinks before this turn: the same on every arm, like `request_seed`."""
    mean_ns = think_time.seconds * 1e9
    if think_time.distribution is ThinkTimeDistribution.CONSTANT:
        return int(mean_ns)
    uniform = request_seed(seed, repeat, f"think/{conversation_id}", turn) / _SEED_SPACE
    return int(-mean_ns * math.log1p(-uniform))


# Fillers keep up the load before and after the measured conversations and are not measured themselves.
#
# Without them the first and last conversations of every point would be ramp and drain, the more of them the higher the
# concurrency, so loads would be compared over different prompts. Each stream of a closed loop therefore begins with a
# filler, and streams that find no measured conversation left continue with fillers until the last measured one has
# ended. An open loop begins with fillers of the same arrival process until it is steady, and ends in the same way. All
# measured conversations then run under the full load from beginning to end.
#
# A filler is a prompt of the workload with its words reversed, after a unique number: it has the same length and
# vocabulary, and no two begin alike. So neither a prompt cache nor a drafter's memory of past text contains it, or
# learns a measured prompt from it.

FIRST_FILLER_INDEX = 10_000_000
"""Indices of fillers are above those of all conversations that a point may have."""
_FILLER_PREFIX = "filler-"


@dataclass(frozen=True, slots=True)
class FillerPlan:
    """Prompts to make fillers from, the number of streams of all workers, and that of measured conversations."""

    prompts: tuple[Prompt, ...]
    streams: int
    measured: int


def filler_conversation(fill: FillerPlan, stream: int, lap: int) -> Conversation:
    """Return the `lap`-th filler of a stream (numbered over all workers). It has one turn."""
    number = lap * fill.streams + stream
    prompt = fill.prompts[number % len(fill.prompts)]
    name = f"{_FILLER_PREFIX}{number}"
    turn = tuple(message.reversed(number) for message in prompt.turns[0])
    return Conversation(FIRST_FILLER_INDEX + number, name, Prompt(name, None, (turn,), prompt.output_tokens))


def is_filler(prompt_id: str) -> bool:
    """Return whether a record's prompt id is that of a filler."""
    return prompt_id.startswith(_FILLER_PREFIX)
