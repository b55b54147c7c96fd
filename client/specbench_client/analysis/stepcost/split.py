"""A measured step's time in parts, by the fitted model: the target's pass, drafting, verification, and what is left.

    target  = base + per_token · B + per_context_token · context     what the same step costs without drafts
    draft   = drafting · [k > 0] + per_draft · k
    verify  = per_token · B · k                                       the wider pass
    prefill = per_prefill_token · prefill
    rest    = measured - (target + draft + verify + prefill)

It is an answer where engines tell none, and no better than the fit: there is none where held-out cells are missed by
more than `fit.GOOD`. A cost that the model could not tell apart lies in the terms that it could (`StepCost.notes`).
One draft pass over one of the target is per_draft / target, of the same batch; a cost of drafting at any length, which
is no pass, is left out of it. Its interval is that of per_draft, the target's pass taken as fitted.
"""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.stepcost import Basis, Coefficient, StepCost, StepObservation, StepSplit

RATIO = (
    "One draft pass over one pass of the target without drafts, by the fitted step costs: per_draft / (base +"
    " per_verified_token x batch + per_context_token x context)"
)


def with_splits(cost: StepCost) -> StepCost:
    """The profile, each cell with its parts where the model is good enough to be used, and else with none."""
    good = cost.basis is Basis.FIT
    seen = [
        each.model_copy(update={"split": split(each, cost.coefficients) if good else None})
        for each in cost.observations
    ]
    return cost.model_copy(update={"observations": seen})


def split(seen: StepObservation, coefficients: Mapping[Coefficient, Figure]) -> StepSplit:
    """The parts of one cell's step, ms. `coefficients`: the model's terms; one that is missing was not fitted."""
    costs = {term: figure.value or 0.0 for term, figure in coefficients.items()}

    def cost(term: Coefficient) -> float:
        return costs.get(term, 0.0)

    target = cost(Coefficient.BASE) + cost(Coefficient.VERIFIED) * seen.batch
    target += cost(Coefficient.CONTEXT) * seen.context_tokens
    draft = cost(Coefficient.DRAFTING) * (seen.draft_tokens > 0) + cost(Coefficient.DRAFT) * seen.draft_tokens
    verify = cost(Coefficient.VERIFIED) * seen.batch * seen.draft_tokens
    prefill = cost(Coefficient.PREFILL) * seen.prefill_tokens
    return StepSplit(
        target_ms=target,
        draft_ms=draft,
        verify_ms=verify,
        prefill_ms=prefill,
        rest_ms=seen.step_ms - (target + draft + verify + prefill),
        draft_to_target=_ratio(coefficients[Coefficient.DRAFT], target) if seen.draft_tokens and target else None,
    )


def _ratio(draft: Figure, target_ms: float) -> Figure:
    """The cost of one draft token over the target's pass."""
    bounds = draft.interval
    if bounds is not None:
        bounds = bounds.model_copy(update={"low": bounds.low / target_ms, "high": bounds.high / target_ms})
    value = None if draft.value is None else draft.value / target_ms
    return Figure(value=value, unit="ratio", definition=RATIO, n=draft.n, interval=bounds, source=draft.source)
