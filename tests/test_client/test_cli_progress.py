"""The live display shows the current point and its load."""

from __future__ import annotations

import pytest

from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.summary.trends import acceptance_trend
from specbench_client.cli.run_execution import LiveProgress
from specbench_client.documents.figure import Figure
from specbench_client.documents.record import RecordPhase
from specbench_client.documents.summary import ClientHealth
from specbench_client.drive.progress import STORING, ProgressTracker
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_testing.synthetic_records import SyntheticRun, record


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


def test_a_window_of_a_soak_test_is_shown_with_the_change_until_now() -> None:
    edits = {"spec.load": {"concurrency": [1], "order": "Soak", "durationSeconds": 60, "repeats": 20}}
    world = SyntheticRun(edits=edits)
    group = world.plan.groups[1]
    tracker = ProgressTracker(group, 9, lambda: 0)
    honest = world.honest(group.points[0])
    tracker.trend = acceptance_trend([
        honest.model_copy(
            update={
                "repeat": index,
                "client_health": ClientHealth(duration_s=360),
                "figures": {
                    EMITTED_POOLED.name: Figure(value=3 - index / 40, unit="1", definition="d", n=1, source="client")
                },
            }
        )
        for index in range(9)
    ])  # fmt: skip
    tracker.start_point(group.points[9], 24)
    tracker.start_load()
    tracker.add(record(steps=10, output_tokens=21))
    with LiveProgress(world.plan, 0) as live:
        live.progress(tracker.current())
        point = live._bars.tasks[1]
    assert point.description == "ngram at concurrency 1, window 10/20: measuring"
    assert "AL 2.00 (-6.7% since the first window)" in point.fields["note"]


def tracker_in_warmup(world: SyntheticRun, requests: int) -> ProgressTracker:
    """Return a tracker in the warm-up of its first point, after this many of 16 requests."""
    tracker = ProgressTracker(world.plan.groups[0], 0, lambda: 0)
    tracker.start_point(world.plan.groups[0].points[0], 24)
    tracker.start_warmup(16)
    for _ in range(requests):
        tracker.add(record(phase=RecordPhase.WARMUP))
    return tracker


def test_warm_up_and_load_are_shown_with_their_own_counts() -> None:
    world = SyntheticRun()
    tracker = tracker_in_warmup(world, 5)
    with LiveProgress(world.plan, 0) as live:
        live.progress(tracker.current())
        point = live._bars.tasks[1]
        assert (point.completed, point.total) == (5, 16)
        assert "at most" in point.fields["note"]
        tracker.start_load()
        tracker.add(record())
        live.progress(tracker.current())
        point = live._bars.tasks[1]
        assert (point.completed, point.total) == (1, 24)


@pytest.mark.parametrize(
    ("endpoints", "lines"),
    [
        (False, ["launch 1/4: none", "none at concurrency 1, repeat 1/3, AL 1.00, 1 failed"]),
        (True, ["none at concurrency 1, repeat 1/3, AL 1.00, 1 failed"]),
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
        live.progress(tracker.current())
        tracker.phase = STORING
        for _ in range(2):
            live.progress(tracker.current())
    assert capsys.readouterr().err.splitlines() == lines


def test_messages_of_engines_are_not_parsed_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress(SyntheticRun().plan, 0) as live:
        live.failed("ngram", "EngineCrashed", "unknown tag [/INST] in [bold]prompt")
    assert "ngram: EngineCrashed: unknown tag [/INST] in [bold]prompt" in capsys.readouterr().err
