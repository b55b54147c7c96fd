"""The liveness check: broken watches, stuck workers and a late event loop, but not a quiet cluster."""

from __future__ import annotations

import pytest

from specbench_operator.cluster.object_cache import Scope
from specbench_operator.handlers.liveness import Liveness
from specbench_testing.operator_builders import SETTINGS

PODS: Scope = ("Pod", None)
RUNS: Scope = ("SpecBenchRun", "team")


class LivenessHarness:
    """A Liveness with a clock, watches and a queue that the test controls."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.longest = 0.0
        self.reached: dict[Scope, int] = {}
        self.liveness = Liveness(SETTINGS, lambda: self.longest, lambda: self.reached, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock and the event loop."""
        self.now += seconds
        self.liveness.beat()


@pytest.fixture
def harness() -> LivenessHarness:
    return LivenessHarness()


def test_a_watch_that_reaches_every_version_is_healthy(harness: LivenessHarness) -> None:
    for version in range(10):
        harness.liveness.stored({PODS: version})
        harness.pass_time(60)
        harness.reached[PODS] = version
        harness.pass_time(1000)
        assert harness.liveness.problem() is None


@pytest.mark.parametrize("reached", [{}, {PODS: 6}, {RUNS: 8}], ids=["nothing listed", "behind", "other watch"])
def test_a_watch_that_stays_behind_is_broken(harness: LivenessHarness, reached: dict[Scope, int]) -> None:
    harness.reached = reached
    harness.liveness.stored({PODS: 7})
    harness.pass_time(SETTINGS.watch_silence_s)
    assert harness.liveness.problem() is None
    harness.liveness.stored({PODS: 9})
    harness.pass_time(1)
    assert "the watch of Pods has been behind the API server for 181 s" in (harness.liveness.problem() or "")


def test_a_broken_watch_of_one_namespace_is_named(harness: LivenessHarness) -> None:
    harness.liveness.stored({RUNS: 7})
    harness.pass_time(SETTINGS.watch_silence_s + 1)
    assert "SpecBenchRuns in the namespace team" in (harness.liveness.problem() or "")


def test_a_watch_that_catches_up_late_is_healthy(harness: LivenessHarness) -> None:
    harness.liveness.stored({PODS: 7})
    harness.pass_time(170)
    harness.reached[PODS] = 7
    harness.liveness.stored({PODS: 9})
    harness.pass_time(170)
    assert harness.liveness.problem() is None


def test_no_watch_is_judged_while_the_api_server_does_not_answer(harness: LivenessHarness) -> None:
    harness.liveness.stored({PODS: 7})
    harness.pass_time(100)
    harness.liveness.unreachable()
    harness.pass_time(1000)
    assert harness.liveness.problem() is None


def test_a_collection_that_is_no_longer_watched_is_not_expected(harness: LivenessHarness) -> None:
    harness.liveness.stored({PODS: 7})
    harness.liveness.stored({})
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
