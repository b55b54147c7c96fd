"""Texts that are only ever compared, as numbers: a million different ones would take hundreds of bytes each.

An answer is known by its SHA-256 and a conversation by its name. What is asked of either is whether two are the same,
so each is kept as a hash of 8 bytes (SipHash, with a fixed key: the same text gives the same number everywhere). Of an
answer's hash 53 bits are kept, which a float holds exactly and beside which NaN can stand for missing: two different
answers that are compared are taken for the same once in 10^16. A conversation always has a name, and 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Values = NDArray[np.float64]
Names = NDArray[np.uint64]

_BITS = 53
"""Of a float's integers."""
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Of the generator SplitMix64 (Steele, Lea and Flood 2014): each bit of the input turns about half of the result's."""


def digests(texts: Iterable[str | None]) -> Values:
    """Return a number for each text, the same for the same; NaN for missing."""
    held = list(texts)
    missing = np.array([text is None for text in held], dtype=np.bool_)
    return np.where(missing, np.nan, _cut(names(text or "" for text in held)))


def names(texts: Iterable[str]) -> Names:
    """Return a number for each text, the same for the same."""
    held = list(texts)
    column = np.empty(len(held), dtype=np.object_)
    column[:] = held
    return np.asarray(pd.util.hash_array(column), dtype=np.uint64)


def chained(earlier: Values, reply: Values) -> Values:
    """Return a number for what stood before and the reply to it; NaN where either is missing."""
    unknown = np.isnan(earlier) | np.isnan(reply)
    before, then = (np.nan_to_num(each).astype(np.uint64) for each in (earlier, reply))
    with np.errstate(over="ignore"):
        mixed = before * _FACTORS[0] + then + _FACTORS[0]
        for shift, factor in zip((30, 27), _FACTORS[1:], strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return np.where(unknown, np.nan, _cut(mixed ^ (mixed >> np.uint64(31))))


def _cut(hashes: Names) -> Values:
    return np.asarray((hashes >> np.uint64(64 - _BITS)).astype(np.float64), dtype=np.float64)
