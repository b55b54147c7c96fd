"""Where the steps of an answer stood: a walk through its steps, condensed to sums by class of place.

The first token comes from reading the prompt and has output position 0. A step that begins at position p emits its
accepted drafts and one token more, and the next one begins behind them: p + accepted + 1. So the accepted drafts of all
steps in order tell where each of them stood. Where some steps had no drafts, engines list the others alone, and only
chunks can tell, if each of them is one step. A walk that does not end at the answer's last token is not believed.

Kept are sums by class of position and of context, and apart for thoughts and for the answer: both grow along the walk,
so an answer has hardly more of them than classes, however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Walk = NDArray[np.int32]
"""Five rows: class of position, class of context, part, steps, and the tokens that they emitted."""
Classes = NDArray[np.int8]

POSITIONS = (1, *(2**power for power in range(4, 18)))
"""Least output position of each class: doubling, since what changes along an answer changes slower and slower."""
CONTEXTS = (0, *(2**power for power in range(8, 21)))
"""Least context of each class: tokens of the prompt and of the output before the step."""
UNKNOWN, ANSWER, THOUGHT = -1, 0, 1
"""Part of the answer that a step wrote; UNKNOWN stands for a context that is not known, too."""
COMPACT_FIELDS = 3
_BASE = 32
"""More than there are classes of position, of context or of part, UNKNOWN among them."""


@dataclass(frozen=True)
class Answers:
    """What is needed of each row: numbers with NaN, lists with None for missing. `wanted`: rows to be walked."""

    accepted: Sequence[Values | None]
    chunks: Sequence[Values | None]
    steps: Values
    tokens: Values
    inputs: Values
    thoughts: Values
    wanted: Mask


def walks(answers: Answers) -> list[Walk | None]:
    """Return the walk of each row, None where its steps cannot be placed."""
    rows = zip(answers.accepted, answers.chunks, answers.steps, answers.tokens, answers.wanted, strict=True)
    emitted = [emitted_by_step(*row) if wanted else None for *row, wanted in rows]
    sizes = np.array([0 if one is None else one.size for one in emitted], dtype=np.intp)
    flat = np.concatenate([one for one in emitted if one is not None] or [np.empty(0)])
    owner = np.repeat(np.arange(sizes.size), sizes)
    position = _positions(flat, owner, sizes)
    keys = np.stack(
        [
            owner,
            _classes(POSITIONS, position),
            _classes(CONTEXTS, answers.inputs[owner] + position),
            _parts(answers.thoughts[owner], position),
        ]
    )
    begins = np.flatnonzero((np.diff(keys, axis=1, prepend=-2) != 0).any(axis=0))
    tokens = np.add.reduceat(flat, begins) if begins.size else np.empty(0)
    summed = np.stack([*keys[1:, begins], np.diff(np.append(begins, flat.size)), tokens]).astype(np.int32)
    ends = np.searchsorted(keys[0, begins], np.arange(sizes.size + 1))
    spans = zip(pairwise(ends), emitted, strict=True)
    return [None if one is None else summed[:, begin:end].copy() for (begin, end), one in spans]


def compact(walk: Walk | None) -> Walk | None:
    """Return a walk with one number for its three classes, for keeping."""
    if walk is None:
        return None
    position, context, part = walk[:3] + 1
    return np.stack([(position * _BASE + context) * _BASE + part, *walk[3:]])


def classes(codes: NDArray[np.int32]) -> tuple[Classes, Classes, Classes]:
    """Return position, context and part again that `compact` made one number of."""
    each = codes // _BASE**2, codes // _BASE % _BASE, codes % _BASE
    position, context, part = ((code - 1).astype(np.int8) for code in each)
    return position, context, part


def emitted_by_step(accepted: Values | None, chunks: Values | None, steps: float, tokens: float) -> Values | None:
    """Tokens that each step of an answer emitted, in order; None where neither list tells every step."""
    if np.isnan(steps) or np.isnan(tokens):
        return None
    if accepted is not None and accepted.size == steps and accepted.sum() + steps + 1 == tokens:
        return accepted + 1
    if chunks is None or chunks.size != steps + 1 or chunks[0] != 1 or chunks.sum() != tokens or chunks.min() < 1:
        return None
    return chunks[1:]


def _positions(flat: Values, owner: NDArray[np.intp], sizes: NDArray[np.intp]) -> Values:
    """Output position of the first token that each step emits."""
    before = np.cumsum(flat) - flat
    firsts = np.cumsum(sizes) - sizes
    started = before[np.minimum(firsts, max(flat.size - 1, 0))] if flat.size else np.zeros(sizes.size)
    return before - started[owner] + 1


def _classes(lows: Sequence[int], values: Values) -> NDArray[np.intp]:
    """Number of the class of each value; UNKNOWN for missing."""
    return np.where(np.isnan(values), UNKNOWN, np.searchsorted(lows, values, side="right") - 1)


def _parts(thoughts: Values, position: Values) -> NDArray[np.intp]:
    """A token of position p is among the thoughts where these are more than p tokens."""
    return np.where(np.isnan(thoughts), UNKNOWN, np.where(position < thoughts, THOUGHT, ANSWER))
