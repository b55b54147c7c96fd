"""Hashes of texts that are only compared: a million different texts would take hundreds of bytes each.

An answer is identified by its SHA-256 and a conversation by its name. They are only tested for equality, so each is
stored as a hash of 8 bytes (SipHash with a fixed key: the same text has the same hash everywhere). Of an answer's hash
53 bits are stored, which a float represents exactly, and which leaves NaN for missing values: the probability that two
different answers have the same hash is 1 in 10^16. A conversation always has a name, and its hash has 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Values = NDArray[np.float64]
Hashes = NDArray[np.uint64]

_BITS = 53
"""Bits of an integer that a float64 represents exactly."""
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Constants of the SplitMix64 generator (Steele, Lea and Flood 2014), which mixes all input bits."""


def text_digests(texts: Iterable[str | None]) -> Values:
    """Return a 53-bit hash for each text, shape (texts,); NaN for missing texts."""
    values = list(texts)
    missing = np.array([text is None for text in values], dtype=np.bool_)
    return np.where(missing, np.nan, _cut(text_hashes(text or "" for text in values)))


def text_hashes(texts: Iterable[str]) -> Hashes:
    """Return a 64-bit hash for each text, shape (texts,)."""
    values = list(texts)
    column = np.empty(len(values), dtype=np.object_)
    column[:] = values
    return np.asarray(pd.util.hash_array(column), dtype=np.uint64)


def chain_history(earlier: Values, reply: Values) -> Values:
    """Return a hash of the history so far and the reply to it, shape (rows,); NaN if either is missing."""
    unknown = np.isnan(earlier) | np.isnan(reply)
    before, then = (np.nan_to_num(each).astype(np.uint64) for each in (earlier, reply))
    with np.errstate(over="ignore"):
        mixed = before * _FACTORS[0] + then + _FACTORS[0]
        for shift, factor in zip((30, 27), _FACTORS[1:], strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return np.where(unknown, np.nan, _cut(mixed ^ (mixed >> np.uint64(31))))


def _cut(hashes: Hashes) -> Values:
    return np.asarray((hashes >> np.uint64(64 - _BITS)).astype(np.float64), dtype=np.float64)
