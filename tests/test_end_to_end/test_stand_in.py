"""The stand-in for client Jobs stores what a client stores, and reports only work that it has done."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.provenance import HostFacts
from specbench_api.outcome.summary import RunSummary
from specbench_api.outcome.termination import Exit, Termination
from specbench_api.plan.expansion import expand
from specbench_api.plan.names import plan_name
from specbench_api.plan.plan import Plan
from specbench_api.spec.parsing import parse_run
from specbench_client.errors import EngineFailed, Interrupted
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_operator.render.client_jobs import client_job, plan_config_map
from specbench_operator.render.engine_job import engine_job
from specbench_testing import stand_in_client, stand_in_measurement
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.operator_builders import SETTINGS, operator_run
from specbench_testing.operator_process import eventually
from specbench_testing.resources import Resource
from specbench_testing.stand_in_client import NamespaceStage
from specbench_testing.stand_in_measurement import StandInClient, Surroundings
from specbench_testing.work_log import (
    WorkAction,
    WorkLog,
    WorkLogEntry,
    measured,
    measured_concurrently,
    measured_twice,
    started_twice,
    two_engines,
)

pytestmark = pytest.mark.runs

RUN = parse_run(operator_run({"spec.load": {"concurrency": [1, 2], "repeats": 1}}))
PLAN = expand(RUN)
FIRST, SECOND = (point.hash for point in PLAN.groups[0].points)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in_measurement, "POINT_S", (0.0, 0.01))


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], StandInClient]:
    log, store = WorkLog(tmp_path / "work.jsonl"), FolderStore(tmp_path / "results")
    return lambda client: StandInClient(PLAN, store, tmp_path / "spool" / client, client, log)


def surroundings(**changes: Any) -> Surroundings:
    calm = Surroundings(threading.Event(), engine_serves=lambda: True, pod_exists=lambda: True)
    return replace(calm, **changes)


def of_points(stand_in: StandInClient) -> set[str]:
    return PointStore(stand_in.store, Path()).measured([point.hash for point in PLAN.points])


def acts(stand_in: StandInClient) -> list[tuple[WorkAction, str]]:
    return [(entry.act, entry.point) for entry in stand_in.log.entries()]


def test_it_measures_only_points_without_a_manifest(make: Callable[[str], StandInClient]) -> None:
    termination = make("0-a").drive(PLAN.groups[0], HostFacts(), surroundings())
    assert (termination.code, termination.message) == (0, "group 0: 2 points measured, 0 were measured already")
    again = make("1-b")
    found = again.drive(PLAN.groups[0], HostFacts(), surroundings()).message
    assert found == "group 0: 0 points measured, 2 were measured already"
    assert acts(again) == [(act, point) for point in (FIRST, SECOND) for act in (WorkAction.BEGUN, WorkAction.MEASURED)]
    assert measured(again.log.entries(), PLAN.uid) == [FIRST, SECOND]
    assert json.loads(again.store.get("progress.json") or b"")["attempt"] == "0-a"


@pytest.mark.usefixtures("undrawn")
def test_its_results_can_be_reported(make: Callable[[str], StandInClient]) -> None:
    for group in PLAN.groups:
        make(f"{group.index}-a").drive(group, HostFacts(), surroundings())
    reporter = make("report-a")
    assert reporter.report().code == Exit.OK
    summary = RunSummary.from_json(reporter.store.get(SUMMARY) or b"")
    assert (summary.points_measured, summary.simulated) == (4, True)
    assert {cell.arm for cell in summary.cells if cell.speedup is None} == {"none"}


class FalseFromSecondPoint:
    """Returns False from the start of the second point on."""

    def __init__(self, log: WorkLog) -> None:
        self._log = log

    def __call__(self) -> bool:
        return (WorkAction.BEGUN, SECOND) not in [(entry.act, entry.point) for entry in self._log.entries()]


@pytest.mark.parametrize(("check", "error"), [("engine_serves", EngineFailed), ("pod_exists", Interrupted)])
def test_an_interrupted_point_is_no_result_and_the_next_client_measures_it(
    make: Callable[[str], StandInClient], check: str, error: type[Exception]
) -> None:
    cut = make("0-a")
    with pytest.raises(error):
        cut.drive(PLAN.groups[0], HostFacts(), surroundings(**{check: FalseFromSecondPoint(cut.log)}))
    assert of_points(cut) == {FIRST}
    assert acts(cut)[-1] == (WorkAction.ABANDONED, SECOND)
    make("1-b").drive(PLAN.groups[0], HostFacts(), surroundings())
    assert of_points(cut) == {FIRST, SECOND}
    entries = cut.log.entries()
    assert (measured_twice(entries), measured_concurrently(entries)) == ([], [])
    assert started_twice(entries) == [f"{PLAN.name} {SECOND[:12]}: 2 times"]


def test_a_slow_engine_takes_proportionally_longer() -> None:
    def plan_of(*args: str) -> Plan:
        return expand(parse_run(operator_run({"spec.engine.args": list(args)})))

    assert [stand_in_measurement.slowness(plan_of(*args)) for args in ((), ("--base-ms=48",))] == [1.0, 10.0]


def test_a_client_deleted_before_its_start_measures_nothing(make: Callable[[str], StandInClient]) -> None:
    deleted = surroundings()
    deleted.interrupted.set()
    with pytest.raises(Interrupted):
        make("0-a").drive(PLAN.groups[0], HostFacts(), deleted)
    assert acts(make("0-a")) == []


def entry(act: WorkAction, client: str, point: str, run: str = "uid") -> WorkLogEntry:
    return WorkLogEntry(act, "now", "name", run, client, point)


def test_an_incomplete_log_line_is_left_for_the_next_read(
    make: Callable[[str], StandInClient],
) -> None:
    log = make("0-a").log
    assert log.entries() == []
    first, second = entry(WorkAction.BEGUN, "a", "p"), entry(WorkAction.MEASURED, "a", "p")
    log.add(first)
    log.add(second)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-1])
    assert log.entries() == [first]
    log.path.write_bytes(whole)
    assert log.entries() == [first, second]


def test_the_log_reports_repeated_and_concurrent_measurements() -> None:
    first = [entry(WorkAction.BEGUN, "a", "p"), entry(WorkAction.MEASURED, "a", "p")]
    second = [entry(WorkAction.BEGUN, "b", "p"), entry(WorkAction.MEASURED, "b", "p")]
    assert (measured_twice(first), started_twice(first), measured_concurrently(first)) == ([], [], [])
    assert measured_twice(first + second) == started_twice(first + second) == ["name p: 2 times"]
    assert measured_concurrently([first[0], second[0], first[1], second[1]]) == ["name: ['a', 'b']"]
    assert measured_concurrently([first[0], entry(WorkAction.BEGUN, "b", "p", run="other")]) == []


class FakePodApi:
    """A minimal API server for the requests of a stage."""

    def __init__(self, plan: Plan) -> None:
        self.pods: dict[str, Resource] = {}
        self._plan = plan_config_map(RUN, plan)

    def run(self, job: Resource, **status: Any) -> Resource:
        meta = {"name": job["metadata"]["name"], "uid": f"uid of {job['metadata']['name']}"}
        spec = job["spec"]["template"]["spec"]
        containers = [{"name": row["name"], "state": {"running": {"startedAt": "then"}}} for row in spec["containers"]]
        pod = {
            "metadata": {**job["spec"]["template"]["metadata"], **meta},
            "spec": spec,
            "status": {"phase": "Running", "containerStatuses": containers, **status},
        }
        self.pods[meta["name"]] = pod
        return pod

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        kind, name = path.removesuffix("/status").split("/")[-2:]
        if name == "pods":
            return {"items": [dict(pod) for pod in self.pods.values()]}
        if kind == "configmaps":
            assert name == plan_name(PLAN.name)
            return self._plan
        if name not in self.pods:
            raise ApiError(404, f"no pod {name}")
        if method == "PATCH":
            assert body["metadata"]["uid"] == self.pods[name]["metadata"]["uid"]
            self.pods[name]["status"] |= body["status"]
        return self.pods[name]


@pytest.fixture
def api() -> FakePodApi:
    return FakePodApi(PLAN)


@pytest.fixture
def stage(api: FakePodApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamespaceStage:
    monkeypatch.setattr(
        stand_in_client, "_store", lambda results: FolderStore(tmp_path / results.removeprefix("s3://"))
    )
    cluster: Cluster = api  # type: ignore[assignment]
    return NamespaceStage(cluster, "default", WorkLog(tmp_path / "work.jsonl"))


def client_pod(api: FakePodApi, **status: Any) -> Resource:
    return api.run(
        client_job(RUN, PLAN, PLAN.groups[0], 0, SETTINGS, engine=HostFacts(), engine_pod="engine-pod"), **status
    )


def engine_pod(api: FakePodApi, ready: str = "True", attempt: int = 0) -> Resource:
    conditions = [{"type": "Ready", "status": ready}]
    return api.run(engine_job(RUN, PLAN, PLAN.groups[0], attempt, SETTINGS), conditions=conditions)


def ending_of(pod: Resource) -> Termination | None:
    state = pod["status"]["containerStatuses"][0]["state"].get("terminated")
    return Termination.from_json(state["message"]) if state else None


def ends(pod: Resource) -> Termination:
    found = eventually(lambda: ending_of(pod), "the pod does not end", 20)
    assert found is not None
    return found


def test_a_rendered_client_pod_is_simulated_to_completion(
    api: FakePodApi, stage: NamespaceStage, tmp_path: Path
) -> None:
    pod, _ = client_pod(api), engine_pod(api)
    stage.look()
    assert ends(pod).code == Exit.OK
    assert pod["status"]["phase"] == "Succeeded"
    stage.look()
    entries = stage.log.entries()
    assert measured(entries, PLAN.uid) == [FIRST, SECOND]
    assert all(entry.client.startswith("0-") for entry in entries)
    root = FolderStore(tmp_path / "results" / run_root(PLAN.namespace, PLAN.name, PLAN.uid))
    assert PointStore(root, Path()).measured([FIRST, SECOND]) == {FIRST, SECOND}


def test_a_client_without_its_engine_ends_with_engine_lost(api: FakePodApi, stage: NamespaceStage) -> None:
    pod, _ = client_pod(api), engine_pod(api, ready="False")
    stage.look()
    assert (ends(pod).code, ends(pod).reason, pod["status"]["phase"]) == (4, "EngineLost", "Failed")


def test_a_deleted_pod_is_interrupted_and_a_pending_pod_is_not_started(api: FakePodApi, stage: NamespaceStage) -> None:
    waiting = client_pod(api, phase="Pending")
    stage.look()
    assert ending_of(waiting) is None
    waiting["status"]["phase"] = "Running"
    waiting["metadata"]["deletionTimestamp"] = "now"
    stage.look()
    assert (ends(waiting).code, stage.log.entries()) == (130, [])


def test_two_engines_of_one_run_are_recorded(api: FakePodApi, stage: NamespaceStage) -> None:
    first, _ = engine_pod(api), engine_pod(api, attempt=1)
    first["status"]["phase"] = "Failed"
    stage.look()
    assert two_engines(stage.log.entries()) == []
    first["status"]["phase"] = "Running"
    stage.look()
    stage.look()
    assert two_engines(stage.log.entries()) == ["demo: demo-g0-0 and demo-g0-1"]
