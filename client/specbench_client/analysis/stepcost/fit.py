"""The linear step-cost model by non-negative least squares, judged by cells that it has not seen.

t(B, k, context) = base + per_token·B·(k + 1) + per_context_token·context + per_prefill_token·prefill
                   + drafting·[k > 0] + per_draft·k

The form is that of TurboSpec (arXiv 2406.14066: context, batched tokens, constant) with drafting apart. A cost is not
negative, so the fit is bounded (`scipy.optimize.nnls`). Rows are divided by their step time: a step of 40 ms may be
missed by more than one of 5 ms, and a schedule compares ratios. Intervals are of ordinary least squares over the terms
that are not 0: they hold the scatter of cells about the model, not what launches do to all cells alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.stepcost import Basis, Coefficient, StepCost, StepObservation
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.stepcost.design import Values, carries, design_of, matrix, step_times

GOOD = 0.10
"""Held-out cells met within this (root mean square, relative): a draft length changes goodput by as much, or more."""
CELL_UNIT = "ms"
_MEANINGS = {
    Coefficient.BASE: "what every step costs",
    Coefficient.VERIFIED: "per token in verification: batch × (draft tokens + 1)",
    Coefficient.CONTEXT: "per token in the cache of the batch",
    Coefficient.PREFILL: "per prompt token of others that is computed in a step",
    Coefficient.DRAFTING: "where anything is drafted, at any length",
    Coefficient.DRAFT: "per draft token a step",
}


@dataclass(frozen=True)
class Fitted:
    """The model: its terms with their values, and the half-widths of their intervals (NaN where there is none)."""

    terms: tuple[Coefficient, ...]
    values: Values
    half_widths: Values

    def predict(self, observations: Sequence[StepObservation]) -> Values:
        """Step times, ms."""
        return np.asarray(matrix(observations, self.terms) @ self.values, dtype=np.float64)


def step_cost(arms: Sequence[str], observations: Sequence[StepObservation]) -> StepCost:
    """Fit the profile of one drafter. `observations`: its cells and the baseline's; `arms`: their names."""
    design = design_of(observations)
    if not design.terms:
        seen = list(observations)
        return StepCost(arms=list(arms), basis=Basis.INTERPOLATION, observations=seen, notes=list(design.notes))
    fitted = fit(observations, design.terms)
    held_out = _held_out(observations, design.terms)
    error = _root_mean_square(held_out)
    good = error is not None and error <= GOOD
    told = [] if good else [_poor(error)]
    return StepCost(
        arms=list(arms),
        basis=Basis.FIT if good else Basis.INTERPOLATION,
        coefficients=_figures(fitted, len(observations)),
        r_squared=_r_squared(fitted, observations),
        held_out_error=_error_figure(error, int((~np.isnan(held_out)).sum())),
        observations=_judged(observations, fitted, held_out),
        notes=[*design.notes, *told],
    )


def fit(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> Fitted:
    """Fit these terms, which the observations must carry."""
    times = step_times(observations)
    scaled = matrix(observations, terms) / times[:, np.newaxis]
    sizes = np.linalg.norm(scaled, axis=0)
    values, _ = optimize.nnls(scaled / sizes, np.ones_like(times))
    return Fitted(tuple(terms), values / sizes, _half_widths(scaled / sizes, values) / sizes)


def refitted(cost: StepCost) -> Fitted | None:
    """Return the model as it was fitted; None where none was."""
    if not cost.coefficients:
        return None
    terms = tuple(cost.coefficients)
    values = np.array([cost.coefficients[term].value for term in terms], dtype=np.float64)
    return Fitted(terms, values, np.full(values.size, np.nan))


def _half_widths(scaled: Values, values: Values) -> Values:
    """Of the terms that are not 0; NaN for those at the bound, where least squares has no interval."""
    active = np.flatnonzero(values > 0)
    freedom = len(scaled) - active.size
    found = np.full(values.size, np.nan)
    if freedom < 1:
        return found
    part = scaled[:, active]
    residuals = 1.0 - part @ values[active]
    covariance = np.linalg.pinv(part.T @ part) * float(residuals @ residuals) / freedom
    found[active] = special.stdtrit(freedom, 1 - (1 - LEVEL) / 2) * np.sqrt(np.diag(covariance))
    return found


def _held_out(observations: Sequence[StepObservation], terms: Sequence[Coefficient]) -> Values:
    """Relative residual of each cell under the model of the others; NaN where they do not carry it."""
    return np.array([_without(observations, place, terms) for place in range(len(observations))], dtype=np.float64)


def _without(observations: Sequence[StepObservation], place: int, terms: Sequence[Coefficient]) -> float:
    rest = [*observations[:place], *observations[place + 1 :]]
    if not carries(rest, terms):
        return float("nan")
    seen = observations[place]
    return float(fit(rest, terms).predict([seen])[0]) / seen.step_ms - 1


def _root_mean_square(values: Values) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.sqrt((known**2).mean())) if known.size else None


def _poor(error: float | None) -> str:
    told = "no cell can be held out" if error is None else f"held-out cells are missed by {error:.0%}"
    return f"poor fit: {told} ({GOOD:.0%} is the limit): between cells, interpolation alone is used"


def _figures(fitted: Fitted, cells: int) -> dict[Coefficient, Figure]:
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
    return FigureInterval(low=max(0.0, value - half), high=value + half, level=LEVEL, method=method)


def _r_squared(fitted: Fitted, observations: Sequence[StepObservation]) -> Figure:
    times = step_times(observations)
    spread = float(((times - times.mean()) ** 2).sum())
    value = 1 - float(((times - fitted.predict(observations)) ** 2).sum()) / spread if spread > 0 else None
    definition = "1 − Σ(step time − fitted)² ÷ Σ(step time − mean)² over cells"
    return Figure(value=value, unit="ratio", definition=definition, n=len(observations), source="both")


def _error_figure(error: float | None, cells: int) -> Figure:
    definition = "Root mean square over cells of (step time by the model fitted without the cell ÷ measured) − 1"
    return Figure(value=error, unit="ratio", definition=definition, n=cells, source="both")


def _judged(observations: Sequence[StepObservation], fitted: Fitted, held_out: Values) -> list[StepObservation]:
    each = zip(observations, fitted.predict(observations), held_out, strict=True)
    return [
        seen.model_copy(update={"fitted_ms": float(value), "held_out": None if np.isnan(residual) else float(residual)})
        for seen, value, residual in each
    ]
