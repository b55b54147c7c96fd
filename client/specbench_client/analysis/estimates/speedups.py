"""Paired speed-ups: ratios of sums over pairs, with the interval of `statistics.effects`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench_client.analysis.statistics.bootstrap import why_no_interval
from specbench_client.analysis.statistics.confidence_sequence import confidence_sequence
from specbench_client.analysis.statistics.effects import Effect, log_ratio, map_figure
from specbench_client.analysis.statistics.intervals import with_prompts
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.analysis.statistics.percentiles import percentile_intervals, percentiles_of
from specbench_client.analysis.statistics.row_layout import CellSums, RowLayout, layout_of
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.documents.summary import EndToEnd
from specbench_client.metrics import latency, time_per_token
from specbench_client.metrics.latency import E2E_MS
from specbench_client.metrics.metric_types import RatioMetric, mean_metric, why_missing
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import Values, fill

SPEEDUP = "speedup"
TPOT_SPEEDUP = "tpot_speedup"
E2E_SPEEDUP = "e2e_speedup"
OVER_PAIRS = (
    "over pairs of the same prompt, turn, pass over the prompts and repeat, both steady and without error"
    " (later turns only if all earlier replies were identical)"
)
SPEEDUP_DEFINITION = (
    "Output tokens per second of stream time, divided by the paired baseline's: (Σ tokens / Σ e2e) of the arm"
    f" ÷ (Σ tokens / Σ e2e) of the baseline, e2e = last_token_ns − intended_ns, {OVER_PAIRS}"
)
TPOT_SPEEDUP_DEFINITION = (
    "Time per output token of the paired baseline, divided by the arm's: (Σ decode / Σ later tokens) of the baseline"
    " ÷ (Σ decode / Σ later tokens) of the arm, decode = last_token_ns − first_token_ns, which is above 0 on both"
    f" sides, and later tokens are those after the first chunk, {OVER_PAIRS}"
)
E2E_SPEEDUP_DEFINITION = (
    "Mean E2E latency of the paired baseline, divided by the arm's: (Σ e2e / requests) of the baseline"
    " ÷ (Σ e2e / requests) of the arm, e2e = last_token_ns − intended_ns; it equals the speed-up if both sides answer"
    f" with equally many tokens, {OVER_PAIRS}"
)
SPEEDUP_MISSING = "the baseline was skipped or not measured here, or no request has a partner"
_SIGNS = (1, -1, -1, 1)
"""Signs of the numerator and denominator of the arm, and of the baseline."""


@dataclass(frozen=True)
class SpeedupDefinition:
    """The compared rate; it is defined so that `arm / baseline` is larger if the arm is faster."""

    definition: str
    ratio: RatioMetric
    inverted: bool

    def parts(self, rows: Table) -> tuple[Values, Values]:
        """Return numerator and denominator of each row, shape (rows,) each."""
        over, under = self.ratio.parts(rows)
        return (under, over) if self.inverted else (over, under)


SPEEDUPS: dict[str, SpeedupDefinition] = {
    SPEEDUP: SpeedupDefinition(SPEEDUP_DEFINITION, time_per_token.STREAM_TPS, inverted=False),
    TPOT_SPEEDUP: SpeedupDefinition(TPOT_SPEEDUP_DEFINITION, time_per_token.TPOT_MS_POOLED, inverted=True),
    E2E_SPEEDUP: SpeedupDefinition(E2E_SPEEDUP_DEFINITION, mean_metric(latency.E2E_MS), inverted=True),
}


@dataclass(frozen=True)
class PairedSpeedup:
    """A speed-up, and its effect; None if no pair has both sides."""

    figure: Figure
    effect: Effect | None = None


def paired_speedup(name: str, pairs: Pairs, seed: int) -> PairedSpeedup:
    """Compute a speed-up over the pairs; without any pair the figure has no value."""
    quotient = SPEEDUPS[name]
    sums = sum_pairs(pairs, len(_SIGNS), lambda arm, baseline: [*quotient.parts(arm), *quotient.parts(baseline)])
    effect = log_ratio(sums, _SIGNS, seed)
    if effect is None:
        sides = (pairs.arm, pairs.baseline) if len(pairs) else ()
        reasons = [why_missing(quotient.ratio, side) for side in sides if quotient.ratio.value(side) is None]
        return PairedSpeedup(missing_speedup(name, *reasons[:1]))
    definition = f"{quotient.definition}; {sums.counts.sum()} pairs"
    if pairs.unpaired_later:
        definition += f", {pairs.unpaired_later} later turns unpaired because earlier replies differ"
    return PairedSpeedup(effect.figure(definition), effect)


def missing_speedup(name: str, why: str = SPEEDUP_MISSING) -> Figure:
    """Return the figure without a value."""
    return Figure(unit="ratio", definition=SPEEDUPS[name].definition, n=0, missing=why, source="both")


PairParts = Callable[[Table, Table], Sequence[Values]]
"""Returns what is summed of each pair, given the rows of the arm and of the baseline, shape (pairs,) each."""


def sum_pairs(pairs: Pairs, parts: int, of: PairParts) -> CellSums:
    """Sum `parts` numbers of the pairs by repeat and prompt, piece by piece; pairs that lack one are left out."""
    sums = CellSums(pair_layout(pairs), parts)
    for piece in pairs.pieces():
        sums.add(of(piece.arm, piece.baseline))
    return sums


def pair_layout(pairs: Pairs) -> RowLayout:
    """Return the layout of the pairs; the category of a prompt is the baseline's."""
    layout = replace(layout_of(pairs.baseline), anytime=pairs.anytime, launches=pairs.launches)
    return layout.taking_turns() if pairs.alternating else layout


# Whole requests compared with the paired baseline's: two speed-ups, requests per hour of both sides, and cost saved.
#
# The ratio of means matters to the owner of the GPUs: in a closed loop the number of waiting streams is constant, so
# requests per hour are streams / mean E2E latency (Little's law), and their ratio is the ratio of means. The median of
# the pairs' own ratios matters to users: long answers have no more weight in it than short ones.

MS_PER_HOUR = 3_600_000.0
E2E_SPEEDUP_MEDIAN = "e2e_speedup_median"
REQUESTS_PER_HOUR = "requests_per_hour"
BASELINE_REQUESTS_PER_HOUR = "baseline_requests_per_hour"
COST_SAVED = "cost_saved"
END_TO_END_NAMES = (E2E_SPEEDUP, E2E_SPEEDUP_MEDIAN, REQUESTS_PER_HOUR, BASELINE_REQUESTS_PER_HOUR, COST_SAVED)
_OPEN_LOOP = (
    "the load is an open loop, where the schedule sets the request rate, or its streams wait (thinkTime, agent traces)"
)
END_TO_END_DEFINITIONS = {
    E2E_SPEEDUP_MEDIAN: (
        "Median over pairs of e2e of the baseline / e2e of the arm, e2e = last_token_ns − intended_ns; of an even"
        f" number of pairs, the geometric mean of the middle two, {OVER_PAIRS}"
    ),
    REQUESTS_PER_HOUR: (
        "Requests per hour of the arm at this load, by Little's law: 3600 s × streams / mean e2e of the arm,"
        " e2e = last_token_ns − intended_ns; for a category, as if all streams sent its requests, with the latency that"
        f" they have in the mix, {OVER_PAIRS}"
    ),
    BASELINE_REQUESTS_PER_HOUR: (
        "Requests per hour of the paired baseline at this load, by Little's law: 3600 s × streams / mean e2e of the"
        f" baseline, {OVER_PAIRS}"
    ),
    COST_SAVED: (
        "Share of a request's cost that the arm saves if both sides have the same price per hour:"
        f" 1 − requests per hour of the baseline / requests per hour of the arm, {OVER_PAIRS}"
    ),
}
END_TO_END_UNITS = {REQUESTS_PER_HOUR: "requests/h", BASELINE_REQUESTS_PER_HOUR: "requests/h"}
END_TO_END_MISSING = {
    E2E_SPEEDUP_MEDIAN: "no request has a partner",
    REQUESTS_PER_HOUR: f"no request has a partner, or {_OPEN_LOOP}",
    BASELINE_REQUESTS_PER_HOUR: f"no request has a partner, or {_OPEN_LOOP}",
    COST_SAVED: f"no request has a partner, or {_OPEN_LOOP}",
}


def end_to_end(pairs: Pairs, streams: int | None, seed: int) -> EndToEnd:
    """Compare whole requests; `streams` is the concurrency of a closed loop whose streams never wait, else None."""
    means = paired_speedup(E2E_SPEEDUP, pairs, seed).figure
    return EndToEnd(
        speedup=means,
        median_speedup=_median_speedup(pairs, seed),
        requests_per_hour=_per_hour(REQUESTS_PER_HOUR, pairs, streams, seed),
        baseline_requests_per_hour=_per_hour(BASELINE_REQUESTS_PER_HOUR, pairs, streams, seed),
        cost_saved=map_figure(means, lambda ratio: 1 - 1 / ratio, "ratio", END_TO_END_DEFINITIONS[COST_SAVED])
        if streams
        else _missing_end_to_end(COST_SAVED),
    )


def figures_by_name(found: EndToEnd) -> dict[str, Figure]:
    """Return the figures by the names used in docs/reference/metrics.md."""
    figures = (
        found.speedup,
        found.median_speedup,
        found.requests_per_hour,
        found.baseline_requests_per_hour,
        found.cost_saved,
    )
    return dict(zip(END_TO_END_NAMES, figures, strict=True))


def _per_hour(name: str, pairs: Pairs, streams: int | None, seed: int) -> Figure:
    """Return the requests per hour of one side of the pairs, which the figure's name selects."""

    def parts(arm: Table, baseline: Table) -> list[Values]:
        sides = (arm, baseline) if name == REQUESTS_PER_HOUR else (baseline, arm)
        own, other = (E2E_MS.values(rows) for rows in sides)
        return [np.where(np.isnan(other), np.nan, 1.0), own]

    found = log_ratio(sum_pairs(pairs, 2, parts), (1, -1), seed) if streams is not None else None
    if streams is None or found is None:
        return _missing_end_to_end(name)
    return found.figure(END_TO_END_DEFINITIONS[name], END_TO_END_UNITS[name], MS_PER_HOUR * streams)


def _missing_end_to_end(name: str) -> Figure:
    return Figure(
        unit=END_TO_END_UNITS.get(name, "ratio"),
        definition=END_TO_END_DEFINITIONS[name],
        n=0,
        missing=END_TO_END_MISSING[name],
        source="both",
    )


def _median_speedup(pairs: Pairs, seed: int) -> Figure:
    """The median on the log scale, on which the ratio of a pair and its inverse are equally far from 1."""
    logs = np.empty(len(pairs))
    fill(logs, map(_log_ratios, pairs.pieces()))
    known = ~np.isnan(logs)
    if not known.any() or np.isinf(logs).any():
        return _missing_end_to_end(E2E_SPEEDUP_MEDIAN)
    layout = pair_layout(pairs).of_rows(known)
    logs = logs if known.all() else logs[known]
    definition, interval = f"{END_TO_END_DEFINITIONS[E2E_SPEEDUP_MEDIAN]}; {logs.size} pairs", None
    (value,), (chosen,) = percentiles_of(logs, [50]), percentile_intervals(logs, layout, [50], seed)
    if layout.anytime:
        repeat_of = layout.cell_of // layout.prompts
        medians = np.array([np.median(logs[repeat_of == repeat]) for repeat in range(layout.repeats)])
        mean, runs = float(medians.mean()), confidence_sequence(medians, layout.turns)
        pairs_of_cells = layout.matrix(np.ones(logs.size))
        value, chosen = mean, with_prompts(runs, mean, [pairs_of_cells], chosen.bounds if chosen else None, value)
        definition += "; geometric mean of the repeats' medians"
    few = too_few_repeats(layout.repeats)
    if chosen and not few:
        low, high = float(np.exp(chosen.bounds.low)), float(np.exp(chosen.bounds.high))
        interval = FigureInterval(low=low, high=high, level=LEVEL, method=f"{chosen.method}, on the log ratio")
    return Figure(
        value=float(np.exp(value)),
        unit="ratio",
        definition=definition,
        n=layout.prompts,
        interval=interval,
        missing="" if interval else few or why_no_interval(layout.prompts),
        source="both",
    )


def _log_ratios(pairs: Pairs) -> Values:
    """Log of the baseline's over the arm's E2E latency, shape (pairs,); NaN if unknown, infinite if one is not > 0."""
    arm, baseline = (E2E_MS.values(rows) for rows in (pairs.arm, pairs.baseline))
    impossible = (arm <= 0) | (baseline <= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(baseline / arm)
    return np.where(np.isnan(arm) | np.isnan(baseline), np.nan, np.where(impossible, np.inf, logs))
