"""Local runs: finding the results of the same plan, and starting a new run beside them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from specbench_api.outcome.layout import PLAN as PLAN_KEY
from specbench_api.outcome.layout import run_root
from specbench_api.plan.plan import Plan
from specbench_client.drive.options import SystemClock
from specbench_client.local.local_runs import find_interrupted_plan, find_local_run, new_local_run, newest_first
from specbench_client.store.folder import FolderStore
from specbench_client.store.run_uids import uid_created_ms
from specbench_client.store.store import Store
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

WORLD = SyntheticRun(prompts=4, repeats=1)
DERIVED = ("provenance.json", "results.csv", "report.html", "summary.json", "overview.json")
"""The files of an analysis, in the order of writing."""
PLAN = WORLD.plan.model_copy(update={"namespace": "local"})


def test_latest_run_of_the_same_plan_is_continued(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    uids = [new_local_run(results, PLAN, partial(int, second * 10**9)).plan.uid for second in (1, 3, 2)]
    for uid in uids:
        store_results(WORLD, tmp_path / "out", uid, points=1)
    assert find_local_run(results, PLAN).plan.uid == uids[1]


def test_new_run_has_another_uid_and_nothing_measured(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    old = new_local_run(results, PLAN, lambda: 0).plan.uid
    store_results(WORLD, tmp_path / "out", old)
    assert find_local_run(results, PLAN).measured
    place = new_local_run(results, PLAN)
    assert (place.plan.uid != old, place.measured) == (True, set())


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


def test_a_run_is_complete_only_after_the_last_write_of_its_analysis(tmp_path: Path) -> None:
    plan, store = concluded_run(tmp_path)
    results = FolderStore(tmp_path)
    assert find_local_run(results, plan).complete
    assert find_interrupted_plan(results, [plan]) is None
    for name in reversed(DERIVED):
        Path(store.uri(name)).unlink()
        run = find_local_run(results, plan)
        assert (run.plan.uid, run.finished, run.complete) == (plan.uid, True, False), name
        assert find_interrupted_plan(results, [plan]) == plan, name


def test_an_earlier_analysis_does_not_complete_a_run_that_was_continued(tmp_path: Path) -> None:
    """The first analysis lacked a point. The second one was killed before its last writes."""
    plan, store = concluded_run(tmp_path, points=1)
    earlier = {name: store.get(name) or b"" for name in DERIVED}
    results = FolderStore(tmp_path)
    assert not find_local_run(results, plan).finished
    store_results(WORLD, tmp_path, plan.uid)
    conclude(plan, store, SystemClock(wall=lambda: datetime(2030, 1, 2, tzinfo=UTC)))
    assert find_local_run(results, plan).complete
    for name in reversed(DERIVED):
        store.replace(name, earlier[name])
        run = find_local_run(results, plan)
        assert (run.finished, run.complete) == (True, False), name


def test_a_run_with_a_stop_rule_that_lacks_points_is_not_finished(tmp_path: Path) -> None:
    """An engine failed: the overview, which lists no missing point, is no proof that the rule ended the run."""
    plan, _ = concluded_run(tmp_path, points=1, stop="WhenDecided")
    run = find_local_run(FolderStore(tmp_path), plan)
    assert (run.finished, run.complete) == (False, False)
