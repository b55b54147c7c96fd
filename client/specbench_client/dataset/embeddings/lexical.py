"""Embeddings without a model: hashed words and word pairs, weighted by how rare they are among the prompts.

Two prompts are alike here as far as they share words. That finds templates and repetitions, and not paraphrases:
reports say `lexical`, and a figure of it compares with no figure of a neural model.

Weight of a term: (1 + ln count) × (ln((1 + prompts) / (1 + prompts with it)) + 1), the usual smoothed tf-idf; terms go
to 2,048 dimensions by BLAKE2b, with a sign from the same hash so that collisions cancel in the mean (Weinberger 2009).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from specbench_client.dataset.diversity.vectors import Vectors, unit_vectors
from specbench_client.dataset.entries import Entry, texts_of

DIMENSIONS = 2048
_WORD = re.compile(r"\w+|[^\w\s]")


class Lexical:
    """Shared words as similarity; needs nothing, and is the same on every machine."""

    @property
    def name(self) -> str:
        """What it is, for reports."""
        return "lexical (shared words; no model)"

    def embed(self, entries: Sequence[Entry], told: Callable[[int, int], None]) -> Vectors:
        """One unit vector a prompt. Raises BadInput where a prompt has no text."""
        counted = [Counter(_terms(text)) for text in texts_of(entries)]
        holding = Counter(term for terms in counted for term in terms)
        vectors = np.zeros((len(counted), DIMENSIONS), dtype=np.float32)
        for row, terms in enumerate(counted):
            for term, count in terms.items():
                place, sign = _place(term)
                rare = np.log((1 + len(counted)) / (1 + holding[term])) + 1
                vectors[row, place] += sign * (1 + np.log(count)) * rare
        told(len(entries), len(entries))
        return unit_vectors(vectors, [entry.id for entry in entries])


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.casefold())
    return [*words, *(f"{first} {second}" for first, second in pairwise(words))]


@lru_cache(maxsize=1_000_000)
def _place(term: str) -> tuple[int, int]:
    digest = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest())
    return digest % DIMENSIONS, 1 if digest >> 63 else -1
