"""n-grams as numbers: two of one length have the same number where they hold the same tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specbench_client.analysis.oracle.answers import Tokens


def numbered_grams(ids: Tokens, longest: int) -> Iterator[tuple[int, Tokens]]:
    """Each length from 1 on with the number of the n-gram that begins at each position; numbers count from 0.

    Whatever the length of the text, one sort for each length: an n-gram is the one before it and one token more.
    """
    if not ids.size:
        return
    tokens = numbers = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    kinds = int(tokens.max()) + 1
    yield 1, numbers
    for length in range(2, min(longest, ids.size) + 1):
        numbers = np.unique(numbers[:-1] * kinds + tokens[length - 1 :], return_inverse=True)[1].astype(np.int64)
        yield length, numbers
