"""The operator's Prometheus metrics.

Names follow the Prometheus conventions: base units (seconds, ratios) at the end of the name, and `_total` for counters.
Values of labels are spelled as in the API. Series of single runs exist only for the newest runs of each namespace, so
that their number does not grow with the number of runs that were ever created.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import prometheus_client

from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import IN_PROGRESS_PHASES, Phase
from specbench_api.spec.status import RunStatus
from specbench_operator.errors import Changed, OperatorError, Retry, Stop

_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
RECONCILED_KINDS = ("SpecBenchRun", "SpecBenchCampaign")
SUCCESS, CONFLICT, BUG = "Success", "Conflict", "Bug"
RESULTS = (SUCCESS, CONFLICT, Retry.kind, Stop.kind, BUG)
"""How a reconciliation can end. Conflict: somebody else changed the object, and it is reconciled again at once."""
_LOWER_BOUND = (
    "May be too low: a change of status is not counted if its write got no answer or the operator stopped then."
)

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class MetricDefinition:
    """A metric as documentation lists it. `type`: counter, gauge or histogram."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class RunRow(NamedTuple):
    """What is counted of every run. `since`: the time of its end, else of its start, else of its creation."""

    namespace: str
    name: str
    phase: str
    since: str


class Telemetry:
    """The metrics, in a separate registry so that tests (and two operators in one process) do not share them.

    `runs_per_namespace`: how many runs of a namespace have series of their own, of those in progress and of those that
    have finished; the newest first. 0: none.
    """

    def __init__(self, runs_per_namespace: int = 0) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.definitions: list[MetricDefinition] = []
        self._runs_per_namespace = runs_per_namespace
        self._runs = self._gauge("specbench_runs", "Runs by phase.", "phase")
        self._campaigns = self._gauge("specbench_campaigns", "Campaigns by phase.", "phase")
        self._points = self._counter(
            "specbench_points_measured_total", f"Points that were measured completely. {_LOWER_BOUND}"
        )
        self._gpu_seconds = self._counter(
            "specbench_gpu_held_seconds_total", f"GPUs times seconds that engine pods held them. {_LOWER_BOUND}"
        )
        self._campaign_gpu_seconds = self._gauge(
            "specbench_campaign_gpu_held_seconds",
            "GPUs times seconds that the current round of a campaign held them.",
            "namespace",
            "campaign",
        )
        self._campaign_gpu_budget = self._gauge(
            "specbench_campaign_gpu_budget_seconds",
            "GPUs times seconds that a round of a campaign may hold; only with a budget.",
            "namespace",
            "campaign",
        )
        self._add_metrics_of_runs()
        self._add_metrics_of_the_operator()

    def _add_metrics_of_runs(self) -> None:
        run, cell = ("namespace", "run"), ("namespace", "run", "arm", "workload", "load")
        self._points_planned = self._gauge("specbench_run_points_planned", "Points of a run in progress.", *run)
        self._points_measured = self._gauge(
            "specbench_run_points_measured", "Measured points of a run in progress.", *run
        )
        self._trustworthy = self._gauge(
            "specbench_run_trustworthy",
            "1 if the results of a run are trustworthy, else 0.",
            *run,
        )
        self._speedup = self._gauge("specbench_run_speedup_ratio", "Speed-up of the best row of a run.", *cell)
        self._speedup_low = self._gauge("specbench_run_speedup_low_ratio", "Lower bound of its interval.", *cell)
        self._speedup_high = self._gauge("specbench_run_speedup_high_ratio", "Upper bound of its interval.", *cell)

    def _add_metrics_of_the_operator(self) -> None:
        name, text = "specbench_reconcile_duration_seconds", "Time that a reconciliation held a worker, by its result."
        labels = ("kind", "result")
        self.definitions.append(MetricDefinition(name, "histogram", labels, text))
        self._reconcile = prometheus_client.Histogram(name, text, labels, buckets=_BUCKETS, registry=self.registry)
        for kind in RECONCILED_KINDS:
            for result in RESULTS:
                self._reconcile.labels(kind, result)  # otherwise increase() would miss the first one
        self.resync_errors = self._counter(
            "specbench_resync_errors_total",
            "Resyncs in which the versions of the watched collections were not readable.",
        )
        self._forbidden = self._gauge(
            "specbench_forbidden_collections",
            "1 for each kind and namespace that the operator may not list; no namespace: the whole cluster.",
            "kind",
            "namespace",
        )
        self.requests = self._counter(
            "specbench_api_requests_total", "Requests to the API server, without those of the watches.", "method"
        )
        self.last_watch_event = self._gauge(
            "specbench_last_watch_event_timestamp_seconds", "Time of the last event of any watch, since 1970."
        )
        self.queue_depth = self._gauge("specbench_queue_depth", "Runs and campaigns that wait to be reconciled.")
        self._leader = self._gauge("specbench_leader", "Whether this replica leads (1) or is a standby (0).")
        self._leads: Callable[[], bool] = lambda: True
        self.waiting_looks = self._gauge(
            "specbench_store_looks_waiting", "Runs that wait for a thread that reads their store."
        )

    def _gauge(self, name: str, text: str, *labels: str) -> prometheus_client.Gauge:
        self.definitions.append(MetricDefinition(name, "gauge", labels, text))
        return prometheus_client.Gauge(name, text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> prometheus_client.Counter:
        self.definitions.append(MetricDefinition(name, "counter", labels, text))
        return prometheus_client.Counter(name, text, labels, registry=self.registry)

    def serve(self, host: str, port: int) -> None:
        """Serve /metrics on this port, in a separate thread."""
        prometheus_client.start_http_server(port, host, self.registry)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Record the duration and the result of a reconciliation of this kind of resource."""
        begin, result = time.perf_counter(), SUCCESS
        try:
            yield
        except Changed:
            result = CONFLICT
            raise
        except OperatorError as error:
            result = error.kind
            raise
        except Exception:
            result = BUG
            raise
        finally:
            self._reconcile.labels(kind, result).observe(time.perf_counter() - begin)

    def wrote(self, before: RunStatus, after: RunStatus) -> None:
        """Count what a written status adds to the previous one, so that nothing is counted twice.

        The first status of a run adds nothing. It contains something only if an earlier status was lost, or if the run
        adopts results, and then that was counted before.
        """
        if before.observed_generation < 0:
            return
        self._gpu_seconds.inc(max(after.gpu_seconds_held - before.gpu_seconds_held, 0))
        self._points.inc(max(after.points.measured - before.points.measured, 0))

    def counted_runs(self, rows: Sequence[RunRow], read: Callable[[str, str], Raw | None]) -> None:
        """Set the number of runs per phase, and the series of the newest runs. A standby reports none.

        `read` returns a run by namespace and name, or None; it is called for the newest runs only.
        """
        if not self._leads():
            return
        counts = Counter(row.phase for row in rows)
        for phase in Phase:
            self._runs.labels(str(phase)).set(counts[str(phase)])
        in_progress = self._newest((row for row in rows if row.phase in IN_PROGRESS_PHASES), read)
        self._set(self._points_planned, [(_labels(run), _points(run, "total")) for run in in_progress])
        self._set(self._points_measured, [(_labels(run), _points(run, "measured")) for run in in_progress])
        finished = self._newest((row for row in rows if row.phase == Phase.SUCCEEDED), read)
        self._set(self._trustworthy, [(_labels(run), _trust(run)) for run in finished])
        best = [(_labels(run), row) for run in finished if (row := _best_row(run)) is not None]
        cells = [((*labels, row["arm"], row["workload"], row.get("load", "")), row["speedup"]) for labels, row in best]
        for gauge, bound in ((self._speedup, "value"), (self._speedup_low, "low"), (self._speedup_high, "high")):
            self._set(gauge, [(labels, speedup[bound]) for labels, speedup in cells])

    def _newest(self, rows: Iterable[RunRow], read: Callable[[str, str], Raw | None]) -> list[Raw]:
        """The newest runs of each namespace."""
        by_namespace = defaultdict[str, list[RunRow]](list)
        for row in rows:
            by_namespace[row.namespace].append(row)
        newest = (
            row
            for each in by_namespace.values()
            for row in heapq.nlargest(self._runs_per_namespace, each, key=lambda row: (row.since, row.name))
        )
        found = (read(row.namespace, row.name) for row in newest)
        return [run for run in found if run is not None and run.get("status")]

    @staticmethod
    def _set(gauge: prometheus_client.Gauge, samples: Sequence[tuple[tuple[str, ...], float]]) -> None:
        """Set the gauge to exactly these series."""
        gauge.clear()
        for labels, value in samples:
            gauge.labels(*labels).set(value)

    def set_forbidden(self, scopes: Iterable[tuple[str, str | None]]) -> None:
        """Set the kinds and namespaces that the operator may not list."""
        self._set(self._forbidden, [((kind, namespace or ""), 1) for kind, namespace in scopes])

    def counted_campaigns(self, campaigns: Iterable[Raw]) -> None:
        """Set the number of campaigns per phase and their GPU time from all campaigns. A standby reports none."""
        if not self._leads():
            return
        found = list(campaigns)
        counts = Counter((campaign.get("status") or {}).get("phase", "Pending") for campaign in found)
        for phase in CampaignPhase:
            self._campaigns.labels(str(phase)).set(counts[str(phase)])
        spent = [
            (_labels(campaign), (campaign.get("status") or {}).get("gpuHoursSpent", 0) * SECONDS_AN_HOUR)
            for campaign in found
        ]
        self._set(self._campaign_gpu_seconds, spent)
        budgets = [(_labels(campaign), campaign["spec"].get("budget", {}).get("gpuHours")) for campaign in found]
        self._set(
            self._campaign_gpu_budget,
            [(labels, hours * SECONDS_AN_HOUR) for labels, hours in budgets if hours is not None],
        )

    def follow_leadership(self, leads: Callable[[], bool]) -> None:
        """Report whether this replica leads, read at every scrape. Only the leader reports runs and campaigns."""
        self._leads = leads
        self._leader.set_function(lambda: float(leads()))


def _labels(resource: Raw) -> tuple[str, str]:
    return resource["metadata"]["namespace"], resource["metadata"]["name"]


def _points(run: Raw, count: str) -> int:
    return int(run["status"].get("points", {}).get(count, 0))


def _trust(run: Raw) -> int:
    return int(run["status"].get("trust") == "Trustworthy")


def _best_row(run: Raw) -> Raw | None:
    """The valid row of results with the largest speed-up; None if no row has a speed-up with an interval."""
    rows = [row for row in run["status"].get("arms", []) if row.get("speedup") and row.get("valid", True)]
    return max(rows, key=lambda row: row["speedup"]["value"], default=None)
