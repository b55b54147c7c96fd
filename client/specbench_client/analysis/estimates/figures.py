"""Figures of any rows: a point's (without intervals) or a cell's over all its repeats (with them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.statistics.bootstrap import (
    LEVEL,
    Bounds,
    Chosen,
    Layout,
    layout_of,
    t_bounds,
)
from specbench_client.analysis.statistics.draws import Codes
from specbench_client.analysis.statistics.levels import Levels, interval, ratio_influence, resampled
from specbench_client.analysis.statistics.quantile import percentile_intervals
from specbench_client.analysis.statistics.studentised import studentised
from specbench_client.metrics import window
from specbench_client.metrics.acceptance import limited
from specbench_client.metrics.frame import Mask, Values, steady
from specbench_client.metrics.histogram import histogram
from specbench_client.metrics.metric import Measure, Origin, Percentile, Ratio
from specbench_client.metrics.positions import by_position, deepest
from specbench_client.metrics.rows import Rows, among
from specbench_client.metrics.table import MEASURES, RATIOS


@dataclass(frozen=True)
class Sample:
    """Rows of one cell or point, and the seed of its intervals; without one there are none.

    What every figure asks of the rows is looked up once: a sample has some fifty figures.
    """

    rows: pd.DataFrame | Rows
    seed: int | None = None

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.rows)

    def prompts(self, known: Mask) -> int:
        """Return how many different prompts the known rows are of."""
        return int(np.unique(self._prompt_of[known]).size)

    def source(self, origin: Origin) -> str:
        """Return who counted; of acceptance, as the records say."""
        return self._acceptance_source if origin is Origin.ACCEPTANCE else origin.value

    @cached_property
    def _prompt_of(self) -> Codes:
        return pd.factorize(self.rows["prompt_id"], use_na_sentinel=False)[0]

    @cached_property
    def _acceptance_source(self) -> str:
        told = sorted({str(source) for source in self.rows["acceptance_source"].unique() if source is not None})
        if told == ["chunks"]:
            return "client (chunks)"
        return f"engine ({', '.join(told)})" if told else "engine"


def figures_of(sample: Sample, drafts: int, gpus: int) -> dict[str, Figure]:
    """Return every figure by name; what was not to be had has no value.

    `drafts`: most draft tokens a step; 0: none, or not known, as of an endpoint that somebody else started, and then as
    many positions are told as its steps ever accepted. `gpus`: of one engine; 0: not known.
    """
    inside = Sample(steady(sample.rows), sample.seed)
    positions = drafts or deepest(inside.rows)
    ratios = (*limited(RATIOS, drafts), *by_position(inside.rows, positions), *histogram(inside.rows, positions))
    tps = output_tps(sample.rows, intervals=sample.seed is not None)
    return {
        window.OUTPUT_TPS: tps,
        window.OUTPUT_TPS_PER_GPU: _per_gpu(tps, gpus),
        **ratio_figures(inside, ratios),
        **percentile_figures(inside, MEASURES),
    }


def ratio_figures(sample: Sample, ratios: Sequence[Ratio]) -> dict[str, Figure]:
    """Return ratios of sums over steady rows; one draw of resamples serves all of them."""
    told = {ratio.name: _Told.of(sample, ratio) for ratio in ratios}
    bounds: dict[str, FigureInterval] = {}
    if sample.seed is not None and len(sample.rows):
        bounds = _ratio_intervals(sample.layout, ratios, told, sample.seed)
    return {
        ratio.name: Figure(
            value=told[ratio.name].value,
            unit=ratio.unit,
            definition=ratio.definition,
            n=told[ratio.name].prompts,
            interval=bounds.get(ratio.name),
            source=sample.source(ratio.origin),
        )
        for ratio in ratios
    }


def percentile_figures(sample: Sample, measures: Sequence[Measure]) -> dict[str, Figure]:
    """Return the percentiles of steady rows that are shown of each measure."""
    return {name: figure for measure in measures for name, figure in _percentiles_of(measure, sample).items()}


def output_tps(rows: pd.DataFrame | Rows, *, intervals: bool) -> Figure:
    """Return the engine's throughput in the steady windows of all points among the rows."""
    tokens, seconds = window.deliveries(rows)
    value = float(tokens.sum() / seconds.sum()) if seconds.size else None
    bounds = t_bounds(value, tokens / seconds) if intervals and value is not None else None
    interval = _interval(bounds, f"t over {seconds.size} repeats, unit: repeat") if bounds else None
    definition, unit = window.OUTPUT_TPS_DEFINITION, window.OUTPUT_TPS_UNIT
    return Figure(value=value, unit=unit, definition=definition, n=seconds.size, interval=interval, source="both")


def _per_gpu(tps: Figure, gpus: int) -> Figure:
    told = {"unit": window.OUTPUT_TPS_PER_GPU_UNIT, "definition": window.OUTPUT_TPS_PER_GPU_DEFINITION}
    if not gpus or tps.value is None:
        return tps.model_copy(update={**told, "value": None, "interval": None})
    interval = tps.interval and tps.interval.model_copy(
        update={"low": tps.interval.low / gpus, "high": tps.interval.high / gpus}
    )
    return tps.model_copy(update={**told, "value": tps.value / gpus, "interval": interval})


@dataclass(frozen=True)
class _Told:
    """A ratio of some rows: its value, how many prompts it rests on, and its sums.

    Rows may be a million and ratios are fifty, so of each ratio no more is kept than its sums by repeat and prompt;
    empty where no intervals are asked for.
    """

    value: float | None
    prompts: int
    over: Values
    under: Values

    @classmethod
    def of(cls, sample: Sample, ratio: Ratio) -> _Told:
        parts = ratio.of(sample.rows)
        wanted = sample.seed is not None and len(sample.rows)
        over, under = (sample.layout.matrix(part) if wanted else np.empty((0, 0)) for part in (parts.over, parts.under))
        return cls(parts.value, sample.prompts(parts.known), over, under)


def _ratio_intervals(
    layout: Layout, ratios: Sequence[Ratio], told: Mapping[str, _Told], seed: int
) -> dict[str, FigureInterval]:
    matrices = [matrix for ratio in ratios for matrix in (told[ratio.name].over, told[ratio.name].under)]
    sums = resampled(matrices, layout, seed)
    found: dict[str, FigureInterval] = {}
    for index, ratio in enumerate(ratios):
        value, (over, under) = told[ratio.name].value, matrices[2 * index : 2 * index + 2]
        if value is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = sums[:, 2 * index] / sums[:, 2 * index + 1]
            repeats = over.sum(axis=1) / under.sum(axis=1)
        tailed = ratio.long_tailed and layout.repeats >= REPEATS_TO_TELL
        prompts = studentised(over, under, layout, seed) if tailed else None
        chosen = interval(Levels(value, samples, ratio_influence(over, under), repeats), layout, prompts)
        if chosen:
            found[ratio.name] = within(chosen, value, ratio)
    return found


def _percentiles_of(measure: Measure, sample: Sample) -> dict[str, Figure]:
    """All percentiles that are shown of one measure."""
    values = measure.values(sample.rows)
    known: Mask = ~np.isnan(values)
    percentiles = [Percentile(measure, percent) for percent in measure.percents]
    told = {each: each.among(values[known]) for each in percentiles}
    bounds = _percentile_intervals(told, values, known, sample)
    n, source = sample.prompts(known), sample.source(measure.origin)
    return {
        each.name: Figure(
            value=value, unit=measure.unit, definition=each.definition, n=n, interval=bounds.get(each), source=source
        )
        for each, value in told.items()
    }


def _percentile_intervals(
    told: Mapping[Percentile, float | None], values: Values, known: Mask, sample: Sample
) -> dict[Percentile, FigureInterval]:
    """Intervals of one measure's percentiles, see `analysis.statistics.quantile`."""
    if sample.seed is None or not known.any():
        return {}
    layout = sample.layout if known.all() else layout_of(among(sample.rows, known))
    chosen = percentile_intervals(values[known], layout, [each.percent for each in told], sample.seed)
    found = zip(told, chosen, strict=True)
    return {each: _interval(bounds.bounds, bounds.method) for each, bounds in found if bounds is not None}


def _interval(bounds: Bounds, method: str) -> FigureInterval:
    """No figure here can be negative."""
    return FigureInterval(low=max(0.0, bounds.low), high=bounds.high, level=LEVEL, method=method)


def within(chosen: Chosen, value: float, ratio: Ratio) -> FigureInterval:
    """Return the interval cut to what the ratio can be, and say so.

    Where the value itself is impossible nothing is made up about it.
    """
    interval = _interval(chosen.bounds, chosen.method)
    low, high = max(interval.low, ratio.lowest), min(interval.high, ratio.highest)
    if (low, high) == (interval.low, interval.high) or not ratio.lowest <= value <= ratio.highest:
        return interval
    limits = f"from {ratio.lowest:g} " + (f"to {ratio.highest:g}" if ratio.highest < np.inf else "on")
    method = f"{interval.method}; cut to what is possible, {limits}"
    return interval.model_copy(update={"low": low, "high": high, "method": method})
