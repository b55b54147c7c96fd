"""Where a local run finds its earlier results, and how it is measured anew beside them."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

from specbench_client.local.place import find_run, new_run, newest_first
from specbench_client.store.folder import FolderStore
from specbench_client.store.uids import made_ms
from specbench_testing.kept import keep
from specbench_testing.records import World

WORLD = World(prompts=4, repeats=1)
PLAN = WORLD.plan.model_copy(update={"namespace": "local"})


def test_the_same_plan_goes_on_where_it_ran_last(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    uids = [new_run(results, PLAN, partial(int, second * 10**9)).plan.uid for second in (1, 3, 2)]
    for uid in uids:
        keep(WORLD, tmp_path / "out", uid, points=1)
    assert find_run(results, PLAN).plan.uid == uids[1]


def test_a_new_run_lies_beside_the_old_one_and_has_nothing_measured(tmp_path: Path) -> None:
    results = FolderStore(tmp_path / "out")
    old = new_run(results, PLAN, lambda: 0).plan.uid
    keep(WORLD, tmp_path / "out", old)
    assert find_run(results, PLAN).measured
    place = new_run(results, PLAN)
    assert (place.plan.uid != old, place.measured) == (True, set())


def test_a_uid_tells_when_it_was_made_and_one_of_another_kind_comes_last() -> None:
    stranger, ours = str(uuid.UUID(int=1)), new_run(FolderStore(Path()), PLAN, lambda: 5_000_000).plan.uid
    assert (made_ms(ours), made_ms(stranger), made_ms("no uid")) == (5, 0, 0)
    assert newest_first([stranger, ours, "lock"])[0] == ours
