"""Decomposes a change of a pooled metric into a change of the category mix and changes within categories (drafter).

Kitagawa 1955 ("Components of a difference between two rates"): with shares w and values r of categories c,

    Σ w₁r₁ − Σ w₀r₀ = Σ (w₁ − w₀)(r₀ + r₁)/2 + Σ (r₁ − r₀)(w₀ + w₁)/2

exactly, without a remainder. A category on one side only has no value on the other: its value is taken as unchanged, so
that its appearance or disappearance is all mix. If the two sides have no category in common, or one of them leaves more
than a small share unnamed, every change would count as mix, so the parts are not reported.

Intervals: clusters (prompts, or single requests without a prompt) are drawn with replacement on each side. Many
clusters are first combined into random groups, which does not change the variance of sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_client.analysis.drift.request_log import PooledMetric, requests_with
from specbench_client.analysis.statistics.bootstrap import PROMPTS_MIN, draw_counts
from specbench_client.analysis.statistics.intervals import percentile_interval
from specbench_client.columns import Values
from specbench_client.documents.drift import CategoryChange, DriftChange

RESAMPLES = 1000
GROUPS_MOST = 1000
UNNAMED_MOST = 0.05
"""Largest share of the weight without a category, on one side only, for which the parts are reported."""
_MIX = "Mix: Σ over categories of (share now − share then) × mean of the metric then and now"
_DRAFTER = "Drafter: Σ over categories of (metric now − metric then) × mean of the shares then and now"


@dataclass(frozen=True)
class ChangeParts:
    """Shares, values (NaN where a side has none) and both parts by category.

    Arrays have shape (categories,) or (categories, resamples); pairs are (then, now).
    """

    shares: tuple[Values, Values]
    levels: tuple[Values, Values]
    mix: Values
    drafter: Values


def change_parts(then: tuple[Values, Values], now: tuple[Values, Values], constant: float) -> ChangeParts:
    """Compute the parts.

    `then`, `now`: sums of accepted tokens and of the weight, shape (categories,) or (categories, resamples).
    """
    shares, values = [], []
    for over, under in (then, now):
        shares.append(under / under.sum(axis=0))
        values.append(constant + np.divide(over, under, out=np.full_like(over, np.nan), where=under > 0))
    old, new = (np.where(np.isnan(mine), other, mine) for mine, other in (values, values[::-1]))
    old, new = np.nan_to_num(old), np.nan_to_num(new)  # a resample may lack a category on both sides
    mix = (shares[1] - shares[0]) * (old + new) / 2
    drafter = (new - old) * (shares[0] + shares[1]) / 2
    return ChangeParts((shares[0], shares[1]), (values[0], values[1]), mix, drafter)


def decompose_change(then: pd.DataFrame, now: pd.DataFrame, metric: PooledMetric, seed: int) -> DriftChange | None:
    """Decompose the change between two `RequestLog` tables; None if a side has no request with the metric's weight."""
    sides = [requests_with(table, metric) for table in (then, now)]
    if any(side.empty for side in sides):
        return None
    names = sorted({name for side in sides for name in _present(side)}, key=lambda name: (name is None, name or ""))
    grouped = [_grouped(side, names, metric, seed) for side in sides]
    sums = [(over.sum(axis=1), under.sum(axis=1)) for over, under in grouped]
    whole = change_parts(sums[0], sums[1], metric.constant)
    rng = np.random.default_rng(seed)
    resampled = change_parts(_resampled(grouped[0], rng), _resampled(grouped[1], rng), metric.constant)
    n = min(over.shape[1] for over, _ in grouped)
    mix, drafter = float(whole.mix.sum()), float(whole.drafter.sum())
    samples = resampled.mix.sum(axis=0) + resampled.drafter.sum(axis=0)
    change = _figure(mix + drafter, samples, f"Change now − then of: {metric.definition}", metric, n)
    if not _separable(names, whole):
        return DriftChange(
            metric=metric.name,
            weight=metric.weight,
            change=change,
            mix=Figure(unit=metric.unit, definition=_MIX, n=0, source="engine"),
            drafter=Figure(unit=metric.unit, definition=_DRAFTER, n=0, source="engine"),
            categories=[],
        )
    return DriftChange(
        metric=metric.name,
        weight=metric.weight,
        change=change,
        mix=_figure(mix, resampled.mix.sum(axis=0), _MIX, metric, n),
        drafter=_figure(drafter, resampled.drafter.sum(axis=0), _DRAFTER, metric, n),
        categories=[_category(name, index, whole) for index, name in enumerate(names)],
    )


def _separable(names: list[str | None], parts: ChangeParts) -> bool:
    """Return whether the categories allow to separate mix and drafter."""
    then, now = parts.shares
    both = (then > 0) & (now > 0)
    unnamed = np.array([name is None for name in names])
    alone = max(float(side[unnamed & ~both].sum()) for side in (then, now))
    return bool(both.any()) and alone <= UNNAMED_MOST


def _grouped(table: pd.DataFrame, names: list[str | None], metric: PooledMetric, seed: int) -> tuple[Values, Values]:
    """Return the sums of accepted tokens and of the weight, shape (categories, groups of clusters) each."""
    clusters = pd.factorize(table["prompt_id"])[0]
    count = int(clusters.max()) + 1
    order = np.random.default_rng(seed).permutation(count) % min(count, GROUPS_MOST)
    category, number_of = table["category"].cat, {name: number for number, name in enumerate(names)}
    numbers = np.array([number_of.get(name, -1) for name in (*category.categories, None)])
    rows = numbers[category.codes], order[clusters]
    sums = []
    for column in ("accepted_tokens", metric.weight):
        found = np.zeros((len(names), min(count, GROUPS_MOST)))
        np.add.at(found, rows, table[column].to_numpy(float))
        sums.append(found)
    return sums[0], sums[1]


def _present(table: pd.DataFrame) -> list[str | None]:
    """Return the different categories of the requests."""
    category = table["category"].cat
    return [None if code < 0 else category.categories[code] for code in np.unique(category.codes)]


def _resampled(side: tuple[Values, Values], rng: np.random.Generator) -> tuple[Values, Values]:
    times = draw_counts(rng, side[0].shape[1], RESAMPLES).T.astype(np.float64)
    return side[0] @ times, side[1] @ times


def _figure(value: float, samples: Values, definition: str, metric: PooledMetric, n: int) -> Figure:
    interval = None
    if n >= PROMPTS_MIN:
        method = f"bootstrap percentiles, unit: cluster; {RESAMPLES} resamples of each side"
        interval = percentile_interval(samples, method)
    return Figure(value=value, unit=metric.unit, definition=definition, n=n, interval=interval, source="engine")


def _category(name: str | None, index: int, parts: ChangeParts) -> CategoryChange:
    old, new = (float(values[index]) for values in parts.levels)
    return CategoryChange(
        category=name,
        reference_share=float(parts.shares[0][index]),
        current_share=float(parts.shares[1][index]),
        reference=None if np.isnan(old) else old,
        current=None if np.isnan(new) else new,
        mix=float(parts.mix[index]),
        drafter=float(parts.drafter[index]),
    )
