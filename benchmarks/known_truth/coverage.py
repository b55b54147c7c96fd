"""Measures how often the confidence interval of each figure contains the true value, over many experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from known_truth.experiment import Experiment
from specbench_client.analysis.estimates.cell_figures import SampleRows, percentile_figures, ratio_figures
from specbench_client.analysis.estimates.speedups import SPEEDUP, SPEEDUPS, TPOT_SPEEDUP, paired_speedup
from specbench_client.analysis.explanation.factors import explain_speedup
from specbench_client.analysis.explanation.traffic_mix import project_mix
from specbench_client.documents.figure import Figure
from specbench_client.metrics import acceptance, time_per_token
from specbench_client.metrics.latency import E2E_MS, TTFT_MS
from specbench_client.metrics.metric_types import PercentileMetric, RequestMetric, mean_metric
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table, has_text
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.metrics.time_per_token import TPOT_MS

RATIOS = (
    acceptance.EMITTED_POOLED, acceptance.EMITTED_MEAN, acceptance.ACCEPTANCE_RATE,
    time_per_token.TPOT_MS_POOLED, time_per_token.STREAM_TPS,
    mean_metric(TTFT_MS), mean_metric(E2E_MS),
)  # fmt: skip
MEASURES = (TTFT_MS, TPOT_MS, E2E_MS)
PERCENTS = (50, 95)
MIX = {"code": 0.7, "chat": 0.1, "math": 0.1, "news": 0.1}
"""A traffic mix that differs from the prompts, in which each category has a share of a quarter."""
FACTORS = ("step_cost", "gap")
"""Figures of a prediction; `measured` is the speed-up, and `predicted` is that of TPOT."""
MIX_SPEEDUP, MIX_LENGTH = "mix_speedup", "mix_acceptance_length"
Z = 1.96


def truths(experiment: Experiment) -> dict[str, float]:
    """True values of the population, by figure."""
    arm, baseline = experiment.population()
    found = {ratio.name: ratio.value(arm) for ratio in RATIOS}
    found |= {name: _quotient(name, arm, baseline) for name in SPEEDUPS}
    percentiles = [PercentileMetric(measure, percent) for measure in MEASURES for percent in PERCENTS]
    found |= {each.name: each.value(arm) for each in percentiles}
    found |= _factors(arm, baseline) | _mixed(arm, baseline)
    return {name: value for name, value in found.items() if value is not None}


def measured(experiment: Experiment, seed: int, names: Container[str]) -> dict[str, Figure]:
    """Return these figures of one experiment with their intervals, as in a cell of a run."""
    arm, baseline = experiment.arms(seed)
    pairs = paired(arm, baseline)
    sample = SampleRows(arm, seed)
    measures = [each for each in MEASURES if any(_percentile(each, percent) in names for percent in PERCENTS)]
    found = {
        **{name: paired_speedup(name, pairs, seed).figure for name in SPEEDUPS if name in names},
        **ratio_figures(sample, [ratio for ratio in RATIOS if ratio.name in names]),
        **percentile_figures(sample, measures),
    }
    if any(name in names for name in FACTORS):
        factors = explain_speedup(pairs, experiment.drafts, seed)
        assert factors is not None
        found |= {name: getattr(factors, name) for name in FACTORS}
    if MIX_SPEEDUP in names or MIX_LENGTH in names:
        mix = project_mix(pairs, MIX, seed)
        assert mix is not None
        found |= {MIX_SPEEDUP: mix.speedup, MIX_LENGTH: mix.acceptance_length}
    return found


@dataclass
class Coverage:
    """Counts over many samples of one experiment."""

    experiment: Experiment
    truth: Mapping[str, float]
    """The true values of the figures that are computed and counted."""
    drawn: int = 0
    intervals: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    below: Counter[str] = field(default_factory=Counter)
    widths: Counter[str] = field(default_factory=Counter)
    """Sum of log(high / low) per figure."""

    def add(self, seeds: Iterable[int]) -> None:
        """Simulate the experiment for each seed and count."""
        for seed in seeds:
            self.drawn += 1
            for name, figure in measured(self.experiment, seed, self.truth).items():
                if name in self.truth and figure.interval is not None:
                    low, high = figure.interval.low, figure.interval.high
                    self.intervals[name] += 1
                    self.held[name] += low <= self.truth[name] <= high
                    self.below[name] += self.truth[name] < low
                    self.widths[name] += float(np.log(high / low)) if low > 0 else np.nan  # type: ignore[assignment]

    def share(self, name: str) -> float | None:
        """Return the share of intervals that contain the true value; None if there was no interval."""
        return self.held[name] / self.intervals[name] if self.intervals[name] else None

    def lines(self) -> Iterable[dict[str, object]]:
        """Return one line per figure."""
        for name in self.truth:
            if share := self.share(name):
                yield {
                    "experiment": self.experiment.name,
                    "figure": name,
                    "intervals": self.intervals[name],
                    "held": round(share, 4),
                    "error": round(Z * float(np.sqrt(share * (1 - share) / self.intervals[name])), 4),
                    "truth_below": round(self.below[name] / self.intervals[name], 4),
                    "width": round(self.widths[name] / self.intervals[name], 4),
                }


def _percentile(measure: RequestMetric, percent: int) -> str:
    return PercentileMetric(measure, percent).name


def _quotient(name: str, arm: Table, baseline: Table) -> float:
    over, under = (float(part.sum()) for part in SPEEDUPS[name].parts(arm))
    base_over, base_under = (float(part.sum()) for part in SPEEDUPS[name].parts(baseline))
    return (over / under) / (base_over / base_under)


def _factors(arm: Table, baseline: Table) -> dict[str, float]:
    flows = [float(time_per_token.flow_ms(rows).sum()) for rows in (arm, baseline)]
    speedups = [_quotient(name, arm, baseline) for name in (SPEEDUP, TPOT_SPEEDUP)]
    steps = [float(numbers(rows, "steps").sum()) for rows in (arm, baseline)]
    step_cost = flows[1] / steps[1] / (flows[0] / steps[0])
    return {"step_cost": step_cost, "gap": speedups[0] / speedups[1]}


def _mixed(arm: Table, baseline: Table) -> dict[str, float]:
    """Means over the requests of each category, weighted by the mix."""

    def total(rows: Table, column: str) -> float:
        values = numbers(rows, column)
        return sum(share * float(values[has_text(rows, "category", name)].mean()) for name, share in MIX.items())

    rates = [total(rows, "tokens") / total(rows, "last_token_ns") for rows in (arm, baseline)]
    return {
        MIX_SPEEDUP: rates[0] / rates[1],
        MIX_LENGTH: (total(arm, "tokens") - 1) / total(arm, "steps"),
    }


def paired(arm: Table, baseline: Table) -> Pairs:
    """Return every request with its pair in the other arm; no request fails here."""
    return Pairs(arm, baseline, len(arm), 0)
