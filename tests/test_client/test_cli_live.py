"""The live display says what is at work, at which load."""

from __future__ import annotations

import pytest

from specbench_api.outcome.record import RecordPhase
from specbench_client.cli.live import Live
from specbench_client.drive.progress import ProgressKeeper
from specbench_testing.records import World, record


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


def warming(world: World, requests: int) -> ProgressKeeper:
    """A keeper in the warm-up of its first point, so many requests of 16 in."""
    keeper = ProgressKeeper(world.plan.groups[0], 0, lambda: 0)
    keeper.start_point(world.plan.groups[0].points[0], 24)
    keeper.start_warmup(16)
    for _ in range(requests):
        keeper.add(record(phase=RecordPhase.WARMUP))
    return keeper


def test_a_warm_up_is_shown_with_its_own_count_and_the_load_with_its_own() -> None:
    world = World()
    keeper = warming(world, 5)
    with Live(world.plan, 0) as live:
        live.progress(keeper.look())
        point = live._bars.tasks[1]
        assert (point.completed, point.total) == (5, 16)
        assert "at most" in point.fields["note"]
        keeper.start_load()
        keeper.add(record())
        live.progress(keeper.look())
        point = live._bars.tasks[1]
        assert (point.completed, point.total) == (1, 24)


def test_a_point_without_a_warm_up_counts_none() -> None:
    world = World()
    keeper = warming(world, 5)
    keeper.start_point(world.plan.groups[0].points[0], 24)
    assert (keeper.look().warmup_done, keeper.look().warmup_most) == (None, None)


def test_without_a_terminal_each_point_and_phase_is_one_line_and_the_warm_up_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    keeper = warming(world, 5)
    with Live(world.plan, 0) as live:
        for _ in range(2):
            live.progress(keeper.look())
        keeper.start_load()
        for _ in range(2):
            live.progress(keeper.look())
    begin = "none chat at 1, repeat 0: "
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(begin) and "0/24" not in line]
    assert [line.removeprefix(begin) for line in lines] == ["warmup", "measuring (after 5 requests of warm-up)"]


def test_on_a_narrow_screen_the_count_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    keeper = ProgressKeeper(world.plan.groups[0], 0, iter(range(0, 10**12, 10**9)).__next__)
    keeper.start_point(world.plan.groups[0].points[0], 1024)
    keeper.start_load()
    for _ in range(1000):
        keeper.add(record())
    with Live(world.plan, 0) as live:
        live.progress(keeper.look())
    shown = capsys.readouterr().err
    assert "tok/s" in shown
    assert "1000/1024" in shown


def test_what_an_engine_said_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with Live(World().plan, 0) as live:
        live.failed("ngram", "EngineCrashed", "unknown tag [/INST] in [bold]prompt")
    assert "ngram: EngineCrashed: unknown tag [/INST] in [bold]prompt" in capsys.readouterr().err
