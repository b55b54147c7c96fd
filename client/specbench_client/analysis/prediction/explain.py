"""A cell's speed-up beside its prediction, and the factors between the two as figures.

The share that the batch has in it comes last, because it needs the step costs of the whole run: where the arm drains
its batch faster, its steps are cheaper than they would be beside as many requests as the baseline's, and `step_cost`
alone would flatter the drafter.
"""

from __future__ import annotations

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import ConstantAcceptance, Prediction
from specbench_api.outcome.stepcost import StepObservation
from specbench_client.analysis.prediction.parts import (
    ACCEPTANCE,
    GAP,
    LENGTH,
    MEASURED,
    PREDICTED,
    PREFILL,
    STEP_TIME,
    Parted,
    Powers,
    parted,
)
from specbench_client.analysis.stepcost.fit import Fitted
from specbench_client.metrics.pairing import Pairs

_MEANINGS = {
    "measured": "Output tokens a second of stream time over the paired baseline's",
    "predicted": "Step time of the baseline × acceptance length ÷ step time of the arm (t_ar·AL / t_sd)",
    "gap": "Measured speed-up ÷ predicted speed-up: prefill × length",
    "ideal": "Draft tokens a step that were asked for + 1",
    "acceptance": "Tokens a step ÷ (draft tokens a step that were asked for + 1)",
    "step_cost": "Step time of the baseline ÷ that of the arm, at the batch that each had",
    "occupancy": "Step time of the arm at the baseline's batch ÷ at its own, by the step-cost profile",
    "prefill": "Share of the time from first to last token in stream time, of the arm ÷ of the baseline",
    "length": "Tokens ÷ tokens after the first, of the arm ÷ of the baseline",
}
_AT_EQUAL_BATCH = "Step time of the baseline ÷ that of the arm, at the baseline's batch by the step-cost profile"


def prediction(
    pairs: Pairs, asked_tokens: int, seed: int, constant: ConstantAcceptance | None = None
) -> Prediction | None:
    """Explain one cell; None where no pair has all parts. `asked_tokens`: draft tokens a step."""
    found = parted(pairs, seed)
    if found is None:
        return None
    ideal = asked_tokens + 1.0
    return Prediction(
        measured=_figure("measured", found, MEASURED),
        predicted=_figure("predicted", found, PREDICTED),
        gap=_figure("gap", found, GAP),
        ideal=_bare("ideal", ideal, found.laid.layout.prompts),
        acceptance=_figure("acceptance", found, ACCEPTANCE, 1 / ideal),
        step_cost=_figure("step_cost", found, STEP_TIME),
        occupancy=_bare("occupancy", None, 0),
        prefill=_figure("prefill", found, PREFILL),
        length=_figure("length", found, LENGTH),
        constant=constant,
    )


def with_occupancy(
    found: Prediction, model: Fitted | None, arm: StepObservation | None, baseline: StepObservation | None
) -> Prediction:
    """Take the batch's share out of the step cost; the same where there is no model or a cell was not observed.

    The product stays what it was: what goes into `occupancy` leaves `step_cost`.
    """
    if model is None or arm is None or baseline is None or found.step_cost.value is None:
        return found
    mine, beside = model.predict([arm, _at_batch_of(baseline, arm)])
    if not mine > 0 or not beside > 0:
        return found
    ratio = float(beside / mine)
    return found.model_copy(
        update={
            "occupancy": _bare("occupancy", ratio, arm.requests),
            "step_cost": _scaled(found.step_cost, 1 / ratio, _AT_EQUAL_BATCH),
        }
    )


def _at_batch_of(baseline: StepObservation, arm: StepObservation) -> StepObservation:
    """The arm's step beside as many requests as the baseline's: contexts and prefill grow with their number."""
    others = (baseline.batch - 1) / (arm.batch - 1) if arm.batch > 1 else 1.0
    told = {
        "batch": baseline.batch,
        "context_tokens": arm.context_tokens * baseline.batch / arm.batch,
        "prefill_tokens": arm.prefill_tokens * others,
    }
    return arm.model_copy(update=told)


def _scaled(figure: Figure, factor: float, definition: str) -> Figure:
    bounds, value = figure.interval, figure.value
    assert value is not None
    moved = bounds.model_copy(update={"low": bounds.low * factor, "high": bounds.high * factor}) if bounds else None
    return figure.model_copy(update={"value": value * factor, "interval": moved, "definition": definition})


def _figure(name: str, found: Parted, powers: Powers, scale: float = 1.0) -> Figure:
    return found.ratio(powers).figure(f"{_MEANINGS[name]}; {found.pairs} pairs", scale=scale)


def _bare(name: str, value: float | None, n: int) -> Figure:
    unit = "tokens/step" if name == "ideal" else "ratio"
    return Figure(value=value, unit=unit, definition=_MEANINGS[name], n=n, source="both")
