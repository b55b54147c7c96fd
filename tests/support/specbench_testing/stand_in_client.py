"""A process that simulates the client and report pods of one namespace, on nodes without containers (kwok's).

It lists the namespace's pods several times a second. A thread simulates each running client or report pod: it reads
the pod's inputs (arguments, plan.json of its ConfigMap), does a client's work, and ends the
pod as a kubelet would, with exit code and termination message in its status. A deleted pod ends as interrupted and
leaves no manifest of its current point. A client whose engine pod is gone or not ready ends with
EngineLost.

It also records every time at which a run has two engines that could hold GPUs.

Its limits: the S3 keys come from this process's environment instead of the pod's Secret; its view of the pods is as
old as its last list, except right before a point becomes a result, when it asks again; an engine answers exactly
while its pod is ready. After a restart, it simulates running pods again, like a restarted container.

    python -m specbench_testing.stand_in_client --kubeconfig FILE --namespace NAME --log FILE
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN, launch_key, run_root
from specbench_api.outcome.provenance import HOST_FACTS_VARIABLE, HostFacts, LaunchRecord, merge_facts
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.names import (
    LABEL_ATTEMPT,
    LABEL_GROUP,
    LABEL_ROLE,
    LABEL_RUN,
    LABEL_RUN_UID,
    ROLE_CLIENT,
    ROLE_ENGINE,
    ROLE_REPORT,
)
from specbench_api.plan.plan import EngineGroup, Plan, Point
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.documents.manifest import PointProvenance
from specbench_client.documents.record import Record
from specbench_client.documents.summary import ClientHealth
from specbench_client.drive.progress import PROGRESS, ProgressTracker
from specbench_client.drive.resume import claim_store
from specbench_client.errors import EngineFailed, Interrupted
from specbench_client.job.commands import termination_of
from specbench_client.report import html
from specbench_client.simulator.step_cost import SimulatedStepCost
from specbench_client.store.locations import open_store
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.records import RecordWriter
from specbench_client.store.store import Store
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.cluster_run import is_living
from specbench_testing.operator_process import retry_until_available
from specbench_testing.resources import Resource
from specbench_testing.s3 import S3Access
from specbench_testing.synthetic_records import SyntheticRun, counters_of, tidy_frames, watch_of
from specbench_testing.work_log import WorkAction, WorkLog, WorkLogEntry

POINT_S = (0.05, 0.3)
"""The range of a point's duration with an engine of default speed; drawn by the point's hash."""
BASE_MS = "--base-ms="
"""The simulator's flag for the cost of a step; points last longer in proportion."""
RECORDS_LOOK_S = 0.02
ABANDON_S = 2.0
BUSY_SEED = 4711
"""The seed of a workload whose client is busy with something else while it measures the second repeat of a drafter."""
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


def _watch_of(plan: Plan, point: Point) -> ClientHealth:
    """The client's health at a point."""
    is_busy = plan.workload(point.workload).sampling.seed == BUSY_SEED and point.arm != "none" and point.repeat == 1
    return watch_of(point).model_copy(update={"cpu_share": 0.95} if is_busy else {})


@dataclass(frozen=True)
class StandInClient:
    """One client process. `store`: the run's root. `client`: its name in file names, new for each process.

    `job`: the Job that started it.
    """

    plan: Plan
    store: Store
    client: str
    log: WorkLog
    job: str

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
        self.log.add(WorkLogEntry(act, now_text(), self.plan.name, self.plan.uid, self.client, point, why, self.job))


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
        summary = summarise_point(
            plan, point, tidy_frames([frame], point.hash), _watch_of(plan, point), counters_of(frame), simulated=True
        )
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
            self.around.interrupted.wait(min(RECORDS_LOOK_S, remaining))

    def _check_running(self) -> None:
        if self.around.interrupted.is_set():
            raise Interrupted("the pod of the client is being deleted")
        if not self.around.engine_serves():
            raise EngineFailed("the engine stopped answering", EngineReason.LOST)


LOOK_S = 0.15
_STRATEGIC = "application/strategic-merge-patch+json"
_GONE = (404, 409)
"""The pod does not exist, or another pod has its name."""
_SELECTOR = f"{LABEL_ROLE} in ({ROLE_ENGINE},{ROLE_CLIENT},{ROLE_REPORT})"

T = TypeVar("T")


@dataclass(frozen=True)
class _Call:
    """The arguments of a pod's one container."""

    command: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, pod: Resource) -> _Call:
        command, *rest = pod["spec"]["containers"][0]["args"]
        return cls(command, dict(zip(rest[::2], rest[1::2], strict=True)))


@dataclass
class _Player:
    """One pod, simulated by a thread."""

    stage: NamespaceStage
    pod: Resource
    interrupted: threading.Event = field(default_factory=threading.Event)

    def play(self) -> None:
        """Run from the start to the pod's end."""
        try:
            ending = self._ending()
        except Exception as error:  # noqa: BLE001 -- a client reports every error
            ending = termination_of(error)
        self.stage.end(self.pod, ending)

    def _ending(self) -> Termination:
        call = _Call.of(self.pod)
        plan = self.stage.plan_of(self.pod)
        if plan is None:
            raise Interrupted("its run is being deleted")
        store = _store(call.options["--results"]).below(run_root(plan.namespace, plan.name, plan.uid))
        name = f"{call.options.get('--attempt', 'report')}-{secrets.token_hex(3)}"
        stand_in = StandInClient(plan, store, name, self.stage.log, _job(self.pod))
        if call.command == "report":
            return stand_in.report()
        serves = (lambda: True) if plan.engine.is_external else self._engine_serves
        around = Surroundings(self.interrupted, serves, self._pod_exists)
        return stand_in.drive(plan.groups[int(call.options["--group"])], _place(self.pod), around)

    def _engine_serves(self) -> bool:
        same = (LABEL_RUN_UID, LABEL_GROUP, LABEL_ATTEMPT)
        own_labels = self.pod["metadata"]["labels"]
        return any(
            _serves(pod)
            for pod in self.stage.seen.values()
            if all(pod["metadata"]["labels"].get(name) == own_labels[name] for name in same)
        )

    def _pod_exists(self) -> bool:
        return self.stage.exists(self.pod)


class NamespaceStage:
    """The namespace: the last list of its pods, and the threads that simulate them."""

    def __init__(self, cluster: Cluster, namespace: str, log: WorkLog) -> None:
        self.log = log
        self.seen: Mapping[str, Resource] = {}
        self._cluster = cluster
        self._core = f"/api/v1/namespaces/{namespace}"
        self._players: dict[str, _Player] = {}

    def look(self) -> None:
        """List the pods once; interrupt deleted ones, start new running ones, and record two engines of a run."""
        path, query = f"{self._core}/pods", {"labelSelector": _SELECTOR}
        rows = retry_until_available(lambda: self._cluster.call("GET", path, query=query))["items"]
        self.seen = {pod["metadata"]["uid"]: pod for pod in rows}
        for uid, player in self._players.items():
            if uid not in self.seen or _is_deleted(self.seen[uid]):
                player.interrupted.set()
        for uid, pod in self.seen.items():
            if uid not in self._players and _is_client(pod) and pod["status"].get("phase") == "Running":
                self._begin(uid, pod)
        self._note_engines()

    def plan_of(self, pod: Resource) -> Plan | None:
        """The plan in the pod's ConfigMap; None if it is gone."""
        (name,) = (row["configMap"]["name"] for row in pod["spec"]["volumes"] if row["name"] == "plan")
        found = _unless_gone(lambda: self._cluster.call("GET", f"{self._core}/configmaps/{name}"))
        return None if found is None else Plan.from_json(found["data"][PLAN])

    def exists(self, pod: Resource) -> bool:
        """Whether this pod exists and is not being deleted, according to the API server now."""
        meta = pod["metadata"]
        found = _unless_gone(lambda: self._cluster.call("GET", f"{self._core}/pods/{meta['name']}"))
        return found is not None and found["metadata"]["uid"] == meta["uid"] and not _is_deleted(found)

    def end(self, pod: Resource, ending: Termination) -> None:
        """End the pod with this termination."""
        meta, container = pod["metadata"], pod["status"]["containerStatuses"][0]
        terminated = {
            "exitCode": ending.code,
            "reason": "Error" if ending.code else "Completed",
            "message": ending.to_message(),
            "startedAt": container["state"]["running"]["startedAt"],
            "finishedAt": now_text(),
        }
        unready = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        status = {
            "phase": "Failed" if ending.code else "Succeeded",
            "conditions": unready,
            "containerStatuses": [{**container, "ready": False, "state": {"running": None, "terminated": terminated}}],
        }
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        path = f"{self._core}/pods/{meta['name']}/status"
        _unless_gone(lambda: self._cluster.call("PATCH", path, body, kind=_STRATEGIC))

    def _note_engines(self) -> None:
        """Record two living engines of one run: a run may hold the GPUs of one engine only."""
        living = [pod for pod in self.seen.values() if _role(pod) == ROLE_ENGINE and is_living(pod)]
        for run, rows in groupby(sorted(living, key=_run), key=_run):
            names = [pod["metadata"]["name"] for pod in rows]
            if len(names) > 1:
                name, uid = run
                self.log.add(
                    WorkLogEntry(WorkAction.TWO_ENGINES, now_text(), name, uid, "", why=" and ".join(sorted(names)))
                )

    def _begin(self, uid: str, pod: Resource) -> None:
        player = self._players[uid] = _Player(self, pod)
        if _is_deleted(pod):
            player.interrupted.set()
        threading.Thread(target=player.play, name=pod["metadata"]["name"], daemon=True).start()


def _unless_gone(request: Callable[[], T]) -> T | None:
    try:
        return retry_until_available(request)
    except ApiError as refused:
        if refused.status not in _GONE:
            raise
        return None


@cache
def _store(results: str) -> Store:
    """One connection for all threads: stores are thread-safe, and opening one is slow."""
    return open_store(results)


def _place(pod: Resource) -> HostFacts:
    variables = {row["name"]: row.get("value") for row in pod["spec"]["containers"][0].get("env", [])}
    return HostFacts.from_json(variables.get(HOST_FACTS_VARIABLE) or "{}")


def _role(pod: Resource) -> str:
    return str(pod["metadata"]["labels"][LABEL_ROLE])


def _job(pod: Resource) -> str:
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"])


def _run(pod: Resource) -> tuple[str, str]:
    labels = pod["metadata"]["labels"]
    return labels[LABEL_RUN], labels[LABEL_RUN_UID]


def _is_client(pod: Resource) -> bool:
    return _role(pod) in (ROLE_CLIENT, ROLE_REPORT)


def _is_deleted(pod: Resource) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _serves(pod: Resource) -> bool:
    conditions = {row["type"]: row["status"] for row in pod["status"].get("conditions", [])}
    running = pod["status"].get("phase") == "Running" and conditions.get("Ready") == "True"
    return _role(pod) == ROLE_ENGINE and running and not _is_deleted(pod)


@contextmanager
def stand_in_client(cluster: Cluster, namespace: str, s3: S3Access, folder: Path) -> Iterator[WorkLog]:
    """The process, within a `with` block; yields its log. Fails if it ends by itself or logs a traceback."""
    log, stderr_file = WorkLog(folder / "work.jsonl"), folder / "stand-in.log"
    flags = {"kubeconfig": cluster.kubeconfig, "namespace": namespace, "log": log.path}
    call = [sys.executable, "-m", __name__, *(f"--{name}={value}" for name, value in flags.items())]
    with stderr_file.open("ab") as stderr:
        process = subprocess.Popen(call, stdout=stderr, stderr=stderr, cwd=folder, env=_environment(s3))
    try:
        yield log
        assert process.poll() is None, f"the stand-in ended: {stderr_file.read_text()[-4000:]}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "Traceback" not in stderr_file.read_text(), stderr_file.read_text()[-4000:]


def _environment(s3: S3Access) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPECBENCH_"))}
    return {**plain, **s3.environment(), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def main() -> None:
    """Simulate until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("kubeconfig", "log"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    given: Any = parser.parse_args()
    setattr(html, "draw_figures", lambda _: {})  # noqa: B010 -- drawing takes most of a report's time, and other tests draw
    stage = NamespaceStage(Cluster.at(given.kubeconfig), given.namespace, WorkLog(given.log))
    while True:
        stage.look()
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
