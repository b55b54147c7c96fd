"""At temperature 0: answers that differ from the baseline's, beside the baseline's that differ from themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.lossless import LosslessVerdict
from specbench_client.analysis.statistics.bootstrap import (
    LEVEL,
    PROMPTS_MIN,
    Bounds,
    expanded,
    layout_of,
    resampled_sums,
    t_bounds,
    wider,
)
from specbench_client.metrics.divergence import Divergence

POWER = 0.8
_TAIL = (1 - LEVEL) / 2
_SOURCE = "client"
RATE = (
    "Share of comparisons of the arm's answers with the baseline's to the same words that differ; mean over repeats and"
    " prompts"
)
CONTROL = "The same of the baseline's answers with its own of other repeats"
EXCESS = "Divergence above the control: how much more the arm differs from the baseline than the baseline from itself"
DETECTABLE = "The smallest excess whose interval would have lain above 0 in four runs of five"


@dataclass(frozen=True)
class Greedy:
    """What was counted, and what can be said of it."""

    verdict: LosslessVerdict
    message: str
    rate: Figure
    control: Figure | None = None
    excess: Figure | None = None
    detectable: Figure | None = None


def judge_greedy(found: Divergence, seed: int) -> Greedy | None:
    """None where no answer could be compared. `seed`: of the bootstrap."""
    value = found.rate
    if value is None:
        return None
    rate = _figure(value, RATE, found.table["prompt_id"].nunique())
    control, table = found.control, found.controlled
    if control is None or table.empty:
        why = "the baseline was measured once, so how often it differs from itself is not known"
        return Greedy(LosslessVerdict.NO_CONTROL, f"{value:.1%} of the answers differ from the baseline's; {why}", rate)
    beside = _figure(control, CONTROL, table["prompt_id"].nunique())
    excess = _excess(found, seed)
    told = f"{value:.1%} of the answers differ from the baseline's, {control:.1%} of the baseline's from themselves"
    bounds = excess.interval
    if bounds is None:
        why = f"{excess.n} prompts are too few for an interval"
        return Greedy(LosslessVerdict.TOO_FEW, f"{told}; {why}", rate, beside, excess)
    smallest = _detectable(bounds, excess.n)
    said = f"{told}; excess {excess.value:+.1%} [{bounds.low:+.1%}, {bounds.high:+.1%}]"
    if bounds.low > 0:
        return Greedy(LosslessVerdict.DIVERGES, said, rate, beside, excess, smallest)
    tail = f"an excess of {smallest.value:.1%} would have been found in four runs of five"
    return Greedy(LosslessVerdict.LOSSLESS, f"{said}; {tail}", rate, beside, excess, smallest)


def _excess(found: Divergence, seed: int) -> Figure:
    table = found.controlled
    layout = layout_of(table)
    apart = table["differs"].to_numpy(float) - table["control"].to_numpy(float)
    value, n = float(apart.mean()), layout.prompts
    if not np.any(table[["differs", "control"]].to_numpy(float)):
        return _figure(value, EXCESS, n, _none_at_all(n))
    matrices = [layout.matrix(apart), layout.matrix(np.ones_like(apart))]
    sums = resampled_sums(matrices, layout, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = sums[:, 0] / sums[:, 1]
        repeats = matrices[0].sum(axis=1) / matrices[1].sum(axis=1)
    chosen = wider(expanded(value, samples, layout), t_bounds(value, repeats), layout)
    return _figure(value, EXCESS, n, _interval(chosen.bounds, chosen.method) if chosen else None)


def _none_at_all(prompts: int) -> FigureInterval | None:
    """Where nothing differs anywhere resampling sees no uncertainty: the exact bound of 0 of n prompts stands in."""
    if prompts < PROMPTS_MIN:
        return None
    most = 1 - _TAIL ** (1 / prompts)
    method = f"nothing differed: Clopper-Pearson's bound of 0 of {prompts} prompts, on either side"
    return _interval(Bounds(-most, most), method)


def _detectable(bounds: FigureInterval, prompts: int) -> Figure:
    """(z(1 − α/2) + z(power)) × standard error, which the interval's half-width over z(1 − α/2) is."""
    half, quantile = (bounds.high - bounds.low) / 2, float(special.ndtri(1 - _TAIL))
    value = half * (quantile + float(special.ndtri(POWER))) / quantile
    return _figure(min(value, 1.0), DETECTABLE, prompts)


def _figure(value: float, definition: str, n: int, interval: FigureInterval | None = None) -> Figure:
    return Figure(value=value, unit="ratio", definition=definition, n=n, interval=interval, source=_SOURCE)


def _interval(bounds: Bounds, method: str) -> FigureInterval:
    return FigureInterval(low=max(-1.0, bounds.low), high=min(1.0, bounds.high), level=LEVEL, method=method)
