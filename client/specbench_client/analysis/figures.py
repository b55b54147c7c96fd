"""Figures of any rows: a point's (without intervals) or a cell's over all its repeats (with them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.bootstrap import (
    BLOCK_VALUES,
    LEVEL,
    Bounds,
    Layout,
    describe,
    draws,
    expanded,
    layout_of,
    resampled_sums,
    t_bounds,
    wider,
)
from specbench_client.metrics import window
from specbench_client.metrics.acceptance import limited
from specbench_client.metrics.frame import Mask, Values, steady
from specbench_client.metrics.metric import Measure, Origin, Percentile, Ratio
from specbench_client.metrics.positions import by_position
from specbench_client.metrics.table import MEASURES, PERCENTILE_FIGURES, RATIOS

PERCENTILE_RESAMPLES = 1000
PERCENTILE_RESAMPLES_MIN = 200
BEYOND_MIN = 5


@dataclass(frozen=True)
class Sample:
    """Rows of one cell or point, and the seed of its intervals; without one there are none."""

    rows: pd.DataFrame
    seed: int | None = None


def figures_of(sample: Sample, drafts: int) -> dict[str, Figure]:
    """Return every figure by name; what was not to be had has no value. `drafts`: most draft tokens a step."""
    inside = Sample(steady(sample.rows), sample.seed)
    ratios = (*limited(RATIOS, drafts), *by_position(inside.rows, drafts))
    return {
        window.OUTPUT_TPS: output_tps(sample.rows, intervals=sample.seed is not None),
        **ratio_figures(inside, ratios),
        **_percentile_figures(inside),
    }


def ratio_figures(sample: Sample, ratios: Sequence[Ratio]) -> dict[str, Figure]:
    """Return ratios of sums over steady rows; one draw of resamples serves all of them."""
    bounds: dict[str, FigureInterval] = {}
    if sample.seed is not None and len(sample.rows):
        bounds = _ratio_intervals(sample.rows, ratios, sample.seed)
    return {
        ratio.name: Figure(
            value=ratio.value(sample.rows),
            unit=ratio.unit,
            definition=ratio.definition,
            n=_prompts(sample.rows, _known(ratio, sample.rows)),
            interval=bounds.get(ratio.name),
            source=_source(ratio.origin, sample.rows),
        )
        for ratio in ratios
    }


def output_tps(rows: pd.DataFrame, *, intervals: bool) -> Figure:
    """Return the engine's throughput in the steady windows of all points among the rows."""
    tokens, seconds = window.deliveries(rows)
    value = float(tokens.sum() / seconds.sum()) if seconds.size else None
    bounds = t_bounds(value, tokens / seconds) if intervals and value is not None else None
    interval = _interval(bounds, f"t over {seconds.size} repeats, unit: repeat") if bounds else None
    definition, unit = window.OUTPUT_TPS_DEFINITION, window.OUTPUT_TPS_UNIT
    return Figure(value=value, unit=unit, definition=definition, n=seconds.size, interval=interval, source="both")


def _ratio_intervals(rows: pd.DataFrame, ratios: Sequence[Ratio], seed: int) -> dict[str, FigureInterval]:
    layout = layout_of(rows)
    matrices = [layout.matrix(part) for ratio in ratios for part in ratio.known(rows)]
    sums = resampled_sums(matrices, layout, seed)
    found: dict[str, FigureInterval] = {}
    for index, ratio in enumerate(ratios):
        value, (over, under) = ratio.value(rows), matrices[2 * index : 2 * index + 2]
        if value is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = sums[:, 2 * index] / sums[:, 2 * index + 1]
            repeats = over.sum(axis=1) / under.sum(axis=1)
        chosen = wider(expanded(value, samples, layout), t_bounds(value, repeats), layout)
        if chosen:
            found[ratio.name] = _within(_interval(chosen.bounds, chosen.method), value, ratio)
    return found


def _percentile_figures(sample: Sample) -> dict[str, Figure]:
    bounds: dict[str, FigureInterval] = {}
    if sample.seed is not None and len(sample.rows):
        for measure in MEASURES:
            bounds |= _percentile_intervals(sample.rows, measure, sample.seed)
    return {each.name: _percentile_figure(each, sample.rows, bounds.get(each.name)) for each in PERCENTILE_FIGURES}


def _percentile_figure(figure: Percentile, rows: pd.DataFrame, interval: FigureInterval | None) -> Figure:
    measure = figure.measure
    return Figure(
        value=figure.value(rows),
        unit=measure.unit,
        definition=figure.definition,
        n=_prompts(rows, ~np.isnan(measure.values(rows))),
        interval=interval,
        source=_source(measure.origin, rows),
    )


def _percentile_intervals(rows: pd.DataFrame, measure: Measure, seed: int) -> dict[str, FigureInterval]:
    """Intervals of one measure's percentiles: every request weighs as often as its repeat and its prompt were drawn.

    A percentile with fewer than `BEYOND_MIN` requests beyond it is nearly the extreme value, and resampling cannot tell
    how far the next one would lie: it has no interval.
    """
    values = measure.values(rows)
    known = rows[~np.isnan(values)]
    if not len(known):
        return {}
    layout = layout_of(known)
    resamples = max(PERCENTILE_RESAMPLES_MIN, min(PERCENTILE_RESAMPLES, BLOCK_VALUES // len(known)))
    samples = _weighted_percentiles(values[~np.isnan(values)], layout, measure.percents, (seed, resamples))
    found: dict[str, FigureInterval] = {}
    for index, percent in enumerate(measure.percents):
        figure = Percentile(measure, percent)
        value, beyond = figure.value(rows), len(known) * min(percent, 100 - percent) / 100
        enough = value is not None and beyond >= BEYOND_MIN
        bounds = expanded(value, samples[:, index], layout) if enough and value is not None else None
        if bounds:
            found[figure.name] = _interval(bounds, describe(layout, resamples))
    return found


def _weighted_percentiles(values: Values, layout: Layout, percents: tuple[int, ...], chance: tuple[int, int]) -> Values:
    """Resamples × percentiles; `chance`: the seed and how many resamples."""
    order = np.argsort(values, kind="stable")
    at_once = max(1, BLOCK_VALUES // values.size)  # a weight a request and resample: memory must not grow with requests
    blocks = (
        (repeats[begun : begun + at_once], prompts[begun : begun + at_once])
        for repeats, prompts in draws(layout, *chance)
        for begun in range(0, len(repeats), at_once)
    )
    found = []
    for repeats, prompts in blocks:
        weights = np.cumsum(repeats[:, layout.repeat_of[order]] * prompts[:, layout.prompt_of[order]], axis=1)
        wanted = weights[:, -1:] * (np.array(percents) / 100)
        places = np.stack([(weights < wanted[:, [each]]).sum(axis=1) for each in range(len(percents))], axis=1)
        drawn = values[order][np.minimum(places, values.size - 1)]
        found.append(np.where(weights[:, -1:] > 0, drawn, np.nan))
    return np.concatenate(found)


def _interval(bounds: Bounds, method: str) -> FigureInterval:
    """No figure here can be negative."""
    return FigureInterval(low=max(0.0, bounds.low), high=bounds.high, level=LEVEL, method=method)


def _within(interval: FigureInterval, value: float, ratio: Ratio) -> FigureInterval:
    """Cut to what the ratio can be, and say so; where the value itself is impossible nothing is made up about it."""
    low, high = max(interval.low, ratio.lowest), min(interval.high, ratio.highest)
    if (low, high) == (interval.low, interval.high) or not ratio.lowest <= value <= ratio.highest:
        return interval
    limits = f"from {ratio.lowest:g} " + (f"to {ratio.highest:g}" if ratio.highest < np.inf else "on")
    method = f"{interval.method}; cut to what is possible, {limits}"
    return interval.model_copy(update={"low": low, "high": high, "method": method})


def _known(ratio: Ratio, rows: pd.DataFrame) -> Mask:
    over, under = ratio.parts(rows)
    known: Mask = ~(np.isnan(over) | np.isnan(under))
    return known


def _prompts(rows: pd.DataFrame, known: Mask) -> int:
    return len(set(rows["prompt_id"].to_numpy()[known]))


def _source(origin: Origin, rows: pd.DataFrame) -> str:
    if origin is not Origin.ACCEPTANCE:
        return origin.value
    told = sorted({str(source) for source in rows["acceptance_source"] if source is not None})
    return f"engine ({', '.join(told)})" if told and told != ["chunks"] else ("client (chunks)" if told else "engine")
