"""Which figures late sends of the client change: each latency figure and SLO attainment on its own.

Latency is measured from the intended time, so the client's own delay before sending (`late_ms`) is part of it. One
pause of the client delays few requests, which may be all that a percentile shows and hardly change the mean. So each
figure is computed again as if all requests had been sent in time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_api.plan.plan import Plan
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics.latency import E2E_MS, TTFT_MS
from specbench_client.metrics.metric_types import PercentileMetric, RatioMetric, RequestMetric, mean_metric
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers, piecewise
from specbench_client.numpy_columns import Values

LATE_SHARE = 0.05
LATE_MIN_MS = 5.0
FIGURE_SHARE = 0.1
TAIL_MIN_MS = 10.0
"""How much late sends may add to a latency figure: a share of it, or LATE_MIN_MS; to a tail percentile, this time."""
TAIL_MIN = 2
"""Requests beyond a percentile that is judged: with fewer it is the time of a single request."""
ATTAINMENT_SHARE = 0.01
"""Goodput is left out if this share of the requests missed a target because they were sent LATE_MIN_MS late."""


MEAN_TTFT, MEAN_E2E = mean_metric(TTFT_MS).name, mean_metric(E2E_MS).name
"""The speed-up is a ratio of mean E2E latencies, so it changes as much as they do."""


@dataclass(frozen=True)
class LateFigure:
    """A latency figure to which late sends add more than is tolerable."""

    name: str
    late_ms: float
    allowed_ms: float


def without_waits_by_design(rows: Table, plan: Plan, workload: str) -> Table:
    """Return the rows without lateness that is part of the latency by design.

    These are the wait for a slot of load.arrival.maxInFlight, and that for the client to apply the chat template, which
    it does for a later turn when the previous one is answered.
    """
    has_slots = plan.load.arrival is not None and plan.load.arrival.max_in_flight is not None
    has_template = plan.workload(workload).client_template is not None
    if not has_slots and not has_template:
        return rows
    waits = np.where(numbers(rows, "turn") == 0, has_slots, has_template)
    return rows.assign(late_ms=np.where(waits, np.float32(0.0), rows.array("late_ms")))


def late_figures(rows: Table) -> list[LateFigure]:
    """Return the latency figures of these steady rows that late sends change too much; none of a sweep's rows."""
    late = numbers(rows, "late_ms") if "late_ms" in rows else np.zeros(len(rows))
    if not (late > LATE_MIN_MS).any():
        return []
    found = []
    for measure in (TTFT_MS, E2E_MS):
        values = piecewise(rows, measure.values)
        known = ~np.isnan(values) & ~np.isnan(late)
        reported, in_time = (_latency_figures(measure, each[known]) for each in (values, values - late))
        middle = (mean_metric(measure).name, PercentileMetric(measure, 50).name)
        for name, without in in_time.items():
            share = LATE_SHARE if name == MEAN_E2E else FIGURE_SHARE
            allowed = max(LATE_MIN_MS if name in middle else TAIL_MIN_MS, share * without)
            if reported[name] - without > allowed:
                found.append(LateFigure(name, reported[name] - without, allowed))
    return found


def _latency_figures(measure: RequestMetric, known: Values) -> dict[str, float]:
    """Return the reported mean and percentiles of these values, shape (requests,), by the figure's name.

    Percentiles with fewer than TAIL_MIN requests beyond them are left out.
    """
    if not known.size:
        return {}
    judged = [percent for percent in measure.percents if known.size * (100 - percent) >= 100 * TAIL_MIN]
    percentiles = [PercentileMetric(measure, percent) for percent in judged]
    figures = {each.name: float(np.percentile(known, each.percent)) for each in percentiles}
    return {mean_metric(measure).name: float(known.mean()), **figures}


def is_attainment_late(attainment: RatioMetric, rows: Table) -> bool:
    """Return whether late sends change a share of the requests that met their targets too much."""
    late = numbers(rows, "late_ms")
    moved = numbers(rows, "intended_ns") + np.where(late > LATE_MIN_MS, late, 0.0) * NS_PER_MS
    reported, in_time = (attainment.value(each) for each in (rows, rows.assign(intended_ns=moved)))
    return reported is not None and in_time is not None and in_time - reported >= ATTAINMENT_SHARE
