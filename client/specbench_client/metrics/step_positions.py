"""Where the steps of an answer are: a walk through its steps, condensed to sums by class of position.

The first token comes from the prefill and has output position 0. A step that begins at position p emits its accepted
drafts and one more token, and the next step begins at p + accepted + 1. So the list of accepted drafts of all steps
gives the position of each of them. If some steps had no drafts, engines list only the others, and positions can only be
derived from chunks, if each of them is one step. A walk that does not end at the answer's last token is rejected.

The result contains sums by class of position and of context, separately for reasoning and answer: both grow along the
walk, so an answer has hardly more entries than there are classes, however long it is.
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
"""Shape (5, entries): class of position, class of context, part, number of steps, and tokens that they emitted."""
Classes = NDArray[np.int8]

POSITIONS = (1, *(2**power for power in range(4, 18)))
"""Lowest output position of each class; they double, because acceptance changes ever more slowly along an answer."""
CONTEXTS = (0, *(2**power for power in range(8, 21)))
"""Lowest context length of each class: tokens of the prompt and of the output before the step."""
UNKNOWN, ANSWER, REASONING = -1, 0, 1
"""Part of the answer that a step belongs to; UNKNOWN also stands for an unknown context."""
COMPACT_FIELDS = 3
_BASE = 32
"""Larger than the number of classes of position, context or part, including UNKNOWN."""


@dataclass(frozen=True)
class StepLists:
    """The inputs per row: arrays of shape (rows,) with NaN for missing, and lists with None for missing.

    `selected` marks the rows to process.
    """

    accepted: Sequence[Values | None]
    chunks: Sequence[Values | None]
    steps: Values
    tokens: Values
    inputs: Values
    reasoning_tokens: Values
    selected: Mask


def locate_steps(answers: StepLists) -> list[Walk | None]:
    """Return the walk of each row, None if its steps cannot be located."""
    rows = zip(answers.accepted, answers.chunks, answers.steps, answers.tokens, answers.selected, strict=True)
    emitted = [emitted_by_step(*row) if selected else None for *row, selected in rows]
    sizes = np.array([0 if one is None else one.size for one in emitted], dtype=np.intp)
    flat = np.concatenate([one for one in emitted if one is not None] or [np.empty(0)])
    owner = np.repeat(np.arange(sizes.size), sizes)
    position = _positions(flat, owner, sizes)
    keys = np.stack(
        [
            owner,
            _classes(POSITIONS, position),
            _classes(CONTEXTS, answers.inputs[owner] + position),
            _parts(answers.reasoning_tokens[owner], position),
        ]
    )
    begins = np.flatnonzero((np.diff(keys, axis=1, prepend=-2) != 0).any(axis=0))
    tokens = np.add.reduceat(flat, begins) if begins.size else np.empty(0)
    summed = np.stack([*keys[1:, begins], np.diff(np.append(begins, flat.size)), tokens]).astype(np.int32)
    ends = np.searchsorted(keys[0, begins], np.arange(sizes.size + 1))
    spans = zip(pairwise(ends), emitted, strict=True)
    return [None if one is None else summed[:, begin:end].copy() for (begin, end), one in spans]


def compact_walk(walk: Walk | None) -> Walk | None:
    """Encode the three classes of a walk as one number, which gives the shape (3, entries)."""
    if walk is None:
        return None
    position, context, part = walk[:3] + 1
    return np.stack([(position * _BASE + context) * _BASE + part, *walk[3:]])


def expand_classes(codes: NDArray[np.int32]) -> tuple[Classes, Classes, Classes]:
    """Return the classes of position, context and part that `compact_walk` encoded, shape (entries,) each."""
    each = codes // _BASE**2, codes // _BASE % _BASE, codes % _BASE
    position, context, part = ((code - 1).astype(np.int8) for code in each)
    return position, context, part


def emitted_by_step(accepted: Values | None, chunks: Values | None, steps: float, tokens: float) -> Values | None:
    """Return the tokens that each step of an answer emitted, shape (steps,); None if neither list covers every step."""
    if np.isnan(steps) or np.isnan(tokens):
        return None
    if accepted is not None and accepted.size == steps and accepted.sum() + steps + 1 == tokens:
        return accepted + 1
    if chunks is None or chunks.size != steps + 1 or chunks[0] != 1 or chunks.sum() != tokens or chunks.min() < 1:
        return None
    return chunks[1:]


def _positions(flat: Values, owner: NDArray[np.intp], sizes: NDArray[np.intp]) -> Values:
    """Output position of the first token that each step emits, shape (steps of all rows,)."""
    before = np.cumsum(flat) - flat
    firsts = np.cumsum(sizes) - sizes
    started = before[np.minimum(firsts, max(flat.size - 1, 0))] if flat.size else np.zeros(sizes.size)
    return before - started[owner] + 1


def _classes(lows: Sequence[int], values: Values) -> NDArray[np.intp]:
    """Index of the class of each value; UNKNOWN for missing values."""
    return np.where(np.isnan(values), UNKNOWN, np.searchsorted(lows, values, side="right") - 1)


def _parts(reasoning_tokens: Values, position: Values) -> NDArray[np.intp]:
    """REASONING for positions below the number of reasoning tokens, else ANSWER; UNKNOWN if that number is missing."""
    return np.where(np.isnan(reasoning_tokens), UNKNOWN, np.where(position < reasoning_tokens, REASONING, ANSWER))
