"""Step times between the cells, from the model or by interpolation, and never beyond the cells.

`Surface.step_ms` knows a draft length at a batch where a length no longer and one no shorter were measured at batches
around it; outside there is no answer, from the model neither. Interpolation is bilinear where the grid is whole: along
the batch within each draft length, then between the two nearest lengths that were measured there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specbench_api.outcome.stepcost import Basis, StepCost, StepObservation
from specbench_client.analysis.stepcost.fit import Fitted, refitted

EDGE = 0.05
"""The same load makes slightly different batches with each arm: so far beyond its own cells a length is still there."""


@dataclass(frozen=True)
class Surface:
    """Step times of one drafter for one workload's contexts. `cells`: its observations of that workload."""

    cost: StepCost
    cells: tuple[StepObservation, ...]

    @property
    def batches(self) -> tuple[float, float]:
        """Smallest and largest batch that was observed."""
        found = [each.batch for each in self.cells]
        return min(found), max(found)

    @property
    def error(self) -> float:
        """How far a step time may be off, relative: what held-out cells were missed by; 0 where it is not known."""
        found = self.cost.held_out_error
        return found.value if found and found.value and self.cost.basis is Basis.FIT else 0.0

    def step_ms(self, batch: float, draft_tokens: int) -> float | None:
        """Step time in ms, others' prefill left out where the model tells it; None outside what was measured."""
        around = self._around(batch, draft_tokens)
        if around is None:
            return None
        if self._model is not None:
            return float(self._model.predict([self._at(batch, draft_tokens)])[0])
        (first, low), (last, high) = around
        share = (draft_tokens - first) / (last - first) if last > first else 0.0
        return low + share * (high - low)

    @cached_property
    def _model(self) -> Fitted | None:
        return refitted(self.cost) if self.cost.basis is Basis.FIT else None

    @cached_property
    def _context(self) -> float:
        """Tokens in the cache of one request of this workload."""
        return float(np.mean([each.context_tokens / each.batch for each in self.cells]))

    @cached_property
    def _drafting_share(self) -> float:
        """Draft tokens a step over those asked for: less than 1 where steps find nothing to draft."""
        found = [each.draft_tokens / each.asked_tokens for each in self.cells if each.asked_tokens]
        return float(np.mean(found)) if found else 1.0

    def _at(self, batch: float, draft_tokens: int) -> StepObservation:
        told = {"batch": batch, "draft_tokens": draft_tokens * self._drafting_share, "asked_tokens": draft_tokens}
        return self.cells[0].model_copy(update={**told, "context_tokens": batch * self._context, "prefill_tokens": 0.0})

    def _around(self, batch: float, draft_tokens: int) -> tuple[tuple[int, float], tuple[int, float]] | None:
        """The nearest measured lengths below and above, with their step times at this batch; None where one lacks."""
        low, high = self.batches
        if not low <= batch <= high:
            return None
        known = [(length, time) for length in self._lengths if (time := self._along(length, batch)) is not None]
        below = [each for each in known if each[0] <= draft_tokens]
        above = [each for each in known if each[0] >= draft_tokens]
        return (below[-1], above[0]) if below and above else None

    @property
    def _lengths(self) -> list[int]:
        return sorted({each.asked_tokens for each in self.cells})

    def _along(self, length: int, batch: float) -> float | None:
        """Step time of a measured draft length, linear between its batches; None outside them."""
        found = sorted((each.batch, each.step_ms) for each in self.cells if each.asked_tokens == length)
        batches, times = [each[0] for each in found], [each[1] for each in found]
        nearest = float(np.clip(batch, batches[0], batches[-1]))
        if abs(nearest - batch) > EDGE * batch:
            return None
        return float(np.interp(nearest, batches, times))


def surfaces(cost: StepCost) -> dict[str, Surface]:
    """Return the surface of each workload in which the drafter was measured at two lengths."""
    names = dict.fromkeys(each.workload for each in cost.observations)
    found = {name: _of(cost, name, cost.observations) for name in names}
    return {name: each for name, each in found.items() if len({cell.asked_tokens for cell in each.cells}) > 1}


def _of(cost: StepCost, workload: str, seen: Sequence[StepObservation]) -> Surface:
    return Surface(cost, tuple(each for each in seen if each.workload == workload))
