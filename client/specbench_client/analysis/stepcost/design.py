"""Which terms of the model the observations can tell apart.

A grid with one batch size, or with one draft length, tells nothing of the model: whatever changes, changes together.
Further terms are taken in only where their column is no mixture of those before it. The columns are compared on the
scale of relative errors (each row over its step time), on which the model is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_api.outcome.stepcost import Coefficient, StepObservation

Values = NDArray[np.float64]
APART = 0.02
"""A column whose part outside the span of the others is smaller than this share of it is taken for their mixture."""
BATCH_RATIO = 1.5
"""Batches closer than this count as one: a slope over so short a way is noise."""
FREEDOM_MIN = 2
"""Observations beyond the number of terms: without any left over, every model fits."""

_ALWAYS = (Coefficient.BASE, Coefficient.VERIFIED, Coefficient.DRAFT)
_WHERE_TOLD = (Coefficient.CONTEXT, Coefficient.PREFILL, Coefficient.DRAFTING)
_COLUMNS: dict[Coefficient, Callable[[StepObservation], float]] = {
    Coefficient.BASE: lambda _: 1.0,
    Coefficient.VERIFIED: lambda seen: seen.batch * (seen.draft_tokens + 1),
    Coefficient.CONTEXT: lambda seen: seen.context_tokens,
    Coefficient.PREFILL: lambda seen: seen.prefill_tokens,
    Coefficient.DRAFTING: lambda seen: float(seen.draft_tokens > 0),
    Coefficient.DRAFT: lambda seen: seen.draft_tokens,
}


@dataclass(frozen=True)
class Design:
    """The terms that can be fitted, and what is said of the others; no terms where none can."""

    terms: tuple[Coefficient, ...]
    notes: tuple[str, ...]


def design_of(observations: Sequence[StepObservation]) -> Design:
    """Choose the terms."""
    why_not = _why_not(observations)
    if why_not:
        return Design((), (why_not,))
    terms, notes = list(_ALWAYS), list[str]()
    for term in _WHERE_TOLD:
        reason = _why_left_out(observations, terms, term)
        if reason:
            notes.append(f"{term}: {reason}")
        else:
            terms.append(term)
    return Design(tuple(terms), tuple(notes))


def matrix(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> Values:
    """Observations × terms."""
    rows = [[_COLUMNS[term](each) for term in terms] for each in observations]
    return np.array(rows, dtype=np.float64).reshape(len(observations), len(terms))


def step_times(observations: Sequence[StepObservation]) -> Values:
    """Measured step times, ms."""
    return np.array([each.step_ms for each in observations], dtype=np.float64)


def carries(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> bool:
    """Whether no term's column is a mixture of the others, and there are as many observations as terms."""
    scaled = matrix(observations, terms) / step_times(observations)[:, np.newaxis]
    if len(observations) < len(terms):
        return False
    places = range(len(terms))
    return all(_apart(np.delete(scaled, place, axis=1), scaled[:, place]) >= APART for place in places)


def _why_not(observations: Sequence[StepObservation]) -> str:
    """Why nothing can be fitted; empty where something can."""
    lengths = sorted({each.asked_tokens for each in observations})
    batches = [each.batch for each in observations]
    if len(lengths) < 2:
        told = f"one draft length alone ({lengths[0]})" if lengths else "no cell tells its step time"
        return f"not fitted: {told}: the cost of a draft needs two lengths at least; the baseline counts as 0"
    if max(batches) < BATCH_RATIO * min(batches):
        return f"not fitted: one batch size alone ({min(batches):.1f} to {max(batches):.1f}): measure at several loads"
    least = len(_ALWAYS) + FREEDOM_MIN
    if len(observations) < least:
        return f"not fitted: {len(observations)} cells, and {least} are the fewest for {len(_ALWAYS)} terms"
    if not carries(observations, _ALWAYS):
        return "not fitted: batch and draft length change together in these cells, so that their costs cannot be told"
    return ""


def _why_left_out(observations: Sequence[StepObservation], terms: Sequence[Coefficient], term: Coefficient) -> str:
    wider = [*terms, term]
    if len(observations) < len(wider) + FREEDOM_MIN:
        return f"not fitted: {len(observations)} cells are too few for one more term"
    if not carries(observations, wider):
        return "not told apart: it changes with the other terms alone in these cells, and its cost is in theirs"
    return ""


def _apart(others: Values, column: Values) -> float:
    """Share of a column that lies outside the span of the others; 0 for a column of zeros."""
    size = float(np.linalg.norm(column))
    if size == 0:
        return 0.0
    lengths = np.linalg.norm(others, axis=0)
    unit = others / np.where(lengths > 0, lengths, 1.0)
    weights, *_ = np.linalg.lstsq(unit, column, rcond=None)
    return float(np.linalg.norm(column - unit @ weights)) / size
