"""What was measured by category, weighed for another mix of traffic.

A mix is shares w_c of requests. A request of category c has on the mean T_c tokens and E_c seconds of stream time with
the arm, T₀_c and E₀_c with the baseline, (T_c − 1) later tokens and s_c steps. Tokens and seconds of the mix are sums
over its requests, so the measured ratios of sums stay ratios of sums:

    speed-up = (Σ w·T / Σ w·E) ÷ (Σ w·T₀ / Σ w·E₀)          acceptance length = Σ w·(T − 1) / Σ w·s

Where both sides answered alike that is 1 / Σ (τ_c / S_c), the harmonic mean of the categories' speed-ups S_c with their
shares τ_c of the *baseline's time*; the acceptance length is the mean with their shares of *steps*, or harmonic with
their shares of tokens. A mean of speed-ups by shares of requests is neither, and too large.

Prompts are drawn within their category for the interval. What is presumed, and cannot be seen in the records: that a
request of a category takes the time that it took beside the categories of the measured mix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.prediction import MixCategory
from specbench_client.analysis.statistics.bootstrap import (
    LEVEL,
    Chosen,
    Layout,
    expanded,
    layout_of,
    resampled_sums,
    t_bounds,
    wider,
)
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs

SPEEDUP = (
    "Predicted for the mix: (Σ w·T / Σ w·E) of the arm ÷ (Σ w·T / Σ w·E) of the baseline, w: share of requests, T and"
    " E: tokens and stream time of a category's mean request, over paired requests"
)
LENGTH = "Predicted for the mix: Σ w·(T − 1) / Σ w·s, w: share of requests, s: steps of a category's mean request"
_PARTS = ("tokens", "time", "tokens_baseline", "time_baseline", "requests", "later", "steps", "told")
"""Sums over a category's requests; the last three over those that tell their steps."""
_REQUESTS, _LATER, _STEPS, _TOLD = 4, 5, 6, 7


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
    rows, parts = inside.rows, _parts(inside)
    whole: Mask = np.asarray((parts[:4] > 0).all(axis=0), dtype=np.bool_)  # NaN is not, and no time below 0 is one
    kept = rows.loc[whole, ["repeat", "prompt_id"]].assign(category=rows.loc[whole, "category" + BASELINE])
    names, category = list(given), kept["category"].to_numpy(object)
    if not len(kept) or set(category) != set(names):
        return None
    layout = layout_of(kept)
    stacked = [np.where(category == name, part, 0.0) for name in names for part in parts[:, whole]]
    matrices = [layout.matrix(values) for values in stacked]
    weights = np.array([given[name] for name in names])
    sums = np.array([matrix.sum() for matrix in matrices])
    by_repeat = np.stack([matrix.sum(axis=1) for matrix in matrices], axis=1)
    drawn = resampled_sums(matrices, layout, seed)
    value, repeats, samples = (_weighed(each, weights) for each in (sums, by_repeat, drawn))
    return Mixed(
        speedup=_figure(SPEEDUP, "ratio", [_log_speedup(each) for each in (value, repeats, samples)], layout),
        acceptance_length=_figure(
            LENGTH, "tokens/step", [_log_length(each) for each in (value, repeats, samples)], layout
        ),
        categories=_told(names, weights, sums.reshape(len(names), len(_PARTS))),
    )


def _of_mix(pairs: Pairs, given: Mapping[str, float]) -> Pairs:
    inside = pairs.rows["category" + BASELINE].isin(list(given)).to_numpy(bool)
    return Pairs(pairs.rows[inside].reset_index(drop=True), int(inside.sum()), 0)


def _parts(pairs: Pairs) -> Values:
    """`_PARTS` × pairs."""
    rows = pairs.rows
    tokens, baseline = numbers(rows, "tokens" + ARM), numbers(rows, "tokens" + BASELINE)
    steps = numbers(rows, STEPS + ARM) if STEPS + ARM in rows else np.full(len(rows), np.nan)
    told = ~np.isnan(steps)
    acceptance = (np.where(told, each, 0.0) for each in (tokens - 1, steps, 1.0))
    times = _time(rows, ARM), _time(rows, BASELINE)
    return np.stack([tokens, times[0], baseline, times[1], np.ones(len(rows)), *acceptance])


def _time(rows: pd.DataFrame, side: str) -> Values:
    return numbers(rows, "last_token_ns" + side) - numbers(rows, "intended_ns" + side)


def _weighed(sums: Values, weights: Values) -> Values:
    """… × categories·parts → … × parts: Σ w · (sum over the category ÷ its requests)."""
    means = _means(sums.reshape(*sums.shape[:-1], weights.size, len(_PARTS)))
    return np.asarray((means * weights[:, np.newaxis]).sum(axis=-2), dtype=np.float64)


def _means(sums: Values) -> Values:
    """Of a category's request."""
    with np.errstate(divide="ignore", invalid="ignore"):
        every, told = sums[..., :_LATER] / sums[..., [_REQUESTS]], sums[..., _LATER:] / sums[..., [_TOLD]]
    return np.concatenate([every, told], axis=-1)


def _log_speedup(parts: Values) -> Values:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(parts)
        return np.asarray(logs[..., 0] - logs[..., 1] - logs[..., 2] + logs[..., 3], dtype=np.float64)


def _log_length(parts: Values) -> Values:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(parts)
        return np.asarray(logs[..., _LATER] - logs[..., _STEPS], dtype=np.float64)


def _figure(definition: str, unit: str, logs: Sequence[Values], layout: Layout) -> Figure:
    value = float(logs[0])
    if not np.isfinite(value):
        return Figure(unit=unit, definition=definition, n=0, source="both")
    chosen = wider(expanded(value, logs[2], layout), t_bounds(value, logs[1]), layout)
    interval = _interval(chosen) if chosen else None
    return Figure(
        value=float(np.exp(value)), unit=unit, definition=definition, n=layout.prompts, interval=interval, source="both"
    )


def _interval(chosen: Chosen) -> FigureInterval:
    low, high = float(np.exp(chosen.bounds.low)), float(np.exp(chosen.bounds.high))
    return FigureInterval(low=low, high=high, level=LEVEL, method=f"{chosen.method}, on the log ratio")


def _told(names: Sequence[str], weights: Values, sums: Values) -> list[MixCategory]:
    means = _means(sums)
    tokens, time = weights * means[:, 2], weights * means[:, 3]
    return [
        MixCategory(
            category=name,
            requests_share=float(weights[place]),
            tokens_share=float(tokens[place] / tokens.sum()),
            time_share=float(time[place] / time.sum()),
            acceptance_length=_positive(sums[place, _LATER], sums[place, _STEPS]),
            speedup=float(np.exp(_log_speedup(sums[place]))),
        )
        for place, name in enumerate(names)
    ]


def _positive(over: float, under: float) -> float | None:
    return float(over / under) if under > 0 else None
