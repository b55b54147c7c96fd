"""Figures of a cell over all its repeats (with intervals) or of a single point (without), from tidy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specbench_api.spec.slo import Slo
from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL, ChosenInterval, why_no_interval
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    bootstrap_t_interval,
    ratio_influence,
    repeats_interval,
    resample_sums,
    two_level_interval,
)
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.analysis.statistics.percentiles import percentile_intervals, percentiles_of, prompts_needed
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout, layout_of
from specbench_client.documents.figure import COUNTERS_SOURCE, Figure, FigureInterval, StatusFigure, counted
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE, too_few_requests
from specbench_client.documents.summary import CounterDeltas, Goodput, RequestCounts
from specbench_client.metrics import steady_window
from specbench_client.metrics.acceptance import (
    acceptance_by_position,
    acceptance_histogram,
    deepest_position,
    limit_to_drafts,
    most_drafts_reported,
)
from specbench_client.metrics.catalog import MEASURES, RATIOS
from specbench_client.metrics.goodput import (
    RATE_DEFINITION,
    RATE_MISSING,
    RATE_UNIT,
    attainment_ratio,
    good_requests,
    judged_rows,
    target_attainment_ratio,
)
from specbench_client.metrics.late_sends import MEAN_E2E, is_attainment_late, late_figures
from specbench_client.metrics.metric_types import (
    SENT_LATE,
    FigureOrigin,
    PercentileMetric,
    RatioMetric,
    RequestMetric,
    why_missing,
)
from specbench_client.metrics.rows import Table, distinct_texts
from specbench_client.metrics.tidy_frame import known_sum, numbers, piecewise, sent_rows, steady_rows
from specbench_client.numpy_columns import Mask, Values


@dataclass(frozen=True)
class SampleRows:
    """Rows of one cell or point, and the seed of their intervals; without a seed there are no intervals.

    Data that several of the about fifty figures need is computed once.
    """

    rows: Table
    seed: int | None = None

    @cached_property
    def layout(self) -> RowLayout:
        return layout_of(self.rows)

    def source(self, origin: FigureOrigin) -> str:
        """Return the side that counted; for acceptance, according to the records."""
        return self._acceptance_source if origin is FigureOrigin.ACCEPTANCE else origin.value

    @cached_property
    def late(self) -> set[str]:
        """The latency figures that are left out because late sends change them too much."""
        return {each.name for each in late_figures(self.rows) if each.name != MEAN_E2E}

    @cached_property
    def _acceptance_source(self) -> str:
        sources = distinct_texts(self.rows, "acceptance_source")
        if sources == ["chunks"]:
            return "client (chunks)"
        return f"engine ({', '.join(sources)})" if sources else "engine"


def figures_of(sample: SampleRows, drafts: int, gpus: int) -> dict[str, Figure]:
    """Return every figure by name; unavailable figures have no value.

    `drafts` is the maximum number of draft tokens per step. It is 0 for none, or if it is not known, as for an
    external endpoint; then lengths are limited by what its answers report, and there are as many positions as its steps
    ever accepted. `gpus` is the number of GPUs of one engine, 0 if it is not known.
    """
    inside = SampleRows(steady_rows(sample.rows), sample.seed)
    positions = drafts or deepest_position(inside.rows)
    ratios = (
        *limit_to_drafts(RATIOS, drafts or most_drafts_reported(inside.rows)),
        *acceptance_by_position(inside.rows, positions),
        *acceptance_histogram(inside.rows, positions),
    )
    tps = output_tps(sample.rows, intervals=sample.seed is not None)
    return {
        steady_window.OUTPUT_TPS: tps,
        steady_window.OUTPUT_TPS_PER_GPU: _per_gpu(tps, gpus),
        **ratio_figures(inside, ratios),
        **percentile_figures(inside, MEASURES),
    }


def ratio_figures(sample: SampleRows, ratios: Sequence[RatioMetric]) -> dict[str, Figure]:
    """Return ratios of sums over steady rows; all of them use common draws."""
    values_by_name = {ratio.name: _RatioSums.of(sample, ratio) for ratio in ratios}
    bounds: dict[str, FigureInterval] = {}
    if sample.seed is not None and len(sample.rows):
        bounds = _ratio_intervals(sample.layout, ratios, values_by_name, sample.seed)
    return {ratio.name: _ratio_figure(sample, ratio, values_by_name[ratio.name], bounds) for ratio in ratios}


_COUNTED = (
    (StatusFigure.ACCEPTANCE_LENGTH_VERIFIED, 1.0, "draft_steps", "1 + accepted tokens / steps with drafts"),
    (StatusFigure.ACCEPTANCE_RATE, 0.0, "drafted_tokens", "accepted / drafted tokens"),
)
"""Figure, what is added to the ratio of accepted tokens, the count under them, and the definition."""


def with_counted_acceptance(
    figures: Mapping[str, Figure], counters: Sequence[CounterDeltas | None]
) -> dict[str, Figure]:
    """Return the figures with acceptance by the engine's counters where answers do not report it.

    `counters`: of each point. They include ramp, drain and fillers.
    """
    found = dict(figures)
    accepted = _total(counters, "accepted_tokens")
    for name, added, under, definition in _COUNTED:
        below = _total(counters, under)
        if figures[name].value is None and below and accepted is not None:
            counted = {
                "value": added + accepted / below,
                "definition": f"{definition} by the engine's counters, over all requests of the points",
                "n": len(counters),
                "missing": NO_INTERVAL,
                "source": COUNTERS_SOURCE,
            }
            found[name] = figures[name].model_copy(update=counted)
    return found


def _total(counters: Sequence[CounterDeltas | None], name: str) -> int | None:
    """Return the sum of one counter over points; None if one of them lacks it (SGLang has no accepted tokens)."""
    counts = [None if each is None or each.restarted else getattr(each, name) for each in counters]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _ratio_figure(
    sample: SampleRows, ratio: RatioMetric, sums: _RatioSums, bounds: Mapping[str, FigureInterval]
) -> Figure:
    interval, missing = bounds.get(ratio.name), ""
    if sums.value is None:
        missing = why_missing(ratio, sample.rows)
    elif interval is None and sample.seed is not None:
        missing = why_no_interval(sums.prompts)
    figure = Figure(
        value=sums.value,
        unit=ratio.unit,
        definition=ratio.definition,
        n=sums.prompts,
        interval=interval,
        missing=missing,
        source=sample.source(ratio.origin),
    ).within(ratio.lowest, ratio.highest)
    return figure.without_value(SENT_LATE) if ratio.name in sample.late else figure


def percentile_figures(sample: SampleRows, measures: Sequence[RequestMetric]) -> dict[str, Figure]:
    """Return the reported percentiles of each metric over steady rows."""
    return {name: figure for measure in measures for name, figure in _percentiles_of(measure, sample).items()}


def output_tps(rows: Table, *, intervals: bool) -> Figure:
    """Return the engine's throughput in the steady windows of all points among the rows."""
    tokens, seconds = steady_window.window_throughput(rows)
    definition, unit = steady_window.OUTPUT_TPS_DEFINITION, steady_window.OUTPUT_TPS_UNIT
    return _rate(tokens, seconds, definition, unit, steady_window.OUTPUT_TPS_MISSING, intervals=intervals)


def _rate(
    numbers: Values, seconds: Values, definition: str, unit: str, missing: str, *, intervals: bool = True
) -> Figure:
    """Return what was counted in the steady windows over their length, each of shape (windows,).

    `missing`: when there is no value.
    """
    value = float(numbers.sum() / seconds.sum()) if seconds.size else None
    interval = repeats_interval(value, numbers / seconds) if intervals and value is not None else None
    if value is not None:
        missing = "" if interval or not intervals else f"{counted(seconds.size, 'repeat')}: {NO_INTERVAL}"
    return Figure(
        value=value,
        unit=unit,
        definition=definition,
        n=seconds.size,
        interval=interval,
        missing=missing,
        source="both",
    )


def _per_gpu(tps: Figure, gpus: int) -> Figure:
    values_by_name = {
        "unit": steady_window.OUTPUT_TPS_PER_GPU_UNIT,
        "definition": steady_window.OUTPUT_TPS_PER_GPU_DEFINITION,
    }
    if not gpus or tps.value is None:
        missing = steady_window.OUTPUT_TPS_PER_GPU_MISSING
        return tps.model_copy(update={**values_by_name, "value": None, "interval": None, "missing": missing})
    interval = tps.interval and tps.interval.model_copy(
        update={"low": tps.interval.low / gpus, "high": tps.interval.high / gpus}
    )
    return tps.model_copy(update={**values_by_name, "value": tps.value / gpus, "interval": interval})


@dataclass(frozen=True)
class _RatioSums:
    """A ratio of some rows: its value, its number of prompts, and its sums.

    There may be millions of rows and fifty ratios, so only the sums by repeat and prompt are kept, shape (repeats,
    prompts).
    """

    value: float | None
    prompts: int
    over: Values
    under: Values

    @classmethod
    def of(cls, sample: SampleRows, ratio: RatioMetric) -> _RatioSums:
        sums = CellSums(sample.layout, 2)
        for piece in sample.rows.pieces():
            sums.add(ratio.parts(piece))
        over, under = sums.matrices
        value = float(over.sum() / under.sum()) if under.sum() > 0 else None
        return cls(value, int(sums.counts.any(axis=0).sum()), over, under)


def _ratio_intervals(
    layout: RowLayout, ratios: Sequence[RatioMetric], values_by_name: Mapping[str, _RatioSums], seed: int
) -> dict[str, FigureInterval]:
    matrices = [
        matrix for ratio in ratios for matrix in (values_by_name[ratio.name].over, values_by_name[ratio.name].under)
    ]
    sums = resample_sums(matrices, layout, seed)
    found: dict[str, FigureInterval] = {}
    for index, ratio in enumerate(ratios):
        value, (over, under) = values_by_name[ratio.name].value, matrices[2 * index : 2 * index + 2]
        if value is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = sums[:, 2 * index] / sums[:, 2 * index + 1]
            repeats = over.sum(axis=1) / under.sum(axis=1)
        tailed = ratio.long_tailed and layout.repeats >= MIN_REPEATS_TO_COMPARE
        prompts = bootstrap_t_interval(over, under, layout, seed) if tailed else None
        chosen = two_level_interval(
            ResampledFigure(value, samples, ratio_influence(over, under), repeats), layout, prompts
        )
        if chosen:
            found[ratio.name] = figure_interval(chosen)
    return found


def _percentiles_of(measure: RequestMetric, sample: SampleRows) -> dict[str, Figure]:
    """All reported percentiles of one metric; those of too few requests are missing."""
    values = piecewise(sample.rows, measure.values)
    known: Mask = ~np.isnan(values)
    layout = sample.layout.of_rows(known)
    values = values if known.all() else values[known]
    percents = list(measure.percents)
    found: Sequence[float | None] = percentiles_of(values, percents) if values.size else [None] * len(percents)
    chosen: Sequence[ChosenInterval | None] = [None] * len(percents)
    if sample.seed is not None and values.size:
        chosen = percentile_intervals(values, layout, percents, sample.seed)
    metrics, source = [PercentileMetric(measure, percent) for percent in percents], sample.source(measure.origin)
    figures = dict[str, Figure]()
    for each, value, interval in zip(metrics, found, chosen, strict=True):
        few = too_few_requests(each.percent, values.size) if values.size else why_missing(measure, sample.rows)
        few = SENT_LATE if each.name in sample.late else few
        why = f"{NO_INTERVAL}: that needs at least {prompts_needed(each.percent / 100)} prompts"
        figures[each.name] = Figure(
            value=None if few else value,
            unit=measure.unit,
            definition=each.definition,
            n=layout.prompts,
            interval=figure_interval(interval) if interval and not few else None,
            missing=few or ("" if interval or sample.seed is None else why),
            source=source,
        )
    return figures


def figure_interval(chosen: ChosenInterval) -> FigureInterval:
    """Return the interval as it is in documents; `Figure.within` limits it to possible values."""
    return FigureInterval(low=chosen.bounds.low, high=chosen.bounds.high, level=LEVEL, method=chosen.method)


def counts_of(rows: Table) -> RequestCounts:
    """Count requests and tokens of tidy rows.

    Turns that were skipped after an error were never sent and do not count, and neither do fillers.
    """
    tried = sent_rows(rows.among(~rows.array("filler")))
    return RequestCounts(
        requests=len(tried),
        steady_requests=len(steady_rows(tried)),
        failed_requests=int((~tried.array("ok")).sum()),
        conversations=sum(np.unique(each.array("conversation_id")).size for each in tried.by_point()),
        prompts=len(distinct_texts(tried, "prompt_id")),
        input_tokens=_whole_sum(tried, "input_tokens"),
        output_tokens=_whole_sum(tried, "output_tokens"),
    )


def _whole_sum(rows: Table, name: str) -> int | None:
    sums = [known for piece in rows.pieces() if (known := known_sum(numbers(piece, name))) is not None]
    return round(sum(sums)) if sums else None


def goodput_of(rows: Table, slo: Slo, seed: int) -> Goodput:
    """Evaluate the tidy rows of a cell, over all its repeats, against the SLO; `seed` is that of the intervals."""
    together, each = (
        attainment_ratio(slo),
        {name: target_attainment_ratio(name, target) for name, target in slo.targets.items()},
    )
    judged = judged_rows(rows)
    figures = ratio_figures(SampleRows(judged, seed), [together, *each.values()])
    for ratio in (together, *each.values()):
        if is_attainment_late(ratio, judged):
            figures[ratio.name] = figures[ratio.name].without_value(SENT_LATE)
    rate = _rate(*good_requests(rows, slo), RATE_DEFINITION, RATE_UNIT, RATE_MISSING)
    return Goodput(
        slo=slo,
        rate=rate.without_value(SENT_LATE) if figures[together.name].missing == SENT_LATE else rate,
        slo_attainment=figures[together.name],
        by_target={name: figures[ratio.name] for name, ratio in each.items()},
    )
