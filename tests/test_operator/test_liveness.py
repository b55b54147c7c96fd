"""The probes. Liveness: broken watches, stuck workers and a late event loop, but not a quiet cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import aiohttp
import pytest

from specbench_operator.cluster.api import CAMPAIGN, JOB, RUN
from specbench_operator.cluster.object_cache import ObjectCache, Scope
from specbench_operator.handlers.list_watch import unlisted
from specbench_operator.handlers.liveness import Liveness, serve_probes
from specbench_testing.operator_builders import SETTINGS
from specbench_testing.ports import free_port

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


async def test_each_probe_answers_with_its_problem_or_success() -> None:
    problems: dict[str, str | None] = {"/healthz": None, "/readyz": "not listed yet: team"}
    port = free_port()
    checks = {path: partial(problems.__getitem__, path) for path in problems}
    serving = asyncio.create_task(serve_probes(port, checks))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

        async def answer(path: str) -> tuple[int, str]:
            async with client.get(path) as response:
                return response.status, await response.text()

        while not serving.done():
            try:
                assert await answer("/healthz") == (200, "ok")
                break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0)
        assert await answer("/readyz") == (503, "not listed yet: team")
        problems["/readyz"] = None
        assert await answer("/readyz") == (200, "ok")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


@pytest.mark.parametrize(
    ("namespaces", "watched", "at_start"),
    [
        (("a", "b"), ["a", "b"], "not listed yet: a, b"),
        ((), [None], "not listed yet: all namespaces"),
        (("team-*",), [None], "not listed yet: all namespaces"),
    ],
    ids=["named", "all", "patterns"],
)
def test_the_operator_is_ready_when_every_watched_kind_was_listed_once(
    namespaces: tuple[str, ...], watched: list[str | None], at_start: str | None
) -> None:
    cache = ObjectCache(frozenset({RUN, JOB, CAMPAIGN}))
    settings = replace(SETTINGS, namespaces=namespaces)
    assert unlisted(cache, settings) == at_start
    for namespace in watched:
        for kind in (RUN, JOB):  # the definition of campaigns may not be installed
            cache.list_begun((kind, namespace), "5")
            assert unlisted(cache, settings)
            cache.list_ended((kind, namespace))
    assert unlisted(cache, settings) is None
