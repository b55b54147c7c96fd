"""The resync queues what is not at rest, counts, and compares the watches with the API server for the probes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.plan.names import LABEL_RUN
from specbench_operator.cluster.kubernetes_api import CAMPAIGN, JOB, POD, RUN, Forbidden, NotFound, Raw
from specbench_operator.cluster.object_cache import ObjectCache, Scope
from specbench_operator.errors import Retry
from specbench_operator.handlers.list_watch import (
    CAMPAIGN_DELAY_S,
    PROGRESS_DELAY_S,
    RIGHTS_RETRY_S,
    Resync,
    WatchHandlers,
    build_registry,
    kopf_settings,
    unlisted,
    watched_kinds,
)
from specbench_operator.handlers.liveness import Liveness, serve_probes
from specbench_operator.handlers.reconcilers import ReconcileResult, Workers
from specbench_operator.handlers.work_queue import ResourceKey, WorkQueue
from specbench_operator.settings import NetworkPolicySettings
from specbench_operator.telemetry import Telemetry
from specbench_testing.operator_builders import SETTINGS
from specbench_testing.ports import free_port

DEMO, NIGHTLY = ResourceKey(RUN, "team", "demo"), ResourceKey(CAMPAIGN, "team", "nightly")
OF_NIGHTLY = {LABEL_CAMPAIGN: NIGHTLY.name}


def listed(key: ResourceKey, version: int = 1, phase: str = "Pending") -> Raw:
    meta = {"namespace": key.namespace, "name": key.name, "uid": key.name, "resourceVersion": str(version)}
    return {"kind": key.kind, "metadata": meta, "spec": {}, "status": {"phase": phase}}


@dataclass
class FakeServer:
    """Versions of collections, and rights."""

    versions: dict[str, int] = field(default_factory=lambda: {RUN: 7, CAMPAIGN: 7})
    forbidden: set[tuple[str, str | None]] = field(default_factory=set)
    served: bool = True
    away: bool = False
    objects: list[Raw] = field(default_factory=list)
    listed: int = 0
    """How many times objects were listed."""
    slow: bool = False
    """No list of objects ends in time."""

    def version(self, kind: str, namespace: str | None) -> str:
        if self.away:
            raise Retry("ApiUnreachable", "refused")
        if (kind, namespace) in self.forbidden:
            raise Forbidden("Forbidden", f"no right to list {kind}")
        if kind not in self.versions:
            raise NotFound("Missing", kind)
        return str(self.versions[kind])

    def each(self, kind: str, namespace: str | None, *, labels: str, bare: bool) -> Iterator[Raw]:
        assert bare, "only metadata"
        self.listed += 1
        if self.slow:
            raise Retry("ApiUnreachable", "timed out")
        in_scope = (raw for raw in self.objects if namespace in (None, raw["metadata"]["namespace"]))
        yield from (raw for raw in in_scope if raw["kind"] == kind and (not labels or "labels" in raw["metadata"]))

    def may_watch(self, kind: str, namespace: str | None) -> bool:
        return (kind, namespace) not in self.forbidden

    def is_served(self, _kind: str) -> bool:
        return self.served


def find_at_rest(_key: ResourceKey) -> ReconcileResult:
    """Find every object at rest at version 1."""
    return ReconcileResult(resting="1")


class ResyncHarness:
    """The resync with a cache that the test fills."""

    def __init__(self, *namespaces: str) -> None:
        self.now = 0.0
        self.server, self.telemetry, self.queue = FakeServer(), Telemetry(1), WorkQueue(lambda: self.now)
        self.cache = ObjectCache(frozenset({RUN, CAMPAIGN}))
        self.settings = replace(SETTINGS, namespaces=namespaces)
        self.workers = Workers(self.queue, {RUN: find_at_rest}, lambda _namespace: True)
        self.liveness = Liveness(self.settings, lambda: 0.0, lambda: self.cache.versions, lambda: self.now)
        server: Any = self.server
        self.resync = Resync(server, self.cache, self.queue, self.workers, self.liveness, self.telemetry, self.settings)

    def resync_all(self) -> None:
        """Queue what is not at rest, and wait for one period."""
        self.resync.queue_all()
        self.now += self.settings.resync_s

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0


@pytest.fixture
def harness() -> ResyncHarness:
    return ResyncHarness()


async def test_everything_that_is_not_at_rest_is_queued_and_counted(harness: ResyncHarness) -> None:
    harness.cache.wrote(listed(DEMO, phase="Succeeded"))
    harness.cache.wrote(listed(NIGHTLY, phase="Running"))
    harness.resync.queue_all()
    first = await harness.queue.get()
    harness.now += harness.settings.resync_s / 2
    assert {first, await harness.queue.get()} == {DEMO, NIGHTLY}, "they are spread over the period"
    assert harness.metric("specbench_runs", phase="Succeeded") == 1
    assert harness.metric("specbench_campaigns", phase="Running") == 1
    for key in (DEMO, NIGHTLY):
        harness.queue.done(key)
    harness.queue.add(DEMO)
    await harness.workers.work_once()
    harness.resync_all()
    assert await harness.queue.get() == NIGHTLY, "the run is at rest"
    harness.cache.wrote(listed(DEMO, version=2))
    harness.resync_all()
    assert await harness.queue.get() == DEMO, "the run was modified"


async def test_a_run_that_did_not_change_at_rest_is_not_queued_when_it_is_listed_again(harness: ResyncHarness) -> None:
    handlers = WatchHandlers(harness.queue, harness.telemetry, harness.workers)

    async def queued_after(event: str, version: int) -> bool:
        await send(handlers, event, listed(DEMO, version))
        return bool(harness.queue.depth)

    assert await queued_after("ADDED", version=1), "nothing is known about it yet"
    await harness.workers.work_once()
    assert not await queued_after("MODIFIED", version=1)
    assert await queued_after("MODIFIED", version=2)
    await harness.workers.work_once()
    assert await queued_after("DELETED", version=1)


async def test_a_campaign_waits_longer_after_events_that_do_not_change_the_phase_of_its_run(
    harness: ResyncHarness,
) -> None:
    delays: list[tuple[float, bool]] = []
    queue: Any = SimpleNamespace(
        add=lambda _key, **_: None, add_after=lambda _key, delay_s, *, routine: delays.append((delay_s, routine))
    )
    handlers = WatchHandlers(queue, harness.telemetry, harness.workers)
    for version, (event, phase) in enumerate(
        [("ADDED", "Running"), ("MODIFIED", "Running"), ("MODIFIED", "Succeeded"), ("MODIFIED", "Succeeded"),
         ("DELETED", "Succeeded"), ("ADDED", "Succeeded")]
    ):  # fmt: skip
        await send(handlers, event, listed(DEMO, version, phase))
    soon, later = (CAMPAIGN_DELAY_S, False), (PROGRESS_DELAY_S, True)
    assert delays == [soon, later, soon, later, soon, soon]


async def send(handlers: WatchHandlers, event: str | None, raw: Raw, labels: Mapping[str, str] = OF_NIGHTLY) -> None:
    """Call the handler of runs as kopf does."""
    body: Any = raw
    raw_event: Any = {"type": event, "object": raw}
    meta = raw["metadata"]
    await handlers.on_run(meta["name"], meta["namespace"], body, labels, raw_event)


@pytest.mark.parametrize(
    ("event", "first"),
    [("MODIFIED", True), ("ADDED", True), ("DELETED", True), (None, False)],
    ids=["modified", "added", "deleted", "listed"],
)
@pytest.mark.parametrize("kind", [RUN, CAMPAIGN, JOB])
async def test_an_event_goes_before_the_resync_and_an_object_of_a_list_does_not(
    harness: ResyncHarness, kind: str, event: str | None, *, first: bool
) -> None:
    handlers = WatchHandlers(harness.queue, harness.telemetry, harness.workers)
    polled, edited = DEMO._replace(name="polled"), NIGHTLY if kind == CAMPAIGN else DEMO
    harness.queue.add(polled, routine=True)
    raw_event: Any = {"type": event, "object": listed(edited)}
    if kind == RUN:
        await send(handlers, event, listed(edited))
    elif kind == CAMPAIGN:
        await handlers.on_campaign(edited.name, edited.namespace, event=raw_event)
    else:
        labels: Any = {LABEL_RUN: edited.name}
        await handlers.on_child(edited.namespace, labels, event=raw_event)
    assert await harness.queue.get() == (edited if first else polled)


async def test_the_last_event_of_a_run_at_rest_queues_its_campaign(harness: ResyncHarness) -> None:
    """The run rests as soon as its own last write is in the cache, which may be before the event of that write."""
    handlers = WatchHandlers(harness.queue, harness.telemetry, harness.workers)
    await send(handlers, "MODIFIED", listed(DEMO, 1, "Analyzing"))
    await harness.workers.work_once()
    await send(handlers, "MODIFIED", listed(DEMO, 1, "Succeeded"))
    harness.now += CAMPAIGN_DELAY_S
    assert await harness.queue.get() == NIGHTLY
    assert harness.queue.depth == 0


CELL = ResourceKey(RUN, "team", "nightly-abcdefgh")


@pytest.mark.parametrize(
    ("key", "labels", "queued"),
    [
        (CELL, OF_NIGHTLY, {CELL, NIGHTLY}),
        (CELL, {}, {CELL, NIGHTLY}),  # of somebody else, but the campaign needs the name
        (DEMO, {}, {DEMO}),
        (NIGHTLY, {}, {NIGHTLY}),
        (ResourceKey(JOB, "team", "engine"), {LABEL_RUN: DEMO.name}, {DEMO}),
    ],
    ids=["run of a campaign", "run with its name", "run", "campaign", "child"],
)
async def test_a_deletion_that_only_a_list_shows_queues_what_its_event_would(
    harness: ResyncHarness, key: ResourceKey, labels: dict[str, str], queued: set[ResourceKey]
) -> None:
    found: set[ResourceKey] = set()
    queue: Any = SimpleNamespace(
        add=lambda key, **_: found.add(key), add_after=lambda key, _delay_s, **_: found.add(key)
    )
    handlers = WatchHandlers(queue, harness.telemetry, harness.workers)
    cache = ObjectCache(frozenset({RUN, CAMPAIGN, JOB}))
    build_registry(handlers, cache)
    raw = listed(key)
    raw["metadata"]["labels"] = labels
    cache.wrote(raw)
    cache.list_begun((key.kind, None), "9")
    cache.list_ended((key.kind, None))
    assert found == queued
    if key.kind == RUN:
        found.clear()
        await send(handlers, "DELETED", raw, labels)
        assert found == queued


async def test_it_continues_while_the_api_server_is_unavailable(
    harness: ResyncHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def no_sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    harness.server.away = True
    harness.liveness.stored({(RUN, None): 9})
    harness.now = 10 * SETTINGS.watch_silence_s
    monkeypatch.setattr("specbench_operator.handlers.list_watch.asyncio.sleep", no_sleep)
    with pytest.raises(KeyboardInterrupt):
        await harness.resync.keep_going()
    assert slept == [SETTINGS.resync_s] * 2
    assert harness.metric("specbench_resync_errors_total") == 2
    harness.liveness.beat()
    assert harness.liveness.problem() is None, "a restart would not help"


@pytest.mark.parametrize(
    ("lost", "waiting"),
    [((RUN, "b"), "b"), ((CAMPAIGN, "b"), "b"), ((RUN, None), "all namespaces")],
    ids=["runs", "campaigns", "cluster-wide"],
)
def test_missing_rights_are_reported_once_and_no_other_watch_is_concerned(
    caplog: pytest.LogCaptureFixture, lost: Scope, waiting: str
) -> None:
    caplog.set_level(logging.INFO)
    harness = ResyncHarness(*(() if lost[1] is None else ("a", "b")))
    everything = set(harness.resync.stored_versions())
    harness.server.forbidden = {lost}
    for _ in range(3):
        assert set(harness.resync.stored_versions()) == everything - {lost}
    assert (set(harness.cache.forbidden), harness.resync.period_s) == ({lost}, RIGHTS_RETRY_S)
    assert harness.metric("specbench_forbidden_collections", kind=lost[0], namespace=lost[1] or "") == 1
    harness.server.forbidden = set()
    for _ in range(2):
        assert set(harness.resync.stored_versions()) == everything
    assert (harness.cache.forbidden, harness.resync.period_s) == ({}, SETTINGS.resync_s)
    assert harness.metric("specbench_forbidden_collections", kind=lost[0], namespace=lost[1] or "") == 0
    assert [row.levelname for row in caplog.records if waiting in row.getMessage()] == ["ERROR", "INFO"]


def watched_for(harness: ResyncHarness, seconds: float) -> str | None:
    """The problem that liveness reports first within this time; in it, other kinds are written."""
    for _ in range(int(seconds / SETTINGS.resync_s)):
        harness.server.versions = {kind: version + 10 for kind, version in harness.server.versions.items()}
        harness.liveness.stored(harness.resync.stored_versions())
        harness.now += SETTINGS.resync_s
        harness.liveness.beat()
        if problem := harness.liveness.problem():
            return problem
    return None


@pytest.fixture(params=[(), ("team", "other")], ids=["cluster", "namespaces"])
def quiet(request: pytest.FixtureRequest) -> ResyncHarness:
    """An API server before Kubernetes 1.34: the versions are those of etcd, and quiet watches do not reach them."""
    harness = ResyncHarness(*request.param)
    harness.cache.kinds |= {JOB}
    harness.server.versions[JOB] = 7
    others = listed(ResourceKey(JOB, "team", "no-label"), 9)
    harness.server.objects = [listed(DEMO, 5), listed(NIGHTLY, 7), others]
    for scope in [(kind, namespace) for kind in harness.cache.kinds for namespace in request.param or (None,)]:
        harness.cache.list_begun(scope, "7")
        for raw in harness.server.each(*scope, labels="ours" if scope[0] == JOB else "", bare=True):
            harness.cache.listed(scope, raw)
        harness.cache.list_ended(scope)
    harness.server.listed = 0
    return harness


def test_a_quiet_watch_is_healthy_however_late_its_bookmarks_are(quiet: ResyncHarness) -> None:
    assert watched_for(quiet, 3600) is None
    watches = len(quiet.resync.stored_versions())
    assert quiet.server.listed <= watches * 3600 / (SETTINGS.watch_silence_s / 2)


def test_a_watch_with_bookmarks_lists_no_objects(harness: ResyncHarness) -> None:
    for kind in (RUN, CAMPAIGN):
        harness.cache.list_begun((kind, None), "7")
        harness.cache.list_ended((kind, None))
    for _ in range(20):
        assert watched_for(harness, 60) is None
        for kind in (RUN, CAMPAIGN):
            harness.cache.watch_event(
                (kind, None), "BOOKMARK", {"metadata": {"resourceVersion": str(harness.server.versions[kind])}}
            )
    assert harness.server.listed == 0


MISSED: dict[str, list[Raw]] = {
    "created": [listed(DEMO, 5), listed(ResourceKey(RUN, "team", "new"), 8)],
    "modified": [listed(DEMO, 8)],
    "deleted": [],
}


def test_a_watch_that_cannot_be_compared_is_not_taken_for_healthy(quiet: ResyncHarness) -> None:
    quiet.server.slow = True
    assert watched_for(quiet, SETTINGS.watch_silence_s * 2)


@pytest.mark.parametrize("objects", MISSED.values(), ids=MISSED)
def test_a_watch_that_misses_a_change_is_broken(quiet: ResyncHarness, objects: list[Raw]) -> None:
    """The watch of campaigns misses nothing, and the one that hangs is reported as soon as without that check."""
    assert watched_for(quiet, 600) is None
    quiet.server.objects = [*objects, *quiet.server.objects[1:]]
    problem = watched_for(quiet, SETTINGS.watch_silence_s * 2)
    assert (problem or "").startswith("the watch of SpecBenchRuns ")


def test_a_watch_is_tried_again_without_an_end() -> None:
    settings = kopf_settings(SETTINGS, frozenset())
    assert settings.watching.reconnect_backoff >= 1, "a server may end each watch at once"
    waits: Any = settings.networking.error_backoffs
    for _ in range(2):  # kopf begins again with each request
        first = [*islice(waits, 1000)]
        assert (len(first), first[0], max(first)) == (1000, 1.0, RIGHTS_RETRY_S)


def test_a_missing_campaign_crd_is_logged_once(harness: ResyncHarness, caplog: pytest.LogCaptureFixture) -> None:
    del harness.server.versions[CAMPAIGN]
    for _ in range(2):
        assert harness.resync.stored_versions() == {(RUN, None): 7}
    assert caplog.text.count("is not installed") == 1
    assert "kubectl apply --server-side -f crds/" in caplog.text


def test_a_crd_that_is_installed_later_restarts_the_operator(harness: ResyncHarness) -> None:
    """kopf does not watch it before: the watch never reaches the version of the collection."""
    harness.cache.list_begun((RUN, None), "7")
    harness.cache.list_ended((RUN, None))
    harness.liveness.stored(harness.resync.stored_versions())
    harness.now = SETTINGS.watch_silence_s + 1
    harness.liveness.beat()
    assert "SpecBenchCampaign" in (harness.liveness.problem() or "")


@pytest.mark.parametrize(
    ("namespaces", "watched"), [(("team", "other"), {"team", "other"}), ((), {None}), (("team-*", "other"), {None})]
)
def test_each_watch_is_expected_to_reach_its_collection(namespaces: tuple[str, ...], watched: set[str | None]) -> None:
    versions = ResyncHarness(*namespaces).resync.stored_versions()
    assert set(versions) == {(kind, namespace) for kind in (RUN, CAMPAIGN) for namespace in watched}


@pytest.mark.parametrize(
    ("namespaces", "forbidden", "served", "watched"),
    [
        ((), set(), True, {"Service", "ConfigMap", "NetworkPolicy", "LeaderWorkerSet"}),
        ((), set(), False, {"Service", "ConfigMap", "NetworkPolicy"}),
        ((), {("ConfigMap", None)}, True, {"Service", "NetworkPolicy", "LeaderWorkerSet"}),
        (("a", "b"), {("Service", "b")}, True, {"ConfigMap", "NetworkPolicy", "LeaderWorkerSet"}),
        (("team-*",), {("Service", None)}, True, {"ConfigMap", "NetworkPolicy", "LeaderWorkerSet"}),
    ],
)
def test_children_are_watched_where_the_operator_may(
    namespaces: tuple[str, ...], forbidden: set[tuple[str, str | None]], served: bool, watched: set[str]
) -> None:
    settings = replace(
        SETTINGS, namespaces=namespaces, leader_worker_sets=True, network_policies=NetworkPolicySettings()
    )
    api: Any = FakeServer(forbidden=forbidden, served=served)
    assert watched_kinds(api, settings) == {RUN, CAMPAIGN, JOB, POD, *watched}
    assert watched_kinds(api, SETTINGS) <= {RUN, CAMPAIGN, JOB, POD, "Service", "ConfigMap"}


# The probes. Liveness: broken watches, stuck workers and a late event loop, but not a quiet cluster.

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
def liveness_harness() -> LivenessHarness:
    return LivenessHarness()


def test_a_watch_that_reaches_every_version_is_healthy(liveness_harness: LivenessHarness) -> None:
    for version in range(10):
        liveness_harness.liveness.stored({PODS: version})
        liveness_harness.pass_time(60)
        liveness_harness.reached[PODS] = version
        liveness_harness.pass_time(1000)
        assert liveness_harness.liveness.problem() is None


@pytest.mark.parametrize("reached", [{}, {PODS: 6}, {RUNS: 8}], ids=["nothing listed", "behind", "other watch"])
def test_a_watch_that_stays_behind_is_broken(liveness_harness: LivenessHarness, reached: dict[Scope, int]) -> None:
    liveness_harness.reached = reached
    liveness_harness.liveness.stored({PODS: 7})
    liveness_harness.pass_time(SETTINGS.watch_silence_s)
    assert liveness_harness.liveness.problem() is None
    liveness_harness.liveness.stored({PODS: 9})
    liveness_harness.pass_time(1)
    assert "the watch of Pods has been behind the API server for 181 s" in (liveness_harness.liveness.problem() or "")


def test_a_broken_watch_of_one_namespace_is_named(liveness_harness: LivenessHarness) -> None:
    liveness_harness.liveness.stored({RUNS: 7})
    liveness_harness.pass_time(SETTINGS.watch_silence_s + 1)
    assert "SpecBenchRuns in the namespace team" in (liveness_harness.liveness.problem() or "")


def test_no_watch_is_judged_while_the_api_server_does_not_answer(liveness_harness: LivenessHarness) -> None:
    liveness_harness.liveness.stored({PODS: 7})
    liveness_harness.pass_time(100)
    liveness_harness.liveness.unreachable()
    liveness_harness.pass_time(1000)
    assert liveness_harness.liveness.problem() is None


def test_a_collection_that_is_no_longer_watched_is_not_expected(liveness_harness: LivenessHarness) -> None:
    liveness_harness.liveness.stored({PODS: 7})
    liveness_harness.liveness.stored({})
    liveness_harness.pass_time(1000)
    assert liveness_harness.liveness.problem() is None


def test_a_stuck_worker_is_a_problem(liveness_harness: LivenessHarness) -> None:
    liveness_harness.longest = SETTINGS.worker_stuck_s + 1
    assert "reconciliation" in (liveness_harness.liveness.problem() or "")


def test_a_late_event_loop_is_a_problem(liveness_harness: LivenessHarness) -> None:
    liveness_harness.now += SETTINGS.loop_lag_s + 1
    assert "event loop" in (liveness_harness.liveness.problem() or "")
    liveness_harness.liveness.beat()
    assert liveness_harness.liveness.problem() is None


@pytest.mark.parametrize(("pod_ip", "address"), [("10.0.0.7", "127.0.0.1"), ("fd00::7", "[::1]")])
async def test_each_probe_answers_with_its_problem_or_success(pod_ip: str, address: str) -> None:
    problems: dict[str, str | None] = {"/healthz": None, "/readyz": "not listed yet: team"}
    port = free_port()
    checks = {path: partial(problems.__getitem__, path) for path in problems}
    serving = asyncio.create_task(serve_probes(replace(SETTINGS, pod_ip=pod_ip, liveness_port=port), checks))
    async with aiohttp.ClientSession(f"http://{address}:{port}") as client:

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
