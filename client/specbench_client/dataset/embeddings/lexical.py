"""Computes embeddings without a model: hashed words and word pairs, weighted by their rarity among the prompts.

Two prompts are similar to the extent that they share words. That detects templates and repetitions but no paraphrases.
Reports name these embeddings `lexical`; the figures are not comparable with those of a neural model.

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

from specbench_client.dataset.diversity import Vectors, unit_vectors
from specbench_client.dataset.prompt_entries import PromptEntry, texts_of

DIMENSIONS = 2048
_WORD = re.compile(r"\w+|[^\w\s]")


class LexicalEmbedder:
    """Measures similarity by shared words; needs no model and is deterministic."""

    @property
    def name(self) -> str:
        """The embedder's name in reports."""
        return "lexical (shared words; no model)"

    def embed(self, entries: Sequence[PromptEntry], progress: Callable[[int, int], None]) -> Vectors:
        """Return one unit vector per prompt. Raises BadInput if a prompt has no text."""
        counted = [Counter(_terms(text)) for text in texts_of(entries)]
        frequencies = Counter(term for terms in counted for term in terms)
        vectors = np.zeros((len(counted), DIMENSIONS), dtype=np.float32)
        for row, terms in enumerate(counted):
            for term, count in terms.items():
                place, sign = _place(term)
                rarity = np.log((1 + len(counted)) / (1 + frequencies[term])) + 1
                vectors[row, place] += sign * (1 + np.log(count)) * rarity
        progress(len(entries), len(entries))
        return unit_vectors(vectors, [entry.id for entry in entries])


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.casefold())
    return [*words, *(f"{first} {second}" for first, second in pairwise(words))]


@lru_cache(maxsize=1_000_000)
def _place(term: str) -> tuple[int, int]:
    digest = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest())
    return digest % DIMENSIONS, 1 if digest >> 63 else -1
