"""The metrics that can be compared: label, how to compute them on both sides, and how to read them from summaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import MIN_REPEATS_TO_COMPARE, Cell
from specbench_api.spec.gate import LATENCIES, GateMetric, Tolerance
from specbench_client.analysis.compare import figures
from specbench_client.analysis.compare.figures import FigureComparer, FigureOnBothSides
from specbench_client.analysis.estimates.speedups import SPEEDUP_DEFINITION
from specbench_client.analysis.statistics.bootstrap import LEVEL, Z
from specbench_client.analysis.statistics.effects import Effect, combined_distances, figure_effect
from specbench_client.metrics import acceptance, decode_speed, latency, steady_window
from specbench_client.metrics.metric_types import PercentileMetric, RequestMetric, mean_metric

OF_SUMMARIES = (
    "from the intervals of two summaries, as if independent: without their records, prompts that both results share"
    " are not paired, and the interval is wider than necessary"
)
NORMAL_FREEDOM = 1e6
"""Degrees of freedom at which Student's t is practically the normal distribution."""
MEASURES: dict[GateMetric, RequestMetric] = {
    GateMetric.TPOT: decode_speed.TPOT_MS,
    GateMetric.TTFT: latency.TTFT_MS,
    GateMetric.E2E: latency.E2E_MS,
}


@dataclass(frozen=True)
class ComparableMetric:
    """A figure to compare. `name` is its name in a summary's cell; empty for the cell's speed-up."""

    label: str
    metric: GateMetric
    unit: str
    definition: str
    name: str
    compare: FigureComparer = field(compare=False)

    @property
    def more_is_better(self) -> bool:
        return self.metric not in LATENCIES

    @property
    def of_drafters(self) -> bool:
        """Whether the baseline does not have it."""
        return self.metric in (GateMetric.SPEEDUP, GateMetric.ACCEPTANCE_LENGTH)

    def in_cell(self, cell: Cell) -> Figure | None:
        """Return the figure from a summary's cell."""
        return cell.figures.get(self.name) if self.name else cell.speedup


def comparable_metric(metric: GateMetric, percentile: str | None = None) -> ComparableMetric:
    """Return the figure of a metric, at a percentile if it has one."""
    if metric is GateMetric.SPEEDUP:
        return ComparableMetric(str(metric), metric, "ratio", SPEEDUP_DEFINITION, "", figures.speedup)
    if metric is GateMetric.OUTPUT_TPS:
        unit, definition = steady_window.OUTPUT_TPS_UNIT, steady_window.OUTPUT_TPS_DEFINITION
        return ComparableMetric(str(metric), metric, unit, definition, steady_window.OUTPUT_TPS, figures.output_tps)
    if percentile:
        figure = PercentileMetric(MEASURES[metric], int(percentile.removeprefix("p")))
        compare = figures.percentile(figure.measure, figure.percent)
        unit, label = figure.measure.unit, f"{metric} {percentile}"
        return ComparableMetric(label, metric, unit, figure.definition, figure.name, compare)
    pooled = {GateMetric.TPOT: decode_speed.TPOT_MS_POOLED, GateMetric.ACCEPTANCE_LENGTH: acceptance.EMITTED_POOLED}
    of = pooled[metric] if metric in pooled else mean_metric(MEASURES[metric])
    return ComparableMetric(str(metric), metric, of.unit, of.definition, of.name, figures.ratio(of))


SHOWN_METRICS = (
    comparable_metric(GateMetric.SPEEDUP),
    comparable_metric(GateMetric.TPOT),
    comparable_metric(GateMetric.TTFT, "p50"),
    comparable_metric(GateMetric.E2E, "p50"),
    comparable_metric(GateMetric.OUTPUT_TPS),
    comparable_metric(GateMetric.ACCEPTANCE_LENGTH),
)
"""The metrics that `specbench compare` shows."""


@dataclass(frozen=True)
class MetricSelection:
    """A figure and the arms and workloads to compare it for; empty for all."""

    figure: ComparableMetric
    arms: Sequence[str] = ()
    workloads: Sequence[str] = ()

    @classmethod
    def of(cls, tolerance: Tolerance) -> MetricSelection:
        """Return the selection of a tolerance."""
        return cls(comparable_metric(tolerance.metric, tolerance.percentile), tolerance.arms, tolerance.workloads)

    def includes(self, arm: str, workload: str, *, is_baseline: bool) -> bool:
        """Whether the figure is selected for this arm and workload."""
        named = (not self.arms or arm in self.arms) and (not self.workloads or workload in self.workloads)
        return named and not (is_baseline and self.figure.of_drafters)


def compare_summaries(
    before: Figure | None, after: Figure | None, repeats: tuple[int, int]
) -> FigureOnBothSides | None:
    """Compare two figures by their intervals; too few repeats give no interval, as with records.

    The intervals were computed with some t quantile; dividing by the normal quantile makes the errors too large, never
    too small.
    """
    if not before or not after or not before.value or not after.value:
        return None
    old, new = figure_effect(before, repeats[0]), figure_effect(after, repeats[1])
    if old is None or new is None:
        return None
    effect = Effect(new.value - old.value, min(before.n, after.n), min(repeats))
    below, above = (each / Z for each in combined_distances(new, old))
    at_level = all(figure.interval is None or figure.interval.level == LEVEL for figure in (before, after))
    usable = at_level and math.isfinite(below) and math.isfinite(above)
    if effect.repeats >= MIN_REPEATS_TO_COMPARE and usable:
        effect = effect.with_errors(below, above, NORMAL_FREEDOM, OF_SUMMARIES)
    return FigureOnBothSides(before.value, after.value, effect, repeats)
