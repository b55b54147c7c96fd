"""What can be compared: by label, how it is found on both sides, and what a summary alone tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import REPEATS_TO_TELL, Cell
from specbench_api.spec.gate import LATENCIES, GateMetric, Tolerance
from specbench_client.analysis.compare import figures
from specbench_client.analysis.compare.estimate import NORMAL, TAIL, Estimate
from specbench_client.analysis.compare.figures import Compare, Found
from specbench_client.analysis.estimates.speedup import SPEEDUP_DEFINITION
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.metrics import acceptance, latency, pace, window
from specbench_client.metrics.metric import Measure, Percentile, mean_of

OF_SUMMARIES = (
    "from the intervals of two summaries, as if independent: their records are not there, so prompts that both were"
    " asked are not paired and the interval is wider than it need be"
)
MEASURES: dict[GateMetric, Measure] = {
    GateMetric.TPOT: pace.TPOT_MS,
    GateMetric.TTFT: latency.TTFT_MS,
    GateMetric.E2E: latency.E2E_MS,
}


@dataclass(frozen=True)
class Comparable:
    """One figure. `name`: of the figure in a summary's cell; empty for the cell's speed-up."""

    label: str
    metric: GateMetric
    unit: str
    definition: str
    name: str
    compare: Compare = field(compare=False)

    @property
    def more_is_better(self) -> bool:
        return self.metric not in LATENCIES

    @property
    def of_drafters(self) -> bool:
        """Whether the baseline has none of it."""
        return self.metric in (GateMetric.SPEEDUP, GateMetric.ACCEPTANCE_LENGTH)

    def in_cell(self, cell: Cell) -> Figure | None:
        """What a summary tells of it."""
        return cell.figures.get(self.name) if self.name else cell.speedup


def comparable(metric: GateMetric, percentile: str | None = None) -> Comparable:
    """The figure of a metric, at a percentile where it has one."""
    if metric is GateMetric.SPEEDUP:
        return Comparable(str(metric), metric, "ratio", SPEEDUP_DEFINITION, "", figures.speedup)
    if metric is GateMetric.OUTPUT_TPS:
        unit, definition = window.OUTPUT_TPS_UNIT, window.OUTPUT_TPS_DEFINITION
        return Comparable(str(metric), metric, unit, definition, window.OUTPUT_TPS, figures.output_tps)
    if percentile:
        figure = Percentile(MEASURES[metric], int(percentile.removeprefix("p")))
        compare = figures.percentile(figure.measure, figure.percent)
        unit, label = figure.measure.unit, f"{metric} {percentile}"
        return Comparable(label, metric, unit, figure.definition, figure.name, compare)
    pooled = {GateMetric.TPOT: pace.TPOT_MS_POOLED, GateMetric.ACCEPTANCE_LENGTH: acceptance.EMITTED_POOLED}
    of = pooled[metric] if metric in pooled else mean_of(MEASURES[metric])
    return Comparable(str(metric), metric, of.unit, of.definition, of.name, figures.ratio(of))


SHOWN = (
    comparable(GateMetric.SPEEDUP),
    comparable(GateMetric.TPOT),
    comparable(GateMetric.TTFT, "p50"),
    comparable(GateMetric.E2E, "p50"),
    comparable(GateMetric.OUTPUT_TPS),
    comparable(GateMetric.ACCEPTANCE_LENGTH),
)
"""What `specbench compare` shows."""


@dataclass(frozen=True)
class Wanted:
    """A figure, and the arms and workloads it is wanted of; none named: all."""

    figure: Comparable
    arms: Sequence[str] = ()
    workloads: Sequence[str] = ()

    @classmethod
    def of(cls, tolerance: Tolerance) -> Wanted:
        """What a tolerance asks for."""
        return cls(comparable(tolerance.metric, tolerance.percentile), tolerance.arms, tolerance.workloads)

    def wants(self, arm: str, workload: str, *, is_baseline: bool) -> bool:
        """Whether it is wanted of this arm and workload."""
        named = (not self.arms or arm in self.arms) and (not self.workloads or workload in self.workloads)
        return named and not (is_baseline and self.figure.of_drafters)


def of_summaries(before: Figure | None, after: Figure | None, repeats: tuple[int, int]) -> Found | None:
    """From two figures with their intervals. Repeats too few to tell are none here either."""
    if not before or not after or not before.value or not after.value:
        return None
    value = float(np.log(after.value / before.value))
    errors = [_errors(figure) for figure in (before, after)]
    estimate = None
    if min(repeats) >= REPEATS_TO_TELL and all(each is not None for each in errors):
        first, second = (each for each in errors if each is not None)
        below, above = float(np.hypot(second[0], first[1])), float(np.hypot(second[1], first[0]))
        estimate = Estimate(value, below, above, NORMAL, OF_SUMMARIES)
    return Found(before.value, after.value, estimate, repeats, min(before.n, after.n))


def _errors(figure: Figure) -> tuple[float, float] | None:
    """Standard errors of its log, downwards and upwards.

    The interval was made with some t; read with the normal's quantile the errors come out too large, never too small.
    """
    bounds = figure.interval
    if bounds is None or figure.value is None or bounds.low <= 0 or bounds.level != LEVEL:
        return None
    critical = float(special.ndtri(1 - TAIL))
    return float(np.log(figure.value / bounds.low)) / critical, float(np.log(bounds.high / figure.value)) / critical
