"""Whole requests against the paired baseline's: two speed-ups, requests an hour of both sides, and cost saved.

The ratio of means is what an owner of GPUs sees: in a closed loop so many streams are always waiting for an answer, so
requests an hour are streams / mean time of a request (Little's law), and their ratio is the ratio of means. The median
of the pairs' own ratios is what a user sees: long answers weigh no more than short ones there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.end_to_end import EndToEnd
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.estimates.speedup import E2E_SPEEDUP, PAIRED, complete, speedup
from specbench_client.analysis.statistics.bootstrap import LEVEL, layout_of
from specbench_client.analysis.statistics.log_ratio import log_ratio
from specbench_client.analysis.statistics.quantile import percentile_intervals
from specbench_client.metrics.frame import Values
from specbench_client.metrics.latency import E2E_MS
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs

MS_PER_HOUR = 3_600_000.0
E2E_SPEEDUP_MEDIAN = "e2e_speedup_median"
REQUESTS_PER_HOUR = "requests_per_hour"
BASELINE_REQUESTS_PER_HOUR = "baseline_requests_per_hour"
COST_SAVED = "cost_saved"
NAMES = (E2E_SPEEDUP, E2E_SPEEDUP_MEDIAN, REQUESTS_PER_HOUR, BASELINE_REQUESTS_PER_HOUR, COST_SAVED)
_OPEN_LOOP = "the load is an open loop: its schedule decides how many come, not the engine"
DEFINITIONS = {
    E2E_SPEEDUP_MEDIAN: (
        "Median over pairs of (e2e of the baseline / e2e of the arm), on the log where two lie in the middle,"
        f" e2e = last_token_ns − intended_ns, whatever the lengths of the answers, {PAIRED}"
    ),
    REQUESTS_PER_HOUR: (
        "Requests an hour of this arm at this load: 3600 s × streams / mean e2e of its side of the pairs (Little's law;"
        " closed loop), e2e = last_token_ns − intended_ns; of a category: as if all streams were of it, at the pace"
        f" that it has in the mix, {PAIRED}"
    ),
    BASELINE_REQUESTS_PER_HOUR: (
        "Requests an hour of the paired baseline at this load: 3600 s × streams / mean e2e of its side of the pairs"
        f" (Little's law; closed loop), {PAIRED}"
    ),
    COST_SAVED: (
        "Share of the cost of a request that is saved, both arms at the same price an hour:"
        f" 1 − requests an hour of the baseline / requests an hour of the arm, {PAIRED}"
    ),
}
UNITS = {REQUESTS_PER_HOUR: "requests/h", BASELINE_REQUESTS_PER_HOUR: "requests/h"}
MISSING = {
    E2E_SPEEDUP_MEDIAN: "no request has a partner",
    REQUESTS_PER_HOUR: f"no request has a partner, or {_OPEN_LOOP}",
    BASELINE_REQUESTS_PER_HOUR: f"no request has a partner, or {_OPEN_LOOP}",
    COST_SAVED: f"no request has a partner, or {_OPEN_LOOP}",
}


def end_to_end(pairs: Pairs, streams: int | None, seed: int) -> EndToEnd:
    """Compare whole requests. `streams`: of the closed loop; None in an open one."""
    means = speedup(E2E_SPEEDUP, pairs, seed).figure
    rows, (arm, baseline) = complete(pairs, [E2E_MS.values(pairs.side(side)) for side in (ARM, BASELINE)])
    hours = _PerHour(rows, streams, seed)
    return EndToEnd(
        speedup=means,
        median_speedup=_median(rows, arm, baseline, seed),
        requests_per_hour=hours.figure(REQUESTS_PER_HOUR, arm),
        baseline_requests_per_hour=hours.figure(BASELINE_REQUESTS_PER_HOUR, baseline),
        cost_saved=_cost_saved(means) if streams else _missing(COST_SAVED),
    )


def named(found: EndToEnd) -> dict[str, Figure]:
    """The same by the names of docs/metrics.md."""
    figures = (
        found.speedup,
        found.median_speedup,
        found.requests_per_hour,
        found.baseline_requests_per_hour,
        found.cost_saved,
    )
    return dict(zip(NAMES, figures, strict=True))


@dataclass(frozen=True)
class _PerHour:
    """Requests an hour of one side or the other, over the same pairs."""

    rows: pd.DataFrame
    streams: int | None
    seed: int

    def figure(self, name: str, e2e_ms: Values) -> Figure:
        if self.streams is None:
            return _missing(name)
        found = log_ratio(self.rows, [np.ones_like(e2e_ms), e2e_ms], (1, -1), self.seed)
        if found is None:
            return _missing(name)
        return found.figure(DEFINITIONS[name], UNITS[name], MS_PER_HOUR * self.streams)


def _missing(name: str) -> Figure:
    return Figure(unit=UNITS.get(name, "ratio"), definition=DEFINITIONS[name], n=0, source="both")


def _median(rows: pd.DataFrame, arm: Values, baseline: Values, seed: int) -> Figure:
    """On the log, where the ratio of a pair and its inverse lie equally far from 1."""
    if not len(rows) or (arm <= 0).any() or (baseline <= 0).any():
        return _missing(E2E_SPEEDUP_MEDIAN)
    logs, layout = np.log(baseline / arm), layout_of(rows)
    value = float(np.median(logs))
    (chosen,) = percentile_intervals(logs, layout, [50], seed)
    interval = None
    if chosen:
        low, high = float(np.exp(chosen.bounds.low)), float(np.exp(chosen.bounds.high))
        interval = FigureInterval(low=low, high=high, level=LEVEL, method=f"{chosen.method}, on the log ratio")
    return Figure(
        value=float(np.exp(value)),
        unit="ratio",
        definition=f"{DEFINITIONS[E2E_SPEEDUP_MEDIAN]}; {len(rows)} pairs",
        n=layout.prompts,
        interval=interval,
        source="both",
    )


def _cost_saved(means: Figure) -> Figure:
    """1 − 1 / ratio: it rises with the ratio, so the bounds go with it."""
    bounds = means.interval
    interval = None
    if bounds:
        interval = bounds.model_copy(update={"low": 1 - 1 / bounds.low, "high": 1 - 1 / bounds.high})
    value = None if means.value is None else 1 - 1 / means.value
    definition = DEFINITIONS[COST_SAVED]
    return Figure(value=value, unit="ratio", definition=definition, n=means.n, interval=interval, source="both")
