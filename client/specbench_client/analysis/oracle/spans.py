"""One run's steps, spread over the positions between them; and the same text in two answers.

A step that emits L tokens at position p would have emitted L − j at p + j, or more: what was accepted behind p + j from
p is accepted from p + j too, where drafts follow the text alone. So the positions in between have a lower bound
(span-split), and a walk of smaller drafts over them is low: by 3 % or so on released traces, where cutting each step by
itself (truncation) is low by up to 30 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_client.analysis.oracle.answers import Tokens


def fits(step_accepted: Sequence[int] | Tokens | None, output_tokens: int) -> bool:
    """Whether these steps are all of an answer's: 1 token from the prefill, and accepted + 1 from each step.

    Engines tell of the steps that drafted alone; where some did not, nobody knows where the others were.
    """
    if step_accepted is None:
        return False
    accepted = np.asarray(step_accepted, dtype=np.int64)
    return 1 + int(accepted.sum()) + accepted.size == output_tokens and bool((accepted >= 0).all())


def span_split(step_accepted: Sequence[int] | Tokens) -> Tokens:
    """Accepted drafts at every position of one answer, from its steps in order: a, a − 1, …, 0 from each on."""
    emitted = np.asarray(step_accepted, dtype=np.int64) + 1
    ends = np.cumsum(emitted)
    left = np.repeat(ends, emitted) - np.arange(int(emitted.sum())) - 1
    return np.concatenate([[0], left]).astype(np.int64)


def common_length(left: Sequence[int] | Tokens, right: Sequence[int] | Tokens) -> int:
    """How many tokens two answers have in common before the first that differs."""
    shorter = min(len(left), len(right))
    one, other = np.asarray(left[:shorter], dtype=np.int64), np.asarray(right[:shorter], dtype=np.int64)
    apart = np.flatnonzero(one != other)
    return int(apart[0]) if apart.size else shorter
