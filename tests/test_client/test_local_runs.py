"""Where a local run finds its earlier results, and how it is measured anew beside them."""

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


def test_the_same_plan_goes_on_where_it_ran_last(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    uids = [new_local_run(results, PLAN, partial(int, second * 10**9)).plan.uid for second in (1, 3, 2)]
    for uid in uids:
        store_results(WORLD, tmp_path / "out", uid, points=1)
    assert find_local_run(results, PLAN).plan.uid == uids[1]


def test_a_new_run_lies_beside_the_old_one_and_has_nothing_measured(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    old = new_local_run(results, PLAN, lambda: 0).plan.uid
    store_results(WORLD, tmp_path / "out", old)
    assert find_local_run(results, PLAN).measured
    place = new_local_run(results, PLAN)
    assert (place.plan.uid != old, place.measured) == (True, set())


def test_a_uid_tells_when_it_was_made_and_one_of_another_kind_comes_last() -> None:
    stranger, ours = str(uuid.UUID(int=1)), new_local_run(FolderStore(Path()), PLAN, lambda: 5_000_000).plan.uid
    assert (uid_created_ms(ours), uid_created_ms(stranger), uid_created_ms("no uid")) == (5, 0, 0)
    assert newest_first([stranger, ours, "lock"])[0] == ours
