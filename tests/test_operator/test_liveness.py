"""The liveness check: broken watches, stuck workers and a late event loop, but not a quiet cluster."""

from __future__ import annotations

import pytest

from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.work_queue import ResourceKey
from specbench_testing.operator_builders import SETTINGS

A, B = ResourceKey("SpecBenchRun", "default", "a"), ResourceKey("SpecBenchRun", "default", "b")


class Signs:
    """A Liveness with a clock and a queue that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.longest = 0.0
        self.liveness = Liveness(SETTINGS, lambda: self.longest, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        """The clock goes on, and the event loop with it."""
        self.now += seconds
        self.liveness.beat()


@pytest.fixture
def signs() -> Signs:
    return Signs()


def test_a_quiet_cluster_is_healthy(signs: Signs) -> None:
    for _ in range(10):
        signs.pass_time(1000)
        signs.liveness.relisted({})
        assert signs.liveness.problem() is None


def test_a_run_that_the_watch_told_of_is_healthy_however_long_nothing_happens(signs: Signs) -> None:
    signs.liveness.watched(A, "1")
    for _ in range(10):
        signs.pass_time(1000)
        signs.liveness.relisted({A: "1"})
        assert signs.liveness.problem() is None


def test_a_watch_that_does_not_tell_what_the_relist_sees_is_dead(signs: Signs) -> None:
    signs.liveness.watched(A, "1")
    signs.liveness.relisted({A: "2"})
    signs.pass_time(SETTINGS.watch_silence_s)
    assert signs.liveness.problem() is None
    signs.liveness.relisted({A: "3"})
    signs.pass_time(1)
    assert "watch" in (signs.liveness.problem() or "")


def test_a_watch_that_never_told_anything_is_dead(signs: Signs) -> None:
    signs.liveness.relisted({A: "1"})
    signs.pass_time(SETTINGS.watch_silence_s + 1)
    assert "watch" in (signs.liveness.problem() or "")


def test_a_watch_that_catches_up_lives(signs: Signs) -> None:
    signs.liveness.relisted({A: "2"})
    signs.pass_time(100)
    signs.liveness.watched(A, "2")
    signs.pass_time(100)
    assert signs.liveness.problem() is None


def test_a_watch_that_is_ahead_of_the_relist_lives(signs: Signs) -> None:
    signs.liveness.watched(A, "5")
    signs.liveness.relisted({A: "4"})
    signs.pass_time(30)
    signs.liveness.relisted({A: "5"})
    signs.pass_time(1000)
    assert signs.liveness.problem() is None


def test_a_deleted_run_is_waited_for_by_nobody(signs: Signs) -> None:
    signs.liveness.watched(B, "1")
    signs.liveness.relisted({A: "2", B: "1"})
    signs.liveness.relisted({})
    signs.pass_time(1000)
    assert signs.liveness.problem() is None


def test_a_stuck_worker_is_an_ailment(signs: Signs) -> None:
    signs.longest = SETTINGS.worker_stuck_s + 1
    assert "reconciliation" in (signs.liveness.problem() or "")


def test_a_late_event_loop_is_an_ailment(signs: Signs) -> None:
    signs.now += SETTINGS.loop_lag_s + 1
    assert "event loop" in (signs.liveness.problem() or "")
    signs.liveness.beat()
    assert signs.liveness.problem() is None
