"""Factors a paired speed-up into acceptance, step time, prefill and length; their product is exactly the speed-up.

Over the pairs in which both sides have all parts, each side has N tokens, n requests, stream time E (intended to last
token), time F from first to last tokens, and s steps. With step time t = F / s, tokens per step AL = (N − n) / s and
share of decode in stream time f = F / E, stream time is F / f and F = (N − n)·t / AL. So tokens over stream time of the
arm, divided by the same of the baseline, is

    speed-up = (AL / AL₀) · (t₀ / t) · (f / f₀) · [N / (N − n)] / [N₀ / (N₀ − n)]

The first two are the prediction t_ar·AL / t_sd, which is exact for decode alone (its form is from Leviathan et al.
2023). The third is what waiting and prefill leave of it; the fourth is 1 if both sides answered alike. A baseline emits
one token per step: AL₀ = 1. Each factor, and each product of factors, is a ratio of sums, and so has the interval of
every other log ratio; over the same pairs the product of all factors has the interval of the speed-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.estimates.speedups import sum_pairs
from specbench_client.analysis.statistics.effects import Effect, LogRatioInputs
from specbench_client.documents.explanation import Prediction
from specbench_client.documents.figure import Figure
from specbench_client.metrics.late_sends import MEAN_TTFT, late_figures
from specbench_client.metrics.metric_types import SENT_LATE, TimingFault, starts_uncounted
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.metrics.time_per_token import decode_ns, later_tokens, timed_steps, timed_tokens
from specbench_client.numpy_columns import Values

_PARTS = ("tokens", "later", "stream_ns", "flow_ns", "steps")
"""Parts of each side of a pair."""


def _side_parts(rows: Table, *, drafting: bool) -> list[Values]:
    """Return the parts of one side of pairs, shape (pairs,) each.

    An answer of one token, or of one chunk, has no steps. Without drafts there is one for each later token.
    """
    intended, last = (numbers(rows, name) for name in ("intended_ns", "last_token_ns"))
    tokens = timed_tokens(rows)
    later = np.where(np.isnan(tokens) | starts_uncounted(rows), np.nan, np.nan_to_num(later_tokens(rows)))
    steps = np.where(later == 0, 0.0, timed_steps(rows)) if drafting else later
    return [tokens, later, last - intended, decode_ns(rows), steps]


Exponents = Mapping[str, int]
"""Exponents of the sums in a factor: as given for the arm, inverted for the baseline."""
ACCEPTANCE: Exponents = {"later": 1, "steps": -1}
"""AL / AL₀."""
STEP_TIME: Exponents = {"steps": 1, "flow_ns": -1}
"""t₀ / t."""
PREFILL: Exponents = {"flow_ns": 1, "stream_ns": -1}
"""f / f₀."""
LENGTH: Exponents = {"tokens": 1, "later": -1}
"""Tokens over later tokens, of the arm ÷ of the baseline."""


def product(*factors: Exponents) -> Exponents:
    """Return the product of factors; sums that cancel are left out."""
    powers = {name: sum(factor.get(name, 0) for factor in factors) for name in _PARTS}
    return {name: power for name, power in powers.items() if power}


PREDICTED = product(ACCEPTANCE, STEP_TIME)
"""t_ar·AL / t_sd."""
GAP = product(PREFILL, LENGTH)
"""Measured over predicted."""
MEASURED = product(PREDICTED, GAP)
"""The speed-up."""


@dataclass(frozen=True)
class SpeedupSums:
    """The sums of both sides over all pairs that have all parts."""

    inputs: LogRatioInputs
    pairs: int

    def ratio(self, powers: Exponents) -> Effect:
        """Return one factor, or a product of several."""
        arm = {f"{name}_arm": power for name, power in powers.items()}
        baseline = {f"{name}_baseline": -power for name, power in powers.items()}
        found = self.inputs.log_ratio({**arm, **baseline})
        assert found is not None, "all sums are positive"
        return found


def speedup_sums(pairs: Pairs, seed: int) -> SpeedupSums | None:
    """Return the sums from which all factors are computed; None if no pair has all parts."""
    if not len(pairs):
        return None
    names = [f"{name}_{side}" for side in ("arm", "baseline") for name in _PARTS]
    sums = sum_pairs(pairs, len(names), _parts)
    found = int(sums.counts.sum())
    inputs = LogRatioInputs.of(names, sums, seed)
    if not found or any(matrix.sum() <= 0 for matrix in inputs.matrices.values()):
        return None
    return SpeedupSums(inputs, found)


def _parts(arm_rows: Table, baseline_rows: Table) -> list[Values]:
    """Return all parts of both sides, shape (pairs,) each; the first is NaN for pairs whose times are impossible.

    An answer of several tokens that arrived at once has no time between its tokens.
    """
    arm, baseline = _side_parts(arm_rows, drafting=True), _side_parts(baseline_rows, drafting=False)
    at_once = np.any([(later > 0) & ~(flow_ns > 0) for _, later, _, flow_ns, _ in (arm, baseline)], axis=0)
    return [np.where(at_once, np.nan, arm[0]), *arm[1:], *baseline]


_NO_IDEAL = "the configured draft tokens per step are not known, so × Acceptance is the acceptance length"
_MEANINGS = {
    "measured": "Output tokens per second of stream time over the paired baseline's",
    "predicted": "Step time of the baseline × acceptance length ÷ step time of the arm (t_ar·AL / t_sd)",
    "gap": "Measured speed-up ÷ predicted speed-up: prefill × length",
    "ideal": "Configured draft tokens per step + 1",
    "acceptance": "Tokens per step ÷ (configured draft tokens per step + 1)",
    "tokens_per_step": "Tokens per step; the configured draft tokens per step are not known",
    "step_cost": "Step time of the baseline ÷ that of the arm, each at its own batch size",
    "prefill": "Share of the time from first to last token in stream time, of the arm ÷ of the baseline",
    "length": "Tokens ÷ tokens after the first, of the arm ÷ of the baseline",
}


def explain_speedup(pairs: Pairs, configured_draft_tokens: int, seed: int) -> Prediction | None:
    """Explain one cell; None if no pair has all parts. `configured_draft_tokens`: per step; 0 if not known."""
    found = speedup_sums(pairs, seed)
    if found is None:
        return None
    ideal = configured_draft_tokens + 1.0 if configured_draft_tokens else None
    acceptance = _figure("acceptance" if ideal else "tokens_per_step", found, ACCEPTANCE, 1 / (ideal or 1.0))
    prefill = _figure("prefill", found, PREFILL)
    sides = (pairs.arm, pairs.baseline)
    is_late = any(each.name == MEAN_TTFT for side in sides for each in late_figures(side))
    why = max(map(TimingFault.of, sides)).reason or (SENT_LATE if is_late else "")
    if why:
        prefill = prefill.without_value(why)
    return Prediction(
        measured=_figure("measured", found, MEASURED),
        predicted=_figure("predicted", found, PREDICTED),
        gap=_figure("gap", found, GAP),
        ideal=Figure(
            value=ideal,
            unit="tokens/step",
            definition=_MEANINGS["ideal"],
            n=found.inputs.layout.prompts,
            source="both",
            missing="" if ideal else _NO_IDEAL,
        ),
        acceptance=acceptance.within(1 / ideal, 1.0) if ideal else acceptance.within(1.0),
        step_cost=_figure("step_cost", found, STEP_TIME),
        prefill=prefill,
        length=_figure("length", found, LENGTH),
    )


def _figure(name: str, found: SpeedupSums, powers: Exponents, scale: float = 1.0) -> Figure:
    return found.ratio(powers).figure(f"{_MEANINGS[name]}; {found.pairs} pairs", scale=scale)
