"""The live display shows the current point and its load."""

from __future__ import annotations

import pytest

from specbench_api.outcome.record import RecordPhase
from specbench_client.cli.progress import LiveProgress
from specbench_client.drive.progress import ProgressTracker
from specbench_testing.synthetic_records import SyntheticRun, record


@pytest.mark.parametrize(
    ("world", "load"), [(SyntheticRun(concurrency=(8,)), "8"), (SyntheticRun(rate=(2.5,)), "2.5/s")]
)
def test_the_current_point_is_shown_with_its_load(world: SyntheticRun, load: str) -> None:
    group = world.plan.groups[0]
    keeper = ProgressTracker(group, 0, lambda: 0)
    keeper.start_point(group.points[0], 24)
    keeper.start_load()
    look = keeper.current()
    assert look.load == load
    with LiveProgress(world.plan, 0) as live:
        live.progress(look)
        _, point = live._bars.tasks
    assert point.description == f"none chat at {load}, repeat 0: measuring"


def test_before_its_first_point_a_group_is_shown_by_its_arm() -> None:
    world = SyntheticRun()
    with LiveProgress(world.plan, 0) as live:
        live.progress(ProgressTracker(world.plan.groups[0], 0, lambda: 0).current())
        _, point = live._bars.tasks
    assert point.description == "none starting"


def warming(world: SyntheticRun, requests: int) -> ProgressTracker:
    """A keeper in the warm-up of its first point, so many requests of 16 in."""
    keeper = ProgressTracker(world.plan.groups[0], 0, lambda: 0)
    keeper.start_point(world.plan.groups[0].points[0], 24)
    keeper.start_warmup(16)
    for _ in range(requests):
        keeper.add(record(phase=RecordPhase.WARMUP))
    return keeper


def test_a_warm_up_is_shown_with_its_own_count_and_the_load_with_its_own() -> None:
    world = SyntheticRun()
    keeper = warming(world, 5)
    with LiveProgress(world.plan, 0) as live:
        live.progress(keeper.current())
        point = live._bars.tasks[1]
        assert (point.completed, point.total) == (5, 16)
        assert "at most" in point.fields["note"]
        keeper.start_load()
        keeper.add(record())
        live.progress(keeper.current())
        point = live._bars.tasks[1]
        assert (point.completed, point.total) == (1, 24)


def test_a_point_without_a_warm_up_counts_none() -> None:
    world = SyntheticRun()
    keeper = warming(world, 5)
    keeper.start_point(world.plan.groups[0].points[0], 24)
    assert (keeper.current().warmup_done, keeper.current().warmup_most) == (None, None)


def test_without_a_terminal_each_point_and_phase_is_one_line_and_the_warm_up_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = SyntheticRun()
    keeper = warming(world, 5)
    with LiveProgress(world.plan, 0) as live:
        for _ in range(2):
            live.progress(keeper.current())
        keeper.start_load()
        for _ in range(2):
            live.progress(keeper.current())
    begin = "none chat at 1, repeat 0: "
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(begin) and "0/24" not in line]
    assert [line.removeprefix(begin) for line in lines] == ["warmup", "measuring (after 5 requests of warm-up)"]


def test_on_a_narrow_terminal_the_count_is_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    world = SyntheticRun()
    keeper = ProgressTracker(world.plan.groups[0], 0, iter(range(0, 10**12, 10**9)).__next__)
    keeper.start_point(world.plan.groups[0].points[0], 1024)
    keeper.start_load()
    for _ in range(1000):
        keeper.add(record())
    with LiveProgress(world.plan, 0) as live:
        live.progress(keeper.current())
    shown = capsys.readouterr().err
    assert "tok/s" in shown
    assert "1000/1024" in shown


def test_messages_of_engines_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress(SyntheticRun().plan, 0) as live:
        live.failed("ngram", "EngineCrashed", "unknown tag [/INST] in [bold]prompt")
    assert "ngram: EngineCrashed: unknown tag [/INST] in [bold]prompt" in capsys.readouterr().err
