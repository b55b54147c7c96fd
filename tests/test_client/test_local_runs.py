"""Local runs: finding the results of the same plan, and starting a new run beside them."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

from specbench_client.local.local_runs import find_local_run, new_local_run, newest_first
from specbench_client.store.folder import FolderStore
from specbench_client.store.run_uids import uid_created_ms
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

WORLD = SyntheticRun(prompts=4, repeats=1)
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
