"""Progress of a group, for the live display and as progress.json in the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pydantic.alias_generators import to_camel

from specbench_api.plan.plan import EngineGroup, Point
from specbench_client.documents.record import AcceptanceSource, Record, RecordPhase
from specbench_client.documents.summary import Trend
from specbench_client.load.conversations import is_filler
from specbench_client.transport.error_class import ErrorClass

PROGRESS = "progress.json"
SCHEMA_VERSION = "specbench.io/progress/v1"
WARMUP = "warmup"
MEASURING = "measuring"
STORING = "storing"


@dataclass(frozen=True)
class Progress:
    """Progress at one time. Counts of a point exclude its warm-up, which has its own; unknown values are None."""

    group: int
    arm: str
    points_done: int
    """Points of this group that have a manifest."""
    points_total: int
    phase: str
    """starting, warmup, measuring, storing, done. Of this group only: other groups and the report may be missing."""
    attempt: str | None = None
    """The attempt in the names of files; on a cluster it begins with the launch's number and a dash."""
    point: str | None = None
    workload: str | None = None
    load: str | None = None
    """The label of the point's level: `8`, `2.5/s`, `trace`."""
    repeat: int | None = None
    requests_done: int = 0
    """Requests of the current point."""
    requests_total: int | None = None
    """None if the point is limited by time."""
    warmup_done: int | None = None
    """Requests of the warm-up before the current point; None without a warm-up."""
    warmup_most: int | None = None
    """Maximum number of warm-up requests; it ends sooner if step times are steady."""
    requests_sent: int = 0
    """All requests of the current point, also its warm-up and the fillers that keep up the load."""
    requests_failed: int = 0
    output_tokens_per_s: float | None = None
    """Over the current point so far; a sign of life, not a result."""
    tpot_ms: float | None = None
    """Mean time per output token after the first over the current point so far; None without streamed answers."""
    acceptance_length: float | None = None
    """Emitted acceptance length, pooled over the current point so far; None if the engine does not report it."""
    idle_s: float = 0.0
    """Seconds since a request ended, or since the warm-up or the load began."""
    acceptance_change: float | None = None
    """Relative change of the acceptance length over the finished windows of a soak test; None for too few."""

    def to_json(self) -> str:
        """Return the content of progress.json."""
        values = {to_camel(name): value for name, value in asdict(self).items() if value is not None}
        return json.dumps({"schemaVersion": SCHEMA_VERSION, **values}, indent=2) + "\n"


class ProgressTracker:
    """Counts records and points. Use it from the event loop's thread only."""

    def __init__(
        self, group: EngineGroup, points_done: int, monotonic_ns: Callable[[], int], *, attempt: str | None = None
    ) -> None:
        self._group = group
        self._attempt = attempt
        self._now = monotonic_ns
        self.points_done = points_done
        self.phase = "starting"
        self._point: Point | None = None
        self._warmup: int | None = None
        self._warmup_most: int | None = None
        self._sent = 0
        self.trend: Trend | None = None
        """The trend of the acceptance length over the finished windows of a soak test."""
        self._begin(0)
        self._counted = self._counts()

    def _counts(self) -> list[int]:
        """Return the counts of the records so far."""
        return [self._requests, self._failed, self._tokens, self._emitted, self._steps, self._warmup or 0, self._sent]

    def start_point(self, point: Point, requests_total: int | None) -> None:
        """Begin a point, with its warm-up if it has one."""
        self._point = point
        self.phase = WARMUP
        self._warmup = self._warmup_most = None
        self._sent = 0
        self._begin(requests_total)

    def start_warmup(self, most: int) -> None:
        """Begin a warm-up of at most `most` requests."""
        self._warmup, self._warmup_most = 0, most

    def start_load(self) -> None:
        """Begin the load: the warm-up is over."""
        self.phase = MEASURING
        self._begin(self._requests_total)

    def add(self, record: Record) -> None:
        """Count a record."""
        self._sent += record.error_class != ErrorClass.SKIPPED_AFTER_ERROR
        if record.phase == RecordPhase.WARMUP:
            self._warmup = (self._warmup or 0) + 1
            return
        self._tokens += record.output_tokens or 0
        if is_filler(record.prompt_id):
            return
        self._requests += 1
        self._failed += record.error_class is not None
        if record.first_token_ns is not None and record.last_token_ns is not None and record.output_tokens is not None:
            self._later_tokens += record.output_tokens - 1
            self._later_ns += record.last_token_ns - record.first_token_ns
        is_inferred = record.acceptance_source == AcceptanceSource.CHUNKS  # The counters may deny it after the point.
        if record.steps and record.output_tokens is not None and not is_inferred:
            self._emitted += record.output_tokens - 1
            self._steps += record.steps

    def end_point(self) -> None:
        """Count a point that has its manifest."""
        self.points_done += 1

    def current(self) -> Progress:
        """Return the current progress."""
        point, now_ns = self._point, self._now()
        elapsed_s = (now_ns - self._started_ns) / 1e9
        counted = self._counts()
        if counted != self._counted:
            self._counted, self._changed_ns = counted, now_ns
        requests, failed, tokens, emitted, steps, warmup, sent = counted
        return Progress(
            group=self._group.index,
            arm=self._group.arm,
            points_done=self.points_done,
            points_total=len(self._group.points),
            phase=self.phase,
            attempt=self._attempt,
            point=point.hash if point else None,
            workload=point.workload if point else None,
            load=point.level.label if point else None,
            repeat=point.repeat if point else None,
            requests_done=requests,
            requests_total=self._requests_total,
            warmup_done=None if self._warmup is None else warmup,
            warmup_most=self._warmup_most,
            requests_sent=sent,
            requests_failed=failed,
            output_tokens_per_s=tokens / elapsed_s if tokens and elapsed_s > 0 else None,
            tpot_ms=self._later_ns / self._later_tokens / 1e6 if self._later_tokens > 0 else None,
            acceptance_length=emitted / steps if steps else None,
            idle_s=(now_ns - self._changed_ns) / 1e9,
            acceptance_change=None if self.trend is None else self.trend.change.value,
        )

    def _begin(self, requests_total: int | None) -> None:
        self._requests_total = requests_total
        self._requests = self._failed = self._tokens = self._emitted = self._steps = 0
        self._later_tokens = self._later_ns = 0
        self._started_ns = self._now()
        self._changed_ns = self._started_ns
