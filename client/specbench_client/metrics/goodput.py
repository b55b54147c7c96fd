"""SLO goodput: requests that met every given target, as a rate and as a share.

The share is over the requests of the steady state; failed requests met no target. The rate follows from Little's law:
requests in flight / seconds per request = requests per second, over the requests without error. Counting the requests
that ended inside the steady window, or began inside it, would count those at its edges as a whole: all streams of a
closed loop begin together, so nearly one request per stream too many.

Whether a request met its targets may be unknown: an answer that was not streamed has no first token. A request missed
the SLO if it missed any target, and is left out if it missed none and one of them is unknown. An answer of one token
has no time per token after the first: it is judged by the other targets, and left out if there is none. All requests of
a point whose TTFT or TPOT was left out are left out if that has a target, also those that failed. Both figures are
missing if late sends of the client change the share too much (`metrics.late_sends`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from specbench_api.spec.slo import Slo
from specbench_client.documents.record import RecordPhase
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.metrics import latency, time_per_token
from specbench_client.metrics.metric_types import (
    SENT_LATE,
    FigureOrigin,
    RatioMetric,
    RequestMetric,
    TimingFault,
    starts_uncounted,
)
from specbench_client.metrics.rows import Table, has_text
from specbench_client.metrics.steady_window import mean_in_flight, steady_window
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Mask, Values
from specbench_client.transport.error_class import ErrorClass

MEASURES: dict[str, RequestMetric] = {
    each.name: each for each in (latency.TTFT_MS, time_per_token.TPOT_MS, latency.E2E_MS)
}
"""The metric that a target limits, by its name in the SLO."""

SLO_GOODPUT = "slo_goodput"
RATE_UNIT = "requests/s"
RATE_DEFINITION = (
    "Requests per second that met every given target: mean number of requests in flight during the steady window ×"
    " requests within the targets / total duration from sent to the last token, the last two over the requests sent"
    " inside the window; all without those that failed. A request does not count as within the targets if one of them"
    " cannot be judged, so the true value may be higher"
)
RATE_MISSING = (
    f"no target is given, no request is in the steady state, or no request has the data for the targets, or {SENT_LATE}"
)
_UNKNOWN = f"no target is given, or no request has the data for it, or {SENT_LATE}"


def judged_rows(rows: Table) -> Table:
    """Return the rows that the share is over: sent in the steady state, including failed ones."""
    skipped = has_text(rows, "error_class", ErrorClass.SKIPPED_AFTER_ERROR)
    return rows.among(has_text(rows, "phase", RecordPhase.STEADY.value) & ~skipped)


def meets_slo(rows: Table, slo: Slo) -> Values:
    """Return 1 for each row that met every target, 0 for one that missed any, NaN if unknown; shape (rows,).

    Where TTFT or TPOT is left out and has a target, all rows are unknown: the known ones would be those that missed.
    """
    met = np.stack([meets_target(rows, name, target) for name, target in slo.targets.items()])
    one_token = numbers(rows, "tokens") == 1
    applies = np.stack([~one_token | (name != time_per_token.TPOT_MS.name) for name in slo.targets])
    missed, unknown = (met == 0).any(axis=0), (np.isnan(met) & applies).any(axis=0) | ~applies.any(axis=0)
    judged = np.where(missed, 0.0, np.where(unknown, np.nan, 1.0))
    return np.where(_left_out(rows, slo.targets), np.nan, judged)


def meets_target(rows: Table, name: str, target: float) -> Values:
    """Return the same for a single target, in ms."""
    values = MEASURES[name].values(rows)
    met = np.where(np.isnan(values), np.nan, (values <= target).astype(np.float64))
    return np.where(_left_out(rows, [name]), np.nan, np.where(rows.array("ok"), met, 0.0))


_LEFT_OUT_FROM = {
    latency.TTFT_MS.name: TimingFault.COALESCED,
    time_per_token.TPOT_MS.name: TimingFault.AT_ONCE,
}


def _left_out(rows: Table, targets: Iterable[str]) -> Mask:
    """Return the rows of a point that has left out a time with a target, or whose answers all lack it, shape (rows,).

    Failed requests would otherwise be the only known ones.
    """
    faults = [_LEFT_OUT_FROM[name] for name in targets if name in _LEFT_OUT_FROM]
    answered = starts_uncounted(rows)[rows.array("ok")]
    if faults and answered.size and answered.all():
        return np.ones(len(rows), dtype=np.bool_)
    return rows.array("timing_fault") >= min(faults, default=np.inf)


def attainment_ratio(slo: Slo) -> RatioMetric:
    """Return the share of requests that met every target; it expects the rows of `judged_rows`."""
    definition = (
        "Share of the steady state's requests that met every given target; failed requests met none, and an answer of"
        " one token is judged without tpot_ms"
    )
    return _share("slo_attainment", definition, lambda rows: meets_slo(rows, slo))


def target_attainment_ratio(name: str, target: float) -> RatioMetric:
    """Return the share of requests that met a single target, in ms."""
    definition = (
        f"Share of the steady state's requests with {name} of at most {target:g} ms; failed requests count as missed"
    )
    return _share(f"slo_attainment_{name}", definition, lambda rows: meets_target(rows, name, target))


def good_requests(rows: Table, slo: Slo) -> tuple[Values, Values]:
    """Return the good requests that each steady window has room for, and its length in s; shape (points,) each.

    Points without a steady window, or without any request whose result is known, are left out.
    """
    found = [_good(point, slo) for point in rows.by_point()]
    known = [each for each in found if each is not None]
    return np.array([count for count, _ in known]), np.array([seconds for _, seconds in known])


def _good(point: Table, slo: Slo) -> tuple[float, float] | None:
    window = steady_window(point)
    if window is None:
        return None
    answered = point.among(point.array("ok"))
    sent = numbers(answered, "sent_ns")
    begun = answered.among((sent >= window.start_ns) & (sent < window.end_ns))
    good, total_ms = meets_slo(begun, slo), float(np.nansum(latency.E2E_SENT_MS.values(begun)))
    if np.isnan(good).all() or total_ms <= 0:
        return None
    busy_ms = mean_in_flight(answered, window) * (window.end_ns - window.start_ns) / NS_PER_MS
    return float(np.nansum(good)) * busy_ms / total_ms, window.length_s


def _share(name: str, definition: str, values: Callable[[Table], Values]) -> RatioMetric:
    def parts(rows: Table) -> tuple[Values, Values]:
        met = values(rows)
        return met, np.ones_like(met)

    return RatioMetric(name, "ratio", definition, _UNKNOWN, FigureOrigin.BOTH, parts, highest=1.0)
