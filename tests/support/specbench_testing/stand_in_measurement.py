"""The work of a client Job without an engine: the records are those of a synthetic run.

The product's own code writes everything in the store: it claims the plan, writes records, summaries and manifests, and
creates the report, in the same order and with the same errors. Not covered: no request is sent, so the records do not
describe any engine; neither prompts nor traces are read; no facts of an engine are read; and facts are not compared
with those of earlier launches. Everything is marked as simulated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from specbench_api.outcome.layout import launch_key
from specbench_api.outcome.manifest import PointProvenance
from specbench_api.outcome.provenance import HostFacts, LaunchRecord, merge_facts
from specbench_api.outcome.record import Record
from specbench_api.outcome.termination import Exit, Termination
from specbench_api.plan.plan import EngineGroup, Plan, Point
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.drive.progress import PROGRESS, ProgressTracker
from specbench_client.drive.resume import claim_store
from specbench_client.errors import EngineFailed, Interrupted
from specbench_client.simulator.config import SimulatedStepCost
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.records import RecordWriter
from specbench_client.store.store import Store
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.synthetic_records import SyntheticRun, counters_of, watch_of
from specbench_testing.work_log import WorkAction, WorkLog, WorkLogEntry

POINT_S = (0.05, 0.3)
"""The range of a point's duration with an engine of default speed; drawn by the point's hash."""
BASE_MS = "--base-ms="
"""The simulator's flag for the cost of a step; points last longer in proportion."""
LOOK_S = 0.02
ABANDON_S = 2.0
SILENT = "a stand-in of the tests asks no engine"
WORLD = SyntheticRun(prompts=8, tokens=(8, 16), warmup=1)
_ONE_ANSWER = threading.Lock()
"""The plotting library is not thread-safe."""


@dataclass(frozen=True)
class Surroundings:
    """A client's environment besides its store."""

    interrupted: threading.Event
    """Set when the pod is being deleted or gone."""
    engine_serves: Callable[[], bool]
    """Whether the engine answers now."""
    pod_exists: Callable[[], bool]
    """Whether the pod exists, according to the API server; called right before a point becomes a result."""


def now_text() -> str:
    """The wall clock in RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def slowness(plan: Plan) -> float:
    """The slowness of the plan's engine relative to the simulator's default."""
    costs = [argument for argument in plan.engine.args if argument.startswith(BASE_MS)]
    return float(costs[0].removeprefix(BASE_MS)) / SimulatedStepCost().base_ms if costs else 1.0


@dataclass(frozen=True)
class StandInClient:
    """One client process. `store`: the run's root. `client`: its name in file names, new for each process."""

    plan: Plan
    store: Store
    client: str
    log: WorkLog

    def drive(self, group: EngineGroup, place: HostFacts, around: Surroundings) -> Termination:
        """Measure every point of the group that has no manifest. Raises EngineFailed, Interrupted, NotDurable."""
        points = PointStore(self.store)
        hashes = [point.hash for point in group.points]
        found = points.measured(hashes)
        claim_store(self.plan, self.store)
        todo = [point for point in group.points if point.hash not in found]
        if todo:
            work = _Work(self, group, points, around)
            work.begin(place, len(found))
            for point in todo:
                work.measure(point)
        message = f"group {group.index}: {len(todo)} points measured, {len(found)} were measured already"
        return Termination(code=Exit.OK, reason="Measured", message=message)

    def report(self) -> Termination:
        """Create the run's report. Raises BadInput, NotDurable."""
        with _ONE_ANSWER:
            summary = conclude(self.plan, self.store)
        self.note(WorkAction.REPORTED)
        message = f"{summary.points_measured} of {summary.points_total} points: {summary.headline}"
        return Termination(code=Exit.OK, reason="Reported", message=message)

    def note(self, act: WorkAction, point: str = "", why: str = "") -> None:
        """Append an act to the log."""
        self.log.add(WorkLogEntry(act, now_text(), self.plan.name, self.plan.uid, self.client, point, why))


@dataclass(frozen=True)
class _Work:
    stand_in: StandInClient
    group: EngineGroup
    points: PointStore
    around: Surroundings

    @property
    def _launch(self) -> str:
        return f"{self.group.index}-{self.stand_in.client}"

    def begin(self, place: HostFacts, found: int) -> None:
        """Record the launch and the progress."""
        self._check_running()
        launch_record = LaunchRecord(
            launch=self._launch,
            group=self.group.index,
            arm=self.group.arm,
            simulated=True,
            queried_at=now_text(),
            facts=merge_facts({}, place, SILENT),
        )
        self.points.store.put(launch_key(self._launch), launch_record.to_json().encode())
        keeper = ProgressTracker(self.group, found, time.monotonic_ns, attempt=self.stand_in.client)
        keeper.phase = "measuring"
        self.points.store.replace(PROGRESS, keeper.current().to_json().encode())

    def measure(self, point: Point) -> None:
        """Measure and commit a point; an interrupted point never becomes a result."""
        self.stand_in.note(WorkAction.BEGUN, point.hash)
        writer = self.points.open(point, self.stand_in.client)
        try:
            self._commit(point, writer)
        except BaseException as error:
            writer.abandon(ABANDON_S)
            self.stand_in.note(WorkAction.ABANDONED, point.hash, f"{type(error).__name__}: {error}")
            raise
        self.stand_in.note(WorkAction.MEASURED, point.hash)

    def _commit(self, point: Point, writer: RecordWriter) -> None:
        plan, started_ns, started = self.stand_in.plan, time.monotonic_ns(), now_text()
        frame = WORLD.records(point)
        rows = [Record(**{str(name): value for name, value in row.items()}) for row in frame.to_dict("records")]
        middle = len(rows) // 2
        for row in rows[:middle]:
            writer.add(row)
        self._pass_time(Random(point.hash).uniform(*POINT_S) * slowness(plan))
        for row in rows[middle:]:
            writer.add(row)
        file = writer.finish()
        summary = summarise_point(plan, point, [frame], watch_of(point), counters_of(frame), simulated=True)
        if not self.around.pod_exists():
            self.around.interrupted.set()
        self._check_running()
        span = MeasurementSpan(started_ns, started, now_text())
        self.points.commit(summary, self.stand_in.client, [file], span, self._observed())

    def _observed(self) -> PointProvenance:
        return PointProvenance(
            dataset_fingerprint="synthetic",
            prompts=WORLD.prompts,
            client_version="stand-in",
            launch=self._launch,
        )

    def _pass_time(self, seconds: float) -> None:
        """Wait for the duration of the load. Raises as soon as it is interrupted."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            self._check_running()
            self.around.interrupted.wait(min(LOOK_S, remaining))

    def _check_running(self) -> None:
        if self.around.interrupted.is_set():
            raise Interrupted("the pod of the client is being deleted")
        if not self.around.engine_serves():
            raise EngineFailed("the engine stopped answering", EngineReason.LOST)
