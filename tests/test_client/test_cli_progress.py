"""The live display shows the current point and its load."""

from __future__ import annotations

import re

import pytest

from specbench_api.spec.engine import EngineKind
from specbench_client.cli.live_progress import LiveProgress
from specbench_client.documents.record import RecordPhase
from specbench_client.drive.progress import STORING, ProgressTracker
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.synthetic_records import SyntheticRun, record

POINT_LINE = (
    "none at concurrency 1, repeat 1/3, 1 requests (7 with warm-up and fillers), TPOT 10.0 ms, AL 1.00, 1 failed"
)
TIMES = r", 0:0\d:\d\d elapsed, about \d+:\d\d:\d\d left"
"""The end of a line about a point; the first one stands for those that are left."""
FILLER = filler_conversation(FillerPlan((Prompt("a", None, ((),)),), 1, 0), 0, 0)


@pytest.mark.parametrize(
    ("world", "load", "words"),
    [(SyntheticRun(concurrency=(8,)), "8", "concurrency 8"), (SyntheticRun(rate=(2.5,)), "2.5/s", "2.5/s")],
)
def test_current_point_is_shown_with_its_load(world: SyntheticRun, load: str, words: str) -> None:
    group = world.plan.groups[0]
    tracker = ProgressTracker(group, 0, lambda: 0)
    tracker.start_point(group.points[0], 24)
    tracker.start_load()
    progress = tracker.current()
    assert progress.load == load
    with LiveProgress(world.plan, 0) as live:
        live.progress(progress)
        _, point = live._bars.tasks
    assert point.description == f"none at {words}, repeat 1/3: measuring"


def test_a_server_that_answers_nothing_is_named_once_for_each_stall(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    tracker = ProgressTracker(SyntheticRun().plan.groups[0], 0, lambda: int(now_s * 1e9))
    tracker.start_point(SyntheticRun().plan.groups[0].points[0], 24)
    tracker.start_load()
    idle = []
    with LiveProgress(SyntheticRun().plan, 0) as live:
        for at_s, ended in ((29, 0), (30, 0), (40, 0), (41, 1), (70, 0), (71, 0)):
            now_s = at_s
            for _ in range(ended):
                tracker.add(record())
            live.progress(progress := tracker.current())
            idle.append(progress.idle_s)
    assert idle == [29, 30, 40, 0, 29, 30]
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_run_with_a_stop_rule_ends_with_what_it_has() -> None:
    plan = SyntheticRun().plan.model_copy(update={"stop": "WhenDecided"})
    with LiveProgress(plan, 3) as live:
        assert live._bars.tasks[0].total == len(plan.points)
    assert live._bars.tasks[0].total == 3


@pytest.mark.parametrize("columns", [60, 80])
def test_the_display_fits_a_narrow_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest line is no bar: its counts are whole, and the description has at most two lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    tracker = tracker_in_warmup(SyntheticRun(), 5)
    live = LiveProgress(SyntheticRun().plan, 0)
    live.progress(tracker.current())
    live._console.print(live._bars.make_tasks_table(live._bars.tasks))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 3
    assert any(" 5/16 " in line for line in lines)


def tracker_in_warmup(world: SyntheticRun, requests: int) -> ProgressTracker:
    """Return a tracker in the warm-up of its first point, after this many of 16 requests."""
    tracker = ProgressTracker(world.plan.groups[0], 0, lambda: 0)
    tracker.start_point(world.plan.groups[0].points[0], 24)
    tracker.start_warmup(16)
    for _ in range(requests):
        tracker.add(record(phase=RecordPhase.WARMUP))
    return tracker


@pytest.mark.parametrize(
    ("endpoints", "lines"),
    [
        (
            False,
            [
                "launch 1/4: none",
                POINT_LINE,
            ],
        ),
        (True, [POINT_LINE]),
    ],
)
def test_output_without_a_terminal_has_one_line_per_launch_and_measured_point(
    capsys: pytest.CaptureFixture[str], *, endpoints: bool, lines: list[str]
) -> None:
    world = SyntheticRun()
    measured = world.plan.engine.model_copy(update={"kind": EngineKind.EXTERNAL}) if endpoints else world.plan.engine
    tracker = tracker_in_warmup(world, 5)
    with LiveProgress(world.plan.model_copy(update={"engine": measured}), 0) as live:
        live.group(world.plan.groups[0])
        live.progress(tracker.current())
        tracker.start_load()
        tracker.add(record(error_class="reset"))
        tracker.add(record(prompt_id=FILLER.id))
        live.progress(tracker.current())
        tracker.phase = STORING
        for _ in range(2):
            live.progress(tracker.current())
    printed = capsys.readouterr().err.splitlines()
    assert re.search(f"{TIMES}$", printed[-1])
    assert [re.sub(f"{TIMES}$", "", line) for line in printed] == lines


def test_acceptance_of_chunks_is_not_shown_before_counters_confirm_it() -> None:
    tracker = tracker_in_warmup(SyntheticRun(), 0)
    tracker.add(record(acceptance_source="chunks"))
    assert tracker.current().acceptance_length is None
    tracker.add(record(acceptance_source="per_step"))
    assert tracker.current().acceptance_length is not None


@pytest.mark.parametrize("counted", [False, True], ids=["before its manifest", "after it"])
def test_nothing_is_left_after_the_last_point(capsys: pytest.CaptureFixture[str], *, counted: bool) -> None:
    plan = SyntheticRun().plan
    group = plan.groups[-1]
    tracker = ProgressTracker(group, len(group.points) - 1, lambda: 0)
    tracker.start_point(group.points[-1], 24)
    tracker.phase = STORING
    if counted:
        tracker.end_point()
    with LiveProgress(plan, 0) as live:
        live.progress(tracker.current())
    assert capsys.readouterr().err.endswith(", about 0:00:00 left\n")


@pytest.mark.parametrize(("found", "left"), [(0, "0:02:00"), (2, "0:04:00"), (4, None)])
def test_points_of_an_earlier_call_do_not_count_for_the_pace(found: int, left: str | None) -> None:
    plan = SyntheticRun(concurrency=(1, 2)).plan
    assert len(plan.points) == 12
    live = LiveProgress(plan, found)
    task = live._bars.tasks[0]
    assert task.start_time is not None
    task.start_time -= 60
    assert live._times(4) == "0:01:00 elapsed" + (f", about {left} left" if left else "")
