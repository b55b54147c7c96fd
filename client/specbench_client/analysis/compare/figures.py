"""One figure on both sides of a comparison: its value before and after over common requests, and the log ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.analysis.compare.log_ratio_estimate import (
    LogRatioEstimate,
    estimate_over_prompts,
    estimate_over_repeats,
    wider_estimate,
)
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import (
    BLOCK_VALUES,
    Codes,
    ResamplingLayout,
    draw_counts,
    layout_draws,
    layout_of,
)
from specbench_client.analysis.statistics.log_ratio import log_of_product
from specbench_client.metrics import decode_speed, steady_window
from specbench_client.metrics.metric_types import RatioMetric, RequestMetric
from specbench_client.metrics.pairing import ARM, BASELINE, HISTORY, PAIR_KEY, Pairs, history_hashes, with_pass_number
from specbench_client.metrics.rows import read_columns
from specbench_client.metrics.tidy_frame import Mask, Values, flags, numbers

# Two results share the requests that both answered, and each of them has the same weight on both sides.
#
# A request is identified by its prompt, its pass over the prompts, its turn, and its history (all earlier replies; a
# later turn with another history is another prompt). Requests that only one side answered are left out. If one side
# answered a request in more repeats than the other, because of its number of repeats or of the edges of its steady
# state, each of these rows has less weight: otherwise its mix might have more of the slow prompts, and look slower.

REQUEST_KEY = ["prompt_id", "pass", "turn", "history"]
"""The columns that identify a request."""


def answered_requests(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the steady rows of one arm with pass and history; later turns with an unknown history are left out."""
    numbered = with_pass_number(rows)
    numbered["history"] = history_hashes(numbered)
    known = numbered["history"].notna().to_numpy(bool)
    return numbered[flags(numbered, "steady") & known].reset_index(drop=True)


def answered_pairs(pairs: Pairs) -> pd.DataFrame:
    """Return the arm's side of the pairs with its baseline, with the columns that identify a request."""
    columns = read_columns(pairs.rows, [*PAIR_KEY, HISTORY + ARM, "category" + ARM])
    return columns.set_axis([*PAIR_KEY, HISTORY, "category"], axis=1)


@dataclass(frozen=True)
class SharedSide:
    """One side's shared requests: one row per request and repeat, with its parts and its weight, shape (rows,)."""

    rows: pd.DataFrame
    parts: Values
    """Shape (rows, parts)."""
    weights: Values
    repeat_of: Codes
    prompt_of: Codes
    repeats: int

    def matrices(self, prompts: int) -> list[Values]:
        """Return the weighted sums of each part, shape (repeats, prompts)."""
        cells = self.repeat_of * prompts + self.prompt_of
        size = self.repeats * prompts
        sums = [np.bincount(cells, weights=self.weights * part, minlength=size) for part in self.parts.T]
        return [np.asarray(each, dtype=np.float64).reshape(self.repeats, prompts) for each in sums]


@dataclass(frozen=True)
class SharedRequests:
    """Both sides, and the prompts that both have."""

    before: SharedSide
    after: SharedSide
    layout: ResamplingLayout
    """The layout of both sides' rows together; only its prompts and strata are meaningful."""

    def draws(self, seed: int, resamples: int | None = None) -> Iterator[tuple[Values, Values, Values]]:
        """Yield blocks of draws of repeats before, of repeats after, and of prompts, which both sides share.

        Each block has the shapes (resamples, repeats), (resamples, repeats) and (resamples, prompts).
        `resamples` is RESAMPLES by default.
        """
        generators = [np.random.default_rng((seed, side)) for side in (1, 2)]
        for _, prompts in layout_draws(self.layout, seed, resamples or bootstrap.RESAMPLES):
            size, sides = len(prompts), (self.before.repeats, self.after.repeats)
            before, after = (draw_counts(rng, repeats, size) for rng, repeats in zip(generators, sides, strict=True))
            yield before.astype(np.float64), after.astype(np.float64), prompts.astype(np.float64)


def shared_requests(before: tuple[pd.DataFrame, Values], after: tuple[pd.DataFrame, Values]) -> SharedRequests | None:
    """Return the requests that both sides have, without missing parts; None if there are none.

    Each side is given by its rows with `REQUEST_KEY`, and their parts, shape (rows, parts).
    """
    whole = [_complete(*side) for side in (before, after)]
    keys = [pd.MultiIndex.from_frame(rows[REQUEST_KEY]) for rows, _ in whole]
    common = keys[0].intersection(keys[1]).unique()
    if not len(common):
        return None
    chosen = [_filter(*side, mine.isin(common)) for side, mine in zip(whole, keys, strict=True)]
    layout = layout_of(pd.concat([rows for rows, _ in chosen], ignore_index=True))
    first = len(chosen[0][0])
    return SharedRequests(
        _half(*chosen[0], layout.prompt_of[:first]), _half(*chosen[1], layout.prompt_of[first:]), layout
    )


def _complete(rows: pd.DataFrame, parts: Values) -> tuple[pd.DataFrame, Values]:
    return _filter(rows, parts, np.asarray(~np.isnan(parts).any(axis=1), dtype=np.bool_))


def _filter(rows: pd.DataFrame, parts: Values, mask: Mask) -> tuple[pd.DataFrame, Values]:
    """Select rows and parts by a mask of shape (rows,)."""
    return rows.loc[mask].reset_index(drop=True), parts[mask]


def _half(rows: pd.DataFrame, parts: Values, prompt_of: Codes) -> SharedSide:
    counts = rows.groupby(REQUEST_KEY, sort=False)["repeat"].transform("size").to_numpy(np.float64)
    repeat_of, repeats = pd.factorize(numbers(rows, "repeat"), sort=True)
    return SharedSide(rows, parts, 1 / counts, np.asarray(repeat_of), prompt_of, len(repeats))


IN_COMMON = "over the requests that both results answered in the steady state"
PERCENTILE_RESAMPLES = 1000
PERCENTILE_RESAMPLES_MIN = 200
BEYOND_MIN = 5
"""With fewer requests beyond it, a percentile is nearly the extreme value, and resampling gives no valid interval."""
ROUNDING = 1e-9
"""Relative tolerance for rounding in sums of weights such as 1/3."""


@dataclass(frozen=True)
class MeasuredArm:
    """Rows of one arm at one workload and load over all repeats, and their pairs with the baseline of the same run."""

    rows: pd.DataFrame
    pairs: Pairs | None


@dataclass(frozen=True)
class FigureOnBothSides:
    """A figure on both sides. `estimate` is that of log(after / before); None if no interval is possible."""

    before: float
    after: float
    estimate: LogRatioEstimate | None
    repeats: tuple[int, int]
    units: int
    """Number of prompts, or of repeats if these are the unit."""


FigureComparer = Callable[[MeasuredArm, MeasuredArm, int], FigureOnBothSides | None]
"""Called with before, after and seed; returns the figure on both sides, or None if it is not available."""


def ratio(of: RatioMetric) -> FigureComparer:
    """Return the comparer of a ratio of sums over requests."""

    def parts(side: MeasuredArm) -> tuple[pd.DataFrame, Values]:
        rows = answered_requests(side.rows)
        return rows, np.stack(of.parts(rows), axis=1)

    return lambda before, after, seed: _of_sums(shared_requests(parts(before), parts(after)), (1, -1), seed)


def speedup(before: MeasuredArm, after: MeasuredArm, seed: int) -> FigureOnBothSides | None:
    """Compare the speed-ups over the baseline of each run, see `analysis.estimates.speedups`."""
    if before.pairs is None or after.pairs is None:
        return None
    return _of_sums(shared_requests(_paired(before.pairs), _paired(after.pairs)), (1, -1, -1, 1), seed)


def percentile(of: RequestMetric, percent: int) -> FigureComparer:
    """Return the comparer of a percentile over requests; with too few requests beyond it, there is no interval."""

    def values(side: MeasuredArm) -> tuple[pd.DataFrame, Values]:
        rows = answered_requests(side.rows)
        return rows, of.values(rows)[:, np.newaxis]

    return lambda before, after, seed: _of_percentile(shared_requests(values(before), values(after)), percent, seed)


def output_tps(before: MeasuredArm, after: MeasuredArm, _seed: int) -> FigureOnBothSides | None:
    """Compare the throughput of the steady windows; its unit is the repeat, because it does not belong to prompts."""
    sides = [steady_window.window_throughput(side.rows) for side in (before, after)]
    if not all(tokens.sum() > 0 and seconds.size for tokens, seconds in sides):
        return None
    values = [float(tokens.sum() / seconds.sum()) for tokens, seconds in sides]
    with np.errstate(divide="ignore"):
        repeats = [np.log(tokens / seconds) for tokens, seconds in sides]
    estimate = estimate_over_repeats(float(np.log(values[1] / values[0])), repeats[0], repeats[1])
    sizes = (repeats[0].size, repeats[1].size)
    return FigureOnBothSides(values[0], values[1], estimate, sizes, min(sizes))


def _paired(pairs: Pairs) -> tuple[pd.DataFrame, Values]:
    sides = [decode_speed.STREAM_TPS.parts(pairs.side(suffix)) for suffix in (ARM, BASELINE)]
    return answered_pairs(pairs), np.stack([*sides[0], *sides[1]], axis=1)


def _of_sums(both: SharedRequests | None, signs: tuple[int, ...], seed: int) -> FigureOnBothSides | None:
    """Compare a product of the parts' sums, each to the power of its sign."""
    if both is None:
        return None
    matrices = [half.matrices(both.layout.prompts) for half in (both.before, both.after)]
    logs = [log_of_product(np.array([matrix.sum() for matrix in side]), signs) for side in matrices]
    if not np.isfinite(logs).all():
        return None
    value = float(logs[1] - logs[0])
    samples = [
        log_of_product(_sums(matrices[1], after, prompts), signs)
        - log_of_product(_sums(matrices[0], before, prompts), signs)
        for before, after, prompts in both.draws(seed)
    ]
    repeats = [log_of_product(np.stack([matrix.sum(axis=1) for matrix in side], axis=1), signs) for side in matrices]
    estimate = _estimate(both, value, np.concatenate(samples), (repeats[0], repeats[1]))
    return _on_both_sides(both, (float(np.exp(logs[0])), float(np.exp(logs[1]))), estimate)


def _of_percentile(both: SharedRequests | None, percent: int, seed: int) -> FigureOnBothSides | None:
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
    return _on_both_sides(both, (values[0], values[1]), estimate)


def _percentile_samples(both: SharedRequests, percent: int, seed: int, resamples: int) -> Values:
    """Log ratios, shape (resamples,); the weight of a request is how often its repeat and its prompt were drawn."""
    at_once = max(1, BLOCK_VALUES // max(both.before.weights.size, both.after.weights.size))
    found = []
    for before, after, prompts in both.draws(seed, resamples):
        for start in range(0, len(prompts), at_once):
            some = slice(start, start + at_once)
            drawn = [
                _quantile(half, repeats[some][:, half.repeat_of] * prompts[some][:, half.prompt_of], percent)
                for half, repeats in ((both.before, before), (both.after, after))
            ]
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append(np.log(drawn[1]) - np.log(drawn[0]))
    return np.concatenate(found)


def _quantile(half: SharedSide, times: Values, percent: int) -> Values:
    """The weighted percentile for each row of `times`, which has the shape (resamples, rows).

    It is the smallest value up to which there is enough weight.
    """
    values = half.parts[:, 0]
    order = np.argsort(values, kind="stable")
    weights = np.cumsum((times * half.weights)[:, order], axis=1)
    target = weights[:, -1:] * (percent / 100) * (1 - ROUNDING)
    indices = (weights < target).sum(axis=1)
    found = values[order][np.minimum(indices, values.size - 1)]
    return np.where(weights[:, -1] > 0, found, np.nan)


def _interpolated(half: SharedSide, mask: Mask, percent: int) -> float:
    """The interpolated weighted percentile of the selected requests; equal to numpy's if all weights are equal."""
    order = np.argsort(half.parts[mask, 0], kind="stable")
    values, weights = half.parts[mask, 0][order], half.weights[mask][order]
    below = np.cumsum(weights) - weights
    return float(np.interp(below[-1] * percent / 100, below, values))


def _estimate(
    both: SharedRequests, value: float, samples: Values, repeats: tuple[Values, Values]
) -> LogRatioEstimate | None:
    within = " within categories" if both.layout.stratified else ""
    method = (
        f"bootstrap, unit: prompt; {samples.size} resamples of {both.before.repeats} repeats before,"
        f" {both.after.repeats} after, and {both.layout.prompts} prompts{within} that both results share"
    )
    return wider_estimate(
        estimate_over_prompts(value, samples, both.layout, method), estimate_over_repeats(value, *repeats)
    )


def _on_both_sides(
    both: SharedRequests, values: tuple[float, float], estimate: LogRatioEstimate | None
) -> FigureOnBothSides:
    return FigureOnBothSides(
        values[0], values[1], estimate, (both.before.repeats, both.after.repeats), both.layout.prompts
    )


def _sums(matrices: list[Values], repeats: Values, prompts: Values) -> Values:
    return np.stack([((repeats @ matrix) * prompts).sum(axis=1) for matrix in matrices], axis=1)
