"""Finds duplicate prompts: equal after normalisation, or nearly equal.

Two prompts are near duplicates if their sets of word 5-shingles have a Jaccard similarity of at least 0.8. Candidate
pairs are proposed by MinHash (Broder 1997) in 32 bands of 4 rows and then verified on the shingles, so there are no
false positives. The probability of missing a pair at 0.8 is (1 - 0.8⁴)³², about one in ten million. A group is
represented by one of its prompts when further prompts are compared with it.
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
"""Maximum number of prompts of a bucket to compare with: in a large bucket all prompts are similar anyway."""
_WORD = re.compile(r"\w+")


def exact_groups(texts: Sequence[str]) -> list[list[int]]:
    """Return groups of two or more indices of texts that differ only in case, character width or white space."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        found[" ".join(unicodedata.normalize("NFKC", text).casefold().split())].append(place)
    return [places for places in found.values() if len(places) > 1]


def near_groups(texts: Sequence[str]) -> list[list[int]]:
    """Return groups of two or more indices of near-duplicate texts, including exact duplicates."""
    shingles = [_shingles(text) for text in texts]
    heads = list(range(len(texts)))
    for bucket in _buckets(shingles):
        compared: list[int] = []
        for place in bucket:
            head = _head(heads, place)
            if any(_merge_if_similar(heads, shingles, head, other) for other in compared):
                continue
            if len(compared) < _MOST_COMPARED:
                compared.append(head)
    found: dict[int, list[int]] = defaultdict(list)
    for place in range(len(texts)):
        found[_head(heads, place)].append(place)
    return [places for places in found.values() if len(places) > 1]


def _merge_if_similar(heads: list[int], shingles: Sequence[frozenset[int]], place: int, other: int) -> bool:
    """Merge the groups of two texts if they are similar and return whether they are in one group now."""
    first, second = sorted((_head(heads, place), _head(heads, other)))
    if first == second:
        return True
    if jaccard(shingles[first], shingles[second]) < LEAST_JACCARD:
        return False
    heads[second] = first
    return True


def jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    """Return the Jaccard similarity, |intersection| / |union|; 0 for two empty sets."""
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def _head(heads: list[int], place: int) -> int:
    while heads[place] != place:
        heads[place] = heads[heads[place]]
        place = heads[place]
    return place


def _shingles(text: str) -> frozenset[int]:
    """Return the hashes of all runs of five words, or of the whole text if it has fewer words."""
    words = _WORD.findall(text.casefold())
    runs = range(max(1, len(words) - SHINGLE_WORDS + 1)) if words else range(0)
    return frozenset(_hash(" ".join(words[start : start + SHINGLE_WORDS])) for start in runs)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def _buckets(shingles: Sequence[frozenset[int]]) -> list[list[int]]:
    """Return, for each band, groups of indices whose signatures agree in it. A text without words is in no group."""
    generator = np.random.default_rng(_SEED)
    # Factors need all 64 bits: with 32 they would not overflow, and the smallest shingle would win every hash.
    factors = generator.integers(0, 2**64, size=_BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
    shifts = generator.integers(0, 2**64, size=_BANDS * _ROWS, dtype=np.uint64)
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for place, hashes in enumerate(shingles):
        if hashes:
            signature = _signature(hashes, factors, shifts)
            for band in range(_BANDS):
                buckets[band, signature[band * _ROWS : (band + 1) * _ROWS].tobytes()].append(place)
    return [bucket for bucket in buckets.values() if len(bucket) > 1]


def _signature(
    shingles: frozenset[int], factors: npt.NDArray[np.uint64], shifts: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Return the minimum of each of 128 hashes: multiply, add, keep the upper 32 bits (Dietzfelbinger 1996)."""
    values = np.fromiter(shingles, dtype=np.uint64, count=len(shingles))
    least = np.full(factors.shape, np.iinfo(np.uint64).max, dtype=np.uint64)
    for start in range(0, len(values), 4096):
        hashed = (values[start : start + 4096, None] * factors + shifts) >> np.uint64(32)
        least = np.minimum(least, hashed.min(axis=0))
    return least
