"""The operator's Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import prometheus_client

from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import Phase
from specbench_api.spec.status import RunStatus

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Telemetry:
    """The metrics, in a separate registry so that tests (and two operators in one process) do not share them."""

    def __init__(self) -> None:
        registry = prometheus_client.CollectorRegistry()
        self.registry = registry
        self._runs = prometheus_client.Gauge("specbench_runs", "Runs by phase.", ["phase"], registry=registry)
        self._reconcile = prometheus_client.Histogram(
            "specbench_reconcile_seconds",
            "Time that a reconciliation held a worker.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self._errors = prometheus_client.Counter(
            "specbench_reconcile_errors_total", "Reconciliations that ended in an error.", ["kind"], registry=registry
        )
        self._gpu_seconds = prometheus_client.Counter(
            "specbench_gpu_seconds_held_total", "GPUs times seconds held by engine pods.", registry=registry
        )
        self._points = prometheus_client.Counter(
            "specbench_points_measured_total", "Points that were measured completely.", registry=registry
        )
        self._watch = prometheus_client.Gauge(
            "specbench_last_watch_event_timestamp_seconds", "Time of the last event of any watch.", registry=registry
        )
        self._campaigns = prometheus_client.Gauge(
            "specbench_campaigns", "Campaigns by phase.", ["phase"], registry=registry
        )
        self._gpu_hours = prometheus_client.Gauge(
            "specbench_campaign_gpu_hours_spent",
            "GPU-hours spent by a campaign's current round.",
            ["namespace", "campaign"],
            registry=registry,
        )
        self._gpu_hours_budget = prometheus_client.Gauge(
            "specbench_campaign_gpu_hours_budget",
            "GPU-hours that a round of a campaign may spend.",
            ["namespace", "campaign"],
            registry=registry,
        )
        self._depth = prometheus_client.Gauge(
            "specbench_queue_depth", "Runs and campaigns that wait to be reconciled.", registry=registry
        )
        self._requests = prometheus_client.Counter(
            "specbench_api_requests_total",
            "Requests to the API server, without those of the watches.",
            ["method"],
            registry=registry,
        )

        self._leader = prometheus_client.Gauge(
            "specbench_leader", "Whether this replica leads (1) or is a standby (0).", registry=registry
        )
        self._leads: Callable[[], bool] = lambda: True
        self._waiting_looks = prometheus_client.Gauge(
            "specbench_store_looks_waiting", "Runs that wait for a thread that reads their store.", registry=registry
        )

    def serve(self, port: int) -> None:
        """Serve /metrics on this port, in a separate thread."""
        prometheus_client.start_http_server(port, registry=self.registry)

    def timed(self) -> AbstractContextManager[object]:
        """Return a context that records the duration of a reconciliation, whether it succeeds or not."""
        return self._reconcile.time()

    def failed(self, kind: str) -> None:
        """Count a reconciliation that ended in an error of this kind: Retry, Stop or Bug."""
        self._errors.labels(kind).inc()

    def requested(self, method: str) -> None:
        """Count a request to the API server by its HTTP method."""
        self._requests.labels(method).inc()

    def wrote(self, before: RunStatus, after: RunStatus) -> None:
        """Count what a written status adds to the previous one, so that nothing is counted twice.

        The first status of a run adds nothing. It contains something only if an earlier status was lost, or if the run
        adopts results, and then that was counted before.
        """
        if before.observed_generation < 0:
            return
        self._gpu_seconds.inc(max(after.gpu_seconds_held - before.gpu_seconds_held, 0))
        self._points.inc(max(after.points.measured - before.points.measured, 0))

    def watched(self, timestamp_s: float) -> None:
        """Record the time of a watch event (Unix time, in seconds)."""
        self._watch.set(timestamp_s)

    def counted(self, phases: Iterable[str]) -> None:
        """Set the number of runs per phase from the phases of all runs. A standby reports none."""
        if not self._leads():
            return
        counts = Counter(phases)
        for phase in Phase:
            self._runs.labels(str(phase)).set(counts[str(phase)])

    def counted_campaigns(self, campaigns: Iterable[Mapping[str, Any]]) -> None:
        """Set the number of campaigns per phase and their GPU-hours from all campaigns. A standby reports none."""
        if not self._leads():
            return
        found = list(campaigns)
        counts = Counter((campaign.get("status") or {}).get("phase", "Pending") for campaign in found)
        for phase in CampaignPhase:
            self._campaigns.labels(str(phase)).set(counts[str(phase)])
        self._gpu_hours.clear()
        self._gpu_hours_budget.clear()
        for campaign in found:
            meta, budget = campaign["metadata"], campaign["spec"].get("budget", {}).get("gpuHours")
            labels = (meta["namespace"], meta["name"])
            self._gpu_hours.labels(*labels).set((campaign.get("status") or {}).get("gpuHoursSpent", 0))
            if budget is not None:
                self._gpu_hours_budget.labels(*labels).set(budget)

    def follow_leadership(self, leads: Callable[[], bool]) -> None:
        """Report whether this replica leads, read at every scrape. Only the leader reports runs and campaigns."""
        self._leads = leads
        self._leader.set_function(lambda: float(leads()))

    def follow_depth(self, depth: Callable[[], float]) -> None:
        """Report the queue's depth, read at every scrape."""
        self._depth.set_function(depth)

    def follow_waiting_looks(self, waiting: Callable[[], float]) -> None:
        """Report how many looks at stores wait for a thread, read at every scrape."""
        self._waiting_looks.set_function(waiting)
