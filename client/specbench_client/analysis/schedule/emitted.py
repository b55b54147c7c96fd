"""Tokens a step by draft length: as measured where an arm had that length, else bounded by a longer draft cut short.

From a run at k the shorter length k′ is bounded by 1 + Σ_{i ≤ k′} p_i, p_i the share of draft steps that accepted at
least i drafts. It is a lower bound: after a shorter draft the next one starts where the longer one had gone on, and
those are the places where drafts are good (reference: analysis of vLLM's traces; 2 to 30 % too low there). Where some
steps find nothing to draft, the sum counts for the others alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.schedule import Emitted, How
from specbench_api.outcome.summary import Cell
from specbench_api.plan.plan import Arm
from specbench_client.metrics.acceptance import EMITTED_POOLED, VERIFIED_POOLED
from specbench_client.metrics.positions import joint

Seen = Sequence[tuple[Arm, Cell]]
"""The cells of one drafter at all its lengths, for one workload; the baseline's are not among them."""


def emitted(seen: Seen) -> list[Emitted]:
    """Return what is known, by draft length; 0 is among it: a step without drafts emits one token."""
    known = {each.draft_tokens: each for each in _measured(seen)}
    bounds = {each.draft_tokens: each for each in _bounds(seen)}
    none = Emitted(draft_tokens=0, tokens=1.0, relative_error=0.0, how=How.MEASURED, source="no drafts")
    found = {0: none} | bounds | known
    return [found[length] for length in sorted(found)]


def length_of(arm: Arm) -> int:
    """Draft tokens a step; 0 for the baseline."""
    return arm.drafter.num_speculative_tokens if arm.drafter else 0


def _measured(seen: Seen) -> Iterable[Emitted]:
    for length in sorted({length_of(arm) for arm, _ in seen}):
        mine = [(arm, cell) for arm, cell in seen if length_of(arm) == length]
        tokens, error = _mean([cell.figures.get(EMITTED_POOLED.name) for _, cell in mine])
        if tokens is not None:
            name = mine[0][0].name
            yield Emitted(draft_tokens=length, tokens=tokens, relative_error=error, how=How.MEASURED, source=name)


def _bounds(seen: Seen) -> Iterable[Emitted]:
    """The longest draft first, so that what a shorter one says of the lengths below it comes last and stays."""
    for length in sorted({length_of(arm) for arm, _ in seen}, reverse=True):
        mine = [(arm, cell) for arm, cell in seen if length_of(arm) == length]
        rates = [_mean([cell.figures.get(joint(at).name) for _, cell in mine]) for at in range(1, length + 1)]
        values = [value for value, _ in rates]
        if None in values:
            continue
        accepted = np.cumsum([value for value in values if value is not None])
        share = _drafting_share([cell for _, cell in mine], float(accepted[-1]))
        error = max(each for _, each in rates)
        for shorter in range(1, length):
            gained = share * float(accepted[shorter - 1])
            yield Emitted(
                draft_tokens=shorter,
                tokens=1 + gained,
                relative_error=error * gained / (1 + gained),
                how=How.LOWER_BOUND,
                source=mine[0][0].name,
            )


def _drafting_share(cells: Sequence[Cell], accepted: float) -> float:
    """Share of the steps that drafted: accepted drafts a step over those a draft step."""
    verified, _ = _mean([cell.figures.get(VERIFIED_POOLED.name) for cell in cells])
    return 1.0 if verified is None or accepted <= 0 else float(np.clip((verified - 1) / accepted, 0.0, 1.0))


def _mean(figures: Sequence[Figure | None]) -> tuple[float | None, float]:
    """Mean over the loads, and its relative error: the cells' own, since all of them have the same prompts."""
    known = [(each, each.value) for each in figures if each is not None and each.value is not None]
    if not known:
        return None, 0.0
    errors = [_relative_error(figure, value) for figure, value in known]
    return float(np.mean([value for _, value in known])), float(np.mean(errors))


def _relative_error(figure: Figure, value: float) -> float:
    bounds = figure.interval
    return (bounds.high - bounds.low) / 2 / value if bounds and value > 0 else 0.0
