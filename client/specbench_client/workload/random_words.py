"""Prompts of random words: what SPEED-Bench's authors show to mislead, for those who must compare with it.

Every word follows from the seed by SHA-256: the same on every machine. A model answers such text with something short,
or fixes on a word: acceptance and speed are then those of no traffic at all, so every result is marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

from specbench_api.outcome.coverage import CategoryCoverage, Coverage
from specbench_api.spec.dataset import Selection
from specbench_client.chat import Message
from specbench_client.workload.reading import Prompt

WORDS = 256
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
CATEGORY = "random"


def random_prompts(selection: Selection) -> list[Prompt]:
    """`count` prompts of `words` words."""
    seed, words = selection.seed or 0, selection.words or WORDS
    return [
        Prompt(f"random-{number}", CATEGORY, ((Message("user", " ".join(islice(_words(seed, number), words))),),))
        for number in range(selection.count or 0)
    ]


def random_coverage(selection: Selection) -> Coverage:
    """Nothing was read, so nothing is missing."""
    count = selection.count or 0
    known = CategoryCoverage(category=CATEGORY, asked=count, used=count, turns=count)
    return Coverage(source=str(selection.source), rows=count, asked=count, used=count, turns=count, by_category=[known])


def _words(seed: int, number: int) -> Iterator[str]:
    block = 0
    while True:
        digest = hashlib.sha256(f"{seed}\0{number}\0{block}".encode()).digest()
        for at in range(0, len(digest), 4):
            yield "".join(_SYLLABLES[byte % len(_SYLLABLES)] for byte in digest[at : at + 1 + digest[at] % 3])
        block += 1
