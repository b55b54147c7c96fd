"""Fits the linear step-cost model by non-negative least squares, and validates it with held-out cells.

t(B, k, context) = base + per_token·B·(k + 1) + per_context_token·context + per_prefill_token·prefill
                   + drafting·[k > 0] + per_draft·k

The form is that of TurboSpec (arXiv 2406.14066: context, batched tokens, constant) with separate terms for drafting.
Costs are not negative, so the fit is bounded (`scipy.optimize.nnls`). Rows are divided by their step time, because a
schedule compares ratios: errors are relative. Intervals are those of ordinary least squares over the terms that are not
0: they contain the scatter of cells about the model, but not effects of a launch on all its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Level
from specbench_client.analysis.statistics.intervals import symmetric_interval
from specbench_client.analysis.statistics.level import t_quantile
from specbench_client.documents.explanation import Coefficient, StepCost, StepObservation, StepSplit
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.metrics.concurrent_requests import InFlight, computed_tokens, mean_context, total_by
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers, piecewise, steady_rows
from specbench_client.metrics.time_per_token import STEP_MS, TPOT_MS, flow_ms, later_tokens, timed_steps
from specbench_client.numpy_columns import Values

# The terms that the observations can identify. A grid with one batch size or one draft length identifies none. Optional
# terms are included only if their column is not a linear combination of the columns before it. Columns are compared on
# the scale of relative errors (each row over its step time), on which the model is fitted.

INDEPENDENT_SHARE_MIN = 0.02
"""Smallest share of a column outside the span of the others; below it the column counts as their combination."""
BATCH_RATIO = 1.5
"""Smallest ratio of batch sizes: a slope over a shorter range is noise."""
FREEDOM_MIN = 2
"""Fewest observations beyond the number of terms: with none left over, every model fits."""

_ALWAYS = (Coefficient.BASE, Coefficient.VERIFIED, Coefficient.DRAFT)
_WHERE_TOLD = (Coefficient.CONTEXT, Coefficient.PREFILL, Coefficient.DRAFTING)
_COLUMNS: dict[Coefficient, Callable[[StepObservation], float]] = {
    Coefficient.BASE: lambda _: 1.0,
    Coefficient.VERIFIED: lambda cell: cell.batch * (cell.draft_tokens + 1),
    Coefficient.CONTEXT: lambda cell: cell.context_tokens,
    Coefficient.PREFILL: lambda cell: cell.prefill_tokens,
    Coefficient.DRAFTING: lambda cell: float(cell.draft_tokens > 0),
    Coefficient.DRAFT: lambda cell: cell.draft_tokens,
}


@dataclass(frozen=True)
class ModelTerms:
    """The terms that can be fitted (maybe none), and notes on the others."""

    terms: tuple[Coefficient, ...]
    notes: tuple[str, ...]


def choose_terms(observations: Sequence[StepObservation]) -> ModelTerms:
    """Choose the terms that these observations can identify."""
    why_not = _why_not(observations)
    if why_not:
        return ModelTerms((), (why_not,))
    terms, notes = list(_ALWAYS), list[str]()
    for term in _WHERE_TOLD:
        reason = _why_left_out(observations, terms, term)
        if reason:
            notes.append(f"{term}: {reason}")
        else:
            terms.append(term)
    return ModelTerms(tuple(terms), tuple(notes))


def design_matrix(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> Values:
    """Return the model's columns, shape (observations, terms)."""
    rows = [[_COLUMNS[term](each) for term in terms] for each in observations]
    return np.array(rows, dtype=np.float64).reshape(len(observations), len(terms))


def step_times(observations: Sequence[StepObservation]) -> Values:
    """Return the measured step times in ms, shape (observations,)."""
    return np.array([each.step_ms for each in observations], dtype=np.float64)


def can_estimate(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> bool:
    """Return whether there are enough observations, and no column is a linear combination of the others."""
    scaled = design_matrix(observations, terms) / step_times(observations)[:, np.newaxis]
    if len(observations) < len(terms):
        return False
    places = range(len(terms))
    return all(
        _independent_share(np.delete(scaled, place, axis=1), scaled[:, place]) >= INDEPENDENT_SHARE_MIN
        for place in places
    )


def _why_not(observations: Sequence[StepObservation]) -> str:
    """Return why nothing can be fitted; empty if something can."""
    lengths = sorted({each.configured_draft_tokens for each in observations})
    batches = [each.batch for each in observations]
    if len(lengths) < 2:
        what = f"one draft length alone ({lengths[0]})" if lengths else "no cell has a step time"
        return f"not fitted: {what}: the cost of a draft needs at least two lengths; the baseline counts as 0"
    if max(batches) < BATCH_RATIO * min(batches):
        return f"not fitted: one batch size alone ({min(batches):.1f} to {max(batches):.1f}): measure at several loads"
    least = len(_ALWAYS) + FREEDOM_MIN
    if len(observations) < least:
        return f"not fitted: {len(observations)} cells, but {len(_ALWAYS)} terms need at least {least}"
    if not can_estimate(observations, _ALWAYS):
        return "not fitted: batch size and draft length change together in these cells: measure other combinations"
    return ""


def _why_left_out(observations: Sequence[StepObservation], terms: Sequence[Coefficient], term: Coefficient) -> str:
    wider = [*terms, term]
    if len(observations) < len(wider) + FREEDOM_MIN:
        return f"not fitted: {len(observations)} cells are too few for one more term"
    if not can_estimate(observations, wider):
        return "not separable: it only changes together with the other terms in these cells, so their costs include it"
    return ""


def _independent_share(others: Values, column: Values) -> float:
    """Return the share of a column outside the span of the others; 0 for a column of zeros."""
    size = float(np.linalg.norm(column))
    if size == 0:
        return 0.0
    lengths = np.linalg.norm(others, axis=0)
    unit = others / np.where(lengths > 0, lengths, 1.0)
    weights, *_ = np.linalg.lstsq(unit, column, rcond=None)
    return float(np.linalg.norm(column - unit @ weights)) / size


HELD_OUT_ERROR_MAX = 0.10
"""Largest relative error of held-out cells (root mean square) for a good fit."""
CELL_UNIT = "ms"
_MEANINGS = {
    Coefficient.BASE: "cost of every step",
    Coefficient.VERIFIED: "per token in verification: batch × (draft tokens + 1)",
    Coefficient.CONTEXT: "per token in the cache of the batch",
    Coefficient.PREFILL: "per prompt token of other requests computed in a step",
    Coefficient.DRAFTING: "of drafting at all, at any length",
    Coefficient.DRAFT: "per draft token of a step",
}


@dataclass(frozen=True)
class FittedStepCost:
    """The fitted model. `values`, `half_widths` of the intervals: shape (terms,); half-widths may be NaN."""

    terms: tuple[Coefficient, ...]
    values: Values
    half_widths: Values

    def predict(self, observations: Sequence[StepObservation]) -> Values:
        """Return predicted step times in ms, shape (observations,)."""
        return np.asarray(design_matrix(observations, self.terms) @ self.values, dtype=np.float64)


def fit_step_cost(arms: Sequence[str], observations: Sequence[StepObservation]) -> StepCost:
    """Fit the profile of one drafter. `observations`: its cells and the baseline's; `arms`: their names."""
    design = choose_terms(observations)
    if not design.terms:
        return StepCost(
            arms=list(arms),
            fits=False,
            observations=list(observations),
            notes=list(design.notes),
        )
    fitted = fit_terms(observations, design.terms)
    held_out = np.array([_without(observations, place, design.terms) for place in range(len(observations))])
    error = _root_mean_square(held_out)
    good = error is not None and error <= HELD_OUT_ERROR_MAX
    fit_notes = [] if good else [_poor_fit(error)]
    return StepCost(
        arms=list(arms),
        fits=good,
        coefficients=_figures(fitted, len(observations)),
        r_squared=_r_squared(fitted, observations),
        held_out_error=_error_figure(error, int((~np.isnan(held_out)).sum())),
        observations=list(observations),
        notes=[*design.notes, *fit_notes],
    )


def fit_terms(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> FittedStepCost:
    """Fit these terms, which the observations must be able to identify."""
    times = step_times(observations)
    scaled = design_matrix(observations, terms) / times[:, np.newaxis]
    sizes = np.linalg.norm(scaled, axis=0)
    values, _ = scipy.optimize.nnls(scaled / sizes, np.ones_like(times))
    return FittedStepCost(tuple(terms), values / sizes, _half_widths(scaled / sizes, values) / sizes)


def _half_widths(scaled: Values, values: Values) -> Values:
    """Return the half-widths of the terms above 0, shape (terms,); NaN for terms at the bound of 0."""
    active = np.flatnonzero(values > 0)
    freedom = len(scaled) - active.size
    found = np.full(values.size, np.nan)
    if freedom < 1:
        return found
    part = scaled[:, active]
    residuals = 1.0 - part @ values[active]
    covariance = np.linalg.pinv(part.T @ part) * float(residuals @ residuals) / freedom
    found[active] = t_quantile(freedom) * np.sqrt(np.diag(covariance))
    return found


def _without(observations: Sequence[StepObservation], place: int, terms: Sequence[Coefficient]) -> float:
    """Return one cell's relative error under the model of the others; NaN without a model."""
    rest = [*observations[:place], *observations[place + 1 :]]
    if not can_estimate(rest, terms):
        return float("nan")
    held_out = observations[place]
    return float(fit_terms(rest, terms).predict([held_out])[0]) / held_out.step_ms - 1


def _root_mean_square(values: Values) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.sqrt((known**2).mean())) if known.size else None


def _poor_fit(error: float | None) -> str:
    why = "no cell can be held out" if error is None else f"held-out cells are missed by {error:.0%}"
    return f"poor fit: {why} ({HELD_OUT_ERROR_MAX:.0%} is the limit): step times are not split"


def _figures(fitted: FittedStepCost, cells: int) -> dict[Coefficient, Figure]:
    return {
        term: Figure(
            value=float(value),
            unit=CELL_UNIT,
            definition=f"Step time, {_MEANINGS[term]}; non-negative least squares on relative residuals",
            n=cells,
            interval=_interval(float(value), float(half), cells),
            source="both",
        )
        for term, value, half in zip(fitted.terms, fitted.values, fitted.half_widths, strict=True)
    }


def _interval(value: float, half: float, cells: int) -> FigureInterval | None:
    if np.isnan(half):
        return None
    method = f"t over the residuals of {cells} cells, unit: cell; what a launch does to all cells is not in it"
    return symmetric_interval(value, half, method, least=0.0)


def _r_squared(fitted: FittedStepCost, observations: Sequence[StepObservation]) -> Figure:
    times = step_times(observations)
    spread = float(((times - times.mean()) ** 2).sum())
    value = 1 - float(((times - fitted.predict(observations)) ** 2).sum()) / spread if spread > 0 else None
    definition = "1 − Σ(step time − fitted)² ÷ Σ(step time − mean)² over cells"
    return Figure(value=value, unit="ratio", definition=definition, n=len(observations), source="both")


def _error_figure(error: float | None, cells: int) -> Figure:
    definition = "Root mean square over cells of (step time by the model fitted without the cell ÷ measured) − 1"
    return Figure(value=error, unit="ratio", definition=definition, n=cells, source="both")


# One profile covers a drafter at all its draft lengths, with the baseline as length 0. Arms that differ only in their
# draft length are one drafter. Different drafters share no term, not even the target's, because engines run some
# drafters on other kernels, which would distort shared terms.

# The fitted model splits a measured step time into the target's pass, drafting, verification, prefill and the rest:
#
#     target  = base + per_token · B + per_context_token · context     what the same step costs without drafts
#     draft   = drafting · [k > 0] + per_draft · k
#     verify  = per_token · B · k                                       the wider pass
#     prefill = per_prefill_token · prefill
#     rest    = measured - (target + draft + verify + prefill)
#
# Engines report no such split, and this one is only as good as the fit: there is none if held-out cells are missed by
# more than HELD_OUT_ERROR_MAX. A cost that could not be separated is part of other terms (`StepCost.notes`). The ratio
# of a draft pass to a target pass is per_draft / target at the same batch size; the cost of drafting at any length is
# not part of a pass and is left out. Its interval is that of per_draft, with the target's pass taken as fitted.

RATIO = (
    "One draft pass over one pass of the target without drafts, by the fitted step costs: per_draft / (base +"
    " per_verified_token x batch + per_context_token x context)"
)


def with_splits(cost: StepCost) -> StepCost:
    """Return the profile with the split of each cell's step time, or without any if the fit is not good."""
    if not cost.fits:
        return cost
    observations = [
        each.model_copy(update={"split": split_step(each, cost.coefficients)}) for each in cost.observations
    ]
    return cost.model_copy(update={"observations": observations})


def split_step(cell: StepObservation, coefficients: Mapping[Coefficient, Figure]) -> StepSplit:
    """Return the parts of one cell's step time in ms. `coefficients`: the fitted terms; missing ones count as 0."""
    costs = {term: figure.value or 0.0 for term, figure in coefficients.items()}

    def cost(term: Coefficient) -> float:
        return costs.get(term, 0.0)

    target = cost(Coefficient.BASE) + cost(Coefficient.VERIFIED) * cell.batch
    target += cost(Coefficient.CONTEXT) * cell.context_tokens
    draft = cost(Coefficient.DRAFTING) * (cell.draft_tokens > 0) + cost(Coefficient.DRAFT) * cell.draft_tokens
    verify = cost(Coefficient.VERIFIED) * cell.batch * cell.draft_tokens
    prefill = cost(Coefficient.PREFILL) * cell.prefill_tokens
    return StepSplit(
        target_ms=target,
        draft_ms=draft,
        verify_ms=verify,
        prefill_ms=prefill,
        rest_ms=cell.step_ms - (target + draft + verify + prefill),
        draft_to_target=_ratio(coefficients[Coefficient.DRAFT], target) if cell.draft_tokens and target else None,
    )


def _ratio(draft: Figure, target_ms: float) -> Figure:
    """Return the cost of one draft token over that of the target's pass."""
    bounds = draft.interval
    if bounds is not None:
        bounds = bounds.model_copy(update={"low": bounds.low / target_ms, "high": bounds.high / target_ms})
    value = None if draft.value is None else draft.value / target_ms
    return Figure(value=value, unit="ratio", definition=RATIO, n=draft.n, interval=bounds, source=draft.source)


def drafter_family(arm: Arm) -> str | None:
    """Return what identifies arms of one drafter; None for the baseline, trees and draft-length schedules.

    A tree verifies more tokens than its depth, and a schedule has no single length: B·(k + 1) holds for neither.
    """
    drafter = arm.drafter
    if drafter is None or drafter.branches > 1 or drafter.num_draft_tokens or drafter.draft_lengths:
        return None
    same = drafter.model_copy(update={"name": "x", "num_speculative_tokens": 1})
    return same.to_json()


def step_costs(observed: Iterable[tuple[Arm, StepObservation]]) -> list[StepCost]:
    """Return a profile for each drafter with an observed cell. `observed`: the cells with their arms."""
    cells = list(observed)
    baseline = [(arm, each) for arm, each in cells if arm.is_baseline]
    families = dict.fromkeys(family for arm, _ in cells if (family := drafter_family(arm)) is not None)
    members = (
        [*baseline, *((arm, each) for arm, each in cells if drafter_family(arm) == family)] for family in families
    )
    costs = (
        fit_step_cost(list(dict.fromkeys(arm.name for arm, _ in own)), [each for _, each in own]) for own in members
    )
    return [with_splits(cost) for cost in costs]


# Turns one cell into an observation of the step time and of the work in a step.
#
# Everything is measured from the view of a request in decode, because its own time per step is observed: the batch is
# the request plus the mean number of others in decode meanwhile, the context is its own and theirs, and prefill is
# the prompt tokens of others whose first token arrived during its decode. So ramp, drain and open loops need no
# special treatment.


_ANSWERED = ["first_token_ns", "last_token_ns", "input_tokens", "cached_tokens"]
"""Columns that are read of the concurrent requests."""
REQUESTS_MIN = 5
"""Fewest requests for a median step time."""


def observe_cell(arm: Arm, workload: str, level: Level, rows: Table) -> StepObservation | None:
    """Return the observation of a cell's tidy rows; None if steps, times or lengths are missing."""
    inside = steady_rows(rows)
    step_time = TPOT_MS if arm.is_baseline else STEP_MS  # without drafts a step is one token
    step_ms, contexts = piecewise(inside, step_time.values), piecewise(inside, mean_context)
    known = ~(np.isnan(step_ms) | np.isnan(contexts))
    configured = arm.drafter.num_speculative_tokens if arm.drafter else 0
    drafts = 0.0 if arm.is_baseline else _draft_tokens(inside, configured)
    if known.sum() < REQUESTS_MIN:
        return None
    by_point = [_load_of_others(point, arm) for point in rows.by_point()]
    sums, counts = np.sum(by_point, axis=0)
    others, prompts = (max(float(each), 0.0) for each in sums / counts)
    context = float(contexts[known].mean()) + others * _by_steps(
        contexts, piecewise(inside, lambda rows: _steps(rows, arm))
    )
    return StepObservation(
        arm=arm.name,
        workload=workload,
        load=level.label,
        configured_draft_tokens=configured,
        draft_tokens=drafts,
        batch=1 + others,
        context_tokens=context,
        prefill_tokens=prompts,
        step_ms=float(np.median(step_ms[known])),
        requests=int(known.sum()),
    )


def _steps(rows: Table, arm: Arm) -> Values:
    if arm.is_baseline:
        return np.where(np.isnan(flow_ms(rows)), np.nan, later_tokens(rows))
    return timed_steps(rows)


def _draft_tokens(rows: Table, configured: int) -> float:
    """Return the draft tokens per step as counted, else as configured."""
    sums = np.zeros(2)
    for piece in rows.pieces():
        counts = np.stack([numbers(piece, "drafted_tokens"), numbers(piece, "steps")])
        sums += counts[:, ~np.isnan(counts).any(axis=0)].sum(axis=1)
    return float(sums[0] / sums[1]) if sums[1] > 0 else float(configured)


def _load_of_others(rows: Table, arm: Arm) -> Values:
    """Sum the mean others in decode, and their prompt tokens per step, over the steady requests that have each.

    Both sums, and the numbers of these requests, shape (2, 2).
    """
    answered = rows.among(rows.array("ok")).table(_ANSWERED)
    begun, ended = (numbers(answered, name) for name in ("first_token_ns", "last_token_ns"))
    in_flight = InFlight.of(begun, ended, np.ones(begun.size))
    computed_by = total_by(begun, np.nan_to_num(computed_tokens(answered)))

    def of_others(piece: Table) -> tuple[Values, Values]:
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
