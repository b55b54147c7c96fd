"""The liveness check: broken watches, stuck workers and a late event loop, but not a quiet cluster."""

from __future__ import annotations

import pytest

from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.work_queue import ResourceKey
from specbench_testing.operator_builders import SETTINGS

A, B = ResourceKey("SpecBenchRun", "default", "a"), ResourceKey("SpecBenchRun", "default", "b")


class LivenessHarness:
    """A Liveness with a clock and a queue that the test controls."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.longest = 0.0
        self.liveness = Liveness(SETTINGS, lambda: self.longest, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock and the event loop."""
        self.now += seconds
        self.liveness.beat()


@pytest.fixture
def harness() -> LivenessHarness:
    return LivenessHarness()


def test_a_quiet_cluster_is_healthy(harness: LivenessHarness) -> None:
    for _ in range(10):
        harness.pass_time(1000)
        harness.liveness.relisted({})
        assert harness.liveness.problem() is None


def test_a_watched_run_is_healthy_however_long_it_does_not_change(harness: LivenessHarness) -> None:
    harness.liveness.watched(A, "1")
    for _ in range(10):
        harness.pass_time(1000)
        harness.liveness.relisted({A: "1"})
        assert harness.liveness.problem() is None


def test_a_watch_that_misses_relisted_changes_is_broken(harness: LivenessHarness) -> None:
    harness.liveness.watched(A, "1")
    harness.liveness.relisted({A: "2"})
    harness.pass_time(SETTINGS.watch_silence_s)
    assert harness.liveness.problem() is None
    harness.liveness.relisted({A: "3"})
    harness.pass_time(1)
    assert "watch" in (harness.liveness.problem() or "")


def test_a_watch_without_any_event_is_broken(harness: LivenessHarness) -> None:
    harness.liveness.relisted({A: "1"})
    harness.pass_time(SETTINGS.watch_silence_s + 1)
    assert "watch" in (harness.liveness.problem() or "")


def test_a_watch_that_catches_up_is_healthy(harness: LivenessHarness) -> None:
    harness.liveness.relisted({A: "2"})
    harness.pass_time(100)
    harness.liveness.watched(A, "2")
    harness.pass_time(100)
    assert harness.liveness.problem() is None


def test_a_watch_ahead_of_the_relist_is_healthy(harness: LivenessHarness) -> None:
    harness.liveness.watched(A, "5")
    harness.liveness.relisted({A: "4"})
    harness.pass_time(30)
    harness.liveness.relisted({A: "5"})
    harness.pass_time(1000)
    assert harness.liveness.problem() is None


def test_a_deleted_run_is_no_longer_expected_from_the_watch(harness: LivenessHarness) -> None:
    harness.liveness.watched(B, "1")
    harness.liveness.relisted({A: "2", B: "1"})
    harness.liveness.relisted({})
    harness.pass_time(1000)
    assert harness.liveness.problem() is None


def test_a_stuck_worker_is_a_problem(harness: LivenessHarness) -> None:
    harness.longest = SETTINGS.worker_stuck_s + 1
    assert "reconciliation" in (harness.liveness.problem() or "")


def test_a_late_event_loop_is_a_problem(harness: LivenessHarness) -> None:
    harness.now += SETTINGS.loop_lag_s + 1
    assert "event loop" in (harness.liveness.problem() or "")
    harness.liveness.beat()
    assert harness.liveness.problem() is None
