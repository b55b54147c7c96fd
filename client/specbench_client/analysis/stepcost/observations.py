"""Turns one cell into an observation of the step time and of the work in a step.

Everything is measured from the view of a request in decode, because its own time per step is observed: the batch is the
request plus the mean number of others in decode meanwhile, the context is its own and theirs, and prefill is the prompt
tokens of others whose first token arrived during its decode. So ramp, drain and open loops need no special treatment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.step_cost import StepObservation
from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_client.metrics.concurrent_requests import InFlight, computed_tokens, mean_context, total_by
from specbench_client.metrics.decode_speed import STEP_MS, TPOT_MS, flow_ms
from specbench_client.metrics.rows import Columns, TidyRows
from specbench_client.metrics.tidy_frame import Values, flags, numbers, piecewise, steady_rows

_ANSWERED = ["first_token_ns", "last_token_ns", "input_tokens", "cached_tokens"]
"""Columns that are read of the concurrent requests."""
REQUESTS_MIN = 5
"""Fewest requests for a median step time."""


@dataclass(frozen=True)
class ObservedCell:
    """The cell to observe: arm, workload and load."""

    arm: Arm
    workload: str
    level: Level

    @property
    def draft_tokens(self) -> int:
        """Configured draft tokens per step; 0 for the baseline."""
        return self.arm.drafter.num_speculative_tokens if self.arm.drafter else 0


def observe_cell(cell: ObservedCell, rows: TidyRows) -> StepObservation | None:
    """Return the observation of a cell's tidy rows; None if steps, times or lengths are missing."""
    inside = steady_rows(rows)
    step_ms, contexts = piecewise(inside, lambda rows: _step_ms(rows, cell.arm)), piecewise(inside, mean_context)
    known = ~(np.isnan(step_ms) | np.isnan(contexts))
    drafts = _draft_tokens(inside, cell)
    if known.sum() < REQUESTS_MIN or drafts is None:
        return None
    by_point = [_load_of_others(point, cell.arm) for point in rows.by_point()]
    sums, counts = np.sum(by_point, axis=0)
    others, prompts = (max(float(each), 0.0) for each in sums / counts)
    context = float(contexts[known].mean()) + others * _by_steps(
        contexts, piecewise(inside, lambda rows: _steps(rows, cell.arm))
    )
    return StepObservation(
        arm=cell.arm.name,
        workload=cell.workload,
        load=cell.level.label,
        configured_draft_tokens=cell.draft_tokens,
        draft_tokens=drafts,
        batch=1 + others,
        context_tokens=context,
        prefill_tokens=prompts,
        step_ms=float(np.median(step_ms[known])),
        requests=int(known.sum()),
    )


def _step_ms(rows: Columns, arm: Arm) -> Values:
    """Return the time per step of each request in ms; without drafts a step is one token."""
    return (TPOT_MS if arm.is_baseline else STEP_MS).values(rows)


def _steps(rows: Columns, arm: Arm) -> Values:
    if arm.is_baseline:
        return np.where(np.isnan(flow_ms(rows)), np.nan, numbers(rows, "tokens") - 1)
    return numbers(rows, "steps")


def _draft_tokens(rows: Columns, cell: ObservedCell) -> float | None:
    """Return the draft tokens per step as counted, else as configured."""
    if cell.arm.is_baseline:
        return 0.0
    sums = np.zeros(2)
    for piece in rows.pieces():
        counts = np.stack([numbers(piece, "drafted_tokens"), numbers(piece, "steps")])
        sums += counts[:, ~np.isnan(counts).any(axis=0)].sum(axis=1)
    return float(sums[0] / sums[1]) if sums[1] > 0 else float(cell.draft_tokens)


def _load_of_others(rows: TidyRows, arm: Arm) -> Values:
    """Sum the mean others in decode, and their prompt tokens per step, over the steady requests that have each.

    Both sums, and the numbers of these requests, shape (2, 2).
    """
    answered = rows.among(flags(rows, "ok")).table(_ANSWERED)
    begun, ended = (numbers(answered, name) for name in ("first_token_ns", "last_token_ns"))
    in_flight = InFlight.of(begun, ended, np.ones(begun.size))
    computed_by = total_by(begun, np.nan_to_num(computed_tokens(answered)))

    def of_others(piece: Columns) -> tuple[Values, Values]:
        first, last = (numbers(piece, name) for name in ("first_token_ns", "last_token_ns"))
        steps, computed = _steps(piece, arm), computed_by(last) - computed_by(first)
        return in_flight.mean(first, last) - 1, computed / np.where(steps > 0, steps, np.nan)

    pieces = [of_others(piece) for piece in steady_rows(rows).pieces()]
    both = [np.concatenate(each) for each in zip(*pieces, strict=True)]
    return np.array([[np.nansum(each) for each in both], [(~np.isnan(each)).sum() for each in both]], dtype=np.float64)


def _by_steps(values: Values, steps: Values) -> float:
    """Return the mean over steps, in which long answers weigh more than short ones."""
    known = ~(np.isnan(values) | np.isnan(steps))
    return float((values[known] * steps[known]).sum() / steps[known].sum())
