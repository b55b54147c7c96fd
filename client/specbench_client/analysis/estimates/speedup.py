"""The paired speed-up: ratio of sums over pairs, with the interval of `analysis.statistics.log_ratio`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_client.analysis.statistics.log_ratio import LogRatio, log_ratio
from specbench_client.metrics import latency, pace
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.metric import Ratio, mean_of
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_client.metrics.rows import Columns, read

SPEEDUP = "speedup"
TPOT_SPEEDUP = "tpot_speedup"
E2E_SPEEDUP = "e2e_speedup"
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
E2E_SPEEDUP_DEFINITION = (
    "The paired baseline's mean time to the last token over this arm's: (Σ e2e / requests) of the baseline"
    " ÷ (Σ e2e / requests) of the arm, e2e = last_token_ns − intended_ns, whatever the lengths of the answers:"
    f" where these are the same it is the speed-up, {PAIRED}"
)
MISSING = "the baseline was skipped or not measured here, or no request has a partner"
_SIGNS = (1, -1, -1, 1)
"""Arm over, arm under, baseline over, baseline under."""


@dataclass(frozen=True)
class Quotient:
    """What is divided: the faster the arm, the larger `arm over baseline` must come out."""

    definition: str
    parts: Callable[[Columns], tuple[Values, Values]]


def _rate(ratio: Ratio, *, inverted: bool) -> Callable[[Columns], tuple[Values, Values]]:
    def parts(rows: Columns) -> tuple[Values, Values]:
        over, under = ratio.parts(rows)
        return (under, over) if inverted else (over, under)

    return parts


QUOTIENTS: dict[str, Quotient] = {
    SPEEDUP: Quotient(SPEEDUP_DEFINITION, _rate(pace.STREAM_TPS, inverted=False)),
    TPOT_SPEEDUP: Quotient(TPOT_SPEEDUP_DEFINITION, _rate(pace.TPOT_MS_POOLED, inverted=True)),
    E2E_SPEEDUP: Quotient(E2E_SPEEDUP_DEFINITION, _rate(mean_of(latency.E2E_MS), inverted=True)),
}


@dataclass(frozen=True)
class Compared:
    """A speed-up, and what it rests on.

    From fewer than three repeats there is no p-value: what runs do is not in the interval.
    """

    figure: Figure
    ratio: LogRatio | None = None
    """None where no pair has both sides."""

    @property
    def p_value(self) -> float | None:
        """The two-sided p-value of `no difference` that belongs to its interval."""
        return self.ratio.p_value if self.ratio else None

    @property
    def repeats(self) -> int:
        """Repeats in which there are pairs."""
        return int(self.ratio.repeats.size) if self.ratio else 0


def speedup(name: str, pairs: Pairs, seed: int) -> Compared:
    """Compare over the pairs; without any pair the figure's value is missing."""
    quotient = QUOTIENTS[name]
    parts = [*quotient.parts(pairs.side(ARM)), *quotient.parts(pairs.side(BASELINE))]
    rows, whole = complete(pairs, parts)
    ratio = log_ratio(rows, whole, _SIGNS, seed)
    if ratio is None:
        return Compared(missing(name))
    definition = f"{quotient.definition}; {len(rows)} pairs"
    if pairs.unpaired_later:
        definition += f", {pairs.unpaired_later} later turns unpaired because earlier replies differ"
    return Compared(ratio.figure(definition), ratio)


def missing(name: str) -> Figure:
    """Return the figure without a value."""
    return Figure(unit="ratio", definition=QUOTIENTS[name].definition, n=0, source="both")


def complete(pairs: Pairs, parts: list[Values]) -> tuple[pd.DataFrame, list[Values]]:
    """Return the keys of the pairs in which every part is known, and the parts of these."""
    known: Mask = np.ones(len(pairs.rows), dtype=np.bool_)
    for values in parts:
        known &= ~np.isnan(values)
    keys = keys_of(pairs)
    return (keys, parts) if known.all() else (keys.loc[known], [values[known] for values in parts])


def keys_of(pairs: Pairs) -> pd.DataFrame:
    """Return what resampling asks of each pair: repeat, prompt_id, and as category the baseline's."""
    keys = read(pairs.rows, ["repeat", "prompt_id", "category" + BASELINE])
    return keys.set_axis(["repeat", "prompt_id", "category"], axis=1)
