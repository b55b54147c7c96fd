"""The live display says what is at work, at which load."""

from __future__ import annotations

import pytest

from specbench_client.cli.live import Live
from specbench_client.drive.progress import ProgressKeeper
from specbench_testing.records import World


@pytest.mark.parametrize(("world", "load"), [(World(concurrency=(8,)), "8"), (World(rate=(2.5,)), "2.5/s")])
def test_the_point_at_work_is_told_with_its_load(world: World, load: str) -> None:
    group = world.plan.groups[0]
    keeper = ProgressKeeper(group, 0, lambda: 0)
    keeper.start_point(group.points[0], 24)
    keeper.start_load()
    look = keeper.look()
    assert look.load == load
    with Live(world.plan, 0) as live:
        live.progress(look)
        _, point = live._bars.tasks
    assert point.description == f"none chat at {load}, repeat 0: measuring"


def test_before_its_first_point_a_group_is_told_by_its_arm_alone() -> None:
    world = World()
    with Live(world.plan, 0) as live:
        live.progress(ProgressKeeper(world.plan.groups[0], 0, lambda: 0).look())
        _, point = live._bars.tasks
    assert point.description == "none starting"
