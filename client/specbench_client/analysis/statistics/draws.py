"""Which units each resample draws, and sums over them.

Every figure of a cell is resampled by the same draws: a seed and a layout give the same ones. So they are drawn once
and kept, a byte a unit and resample, as long as they are few enough; and a sum over a resample is a product with the
counts. Both are done piece by piece: no more than `PIECE_VALUES` numbers are wide at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specbench_client.metrics.frame import Values

Codes = NDArray[np.intp]
Counts = NDArray[np.uint8]
"""Resamples × units: how often each was drawn. A unit is drawn once on the mean, and never 256 times."""
Draw = tuple[Counts, Counts]
"""How often each repeat, and each prompt, was drawn, over the same resamples."""

BLOCK_VALUES = 4_000_000
"""Numbers of one block of draws. It decides in which order numbers are drawn, and so which."""
PIECE_VALUES = 500_000
"""Numbers that are wide at a time: some MB."""
KEPT_VALUES = 24_000_000
"""Counts that are kept from one figure to the next, in bytes; where there would be more, they are drawn anew."""


def draws(strata: Codes, repeats: int, seed: int, resamples: int) -> Iterator[Draw]:
    """Yield blocks of draws of so many repeats, and of prompts within their strata. `strata`: of each prompt."""
    rng = np.random.default_rng(seed)
    block = max(1, min(resamples, BLOCK_VALUES // max(1, strata.size)))
    for begun in range(0, resamples, block):
        size = min(block, resamples - begun)
        prompts = np.zeros((size, strata.size), dtype=np.uint8)
        for stratum in range(int(strata.max(initial=-1)) + 1):
            members = np.flatnonzero(strata == stratum)
            prompts[:, members] = drawn(rng, members.size, size)
        yield drawn(rng, repeats, size), prompts


def drawn(rng: np.random.Generator, units: int, size: int) -> Counts:
    """Return how often each unit comes up when as many as there are get drawn with replacement, `size` times over."""
    counts = np.empty((size, units), dtype=np.uint8)
    for begun, ended in _pieces(size, units):
        rows = np.arange(ended - begun)[:, np.newaxis] * units
        picks = (rng.integers(0, units, size=(ended - begun, units)) + rows).ravel()
        counts[begun:ended] = np.bincount(picks, minlength=(ended - begun) * units).reshape(-1, units)
    return counts


def sums(matrices: Sequence[Values], strata: Codes, seed: int, resamples: int) -> Values:
    """Return, for each resample, the sum over each repeat × prompt matrix: resamples × matrices."""
    repeats = matrices[0].shape[0]
    flat = np.concatenate(matrices)
    return np.concatenate([_sums(block, flat, len(matrices)) for block in _blocks(strata, repeats, seed, resamples)])


def _blocks(strata: Codes, repeats: int, seed: int, resamples: int) -> Iterator[Draw]:
    if strata.size * resamples > KEPT_VALUES:
        return draws(strata, repeats, seed, resamples)
    return iter(_kept(strata.tobytes(), repeats, seed, resamples))


@lru_cache(maxsize=2)
def _kept(strata: bytes, repeats: int, seed: int, resamples: int) -> tuple[Draw, ...]:
    return tuple(draws(np.frombuffer(strata, dtype=np.intp), repeats, seed, resamples))


def _sums(block: Draw, flat: Values, matrices: int) -> Values:
    """`flat`: the repeats of the first matrix, then those of the next."""
    repeats, prompts = block
    found = np.empty((len(prompts), matrices))
    for begun, ended in _pieces(*prompts.shape):
        each = (prompts[begun:ended].astype(np.float64) @ flat.T).reshape(ended - begun, matrices, -1)
        found[begun:ended] = (each * repeats[begun:ended, np.newaxis, :]).sum(axis=2)
    return found


def _pieces(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Spans of rows of no more than `PIECE_VALUES` numbers, but of one at least."""
    step = max(1, PIECE_VALUES // max(1, columns))
    return ((begun, min(begun + step, rows)) for begun in range(0, rows, step))
