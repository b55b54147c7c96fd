"""Step times between the measured cells, from the fitted model or by interpolation, and never by extrapolation.

`StepTimeSurface.step_ms` answers for a draft length and a batch size if a shorter (or equal) and a longer (or equal)
length were measured at batch sizes around it. Outside there is no answer, not even from the model. Interpolation is
linear along the batch size within each draft length, then between the two nearest lengths that were measured there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from specbench_api.outcome.step_cost import Coefficient, StepCost, StepCostBasis, StepObservation
from specbench_client.analysis.stepcost.model import FittedStepCost, fitted_model
from specbench_client.errors import BadInput

EDGE = 0.05
"""Relative tolerance of batch sizes at the ends: the same load makes slightly different batches with each arm."""


@dataclass(frozen=True)
class StepTimeSurface:
    """Step times of one drafter for one workload. `cells`: its observations of that workload.

    `context`: tokens in the cache of one request; None: the workload's mean. See `at_context`.
    """

    cost: StepCost
    cells: tuple[StepObservation, ...]
    context: float | None = None

    def at_context(self, tokens: float) -> StepTimeSurface:
        """Return the step times for requests with these tokens in the cache. Raises BadInput where nothing is known.

        Only the fitted model has a cost per token of context, and only contexts of the cells that it was fitted to, of
        any workload, are answered.
        """
        if self._model is None or Coefficient.CONTEXT not in self.cost.coefficients:
            why = "; ".join(self.cost.notes) or "no fitted cost per token of context"
            message = f"{', '.join(self.cost.arms)}: the cost of context is not known ({why})"
            raise BadInput(f"{message}: measure workloads whose prompts differ in length", "NoContextCost")
        contexts = [each.context_tokens / each.batch for each in self.cost.observations]
        low, high = min(contexts), max(contexts)
        if not (1 - EDGE) * low <= tokens <= (1 + EDGE) * high:
            message = f"{tokens:g} tokens of context are outside the measured {low:.0f} to {high:.0f}"
            raise BadInput(f"{message}: measure a workload with such prompts", "ContextNotMeasured")
        return replace(self, context=tokens)

    @property
    def batches(self) -> tuple[float, float]:
        """Smallest and largest observed batch size."""
        found = [each.batch for each in self.cells]
        return min(found), max(found)

    @property
    def error(self) -> float:
        """Relative error of held-out cells; 0 if it is not known."""
        found = self.cost.held_out_error
        return found.value if found and found.value and self.cost.basis is StepCostBasis.FIT else 0.0

    def step_ms(self, batch: float, draft_tokens: int) -> float | None:
        """Return the step time in ms, without other requests' prefill if a model fits; None outside measured cells."""
        around = self._around(batch, draft_tokens)
        if around is None:
            return None
        if self._model is not None:
            return float(self._model.predict([self._at(batch, draft_tokens)])[0])
        (first, low), (last, high) = around
        share = (draft_tokens - first) / (last - first) if last > first else 0.0
        return low + share * (high - low)

    @cached_property
    def _model(self) -> FittedStepCost | None:
        return fitted_model(self.cost) if self.cost.basis is StepCostBasis.FIT else None

    @cached_property
    def _context(self) -> float:
        """Tokens in the cache of one request: as requested, else the mean of this workload."""
        if self.context is not None:
            return self.context
        return float(np.mean([each.context_tokens / each.batch for each in self.cells]))

    @cached_property
    def _drafting_share(self) -> float:
        """Draft tokens per step over the configured ones: less than 1 if some steps find nothing to draft."""
        found = [
            each.draft_tokens / each.configured_draft_tokens for each in self.cells if each.configured_draft_tokens
        ]
        return float(np.mean(found)) if found else 1.0

    def _at(self, batch: float, draft_tokens: int) -> StepObservation:
        conditions = {
            "batch": batch,
            "draft_tokens": draft_tokens * self._drafting_share,
            "configured_draft_tokens": draft_tokens,
        }
        return self.cells[0].model_copy(
            update={**conditions, "context_tokens": batch * self._context, "prefill_tokens": 0.0}
        )

    def _around(self, batch: float, draft_tokens: int) -> tuple[tuple[int, float], tuple[int, float]] | None:
        """Return the nearest measured lengths below and above with their step times, or None if one is missing."""
        low, high = self.batches
        if not low <= batch <= high:
            return None
        known = [(length, time) for length in self._lengths if (time := self._along(length, batch)) is not None]
        below = [each for each in known if each[0] <= draft_tokens]
        above = [each for each in known if each[0] >= draft_tokens]
        return (below[-1], above[0]) if below and above else None

    @property
    def _lengths(self) -> list[int]:
        return sorted({each.configured_draft_tokens for each in self.cells})

    def _along(self, length: int, batch: float) -> float | None:
        """Return the step time of a measured draft length, linear between its batch sizes; None outside them."""
        found = sorted((each.batch, each.step_ms) for each in self.cells if each.configured_draft_tokens == length)
        batches, times = [each[0] for each in found], [each[1] for each in found]
        nearest = float(np.clip(batch, batches[0], batches[-1]))
        if abs(nearest - batch) > EDGE * batch:
            return None
        return float(np.interp(nearest, batches, times))


def surfaces(cost: StepCost) -> dict[str, StepTimeSurface]:
    """Return the surface of each workload in which the drafter was measured at two lengths or more."""
    names = dict.fromkeys(each.workload for each in cost.observations)
    found = {
        name: StepTimeSurface(cost, tuple(each for each in cost.observations if each.workload == name))
        for name in names
    }
    return {
        name: each for name, each in found.items() if len({cell.configured_draft_tokens for cell in each.cells}) > 1
    }
