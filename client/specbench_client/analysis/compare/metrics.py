"""The metrics that two results are compared by: their labels, how each is computed, and for which arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specbench_api.spec.gate import LATENCIES, GateMetric, Tolerance
from specbench_client.analysis.compare import effects
from specbench_client.analysis.estimates.speedups import SPEEDUP_DEFINITION
from specbench_client.documents.figure import Figure
from specbench_client.documents.summary import Cell
from specbench_client.metrics import acceptance, latency, steady_window, time_per_token
from specbench_client.metrics.metric_types import PercentileMetric, RequestMetric, mean_metric

MEASURES: dict[GateMetric, RequestMetric] = {
    GateMetric.TPOT: time_per_token.TPOT_MS,
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
    compare: effects.FigureComparer = field(compare=False)

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
        return ComparableMetric(str(metric), metric, "ratio", SPEEDUP_DEFINITION, "", effects.speedup)
    if metric is GateMetric.OUTPUT_TPS:
        unit, definition = steady_window.OUTPUT_TPS_UNIT, steady_window.OUTPUT_TPS_DEFINITION
        return ComparableMetric(str(metric), metric, unit, definition, steady_window.OUTPUT_TPS, effects.output_tps)
    if percentile:
        figure = PercentileMetric(MEASURES[metric], int(percentile.removeprefix("p")))
        compare = effects.percentile(figure.measure, figure.percent)
        unit, label = figure.measure.unit, f"{metric} {percentile}"
        return ComparableMetric(label, metric, unit, figure.definition, figure.name, compare)
    pooled = {GateMetric.TPOT: time_per_token.TPOT_MS_POOLED, GateMetric.ACCEPTANCE_LENGTH: acceptance.EMITTED_POOLED}
    of = pooled[metric] if metric in pooled else mean_metric(MEASURES[metric])
    return ComparableMetric(str(metric), metric, of.unit, of.definition, of.name, effects.ratio(of))


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
