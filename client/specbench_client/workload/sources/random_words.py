"""Prompts of random words, which SPEED-Bench's authors show to be misleading; provided for comparisons only.

Every word is derived from the seed by SHA-256, so it is the same on every machine. A model answers such text briefly or
repeats one word, so acceptance and speed resemble no real traffic. Every result with such prompts is marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

from specbench_api.outcome.prompt_coverage import CategoryCoverage, PromptCoverage
from specbench_api.spec.dataset import Selection
from specbench_client.chat import ChatMessage
from specbench_client.workload.row_parsing import Prompt

WORDS = 256
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
CATEGORY = "random"


def random_prompts(selection: Selection) -> list[Prompt]:
    """Return `count` prompts of `words` words each."""
    seed, words = selection.seed or 0, selection.words or WORDS
    return [
        Prompt(f"random-{number}", CATEGORY, ((ChatMessage("user", " ".join(islice(_words(seed, number), words))),),))
        for number in range(selection.count or 0)
    ]


def random_coverage(selection: Selection) -> PromptCoverage:
    """Return the coverage: no rows are read, so none are missing."""
    count = selection.count or 0
    known = CategoryCoverage(category=CATEGORY, requested=count, used=count, turns=count)
    return PromptCoverage(
        source=str(selection.source), rows=count, requested=count, used=count, turns=count, by_category=[known]
    )


def _words(seed: int, number: int) -> Iterator[str]:
    block = 0
    while True:
        digest = hashlib.sha256(f"{seed}\0{number}\0{block}".encode()).digest()
        for start in range(0, len(digest), 4):
            length = 1 + digest[start] % 3
            yield "".join(_SYLLABLES[byte % len(_SYLLABLES)] for byte in digest[start : start + length])
        block += 1
