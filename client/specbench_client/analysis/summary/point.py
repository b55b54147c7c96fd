"""What one point measured: its figures and what the checks of a single point found."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from specbench_api.outcome.finding import Finding
from specbench_api.outcome.summary import Arrivals, Counters, PointSummary, SelfWatch, SteadyWindow
from specbench_api.plan.plan import Plan, Point
from specbench_client.analysis.estimates.counts import counts_of
from specbench_client.analysis.estimates.figures import Sample, figures_of
from specbench_client.metrics.frame import numbers, tidy
from specbench_client.metrics.pace import NS_PER_S
from specbench_client.metrics.window import in_flight, steady_window
from specbench_client.trust.drafting import believed
from specbench_client.trust.evidence import PointEvidence, finding_of
from specbench_client.trust.table import POINT_CHECKS


def summarise_point(
    plan: Plan,
    point: Point,
    parts: Iterable[pd.DataFrame],
    watch: SelfWatch,
    counters: Counters | None,
    *,
    simulated: bool,
) -> PointSummary:
    """Summarise one point.

    `parts` have the columns of `Record`, one row a request, warm-up rows included (they are left out here), cut
    anywhere; lists may be lists, arrays or null. They are read once, one after the other. Acceptance that was only
    inferred, and that the engine's counters refute, is in no figure (`trust.drafting`). `watch` may leave out what the
    client could not see: what the records tell is filled in.
    """
    rows = tidy(parts, point.hash)
    seen = _completed(watch, rows)
    evidence = PointEvidence(plan, point, rows, seen, counters)
    return PointSummary(
        hash=point.hash,
        arm=point.arm,
        workload=point.workload,
        level=point.level,
        arrivals=Arrivals.of(plan.load),
        repeat=point.repeat,
        simulated=simulated,
        counts=counts_of(rows),
        window=_window(rows),
        figures=figures_of(Sample(believed(evidence)), plan.arm(point.arm).most_drafts, plan.placement.engine_devices),
        self_watch=seen,
        counters=counters,
        findings=_findings(evidence),
    )


def _findings(evidence: PointEvidence) -> list[Finding]:
    point = evidence.point
    place = {"arm": point.arm, "workload": point.workload, "load": point.level.label, "point": point.hash}
    return [finding_of(check.name, seen, place) for check in POINT_CHECKS for seen in check.look(evidence)]


def _window(rows: pd.DataFrame) -> SteadyWindow | None:
    """The steady window with its share of the point."""
    window, duration_s = steady_window(rows), _duration_s(rows)
    if window is None or duration_s is None:
        return None
    return SteadyWindow(start_ns=int(window.start_ns), end_ns=int(window.end_ns), share=window.length_s / duration_s)


def _duration_s(rows: pd.DataFrame) -> float | None:
    """From the first request sent to the last token; None where nothing was sent, or no token came."""
    begins, ends = numbers(rows, "sent_ns"), numbers(rows, "last_token_ns")
    if np.isnan(begins).all() or np.isnan(ends).all():
        return None
    return float(np.nanmax(ends) - np.nanmin(begins)) / NS_PER_S


def _completed(watch: SelfWatch, rows: pd.DataFrame) -> SelfWatch:
    """Fill in from the records what the client did not watch: duration, steady share, requests in flight."""
    window, duration_s = steady_window(rows), _duration_s(rows)
    told: dict[str, float] = {}
    if duration_s is not None:
        told["duration_s"] = duration_s
    if window and duration_s is not None:
        told["reached_concurrency"] = in_flight(rows, window)
        told["steady_share"] = window.length_s / duration_s
    missing = {name: value for name, value in told.items() if getattr(watch, name) is None}
    return watch.model_copy(update=missing)
