"""The live display shows the current point and its load."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import ArmOrder
from specbench_client.cli.live_progress import LiveProgress, shorter_ways
from specbench_client.documents.record import RecordPhase
from specbench_client.drive.progress import STORING, ProgressTracker
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.synthetic_records import SyntheticRun, record

POINT_LINE = (
    "none at concurrency 1, repeat 1/3, 1 request (7 with fillers and 5 for warm-up), mean TPOT 10.0 ms, AL 1.00,"
    " 1 failed"
)
TIMES = r", 0:0\d:\d\d elapsed, about \d+:\d\d:\d\d left"
"""The end of a line about a point; the first one stands for those that are left at its load."""
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
    with LiveProgress(world.plan, []) as live:
        live.progress(progress)
        _, point = live._bars.tasks
    assert point.description == f"none at {words}, repeat 1/3"


def test_a_server_that_answers_nothing_is_named_once_for_each_stall(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    tracker = ProgressTracker(SyntheticRun().plan.groups[0], 0, lambda: int(now_s * 1e9))
    tracker.start_point(SyntheticRun().plan.groups[0].points[0], 24)
    tracker.start_load()
    idle = []
    with LiveProgress(SyntheticRun().plan, []) as live:
        for at_s, ended in ((29, 0), (30, 0), (40, 0), (41, 1), (70, 0), (71, 0)):
            now_s = at_s
            for _ in range(ended):
                tracker.add(record())
            live.progress(progress := tracker.current())
            idle.append(progress.idle_s)
    assert idle == [29, 30, 40, 0, 29, 30]
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_throughput_has_the_tokens_of_all_requests_in_its_time() -> None:
    now_s = 0
    tracker = ProgressTracker(SyntheticRun().plan.groups[0], 0, lambda: now_s * 10**9)
    tracker.start_point(SyntheticRun().plan.groups[0].points[0], 24)
    tracker.start_load()
    now_s = 2
    for prompt_id in ("a", FILLER.id):
        tracker.add(record(prompt_id=prompt_id, output_tokens=10))
    assert (tracker.current().output_tokens_per_s, tracker.current().requests_done) == (10, 1)


def test_a_run_with_a_stop_rule_ends_with_what_it_has() -> None:
    plan = SyntheticRun().plan.model_copy(update={"stop": "WhenDecided"})
    with LiveProgress(plan, [point.hash for point in plan.points[:3]]) as live:
        assert live._bars.tasks[0].total == len(plan.points)
    assert live._bars.tasks[0].total == 3


@pytest.mark.parametrize("columns", [110, 149])
def test_a_point_with_all_its_figures_is_one_line(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    tracker = tracker_in_warmup(SyntheticRun(), 5)
    tracker.start_load()
    tracker.add(record(acceptance_source="per_step"))
    live = LiveProgress(SyntheticRun().plan, [])
    live.progress(replace(tracker.current(), output_tokens_per_s=1234.0))
    live._console.print(live._bars.make_tasks_table(live._bars.tasks))
    _, point = capsys.readouterr().err.splitlines()
    assert "1234 tok/s" in point
    assert "AL 1.00" in point


@pytest.mark.parametrize(("conversations", "named"), [(1, False), (2, True), (None, False)])
def test_a_point_names_its_conversations_if_they_have_several_turns(
    conversations: int | None, capsys: pytest.CaptureFixture[str], *, named: bool
) -> None:
    plan = SyntheticRun().plan
    plan = plan.model_copy(update={"load": plan.load.model_copy(update={"requests": conversations})})
    tracker = tracker_in_warmup(SyntheticRun(), 0)
    tracker.start_load()
    tracker.add(record())
    tracker.phase = STORING
    with LiveProgress(plan, []) as live:
        live.progress(tracker.current())
    assert (f"1 request of {conversations} conversation" in capsys.readouterr().err) == named


@pytest.mark.parametrize("columns", [60, 80])
def test_the_display_fits_a_narrow_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest line is no bar: its counts are whole, and the description has at most two lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    tracker = tracker_in_warmup(SyntheticRun(), 5)
    live = LiveProgress(SyntheticRun().plan, [])
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
                "launch 1/6: none",
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
    with LiveProgress(world.plan.model_copy(update={"engine": measured}), []) as live:
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


TWO_LOADS = SyntheticRun(concurrency=(1, 8)).plan
"""Three repeats of two arms at two loads, 12 points in 6 groups."""
SERVERS = TWO_LOADS.model_copy(
    update={
        "engine": TWO_LOADS.engine.model_copy(update={"kind": EngineKind.EXTERNAL}),
        "load": TWO_LOADS.load.model_copy(update={"requests_per_stream": 8}),
    }
)


def end_points(live: LiveProgress, group: int, ends_s: dict[int, float], warmup: int = 0) -> str:
    """End points of a group so many seconds after the display began; return the times that it shows then.

    `ends_s`: index of the point → its end. `warmup`: requests before the three of the first one.
    """
    planned = live._plan.groups[group]
    tracker = ProgressTracker(planned, 0, lambda: 0)
    for index, end_s in ends_s.items():
        tracker.start_point(planned.points[index], 3)
        live.progress(tracker.current())
        for number in range(warmup + 3):
            tracker.add(record(phase=RecordPhase.WARMUP if number < warmup else RecordPhase.STEADY))
        warmup = 0
        tracker.phase = STORING
        live._bars.tasks[0].start_time = live._bars.get_time() - end_s
        for _ in range(2):
            live.progress(tracker.current())
    return live._times(group)


def test_after_the_first_repeat_the_forecast_of_each_load_is_as_long_as_it_took(
    capsys: pytest.CaptureFixture[str],
) -> None:
    live = LiveProgress(SERVERS, [])
    assert end_points(live, 0, {0: 20}, warmup=3) == "0:00:20 elapsed"  # the other load may take any time
    assert end_points(live, 0, {1: 140}) == "0:02:20 elapsed, about 0:10:50 left"
    assert end_points(live, 1, {0: 160}, warmup=3) == "0:02:40 elapsed, about 0:10:40 left"
    assert end_points(live, 1, {1: 280}) == "0:04:40 elapsed, about 0:08:40 left"
    assert capsys.readouterr().err.splitlines()[-1].split(" about ")[1] == (
        "0:01:00 at concurrency 1 and 0:12:00 at concurrency 8, without warm-up; shorter, as a new run: only"
        " concurrency 1: 0:01:00, --requests-per-stream 4: 0:06:30"
    )
    end_points(live, 2, {0: 290})
    assert len(capsys.readouterr().err.splitlines()) == 1, "the forecast is printed once"


def test_the_forecast_of_restarted_servers_has_a_warm_up_in_every_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveProgress(SERVERS.model_copy(update={"restarts": True}), [])
    end_points(live, 0, {0: 20, 1: 140}, warmup=3)
    end_points(live, 1, {0: 160, 1: 280}, warmup=3)
    forecast = capsys.readouterr().err.splitlines()[-1].split(" about ")[1]
    assert forecast.startswith("0:02:00 at concurrency 1 and 0:12:00 at concurrency 8; shorter, ")


@pytest.mark.parametrize(
    ("repeats", "order", "forecast"),
    [
        (8, ArmOrder.INTERLEAVED, ["0:01:00 at concurrency 1"]),
        (1, ArmOrder.INTERLEAVED, []),
        (8, ArmOrder.SOAK, []),  # its windows last as long as they should
    ],
)
def test_a_forecast_is_about_the_repeats_that_are_measured_in_any_case(
    repeats: int, order: ArmOrder, forecast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = SyntheticRun(repeats=repeats).plan
    load = plan.load.model_copy(update={"order": order})
    live = LiveProgress(plan.model_copy(update={"stop": "WhenDecided", "load": load}), [])
    end_points(live, 0, {0: 5})
    assert end_points(live, 1, {0: 10}).endswith(f" left if all {repeats} repeats are needed"), "an estimate, no bound"
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" about ")[1] for line in lines if "by the first repeat" in line] == forecast


@pytest.mark.parametrize(
    ("plan", "each_s", "ways"),
    [
        (SERVERS, 300, ["only concurrency 1: 0:05:00", "--requests-per-stream 4: 0:05:00"]),
        (
            SERVERS.model_copy(update={"load": SERVERS.load.model_copy(update={"repeats": 64}), "stop": "WhenDecided"}),
            3000,
            ["only concurrency 1: 0:50:00", "--requests-per-stream 4: 0:50:00", "--repeats 3"],
        ),
        (SERVERS, 299.5, []),  # ten minutes
        (TWO_LOADS, 3000, []),  # its flags are fields of a spec
    ],
)
def test_a_long_measurement_names_what_is_shorter(plan: Plan, each_s: float, ways: list[str]) -> None:
    text = shorter_ways(plan, {"concurrency 1": each_s, "concurrency 8": each_s + 1})
    named = text.partition(": ")[2].split(", ") if text else []
    assert len(named) == len(ways)
    assert all(given.startswith(way) for given, way in zip(named, ways, strict=True))


def test_points_of_an_arm_that_failed_are_not_left(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveProgress(TWO_LOADS, [])
    end_points(live, 0, {0: 10, 1: 20}, warmup=3)  # each launch is warmed up
    assert end_points(live, 3, {0: 40}) == "0:00:40 elapsed, about 0:00:35 left"  # 15 s at 1, twice 10 s at 8
    assert live._bars.tasks[0].completed == 3
    assert "by the first repeat" not in capsys.readouterr().err


def test_a_continued_first_repeat_has_no_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveProgress(SERVERS, [SERVERS.groups[0].points[0].hash])
    end_points(live, 0, {1: 140})
    end_points(live, 1, {0: 160, 1: 280})
    assert "by the first repeat" not in capsys.readouterr().err


def test_stored_points_count_wherever_they_are_in_the_plan() -> None:
    stored = [point.hash for point in TWO_LOADS.groups[3].points] + [TWO_LOADS.groups[1].points[0].hash]
    live = LiveProgress(TWO_LOADS, stored)
    assert live._bars.tasks[0].completed == 3
    assert end_points(live, 0, {0: 10, 1: 20}) == "0:00:20 since continued, about 0:01:10 left"
    assert live._bars.tasks[0].completed == 5


def test_nothing_is_left_after_the_last_point() -> None:
    live = LiveProgress(TWO_LOADS, [point.hash for point in TWO_LOADS.points[:-1]])
    assert end_points(live, 5, {1: 10}) == "0:00:10 since continued, about 0:00:00 left"


def test_rounds_that_are_added_are_measured_at_their_loads(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveProgress(SERVERS.model_copy(update={"groups": SERVERS.groups[:1]}), [])
    live.add_round(SERVERS.model_copy(update={"groups": [SERVERS.groups[0], SERVERS.groups[3]]}))
    assert live._bars.tasks[0].total == 4
    assert capsys.readouterr().err.endswith(" at concurrency 1 and concurrency 8\n")
