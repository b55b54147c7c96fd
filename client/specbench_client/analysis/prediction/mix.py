"""What was measured by category, weighed for another mix of traffic.

A mix is shares w_c of requests. A request of category c has on the mean T_c tokens and E_c seconds of stream time with
the arm, T₀_c and E₀_c with the baseline, (T_c − 1) later tokens and s_c steps. Tokens and seconds of the mix are sums
over its requests, so the measured ratios of sums stay ratios of sums:

    speed-up = (Σ w·T / Σ w·E) ÷ (Σ w·T₀ / Σ w·E₀)          acceptance length = Σ w·(T − 1) / Σ w·s

Where both sides answered alike that is 1 / Σ (τ_c / S_c), the harmonic mean of the categories' speed-ups S_c with their
shares τ_c of the *baseline's time*; the acceptance length is the mean with their shares of *steps*, or harmonic with
their shares of tokens. A mean of speed-ups by shares of requests is neither, and too large.

The interval is that of every other ratio (`analysis.statistics.levels`), prompts drawn within their category: where the
mix is the measured one, it is the speed-up's own. What is presumed, and cannot be seen in the records: that a request
of a category takes the time that it took beside the categories of the measured mix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import MixCategory
from specbench_client.analysis.estimates.speedup import keys_of
from specbench_client.analysis.prediction.mix_sums import (
    ACCEPTANCE,
    BASELINE_TIME,
    BASELINE_TOKENS,
    SPEED,
    MixSums,
    Powers,
)
from specbench_client.analysis.statistics.levels import interval
from specbench_client.analysis.statistics.log_ratio import exponential
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs
from specbench_client.metrics.rows import Columns

SPEEDUP = (
    "Predicted for the mix: (Σ w·T / Σ w·E) of the arm ÷ (Σ w·T / Σ w·E) of the baseline, w: share of requests, T and"
    " E: tokens and stream time of a category's mean request, over paired requests"
)
LENGTH = "Predicted for the mix: Σ w·(T − 1) / Σ w·s, w: share of requests, s: steps of a category's mean request"


@dataclass(frozen=True)
class Mixed:
    """What one arm would do for the mix."""

    speedup: Figure
    acceptance_length: Figure
    categories: list[MixCategory]


def shares(given: Mapping[str, float]) -> dict[str, float]:
    """Shares that sum to 1, those of 0 left out. At least one must be positive."""
    whole = sum(given.values())
    return {name: value / whole for name, value in given.items() if value > 0}


def of_requests(given: Mapping[str, float], pairs: Pairs) -> dict[str, float] | None:
    """Turn shares of output tokens into shares of requests: over the category's mean answer of the baseline.

    None where the baseline's answers of a category have no tokens, or nobody counted them.
    """
    answers = {name: numbers(pairs.of_category(name).rows, "tokens" + BASELINE) for name in given}
    counted = {name: tokens[~np.isnan(tokens)] for name, tokens in answers.items()}
    if any(not tokens.sum() > 0 for tokens in counted.values()):
        return None
    return shares({name: share / float(counted[name].mean()) for name, share in given.items()})


def mixed(pairs: Pairs, given: Mapping[str, float], seed: int) -> Mixed | None:
    """Predict; None where a category has no pair with all its parts. `given`: shares of requests, summing to 1."""
    inside = _of_mix(pairs, given)
    parts = _parts(inside)
    whole: Mask = np.asarray((parts[:4] > 0).all(axis=0), dtype=np.bool_)  # NaN is not, and no time below 0 is one
    kept = keys_of(inside).loc[whole]
    if set(kept["category"]) != set(given):
        return None
    sums = MixSums.of(kept, parts[:, whole], given)
    return Mixed(
        speedup=_figure(SPEEDUP, "ratio", sums, SPEED, seed),
        acceptance_length=_figure(LENGTH, "tokens/step", sums, ACCEPTANCE, seed),
        categories=_told(list(given), sums),
    )


def _of_mix(pairs: Pairs, given: Mapping[str, float]) -> Pairs:
    return pairs.among(pairs.rows["category" + BASELINE].isin(list(given)).to_numpy(np.bool_))


def _parts(pairs: Pairs) -> Values:
    """`mix_sums.PARTS` × pairs."""
    rows = pairs.rows
    tokens, baseline = numbers(rows, "tokens" + ARM), numbers(rows, "tokens" + BASELINE)
    steps = numbers(rows, STEPS + ARM) if STEPS + ARM in rows else np.full(len(rows), np.nan)
    told = ~np.isnan(steps)
    acceptance = (np.where(told, each, 0.0) for each in (tokens - 1, steps, 1.0))
    times = _time(rows, ARM), _time(rows, BASELINE)
    return np.stack([tokens, times[0], baseline, times[1], np.ones(len(rows)), *acceptance])


def _time(rows: Columns, side: str) -> Values:
    return numbers(rows, "last_token_ns" + side) - numbers(rows, "intended_ns" + side)


def _figure(definition: str, unit: str, sums: MixSums, powers: Powers, seed: int) -> Figure:
    levels = sums.levels(powers, seed)
    if levels is None:
        return Figure(unit=unit, definition=definition, n=0, source="both")
    chosen = interval(levels, sums.layout)
    return Figure(
        value=float(np.exp(levels.value)),
        unit=unit,
        definition=definition,
        n=sums.layout.prompts,
        interval=exponential(chosen) if chosen else None,
        source="both",
    )


def _told(names: Sequence[str], sums: MixSums) -> list[MixCategory]:
    means, speedups, lengths = sums.means, sums.ratios(SPEED), sums.ratios(ACCEPTANCE)
    tokens, time = (sums.weights * means[:, place] for place in (BASELINE_TOKENS, BASELINE_TIME))
    return [
        MixCategory(
            category=name,
            requests_share=float(sums.weights[place]),
            tokens_share=float(tokens[place] / tokens.sum()),
            time_share=float(time[place] / time.sum()),
            acceptance_length=float(lengths[place]) if np.isfinite(lengths[place]) else None,
            speedup=float(speedups[place]),
        )
        for place, name in enumerate(names)
    ]
