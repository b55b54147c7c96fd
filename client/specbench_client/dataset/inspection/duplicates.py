"""Prompts that are in a set more than once: the same after normalisation, or nearly the same.

Near means that the sets of word 5-shingles have a Jaccard similarity of at least 0.8. Pairs are proposed by MinHash
(Broder 1997) in 32 bands of 4 rows and then decided on the shingles themselves, so none is wrong; of pairs at 0.8, one
in ten million is missed (1 - 0.8⁴ to the power of 32). One prompt of a group stands for it while others are compared.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SHINGLE_WORDS = 5
LEAST_JACCARD = 0.8
_BANDS, _ROWS = 32, 4
_SEED = 20260822
_MOST_COMPARED = 50
"""Prompts of one bucket that a further one is compared with: a bucket is large where all are alike anyway."""
_WORD = re.compile(r"\w+")


def exact_groups(texts: Sequence[str]) -> list[list[int]]:
    """Places of texts that are the same but for case, width of characters and white space; groups of two or more."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        found[" ".join(unicodedata.normalize("NFKC", text).casefold().split())].append(place)
    return [places for places in found.values() if len(places) > 1]


def near_groups(texts: Sequence[str]) -> list[list[int]]:
    """Places of texts that are nearly the same, exact duplicates among them; groups of two or more."""
    shingles = [_shingles(text) for text in texts]
    heads = list(range(len(texts)))
    for bucket in _buckets(shingles):
        compared: list[int] = []
        for place in bucket:
            head = _head(heads, place)
            if any(_joined(heads, shingles, head, other) for other in compared):
                continue
            if len(compared) < _MOST_COMPARED:
                compared.append(head)
    found: dict[int, list[int]] = defaultdict(list)
    for place in range(len(texts)):
        found[_head(heads, place)].append(place)
    return [places for places in found.values() if len(places) > 1]


def _joined(heads: list[int], shingles: Sequence[frozenset[int]], place: int, other: int) -> bool:
    """Whether the two are of one group, which they become if they are alike; the lower place is its head."""
    first, second = sorted((_head(heads, place), _head(heads, other)))
    if first == second:
        return True
    if jaccard(shingles[first], shingles[second]) < LEAST_JACCARD:
        return False
    heads[second] = first
    return True


def jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    """Size of what two sets share by the size of both together; 0 for two empty ones."""
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def _head(heads: list[int], place: int) -> int:
    while heads[place] != place:
        heads[place] = heads[heads[place]]
        place = heads[place]
    return place


def _shingles(text: str) -> frozenset[int]:
    """Hashes of all runs of five words; of all words together where there are fewer."""
    words = _WORD.findall(text.casefold())
    runs = range(max(1, len(words) - SHINGLE_WORDS + 1)) if words else range(0)
    return frozenset(_hash(" ".join(words[start : start + SHINGLE_WORDS])) for start in runs)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def _buckets(shingles: Sequence[frozenset[int]]) -> list[list[int]]:
    """Places whose signatures agree in a whole band, for each band; a text without words is in none."""
    generator = np.random.default_rng(_SEED)
    # Of all 64 bits: factors of 32 would not wrap around, and the least shingle would be the least of every hash.
    factors = generator.integers(0, 2**64, size=_BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
    shifts = generator.integers(0, 2**64, size=_BANDS * _ROWS, dtype=np.uint64)
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for place, held in enumerate(shingles):
        if held:
            signature = _signature(held, factors, shifts)
            for band in range(_BANDS):
                buckets[band, signature[band * _ROWS : (band + 1) * _ROWS].tobytes()].append(place)
    return [bucket for bucket in buckets.values() if len(bucket) > 1]


def _signature(
    held: frozenset[int], factors: npt.NDArray[np.uint64], shifts: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """The least of each of 128 hashes over the shingles: multiply, add, keep the upper half (Dietzfelbinger 1996)."""
    values = np.fromiter(held, dtype=np.uint64, count=len(held))
    least = np.full(factors.shape, np.iinfo(np.uint64).max, dtype=np.uint64)
    for start in range(0, len(values), 4096):
        hashed = (values[start : start + 4096, None] * factors + shifts) >> np.uint64(32)
        least = np.minimum(least, hashed.min(axis=0))
    return least
