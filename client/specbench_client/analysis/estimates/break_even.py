"""The break-even acceptance length, at which decoding with a drafter is as fast as without one.

A step of the arm takes t_sd and emits AL tokens, a step of the baseline takes t_ar and emits one: the speed-up of
decoding is AL · t_ar / t_sd, which is 1 at AL = t_sd / t_ar. Both step times are means over the steps of the same
requests at the same load, so the identity is exact there. It excludes the prefill, which a drafter rarely accelerates:
over whole requests an arm breaks even at a higher acceptance length.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.crossover import BreakEven
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import Cell
from specbench_client.analysis.estimates.speedups import OVER_PAIRS, sum_pairs
from specbench_client.analysis.statistics.effects import Effect, LogRatioInputs
from specbench_client.metrics.decode_speed import flow_ms, later_tokens
from specbench_client.metrics.metric_types import FigureOrigin
from specbench_client.metrics.pairing import Pairs, PairSide
from specbench_client.metrics.tidy_frame import Values, numbers

_OVER = f"decode = last_token_ns − first_token_ns, which is above 0 on both sides, {OVER_PAIRS}"
NEEDED = (
    "Acceptance length at which decoding is as fast as the paired baseline: t_sd / t_ar ="
    f" (Σ decode / Σ steps) of the arm ÷ (Σ decode / Σ(tokens − 1)) of the baseline, {_OVER}"
)
MEASURED = f"Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps of the arm, {_OVER}"
MARGIN = (
    "Measured over required acceptance length, which is the speed-up of decoding:"
    f" (Σ decode / Σ(tokens − 1)) of the baseline ÷ that of the arm, {_OVER}"
)
UNIT = "tokens/step"
_PARTS = ("arm_ms", "arm_steps", "arm_tokens", "baseline_ms", "baseline_tokens")
_NEEDED = {"arm_ms": 1, "arm_steps": -1, "baseline_ms": -1, "baseline_tokens": 1}
_MEASURED = {"arm_tokens": 1, "arm_steps": -1}
_MARGIN = {"arm_tokens": 1, "arm_ms": -1, "baseline_tokens": -1, "baseline_ms": 1}


def _parts(arm: PairSide, baseline: PairSide) -> list[Values]:
    steps = np.where((each := numbers(arm, "steps")) >= 1, each, np.nan)
    return [flow_ms(arm), steps, later_tokens(arm), flow_ms(baseline), later_tokens(baseline)]


def break_even(cell: Cell, pairs: Pairs, drafts: int, seed: int) -> BreakEven:
    """Return the required and the measured acceptance length of the cell's arm, whether or not the cell is valid.

    `drafts` is the maximum number of draft tokens per step, 0 if it is not known.
    """
    inputs = LogRatioInputs.of(_PARTS, sum_pairs(pairs, len(_PARTS), _parts), seed)
    needed, measured, margin = (inputs.log_ratio(signs) for signs in (_NEEDED, _MEASURED, _MARGIN))
    return BreakEven(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        needed=needed.figure(NEEDED, UNIT) if needed else _missing(NEEDED, UNIT),
        measured=length_figure(measured, MEASURED, drafts),
        margin=margin.figure(MARGIN) if margin else _missing(MARGIN, "ratio"),
    )


def length_figure(length: Effect | None, definition: str, drafts: int) -> Figure:
    """Return an acceptance length; its interval is limited to 1 … drafts + 1, which its method then states."""
    if length is None:
        return _missing(definition, UNIT)
    figure, highest = length.figure(definition, UNIT), drafts + 1.0 if drafts else float("inf")
    bounds = figure.interval
    if bounds is None or figure.value is None or not 1 <= figure.value <= highest:
        return figure
    low, high = max(bounds.low, 1.0), min(bounds.high, highest)
    if (low, high) == (bounds.low, bounds.high):
        return figure
    method = f"{bounds.method}; limited to possible values"
    return figure.model_copy(update={"interval": FigureInterval(low=low, high=high, method=method)})


def _missing(definition: str, unit: str) -> Figure:
    return Figure(unit=unit, definition=definition, n=0, source=FigureOrigin.BOTH.value)
