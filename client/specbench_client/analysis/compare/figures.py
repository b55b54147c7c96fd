"""One figure on both sides of a comparison: its value before and after over what they share, and the log ratio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.analysis.compare.estimate import Estimate, over_prompts, over_repeats, wider
from specbench_client.analysis.compare.shared import Half, Shared, answered, answered_pairs, shared
from specbench_client.analysis.statistics.draws import BLOCK_VALUES
from specbench_client.metrics import pace, window
from specbench_client.metrics.frame import Mask, Values
from specbench_client.metrics.metric import Measure, Ratio
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs

IN_COMMON = "over the requests that both results answered in the steady state"
PERCENTILE_RESAMPLES = 1000
PERCENTILE_RESAMPLES_MIN = 200
BEYOND_MIN = 5
"""With fewer requests beyond it a percentile is nearly the extreme value, and resampling tells nothing of the next."""
ROUNDING = 1e-9
"""Share of a weight that a sum of thirds may miss: half of the weight is reached in spite of it."""


@dataclass(frozen=True)
class Measured:
    """Rows of one arm at one workload and load, all repeats, and their pairs with the run's own baseline."""

    rows: pd.DataFrame
    pairs: Pairs | None


@dataclass(frozen=True)
class Found:
    """A figure on both sides. `estimate`: of log(after / before); None where no interval can be given."""

    before: float
    after: float
    estimate: Estimate | None
    repeats: tuple[int, int]
    units: int
    """Prompts, or repeats where those are the unit."""


Compare = Callable[[Measured, Measured, int], Found | None]
"""Before, after, seed → the figure on both sides, or None where it was not to be had."""


def ratio(of: Ratio) -> Compare:
    """A ratio of sums over requests."""

    def parts(side: Measured) -> tuple[pd.DataFrame, Values]:
        rows = answered(side.rows)
        return rows, np.stack(of.parts(rows), axis=1)

    return lambda before, after, seed: _of_sums(shared(parts(before), parts(after)), (1, -1), seed)


def speedup(before: Measured, after: Measured, seed: int) -> Found | None:
    """The speed-up over the baseline of the own run, see `analysis.estimates.speedup`."""
    if before.pairs is None or after.pairs is None:
        return None
    return _of_sums(shared(_paired(before.pairs), _paired(after.pairs)), (1, -1, -1, 1), seed)


def percentile(of: Measure, percent: int) -> Compare:
    """A percentile over requests; one that has too few requests beyond it has no interval."""

    def values(side: Measured) -> tuple[pd.DataFrame, Values]:
        rows = answered(side.rows)
        return rows, of.values(rows)[:, np.newaxis]

    return lambda before, after, seed: _of_percentile(shared(values(before), values(after)), percent, seed)


def output_tps(before: Measured, after: Measured, _seed: int) -> Found | None:
    """Throughput of the steady windows. It belongs to whole repeats, so no prompts are shared and the unit is those."""
    sides = [window.deliveries(side.rows) for side in (before, after)]
    if not all(tokens.sum() > 0 and seconds.size for tokens, seconds in sides):
        return None
    values = [float(tokens.sum() / seconds.sum()) for tokens, seconds in sides]
    with np.errstate(divide="ignore"):
        repeats = [np.log(tokens / seconds) for tokens, seconds in sides]
    estimate = over_repeats(float(np.log(values[1] / values[0])), repeats[0], repeats[1])
    sizes = (repeats[0].size, repeats[1].size)
    return Found(values[0], values[1], estimate, sizes, min(sizes))


def _paired(pairs: Pairs) -> tuple[pd.DataFrame, Values]:
    sides = [pace.STREAM_TPS.parts(pairs.side(suffix)) for suffix in (ARM, BASELINE)]
    return answered_pairs(pairs), np.stack([*sides[0], *sides[1]], axis=1)


def _of_sums(both: Shared | None, signs: tuple[int, ...], seed: int) -> Found | None:
    """The figure is the product of its parts' sums, each to the power of its sign."""
    if both is None:
        return None
    laid = [half.matrices(both.layout.prompts) for half in (both.before, both.after)]
    logs = [_log(np.array([matrix.sum() for matrix in mine]), signs) for mine in laid]
    if not np.isfinite(logs).all():
        return None
    value = float(logs[1] - logs[0])
    samples = [
        _log(_sums(laid[1], after, prompts), signs) - _log(_sums(laid[0], before, prompts), signs)
        for before, after, prompts in both.draws(seed)
    ]
    repeats = [_log(np.stack([matrix.sum(axis=1) for matrix in mine], axis=1), signs) for mine in laid]
    estimate = _estimate(both, value, np.concatenate(samples), (repeats[0], repeats[1]))
    return _found(both, (float(np.exp(logs[0])), float(np.exp(logs[1]))), estimate)


def _of_percentile(both: Shared | None, percent: int, seed: int) -> Found | None:
    if both is None:
        return None
    halves = (both.before, both.after)
    values = [_interpolated(half, np.ones(half.weights.size, dtype=np.bool_), percent) for half in halves]
    if min(values) <= 0:
        return None
    smallest, largest = (pick(half.weights.size for half in halves) for pick in (min, max))
    estimate = None
    if smallest * min(percent, 100 - percent) / 100 >= BEYOND_MIN:
        resamples = max(PERCENTILE_RESAMPLES_MIN, min(PERCENTILE_RESAMPLES, BLOCK_VALUES // largest))
        samples = _percentile_samples(both, percent, seed, resamples)
        logs = [
            np.log([_interpolated(half, half.repeat_of == repeat, percent) for repeat in range(half.repeats)])
            for half in halves
        ]
        estimate = _estimate(both, float(np.log(values[1] / values[0])), samples, (logs[0], logs[1]))
    return _found(both, (values[0], values[1]), estimate)


def _percentile_samples(both: Shared, percent: int, seed: int, resamples: int) -> Values:
    """Log ratios; a request weighs as often as its repeat and its prompt were drawn."""
    at_once = max(1, BLOCK_VALUES // max(both.before.weights.size, both.after.weights.size))
    found = []
    for before, after, prompts in both.draws(seed, resamples):
        for begun in range(0, len(prompts), at_once):
            some = slice(begun, begun + at_once)
            drawn = [
                _quantile(half, repeats[some][:, half.repeat_of] * prompts[some][:, half.prompt_of], percent)
                for half, repeats in ((both.before, before), (both.after, after))
            ]
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append(np.log(drawn[1]) - np.log(drawn[0]))
    return np.concatenate(found)


def _quantile(half: Half, times: Values, percent: int) -> Values:
    """The weighted percentile of each row of `times`: the smallest value up to which so much of the weight lies."""
    values = half.parts[:, 0]
    order = np.argsort(values, kind="stable")
    weights = np.cumsum((times * half.weights)[:, order], axis=1)
    wanted = weights[:, -1:] * (percent / 100) * (1 - ROUNDING)
    places = (weights < wanted).sum(axis=1)
    found = values[order][np.minimum(places, values.size - 1)]
    return np.where(weights[:, -1] > 0, found, np.nan)


def _interpolated(half: Half, held: Mask, percent: int) -> float:
    """The weighted percentile of these requests, interpolated: numpy's, and so the run's own, where all weigh alike."""
    order = np.argsort(half.parts[held, 0], kind="stable")
    values, weights = half.parts[held, 0][order], half.weights[held][order]
    below = np.cumsum(weights) - weights
    return float(np.interp(below[-1] * percent / 100, below, values))


def _estimate(both: Shared, value: float, samples: Values, repeats: tuple[Values, Values]) -> Estimate | None:
    within = " within categories" if both.layout.stratified else ""
    words = (
        f"bootstrap, unit: prompt; {samples.size} resamples of {both.before.repeats} repeats before,"
        f" {both.after.repeats} after, and {both.layout.prompts} prompts{within} that both were asked"
    )
    return wider(over_prompts(value, samples, both.layout, words), over_repeats(value, *repeats))


def _found(both: Shared, values: tuple[float, float], estimate: Estimate | None) -> Found:
    return Found(values[0], values[1], estimate, (both.before.repeats, both.after.repeats), both.layout.prompts)


def _sums(matrices: list[Values], repeats: Values, prompts: Values) -> Values:
    return np.stack([((repeats @ matrix) * prompts).sum(axis=1) for matrix in matrices], axis=1)


def _log(sums: Values, signs: tuple[int, ...]) -> Values:
    """Σ sign × log(sum), over the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(sums) * np.array(signs)).sum(axis=-1), dtype=np.float64)
