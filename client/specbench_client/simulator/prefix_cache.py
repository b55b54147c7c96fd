"""The simulated engine's prefix cache: blocks of tokens that were computed before, as in vLLM.

A block is found by the hash of its tokens and of everything before them, so a prompt reuses the blocks that it shares
with an earlier sequence from its beginning. When the cache is full, the block that was unused for longest is evicted,
the last one of a sequence first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

BLOCK_TOKENS = 16


class PrefixCache:
    """A cache of `capacity_tokens`, rounded down to whole blocks; with 0 it never has anything."""

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = capacity_tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prompt: Sequence[str]) -> int:
        """Return how many tokens at the beginning of the prompt need not be computed; never its last token."""
        reusable = islice(_block_hashes(prompt), max(len(prompt) - 1, 0) // BLOCK_TOKENS)
        found = list(takewhile(self._blocks.__contains__, reusable))
        self._touch(found)
        return len(found) * BLOCK_TOKENS

    def add(self, tokens: Sequence[str]) -> None:
        """Keep the full blocks of a computed sequence."""
        hashes = list(islice(_block_hashes(tokens), self._capacity))
        self._blocks.update(dict.fromkeys(hashes))
        self._touch(hashes)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def empty(self) -> None:
        """Forget everything."""
        self._blocks.clear()

    def _touch(self, hashes: list[int]) -> None:
        for block in reversed(hashes):  # the first block of a sequence is evicted last
            self._blocks.move_to_end(block)


def _block_hashes(tokens: Sequence[str]) -> Iterator[int]:
    before = 0
    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS):
        before = hash((before, tuple(tokens[end - BLOCK_TOKENS : end])))
        yield before
