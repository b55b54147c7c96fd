"""A stored run: what is read of it, how damage is reported, when it is finished, and which one is continued."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.layout import PLAN as PLAN_KEY
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.plan.canonical import extends
from specbench_api.plan.plan import Plan
from specbench_client.drive.options import SystemClock
from specbench_client.drive.resume import claim_store
from specbench_client.errors import BadInput, NotDurable
from specbench_client.local.local_runs import find_begun_plan, find_local_run, new_local_run, newest_first
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.store.store import Store, StoreErrorReason
from specbench_client.stored_runs.run import RUN_MISSING, RUN_UNFINISHED, Run
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_point, store_results
from specbench_testing.synthetic_records import SyntheticRun, point_of

pytestmark = pytest.mark.usefixtures("undrawn")

WORLD = SyntheticRun(prompts=4, repeats=1)
DERIVED = ("provenance.json", "results.csv", "report.html", "summary.json", "status.json")
"""The files of an analysis, in the order of writing."""
PLAN = WORLD.plan.model_copy(update={"namespace": "local"})
LOCAL_UID, CLUSTER_UID = "0190a000-0000-7000-8000-000000000000", "3f2c0000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def concluded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run with a summary."""
    folder = tmp_path_factory.mktemp("concluded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specbench_client.report.html.draw_figures", lambda _: {})
        return Path(concluded_run(folder)[1].uri())


def changed(folder: Path, name: str, *path: int | str, to: Any) -> None:
    """Replace a value in a document."""
    document = place = json.loads((folder / name).read_text())
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    (folder / name).write_text(json.dumps(document))


def reading_error(folder: Path, name: str) -> str:
    """Return the message of the damaged document."""
    with pytest.raises(NotDurable) as caught:
        _ = Run(FolderStore(folder)).plan if name == PLAN_KEY else Run(FolderStore(folder)).summary
    assert caught.value.reason == StoreErrorReason.DAMAGED
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        (PLAN_KEY, ("uid",), "../../x"),
        (PLAN_KEY, ("namespace",), "a/b"),
        (PLAN_KEY, ("groups", 0, "points", 0, "hash"), "../../../x"),
        (PLAN_KEY, ("groups", 0, "points", 0, "workload"), "unknown"),
        (PLAN_KEY, ("groups", 0, "points", 0, "arm"), "unknown"),
        (PLAN_KEY, ("groups", 0, "points", 0, "level", "concurrency"), 99),
        (PLAN_KEY, ("arms",), []),
        (PLAN_KEY, ("groups",), []),
        (SUMMARY, ("cells", 0, "workload"), "unknown"),
        (SUMMARY, ("cells", 0, "points"), []),
        (SUMMARY, ("cells", 0, "points", 0), "unknown"),
        (SUMMARY, ("cells", 0, "figures", "output_tps", "value"), float("nan")),
        (SUMMARY, ("cells", 0, "figures", "output_tps", "value"), float("inf")),
        (SUMMARY, ("cells", 0, "figures", "output_tps", "value"), "fast"),
        (SUMMARY, ("cells",), {}),
    ],
)
def test_a_document_that_contradicts_itself_is_reported_as_damaged(
    concluded: Path, tmp_path: Path, name: str, path: tuple[int | str, ...], value: Any
) -> None:
    root = Path(shutil.copytree(concluded, tmp_path / "run"))
    changed(root, name, *path, to=value)
    error = reading_error(root, name)
    assert error.startswith(f"{root / name}: ")
    assert len(error) < 1000


@pytest.mark.parametrize("levels", [300, 100_000])
@pytest.mark.parametrize("name", [PLAN_KEY, SUMMARY])
def test_deeply_nested_json_is_reported_as_damaged(concluded: Path, tmp_path: Path, name: str, levels: int) -> None:
    root = Path(shutil.copytree(concluded, tmp_path / "run"))
    (root / name).write_text("[" * levels + "]" * levels)
    assert f"{name}: cannot be read" in reading_error(root, name)


@pytest.mark.parametrize(
    ("uid", "points", "reason", "message"),
    [
        (None, 0, RUN_MISSING, "there is no run here (no plan.json)"),
        (LOCAL_UID, 1, RUN_UNFINISHED, "Interrupted: 1 of 2 points is measured."),
        (CLUSTER_UID, 0, RUN_UNFINISHED, "Not finished: 0 of 2 points are measured."),
    ],
    ids=["missing", "local", "cluster"],
)
def test_a_summary_is_required_with_the_reason_why_there_is_none(
    tmp_path: Path, uid: str | None, points: int, reason: str, message: str
) -> None:
    folder = tmp_path
    if uid is not None:
        plan = store_results(WORLD, tmp_path, uid, points=points)
        folder = tmp_path / run_root(plan.namespace, plan.name, uid)
    with pytest.raises(BadInput) as caught:
        Run(FolderStore(folder)).require_summary()
    assert (caught.value.reason, str(caught.value).startswith(f"{folder}: {message}")) == (reason, True)
    assert ("Repeat the command" in str(caught.value)) == (uid == LOCAL_UID)


def test_a_run_reads_each_document_once(concluded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read = FolderStore.get

    def counted(store: FolderStore, key: str) -> bytes | None:
        reads.append(key)
        return read(store, key)

    monkeypatch.setattr(FolderStore, "get", counted)
    run = Run(FolderStore(concluded))
    assert reads == []
    for _ in range(2):
        assert set(run.point_summaries) == {point.hash for point in run.plan.points}
        assert run.launch_records
    points = [key for key in reads if key.startswith("points/")]
    assert sorted(points) == sorted(set(points))


def test_latest_run_of_the_same_plan_is_continued(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    uids = [new_local_run(results, PLAN, partial(int, second * 10**9)).plan.uid for second in (1, 3, 2)]
    for uid in uids:
        store_results(WORLD, tmp_path / "out", uid, points=1)
    assert find_local_run(results, PLAN).plan.uid == uids[1]


def grown(world: SyntheticRun, **load: Any) -> Plan:
    return replace(world, edits={**world.edits, "spec.load": load}).plan.model_copy(update={"namespace": "local"})


@pytest.mark.parametrize(
    ("before", "after", "added"),
    [
        ({"repeats": 2}, {"repeats": 3}, 4),
        ({"repeats": 2}, {"repeats": 2, "concurrency": [1, 2, 4]}, 4),
        ({"repeats": 2}, {"repeats": 3, "concurrency": [1, 2, 4]}, 10),
        ({"repeats": 2}, {"repeats": 1}, None),
        ({"repeats": 2}, {"repeats": 3, "order": "Sequential"}, None),
        ({"repeats": 2}, {"repeats": 3, "concurrency": [1, 4]}, None),
        ({"repeats": 2}, {"repeats": 3, "requests": 5}, None),
        ({"repeats": 2, "slots": 2}, {"repeats": 2, "concurrency": [1, 2, 4], "slots": 4}, None),
    ],
)
def test_repeats_and_loads_are_added_to_the_stored_points(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], added: int | None
) -> None:
    """Another order or size is another run; so are more slots, with which an engine is started."""
    fixed = {"concurrency": [1, 2], "slots": 8}
    stored, plan = grown(WORLD, **{**fixed, **before}), grown(WORLD, **{**fixed, **after})
    old = new_local_run(FolderStore(tmp_path), stored, lambda: 0).plan
    store = FolderStore(tmp_path / run_root("local", old.name, old.uid))
    store.put(PLAN_KEY, old.to_json().encode())
    for point in old.points:
        store_point(PointStore(store), *point_of(replace(WORLD, edits={"spec.load": {**fixed, **before}}), point))
    run = find_local_run(FolderStore(tmp_path), plan)
    assert (run.plan.uid == old.uid) == (added is not None)
    if added is not None:
        assert len(run.manifests) == len(old.points) == len(plan.points) - added
        assert find_begun_plan(FolderStore(tmp_path), plan, lambda _: plan) == plan, (
            "also if a probe chose the size of a repeat"
        )
        claim_store(run.plan, store)
        assert Run(store).plan == run.plan
    else:
        with pytest.raises(BadInput, match="another plan"):
            claim_store(plan.model_copy(update={"uid": old.uid}), store)
        assert Run(store).plan == old


def test_a_run_of_this_plan_goes_before_one_that_it_would_extend(tmp_path: Path) -> None:
    results, three = FolderStore(tmp_path), grown(WORLD, concurrency=[1], repeats=3)
    for second, plan in enumerate((three, grown(WORLD, concurrency=[1], repeats=2))):
        stored = new_local_run(results, plan, partial(int, second * 10**9)).plan
        results.put(f"{run_root('local', plan.name, stored.uid)}/{PLAN_KEY}", stored.to_json().encode())
    assert uid_created_ms(find_local_run(results, three).plan.uid) == 0


SERVERS = [{"name": "none", "url": "http://a:1"}, {"name": "eagle3", "url": "http://b:1"}]
RUNNING = {"spec.engine": {"kind": "external", "endpoints": SERVERS}, "spec.drafters": []}


def on_running_servers(**load: Any) -> Plan:
    fixed = {"concurrency": [1], "slots": 8, "requests": 4, "repeats": 2}
    return grown(replace(WORLD, drafters=(), edits=RUNNING), **{**fixed, **load})


def test_a_run_of_running_servers_is_not_continued_with_more_repeats(tmp_path: Path) -> None:
    """They may serve something else by now, and their earlier result would be replaced."""
    old = new_local_run(FolderStore(tmp_path), on_running_servers(), lambda: 0).plan
    FolderStore(tmp_path / run_root("local", old.name, old.uid)).put(PLAN_KEY, old.to_json().encode())
    assert find_local_run(FolderStore(tmp_path), on_running_servers()).plan.uid == old.uid
    assert find_local_run(FolderStore(tmp_path), on_running_servers(repeats=3)).plan.uid != old.uid
    restarting = on_running_servers().model_copy(update={"restarts": True})
    assert find_local_run(FolderStore(tmp_path), restarting).plan.uid != old.uid
    with pytest.raises(BadInput, match="restarts differ"):
        claim_store(restarting, FolderStore(tmp_path / run_root("local", old.name, old.uid)))


@pytest.mark.parametrize(("load", "is_same"), [({"repeats": 3}, True), ({"concurrency": [1, 2]}, False)])
def test_loads_are_not_added_where_points_continue_through_the_prompts(load: dict[str, Any], *, is_same: bool) -> None:
    """Each point of a running server sends the next prompts: those of the stored points would be sent again."""
    stored, plan = on_running_servers(), on_running_servers(**load)
    assert extends(plan, stored) == is_same
    assert not extends(stored, stored)


def test_new_run_has_another_uid_and_nothing_measured(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    old = new_local_run(results, PLAN, lambda: 0).plan.uid
    store_results(WORLD, tmp_path / "out", old)
    assert find_local_run(results, PLAN).manifests
    place = new_local_run(results, PLAN)
    assert (place.plan.uid != old, place.manifests) == (True, {})


def test_local_uid_contains_its_creation_time_and_other_uids_sort_last() -> None:
    foreign, local = str(uuid.UUID(int=1)), new_local_run(FolderStore(Path()), PLAN, lambda: 5_000_000).plan.uid
    assert (uid_created_ms(local), uid_created_ms(foreign), uid_created_ms("no uid")) == (5, 0, 0)
    assert newest_first([foreign, local, "lock"])[0] == local


def concluded_run(folder: Path, points: int | None = None, **changed: object) -> tuple[Plan, Store]:
    """Return plan and store of a run with this many points (None: all) whose analysis has ended."""
    plan = store_results(WORLD, folder, new_local_run(FolderStore(folder), PLAN).plan.uid, points)
    plan = plan.model_copy(update=changed)
    store = FolderStore(folder / run_root(plan.namespace, plan.name, plan.uid))
    store.replace(PLAN_KEY, plan.to_json().encode())
    conclude(plan, store)
    return plan, store


@pytest.mark.runs
def test_a_run_is_complete_only_after_the_last_write_of_its_analysis(tmp_path: Path) -> None:
    plan, store = concluded_run(tmp_path)
    results = FolderStore(tmp_path)
    assert find_local_run(results, plan).is_complete
    assert find_begun_plan(results, plan, lambda _: plan) is None
    for name in reversed(DERIVED):
        Path(store.uri(name)).unlink()
        run = find_local_run(results, plan)
        assert (run.plan.uid, run.is_finished, run.is_complete) == (plan.uid, True, False), name
        assert find_begun_plan(results, plan, lambda _: plan) == plan, name


@pytest.mark.runs
def test_a_run_whose_summary_has_another_version_is_complete(tmp_path: Path) -> None:
    """After an upgrade, the same `measure` command measures again: it does not take up the finished run."""
    plan, store = concluded_run(tmp_path)
    changed(Path(store.uri("")), SUMMARY, "schemaVersion", to="specbench.io/run-summary/v0")
    run = find_local_run(FolderStore(tmp_path), plan)
    assert (run.is_complete, run.has_current_summary(), run.intact_summary()) == (True, True, None)
    changed(Path(store.uri("")), SUMMARY, "pointsMeasured", to=1)
    assert not find_local_run(FolderStore(tmp_path), plan).has_current_summary()


@pytest.mark.runs
def test_an_earlier_analysis_does_not_complete_a_run_that_was_continued(tmp_path: Path) -> None:
    """The first analysis lacked a point. The second one was killed before its last writes."""
    plan, store = concluded_run(tmp_path, points=1)
    earlier = {name: store.get(name) or b"" for name in DERIVED}
    results = FolderStore(tmp_path)
    assert not find_local_run(results, plan).is_finished
    store_results(WORLD, tmp_path, plan.uid)
    conclude(plan, store, SystemClock(wall=lambda: datetime(2030, 1, 2, tzinfo=UTC)))
    assert find_local_run(results, plan).is_complete
    for name in reversed(DERIVED):
        store.replace(name, earlier[name])
        run = find_local_run(results, plan)
        assert (run.is_finished, run.is_complete) == (True, False), name


@pytest.mark.runs
def test_a_run_with_a_stop_rule_that_lacks_points_is_not_finished(tmp_path: Path) -> None:
    """An engine failed: status.json, which lists no missing point, is no proof that the rule ended the run."""
    plan, _ = concluded_run(tmp_path, points=1, stop="WhenDecided")
    run = find_local_run(FolderStore(tmp_path), plan)
    assert (run.is_finished, run.is_complete) == (False, False)
