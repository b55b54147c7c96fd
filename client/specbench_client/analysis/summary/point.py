"""Summarises one point: its figures and the findings of the checks of a single point."""

from __future__ import annotations

import numpy as np

from specbench_api.plan.plan import Plan, Point
from specbench_client.analysis.estimates.cell_figures import SampleRows, counts_of, figures_of, with_counted_acceptance
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.finding import Finding
from specbench_client.documents.summary import ClientHealth, CounterDeltas, PointSummary, SteadyWindow
from specbench_client.load.steady_state import NS_PER_S
from specbench_client.metrics.late_sends import without_waits_by_design
from specbench_client.metrics.rows import Table
from specbench_client.metrics.steady_window import mean_in_flight, steady_window
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.trust.checks.client import timing_fault
from specbench_client.trust.checks.draft_counters import acceptance_without, doubtful_rows
from specbench_client.trust.evidence import PointEvidence
from specbench_client.trust.registry import POINT_CHECKS


def summarise_point(
    plan: Plan,
    point: Point,
    rows: Table,
    watch: ClientHealth,
    counters: CounterDeltas | None,
    *,
    simulated: bool,
) -> PointSummary:
    """Summarise one point from its tidy rows, which have no warm-up.

    Acceptance that was only inferred, and that nothing confirms, is not in any figure
    (`trust.checks.draft_counters`), and neither are times that are not the engine's (`trust.checks.client`). Fields
    that are missing in `watch` are computed from the records where possible.
    """
    rows = without_waits_by_design(rows, plan, point.workload)
    health = _completed(watch, rows)
    evidence = PointEvidence(plan, point, rows, health, counters)
    acceptance = acceptance_without(rows, doubtful_rows(evidence))
    believed = rows.assign(**acceptance.columns, timing_fault=np.full(len(rows), timing_fault(evidence), dtype=np.int8))
    figures = figures_of(SampleRows(believed), plan.arm(point.arm).most_drafts, plan.placement.engine_devices)
    return PointSummary(
        hash=point.hash,
        arm=point.arm,
        workload=point.workload,
        level=point.level,
        arrivals=ArrivalPattern.of(plan.load),
        repeat=point.repeat,
        simulated=simulated,
        counts=counts_of(rows),
        window=_window(rows),
        figures=with_counted_acceptance(figures, [counters]),
        client_health=health,
        counters=counters,
        findings=_findings(evidence),
    )


def _findings(evidence: PointEvidence) -> list[Finding]:
    point = evidence.point
    place = {"arm": point.arm, "workload": point.workload, "load": point.level.label, "point": point.hash}
    return [finding for check in POINT_CHECKS for finding in check.findings(evidence, place)]


def _window(rows: Table) -> SteadyWindow | None:
    """Return the steady window with its share of the point's duration; None where there is none."""
    window, duration_s = steady_window(rows), _duration_s(rows)
    if window is None or duration_s is None:
        return None
    return SteadyWindow(start_ns=int(window.start_ns), end_ns=int(window.end_ns), share=window.length_s / duration_s)


def _duration_s(rows: Table) -> float | None:
    """Return the time from the first request sent to the last token; None if nothing was sent or no token arrived."""
    begins, ends = numbers(rows, "sent_ns"), numbers(rows, "last_token_ns")
    if np.isnan(begins).all() or np.isnan(ends).all():
        return None
    return float(np.nanmax(ends) - np.nanmin(begins)) / NS_PER_S


def _completed(watch: ClientHealth, rows: Table) -> ClientHealth:
    """Fill in fields that the client did not measure from the records: duration, steady share, requests in flight."""
    window, duration_s = steady_window(rows), _duration_s(rows)
    computed: dict[str, float] = {}
    if duration_s is not None:
        computed["duration_s"] = duration_s
    if window and duration_s is not None:
        computed["reached_concurrency"] = mean_in_flight(rows, window)
        computed["steady_share"] = window.length_s / duration_s
    missing = {name: value for name, value in computed.items() if getattr(watch, name) is None}
    return watch.model_copy(update=missing)
