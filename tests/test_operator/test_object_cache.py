"""The cache of watched objects: it is never older than the operator's own writes, and keeps nothing that is gone."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.campaign.names import LABEL_CAMPAIGN_UID
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER
from specbench_operator.cluster.kubernetes_api import (
    CONFIG_MAP,
    JOB,
    POD,
    RUN,
    SECRET,
    SERVICE,
    Forbidden,
    Raw,
    StillForbidden,
    path_of,
    resource_of,
    scope_of,
)
from specbench_operator.cluster.object_cache import (
    ANSWERS_BYTES_MAX,
    OBJECT_BYTES_MAX,
    REFUSED_KEPT_S,
    UNWATCHED_KEPT_S,
    CacheReader,
    NotKept,
    ObjectCache,
    Scope,
)
from specbench_operator.cluster.parsing import parse_job, parse_pod
from specbench_testing.fake_api import FakeApi
from specbench_testing.operator_builders import Clock, operator_run

EVERYWHERE: Scope = (JOB, None)


def job(name: str = "engine", version: int = 1, uid: str = "", run: str = "demo", **meta: Any) -> Raw:
    labels = {LABEL_MANAGED: MANAGER, LABEL_RUN: run}
    return {
        "kind": JOB,
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-11-23T12:00:00Z",
            "labels": labels,
            **meta,
        },
        "spec": {},
    }


def cache_of(*items: Raw, version: str = "10", kinds: frozenset[str] = frozenset({JOB})) -> ObjectCache:
    cache = ObjectCache(kinds)
    fill(cache, *items, version=version)
    return cache


def fill(cache: ObjectCache, *items: Raw, version: str, scope: Scope = EVERYWHERE) -> None:
    """Give the cache a complete list."""
    cache.list_begun(scope, version)
    for item in items:
        cache.listed(scope, item)
    cache.list_ended(scope)


def version_of(cache: ObjectCache, name: str = "engine") -> str | None:
    found = cache.get(JOB, "team", name)
    return found["metadata"]["resourceVersion"] if found else None


def test_nothing_is_ready_before_every_kind_was_listed() -> None:
    cache = ObjectCache(frozenset({JOB, POD}))
    assert not cache.ready("team")
    fill(cache, version="3")
    assert not cache.ready("team")
    cache.list_begun((POD, "team"), "4")
    assert not cache.ready("team")
    cache.list_ended((POD, "team"))
    assert cache.ready("team")
    assert not cache.ready("other"), "its pods were not listed"


@pytest.mark.parametrize(
    ("event", "version", "kept"),
    [("MODIFIED", 7, "7"), ("MODIFIED", 3, "5"), ("ADDED", 5, "5"), ("DELETED", 7, None), ("BOOKMARK", 9, "5")],
)
def test_the_newer_version_is_kept(event: str, version: int, kept: str | None) -> None:
    cache = cache_of(job(version=5))
    cache.watch_event(EVERYWHERE, event, job(version=version))
    assert version_of(cache) == kept


def test_objects_are_selected_by_the_begin_of_their_names() -> None:
    cache = cache_of(*(job(name, version=5) for name in ("b-2", "a", "b-1", "b", "c", "b-10")))
    cache.wrote(job("b-1", version=6))
    cache.watch_event(EVERYWHERE, "DELETED", job("b-2", version=7))
    assert [name for name, _ in cache.select(JOB, "team", "", "b-")] == ["b-1", "b-10"]
    assert [name for name, _ in cache.select(JOB, "team", "")] == ["a", "b", "b-1", "b-10", "c"]


@pytest.mark.parametrize("event", ["ADDED", "MODIFIED"])
def test_a_late_event_does_not_bring_back_what_the_operator_deleted(event: str) -> None:
    cache = cache_of(job(version=5))
    cache.deleted(JOB, "team", "engine", "uid-engine")
    cache.watch_event(EVERYWHERE, event, job(version=6))
    assert version_of(cache) is None
    fill(cache, job(version=4), version="4")
    cache.watch_event(EVERYWHERE, event, job(version=5))
    assert version_of(cache) == "5", "etcd was restored, and the deleted object with it"


def test_a_deletion_removes_only_the_object_with_this_uid() -> None:
    cache = cache_of(job(version=5, uid="new"))
    cache.deleted(JOB, "team", "engine", "old")
    assert version_of(cache) == "5"
    cache.deleted(JOB, "team", "engine", "new")
    assert version_of(cache) is None
    assert cache.select(JOB, "team", f"{LABEL_RUN}=demo") == []


def test_a_deletion_that_no_event_reported_is_found_by_the_next_list() -> None:
    missed: list[tuple[str, str, str, Mapping[str, str]]] = []
    cache = cache_of(job(), job("client"))
    cache.missed = lambda *row: missed.append(row)
    cache.list_begun(EVERYWHERE, "20")
    cache.listed(EVERYWHERE, job("client"))
    assert version_of(cache), "the list is not complete yet"
    cache.wrote(job("report", version=25))
    cache.list_ended(EVERYWHERE)
    assert (version_of(cache), version_of(cache, "client"), version_of(cache, "report")) == (None, "1", "25")
    assert missed == [(JOB, "team", "engine", {LABEL_RUN: "demo"})]


@pytest.mark.parametrize("version", ["3001", "1000003000"], ids=["etcd restored", "restored with a bumped revision"])
def test_a_list_of_a_restored_cluster_replaces_what_is_cached(version: str) -> None:
    missed: list[tuple[str, str, str, Mapping[str, str]]] = []
    cache = cache_of(job(version=5000), job("later", version=5001), version="5001")
    cache.missed = lambda *row: missed.append(row)
    fill(cache, job(version=3000), version=version)
    assert (version_of(cache), version_of(cache, "later")) == ("3000", None)
    assert missed == [(JOB, "team", "later", {LABEL_RUN: "demo"})]
    assert cache.versions == {EVERYWHERE: int(version)}


def test_a_list_that_was_interrupted_does_not_count() -> None:
    cache = cache_of(job())
    cache.list_begun(EVERYWHERE, "15")
    cache.listed(EVERYWHERE, job())
    fill(cache, version="20")
    assert version_of(cache) is None


def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    cache = ObjectCache(frozenset({JOB}))
    fill(cache, job(), version="5", scope=(JOB, "team"))
    fill(cache, version="6", scope=(JOB, "other"))
    assert version_of(cache) == "1"


def test_objects_of_other_namespaces_are_not_kept_but_their_versions_count() -> None:
    """A watch of the whole cluster reaches the version of its collection also by objects that do not concern it."""
    cache = ObjectCache(frozenset({JOB}), lambda namespace: namespace == "team")
    other = job("foreign", version=7)
    other["metadata"]["namespace"] = "other"
    fill(cache, job(), other, version="8")
    cache.watch_event(EVERYWHERE, "MODIFIED", {**other, "metadata": {**other["metadata"], "resourceVersion": "9"}})
    assert [(namespace, name) for namespace, name, _ in cache.overview(JOB)] == [("team", "engine")]
    assert cache.versions == {EVERYWHERE: 9}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("ab"), st.sampled_from(["demo", "x"])
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_events_in_order_and_late_writes_give_the_last_state(
    history: list[tuple[str, str, str]], arriving: list[int]
) -> None:
    """Each event may also have been the operator's own write, whose answer arrives before, with or after it."""
    cache, last = cache_of(version="0"), dict[str, str]()
    born: dict[str, int] = {}
    answers: list[Raw] = []
    for version, (event, name, run) in enumerate(history, 1):
        uid = f"{name}{born.setdefault(name, version)}"
        raw = job(name, version, uid, run)
        if event == "DELETED":
            last.pop(name, None)
            born.pop(name)
        else:
            last[name] = run
            answers.append(raw)
        for answer in answers[: arriving[version - 1]]:
            cache.wrote(answer)
        del answers[: arriving[version - 1]]
        cache.watch_event(EVERYWHERE, event, raw)
    for answer in answers:
        cache.wrote(answer)
    for run in ("demo", "x"):
        names = sorted(name for name, _ in cache.select(JOB, "team", f"{LABEL_MANAGED}={MANAGER},{LABEL_RUN}={run}"))
        assert names == sorted(name for name, where in last.items() if where == run)


def test_runs_are_selected_by_equality_and_inequality() -> None:
    rows = [
        {**operator_run({}), "metadata": {**job(name)["metadata"], "labels": labels}}
        for name, labels in (("a", {LABEL_CAMPAIGN_UID: "u"}), ("b", {LABEL_CAMPAIGN_UID: "v"}), ("c", {}))
    ]
    cache = ObjectCache(frozenset({RUN}))
    fill(cache, *rows, version="5", scope=(RUN, None))
    server = FakeApi()
    reader = CacheReader(cache, server)
    selected = {
        labels: [raw["metadata"]["name"] for raw in reader.list(RUN, "team", labels=labels, bare=True)]
        for labels in ("", f"{LABEL_CAMPAIGN_UID}=u", f"{LABEL_CAMPAIGN_UID}!=u")
    }
    assert list(selected.values()) == [["a", "b", "c"], ["a"], ["b", "c"]]
    assert server.requests == [], "only the cache is read"
    with pytest.raises(ValueError, match="unknown"):
        reader.list(RUN, "team", labels="unknown=1")


@pytest.mark.parametrize("namespace", ["team", None])
def test_a_collection_that_may_not_be_listed_is_not_read_from_the_cache(namespace: str | None) -> None:
    cache = ObjectCache(frozenset({RUN, JOB}))
    fill(cache, operator_run({}), version="5", scope=(RUN, namespace))
    assert not cache.ready("team")
    reader = CacheReader(cache, FakeApi())
    cache.forbidden = {(JOB, namespace): "jobs is forbidden"}
    assert cache.ready("team"), "its runs are reconciled, and report it"
    for read in (partial(reader.get, name="x"), reader.list, lambda *scope: [*reader.each(*scope)]):
        with pytest.raises(StillForbidden, match="jobs is forbidden"):
            read(JOB, "team")
    assert reader.get(RUN, "team", "x") is None
    cache.forbidden = {}
    assert reader.list(JOB, "team") == []
    assert not cache.ready("team")


def test_a_refused_list_is_sent_once_in_a_while_for_all_runs_of_the_namespace() -> None:
    clock, server = Clock(), FakeApi()
    reader = CacheReader(cache_of(), server, clock)

    def refused(run: str, namespace: str = "team") -> type[Forbidden]:
        with pytest.raises(Forbidden, match="services is forbidden") as error:
            reader.list(SERVICE, namespace, labels=f"{LABEL_RUN}={run}")
        return error.type

    for _ in range(2):
        server.refuse["list", SERVICE] = Forbidden("Forbidden", "services is forbidden")
        assert [refused("a"), refused("b"), refused("a", "other")] == [Forbidden, StillForbidden, Forbidden]
        clock.now += REFUSED_KEPT_S
        assert [refused("a"), refused("b")] == [StillForbidden] * 2, "it was reported before"
        assert len(server.requests) == 3
        server.refuse.clear()
        clock.now += REFUSED_KEPT_S
        assert [reader.list(SERVICE, each, labels=f"{LABEL_RUN}=a") for each in ("team", "other")] == [[], []]
        clock.now += UNWATCHED_KEPT_S
        server.requests.clear()


def test_answers_about_unwatched_objects_are_kept_for_a_while() -> None:
    clock, server = Clock(), FakeApi()
    reader = CacheReader(cache_of(), server, clock)
    for _ in range(3):
        assert reader.get(SECRET, "team", "s3", bare=True) is None
    assert len(server.requests) == 1
    reader.get(SECRET, "team", "other", bare=True)
    assert len(server.requests) == 2
    clock.now = UNWATCHED_KEPT_S
    reader.get(SECRET, "team", "s3", bare=True)
    assert len(server.requests) == 3


@dataclass
class LargeSecrets(FakeApi):
    """An API server with Secrets of 300 kB, most of it in this key."""

    key: str = ""

    def get(self, kind: str, namespace: str | None, name: str, *, bare: bool = False) -> Raw | None:
        super().get(kind, namespace, name, bare=bare)
        data = {"AWS_ACCESS_KEY_ID": "aWQ=", self.key: random.Random(name).randbytes(150_000).hex()}
        return {"metadata": {"name": name}, "data": data}


@pytest.mark.draws
@pytest.mark.parametrize(
    ("key", "pause_s", "limit_bytes"),
    [
        ("AWS_SECRET_ACCESS_KEY", UNWATCHED_KEPT_S, 2**20),  # all others have expired
        ("AWS_SECRET_ACCESS_KEY", 0.0, ANSWERS_BYTES_MAX + 2**20),
        ("tls.key", 0.0, 2**20),  # is not read
    ],
    ids=["expired", "many at once", "other data"],
)
def test_secrets_do_not_fill_the_memory(key: str, pause_s: float, limit_bytes: int) -> None:
    clock, server = Clock(), LargeSecrets(key=key)
    reader = CacheReader(cache_of(), server, clock)
    tracemalloc.start()
    try:
        for number in range(80):
            clock.now += pause_s
            reader.get(SECRET, "team", f"secret-{number}")
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < limit_bytes
    assert reader.get(SECRET, "team", "secret-79") == reader.get(SECRET, "team", "secret-79")
    assert len(server.requests) == 80, "the last answer is kept"


POD_RAW: Raw = {
    "metadata": {
        **job("engine-x")["metadata"],
        "managedFields": ["x" * 5_000],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 5_000, "kept": "yes"},
        "ownerReferences": [{"kind": JOB, "name": "engine", "uid": "uid-engine", "controller": True}],
    },
    "spec": {
        "nodeName": "node-1",
        "volumes": ["x" * 5_000],
        "containers": [
            {"name": "engine", "image": "vllm", "command": ["vllm"], "args": ["serve"], "env": ["x" * 5_000]},
            {"name": "sidecar", "image": "proxy"},
        ],
    },
    "status": {
        "phase": "Running",
        "podIPs": ["x" * 5_000],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "engine", "imageID": "id", "restartCount": 0, "state": {"running": {}}}],
    },
}


@pytest.mark.parametrize(
    ("kind", "raw", "parse"),
    [
        (POD, POD_RAW, parse_pod),
        (JOB, {**job(), "spec": {"suspend": True, "template": "x" * 5_000}, "status": {"startTime": None}}, parse_job),
        (CONFIG_MAP, {**job("plan"), "data": {"plan.json": "{}"}}, lambda raw: raw["data"]),
        (RUN, {**operator_run({}), "metadata": job("demo")["metadata"]}, lambda raw: raw),
    ],
    ids=["pod", "job", "config map", "run"],
)
def test_what_is_read_of_a_cached_object_is_what_is_read_of_the_object(kind: str, raw: Raw, parse: Any) -> None:
    cache = ObjectCache(frozenset({kind}))
    fill(cache, raw, version="5", scope=(kind, None))
    found = cache.get(kind, "team", raw["metadata"]["name"])
    assert found is not None
    assert parse(found) == parse(raw)
    assert "xxxxx" not in str(found)


def noisy_run(name: str, version: int = 1, hex_digits: int = OBJECT_BYTES_MAX) -> Raw:
    noise = random.Random(name).randbytes(hex_digits // 2).hex()
    meta = {**job(name, version)["metadata"], "annotations": {"noise": noise}}
    return {**operator_run({}), "kind": RUN, "metadata": meta}


def test_an_object_that_is_too_large_is_read_from_the_api_server() -> None:
    cache = ObjectCache(frozenset({RUN}))
    cache.wrote(noisy_run("large"))
    with pytest.raises(NotKept):
        cache.get(RUN, "team", "large")
    assert [name for _, name, _ in cache.overview(RUN)] == ["large"]


def test_one_object_that_is_not_kept_hides_no_other() -> None:
    """All runs of a namespace are read for its limits, so one large run must not make that fail."""
    small, large = noisy_run("a", hex_digits=100), noisy_run("large")
    cache, server = ObjectCache(frozenset({RUN})), FakeApi()
    for raw in (small, large):
        cache.wrote(raw)
        server.objects[RUN, raw["metadata"]["name"]] = raw
    reader = CacheReader(cache, server)
    assert reader.get(RUN, "team", "large") == large
    assert [row["metadata"] for row in reader.each(RUN, "team")] == [small["metadata"], large["metadata"]]
    del server.objects[RUN, "large"]
    assert [row["metadata"]["name"] for row in reader.list(RUN, "team")] == ["a"], "it was deleted meanwhile"


def test_objects_beyond_the_size_of_the_cache_are_read_until_others_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_operator.cluster.object_cache.PACKED_BYTES_MAX", 250_000)
    cache = ObjectCache(frozenset({RUN}))
    for name in ("a", "b", "c"):
        cache.wrote(noisy_run(name, hex_digits=200_000))
    assert cache.get(RUN, "team", "b")
    with pytest.raises(NotKept):
        cache.get(RUN, "team", "c")
    cache.deleted(RUN, "team", "a", "uid-a")
    cache.wrote(noisy_run("c", version=2, hex_digits=200_000))
    assert cache.get(RUN, "team", "c")


def test_ten_thousand_runs_need_less_than_sixty_mebibytes() -> None:
    cache = ObjectCache(frozenset({RUN}))
    raw = operator_run({})
    tracemalloc.start()
    try:
        for number in range(1_000):
            meta = job(f"run-{number}", uid=f"uid-{number}")["metadata"]
            cache.wrote({**raw, "kind": RUN, "metadata": meta, "status": {"phase": "Pending"}})
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used * 10 < 60 * 2**20


@pytest.mark.parametrize("kind", [RUN, JOB, POD, CONFIG_MAP])
@pytest.mark.parametrize("namespace", [None, "team"])
def test_the_scope_of_a_path_is_that_of_its_collection(kind: str, namespace: str | None) -> None:
    assert scope_of(path_of(kind, namespace)) == (kind, namespace)
    assert scope_of(path_of(kind, namespace, "one")) is None
    group, version, plural = resource_of(kind)
    assert path_of(kind, None) == f"/{'apis/' + group if group else 'api'}/{version}/{plural}"


def test_other_paths_have_no_scope() -> None:
    assert [scope_of(path) for path in ("/api/v1", "/apis/batch/v1/cronjobs", "/version")] == [None] * 3
