"""How many tokens of an answer were thought before it was given: what its chunks tell, where the engine marks thoughts.

Engines with a reasoning parser send thoughts in a field of their own (`reasoning_content`, `reasoning`). A chunk that
holds the end of the thoughts and the begin of the answer counts as answer: with drafts that is a few tokens of one
step. Calls of tools and refusals are no thoughts.
"""

from __future__ import annotations

from collections.abc import Callable

from specbench_client.dialects.stream import Delta, Stream, count_in


def thought_tokens(stream: Stream, counted: Callable[[Delta], int | None]) -> int | None:
    """Return the tokens up to the last chunk of thought before the answer begins; 0 where there is none.

    `counted`: tokens of the answer up to and with a chunk. None where no chunk tells them, or not the decisive one.
    """
    thought: Delta | None = None
    if stream.reasoning:
        for delta in stream.deltas:
            if delta.text:
                break
            thought = delta if _thinks(delta) else thought
    if thought is not None:
        return counted(thought)
    return 0 if any(counted(delta) is not None for delta in stream.deltas[:-1]) else None


def by_usage(delta: Delta) -> int | None:
    """Return the tokens so far of an engine whose chunks carry the usage so far."""
    return count_in(delta.document.get("usage"), "completion_tokens") if delta.document.get("choices") else None


def _thinks(delta: Delta) -> bool:
    """Whether the engine marks it as thought; asked of answers with anything beside their text alone."""
    choices = delta.document.get("choices")
    said = choices[0].get("delta") if choices else None
    return bool(said and (said.get("reasoning_content") or said.get("reasoning")))
