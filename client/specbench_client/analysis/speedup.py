"""The paired speed-up: ratio of sums over pairs, with an interval that holds prompts and runs.

The interval is made on the log ratio and holds both levels of chance, see `analysis.levels`: which prompts were asked,
and, from three repeats on, what the machine did in whole runs (requests that run together share steps, so prompts alone
understate the noise). A t interval over the repeats' own log ratios is taken where it is wider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.bootstrap import LEVEL, Chosen, layout_of
from specbench_client.analysis.levels import Levels, interval, resampled
from specbench_client.metrics import pace
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.metric import Ratio
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs

SPEEDUP = "speedup"
TPOT_SPEEDUP = "tpot_speedup"
PAIRED = (
    "over pairs of the same prompt, turn, pass over the prompts and repeat, both steady and without error"
    " (later turns only where all earlier replies were identical)"
)
SPEEDUP_DEFINITION = (
    "Output tokens a second of stream time over the paired baseline's: (Σ tokens / Σ e2e time) of the arm"
    f" ÷ (Σ tokens / Σ e2e time) of the baseline, e2e = last_token_ns − intended_ns, {PAIRED}"
)
TPOT_SPEEDUP_DEFINITION = (
    "The paired baseline's time per output token over this arm's: (Σ flow / Σ(tokens − 1)) of the baseline"
    f" ÷ (Σ flow / Σ(tokens − 1)) of the arm, flow = last_token_ns − first_token_ns > 0 on both sides, {PAIRED}"
)
MISSING = "the baseline was skipped or not measured here, or no request has a partner"


@dataclass(frozen=True)
class Quotient:
    """What is divided: the faster the arm, the larger `arm over baseline` must come out."""

    definition: str
    parts: Callable[[pd.DataFrame], tuple[Values, Values]]


def _rate(ratio: Ratio, *, inverted: bool) -> Callable[[pd.DataFrame], tuple[Values, Values]]:
    def parts(rows: pd.DataFrame) -> tuple[Values, Values]:
        over, under = ratio.parts(rows)
        return (under, over) if inverted else (over, under)

    return parts


QUOTIENTS: dict[str, Quotient] = {
    SPEEDUP: Quotient(SPEEDUP_DEFINITION, _rate(pace.STREAM_TPS, inverted=False)),
    TPOT_SPEEDUP: Quotient(TPOT_SPEEDUP_DEFINITION, _rate(pace.TPOT_MS_POOLED, inverted=True)),
}


@dataclass(frozen=True)
class Compared:
    """A speed-up, and the two-sided p-value of `no difference` that belongs to its interval.

    From fewer than three repeats there is no p-value: what runs do is not in the interval.
    """

    figure: Figure
    p_value: float | None = None
    repeats: int = 0
    """Repeats in which there are pairs."""


def speedup(name: str, pairs: Pairs, seed: int) -> Compared:
    """Compare over the pairs; without any pair the figure's value is missing."""
    rows, matrices = _complete(QUOTIENTS[name], pairs)
    sums = np.array([matrix.sum() for matrix in matrices])
    if not len(rows) or (sums <= 0).any():
        return Compared(missing(name))
    layout = layout_of(rows)
    laid = [layout.matrix(values) for values in matrices]
    value = float(_log_ratio(sums))
    repeats = _log_ratio(np.stack([matrix.sum(axis=1) for matrix in laid], axis=1))
    levels = Levels(value, _log_ratio(resampled(laid, layout, seed)), _influence(laid), repeats)
    definition = f"{QUOTIENTS[name].definition}; {len(rows)} pairs"
    if pairs.unpaired_later:
        definition += f", {pairs.unpaired_later} later turns unpaired because earlier replies differ"
    chosen = interval(levels, layout)
    figure = Figure(
        value=float(np.exp(value)),
        unit="ratio",
        definition=definition,
        n=layout.prompts,
        interval=_ratios(chosen) if chosen else None,
        source="both",
    )
    told = chosen is not None and layout.repeats >= REPEATS_TO_TELL
    return Compared(figure, _p_value(value, chosen) if chosen and told else None, layout.repeats)


def missing(name: str) -> Figure:
    """Return the figure without a value."""
    return Figure(unit="ratio", definition=QUOTIENTS[name].definition, n=0, source="both")


def _complete(quotient: Quotient, pairs: Pairs) -> tuple[pd.DataFrame, list[Values]]:
    """Pairs in which both sides have both parts, and the four parts: arm over, under, baseline over, under."""
    parts = [*quotient.parts(pairs.side(ARM)), *quotient.parts(pairs.side(BASELINE))]
    whole: Mask = np.asarray(~np.isnan(np.stack(parts)).any(axis=0), dtype=np.bool_)
    return _keys(pairs).loc[whole], [values[whole] for values in parts]


def _keys(pairs: Pairs) -> pd.DataFrame:
    return pairs.rows[["repeat", "prompt_id"]].assign(category=pairs.rows["category" + BASELINE])


def _log_ratio(sums: Values) -> Values:
    """Log of (arm over / arm under) ÷ (baseline over / baseline under), over the last axis of four."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(sums)
        return np.asarray(logs[..., 0] - logs[..., 1] - logs[..., 2] + logs[..., 3], dtype=np.float64)


def _influence(matrices: list[Values]) -> Values:
    """How much each repeat × prompt moves the log ratio; each part alone moves its own logarithm."""
    arm_over, arm_under, over, under = (matrix / matrix.sum() for matrix in matrices)
    return np.asarray(arm_over - arm_under - over + under, dtype=np.float64)


def _ratios(chosen: Chosen) -> FigureInterval:
    low, high = float(np.exp(chosen.bounds.low)), float(np.exp(chosen.bounds.high))
    return FigureInterval(low=low, high=high, level=LEVEL, method=f"{chosen.method}, on the log ratio")


def _p_value(value: float, chosen: Chosen) -> float:
    """Two-sided p of a log ratio of 0: below 1 − LEVEL exactly when the interval excludes it."""
    reach = value - chosen.bounds.low if value > 0 else chosen.bounds.high - value
    if reach <= 0:
        return 1.0 if value == 0 else 0.0
    critical = special.stdtrit(chosen.freedom, 1 - (1 - LEVEL) / 2)
    return float(2 * special.stdtr(chosen.freedom, -critical * abs(value) / reach))
