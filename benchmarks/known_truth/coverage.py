"""How often an interval of each figure holds the truth, over many experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from known_truth.experiment import Experiment
from specbench_api.outcome.figure import Figure
from specbench_client.analysis.estimates.figures import Sample, percentile_figures, ratio_figures
from specbench_client.analysis.estimates.speedup import QUOTIENTS, SPEEDUP, TPOT_SPEEDUP, speedup
from specbench_client.analysis.prediction.explain import prediction
from specbench_client.analysis.prediction.mix import mixed
from specbench_client.metrics import acceptance, pace
from specbench_client.metrics.latency import E2E_MS, TTFT_MS
from specbench_client.metrics.metric import Percentile, mean_of
from specbench_client.metrics.pace import TPOT_MS
from specbench_client.metrics.pairing import ARM, BASELINE, KEY, SIDE, Pairs

RATIOS = (
    acceptance.EMITTED_POOLED, acceptance.EMITTED_MEAN, acceptance.RATE, pace.TPOT_MS_POOLED, pace.STREAM_TPS,
    mean_of(TTFT_MS), mean_of(E2E_MS),
)  # fmt: skip
MEASURES = (TTFT_MS, TPOT_MS, E2E_MS)
PERCENTS = (50, 95)
MIX = {"code": 0.7, "chat": 0.1, "math": 0.1, "news": 0.1}
"""Other traffic than the prompts', of which each category is a quarter."""
FACTORS = ("step_cost", "gap")
"""Of a prediction; `measured` is the speed-up again, and `predicted` that of TPOT."""
MIX_SPEEDUP, MIX_LENGTH = "mix_speedup", "mix_acceptance_length"
Z = 1.96


def truths(experiment: Experiment) -> dict[str, float]:
    """What is true of the population, by the figure's name."""
    arm, baseline = experiment.population()
    found = {ratio.name: ratio.value(arm) for ratio in RATIOS}
    found |= {name: _quotient(name, arm, baseline) for name in QUOTIENTS}
    percentiles = [Percentile(measure, percent) for measure in MEASURES for percent in PERCENTS]
    found |= {each.name: each.value(arm) for each in percentiles}
    found |= _factors(arm, baseline) | _mixed(arm, baseline)
    return {name: value for name, value in found.items() if value is not None}


def measured(experiment: Experiment, seed: int) -> dict[str, Figure]:
    """The figures of one experiment with their intervals, as a cell of a run would have them."""
    arm, baseline = experiment.arms(seed)
    pairs = paired(arm, baseline)
    sample = Sample(arm, seed)
    factors, mix = prediction(pairs, experiment.drafts, seed), mixed(pairs, MIX, seed)
    assert factors is not None
    assert mix is not None
    return {
        **{name: speedup(name, pairs, seed).figure for name in QUOTIENTS},
        **ratio_figures(sample, RATIOS),
        **percentile_figures(sample, MEASURES),
        **{name: getattr(factors, name) for name in FACTORS},
        MIX_SPEEDUP: mix.speedup,
        MIX_LENGTH: mix.acceptance_length,
    }


@dataclass
class Coverage:
    """Counts of one experiment, drawn anew so many times."""

    experiment: Experiment
    truth: Mapping[str, float]
    drawn: int = 0
    told: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    below: Counter[str] = field(default_factory=Counter)
    widths: Counter[str] = field(default_factory=Counter)
    """Sums of the logs of high over low."""

    def add(self, seeds: Iterable[int]) -> None:
        """Draw and count."""
        for seed in seeds:
            self.drawn += 1
            for name, figure in measured(self.experiment, seed).items():
                if name in self.truth and figure.interval is not None:
                    low, high = figure.interval.low, figure.interval.high
                    self.told[name] += 1
                    self.held[name] += low <= self.truth[name] <= high
                    self.below[name] += self.truth[name] < low
                    self.widths[name] += float(np.log(high / low)) if low > 0 else np.nan  # type: ignore[assignment]

    def share(self, name: str) -> float | None:
        """How often the interval held the truth; None where there was no interval."""
        return self.held[name] / self.told[name] if self.told[name] else None

    def lines(self) -> Iterable[dict[str, object]]:
        """One line a figure."""
        for name in self.truth:
            if share := self.share(name):
                yield {
                    "experiment": self.experiment.name,
                    "figure": name,
                    "intervals": self.told[name],
                    "held": round(share, 4),
                    "error": round(Z * float(np.sqrt(share * (1 - share) / self.told[name])), 4),
                    "truth_below": round(self.below[name] / self.told[name], 4),
                    "width": round(self.widths[name] / self.told[name], 4),
                }


def _quotient(name: str, arm: pd.DataFrame, baseline: pd.DataFrame) -> float:
    over, under = (float(part.sum()) for part in QUOTIENTS[name].parts(arm))
    base_over, base_under = (float(part.sum()) for part in QUOTIENTS[name].parts(baseline))
    return (over / under) / (base_over / base_under)


def _factors(arm: pd.DataFrame, baseline: pd.DataFrame) -> dict[str, float]:
    flows = [float((rows["last_token_ns"] - rows["first_token_ns"]).sum()) for rows in (arm, baseline)]
    speedups = [_quotient(name, arm, baseline) for name in (SPEEDUP, TPOT_SPEEDUP)]
    step_cost = flows[1] / float(baseline["steps"].sum()) / (flows[0] / float(arm["steps"].sum()))
    return {"step_cost": step_cost, "gap": speedups[0] / speedups[1]}


def _mixed(arm: pd.DataFrame, baseline: pd.DataFrame) -> dict[str, float]:
    """Means of each category's requests, weighed by the mix."""

    def total(rows: pd.DataFrame, column: str) -> float:
        means = rows.groupby("category")[column].mean()
        return sum(share * float(means[name]) for name, share in MIX.items())

    rates = [total(rows, "tokens") / total(rows, "last_token_ns") for rows in (arm, baseline)]
    return {
        MIX_SPEEDUP: rates[0] / rates[1],
        MIX_LENGTH: (total(arm, "tokens") - 1) / total(arm, "steps"),
    }


def paired(arm: pd.DataFrame, baseline: pd.DataFrame) -> Pairs:
    """Return every request with its partner: nothing fails here."""
    sides = [
        rows[[*KEY, *SIDE]].rename(columns={name: name + suffix for name in SIDE})
        for rows, suffix in ((arm, ARM), (baseline, BASELINE))
    ]
    rows = sides[0].merge(sides[1], on=KEY, how="inner")
    return Pairs(rows, len(rows), 0)
