"""What the API server answers: hostile objects, deep or very large, delay and hide no other; errors end no watch and
let no thread sleep; its clock counts."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
import pytest

from specbench_api.errors import InvalidSpec
from specbench_api.spec.parsing import parse_run
from specbench_operator.cluster.bounded_json import LEVELS_KEPT, LIST_BYTES_AT_ONCE, parse_json, parse_list
from specbench_operator.cluster.kubernetes_api import ANSWER_BYTES_MAX, CONFIG_MAP, RUN, KubernetesApi, connect, path_of
from specbench_operator.cluster.leader_election import LEASE
from specbench_operator.cluster.object_cache import ObjectCache
from specbench_operator.errors import Retry
from specbench_operator.handlers.list_watch import open_session
from specbench_operator.handlers.store_looks import THREADS_MAX
from specbench_operator.settings import OperatorSettings
from specbench_testing.fake_api import api_of, api_server
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.operator_builders import operator_run

DEPTHS = [64, LEVELS_KEPT, 199, 200, 201, 1000, 9_990]
"""The API server stores a resource with up to 10,000 levels. Python 3.11 parses up to 1000 less its own stack."""


def run_text(name: str, levels: int = 0, padding: int = 0) -> bytes:
    """A run as the API server stores it, with a free-form field that is nested so deeply."""
    raw = operator_run({"spec.engine.extraBody": {"deep": "VALUE", "padding": "x" * padding}})
    raw["metadata"] |= {"name": name, "resourceVersion": "1", "managedFields": ["x" * padding]}
    raw["status"] = {"phase": "Pending"}
    deep = '{"a":[' * (levels // 2) + "1" + "]}" * (levels // 2)
    return json.dumps(raw).replace('"VALUE"', deep).encode()


def list_text(*items: bytes, more: str = "") -> bytes:
    head = {"apiVersion": "v1", "kind": "SpecBenchRunList", "metadata": {"resourceVersion": "1", "continue": more}}
    return json.dumps(head)[:-1].encode() + b', "items": [' + b",".join(items) + b"]}"


def server(answer: Callable[[str, dict[str, list[str]]], bytes]) -> AbstractContextManager[str]:
    """An API server that answers a path and its query with this body."""
    return api_server(lambda _method, path, query: (200, answer(path, dict(query))))


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_deep_object_does_not_hide_the_others(levels: int) -> None:
    deep, honest = run_text("deep", levels), run_text("honest")
    with server(lambda _path, _query: list_text(deep, honest)) as url:
        first, second = api_of(url).list(RUN, "team")
    assert first["metadata"]["name"] == "deep"
    assert second == json.loads(honest)
    with pytest.raises(InvalidSpec, match=r"^spec.*nested too deeply"):
        parse_run(first)


def test_only_values_below_the_kept_levels_are_dropped() -> None:
    text = rb'{"a\"[": ' + b"[" * 5_000 + b"]" * 5_000 + rb', "b": "}]\\", "c": [{"d": 1.5}, -2, null, true]}'
    found = parse_json(text)
    level = 1
    deep = found.pop('a"[')
    while deep is not None:
        level, deep = level + 1, deep[0]
    assert level == LEVELS_KEPT
    assert found == {"b": "}]\\", "c": [{"d": 1.5}, -2, None, True]}


OBJECT = b'{"kind": "Lease", "metadata": {"resourceVersion": "1"}}'
PAGE = b"<html>%s</html>" % (b"[" * 5_000)
REQUESTS: list[Callable[[KubernetesApi], object]] = [
    lambda api: api.get(LEASE, "team", "x"),
    lambda api: api.merge(LEASE, "team", "x", {}),
    lambda api: api.create({"kind": LEASE, "metadata": {"namespace": "team"}}),
    lambda api: api.version(RUN, None),
    # The answers to these may have no version.
    lambda api: api.delete(LEASE, "team", "x", "uid"),
    lambda api: api.list(RUN, None),
    lambda api: api.is_served(RUN),
]


@pytest.mark.parametrize(
    ("send", "status", "body", "reason"),
    [
        *(
            (send, *row)
            for send in REQUESTS
            for row in (
                *((200, text, "ApiUnreachable") for text in (b"", b"[1", b'{"a": NaN}', b"[" * 5_000, b"]" * 5_000)),
                *((200, text, "ApiUnreachable") for text in (b"null", b"[]", b"5", b"{}", PAGE)),
                *((status, PAGE, "ApiFailing") for status in (404, 410, 500, 502, 600)),
                *((status, b"[" * 5_000, "ApiFailing") for status in (500, 502)),
                (429, b'{"kind": "Status", "details": "soon", "message": 5}', "ApiBusy"),
            )
        ),
        *(
            (send, 200, OBJECT.replace(b'"resourceVersion": "1"', version), "ApiUnreachable")
            for send in REQUESTS[:4]
            for version in (b"", *(b'"resourceVersion": ' + version for version in (b'"x"', b"null", b"1e999")))
        ),
    ],
)
def test_an_answer_that_is_none_of_the_api_server_is_an_error_that_is_retried(
    send: Callable[[KubernetesApi], object], status: int, body: bytes, reason: str
) -> None:
    """Nor is a gateway's 404 the absence of an object, so the lease, for example, is not lost."""
    with api_server(lambda *_: (status, body)) as url, pytest.raises(Retry, match=r"/apis/\S+: ") as refused:
        send(api_of(url))
    assert refused.value.reason == reason


@pytest.mark.draws
def test_a_page_that_is_too_large_is_divided() -> None:
    """Forty runs of 1.2 MiB: eight of them fit into one answer."""
    limits = []

    def answer(_path: str, query: dict[str, list[str]]) -> bytes:
        limits.append(limit := int(query["limit"][0]))
        first = int(query.get("continue", ["0"])[0])
        names = range(first, min(first + limit, 40))
        more = str(names[-1] + 1) if names[-1] < 39 else ""
        return list_text(*(run_text(f"r{number}", padding=600_000) for number in names), more=more)

    with server(answer) as url:
        found = [raw["metadata"]["name"] for raw in api_of(url).each(RUN, None)]
    assert found == [f"r{number}" for number in range(40)]
    assert limits == [500, 62, *[7] * 6]


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("padding", [10, LIST_BYTES_AT_ONCE], ids=["at once", "one by one"])
def test_a_list_is_divided_into_its_items(padding: int, count: int) -> None:
    """Braces, brackets and the word "items" in texts and deeper fields do not matter."""
    tricky = {"items": ['"items": [{', "]}\\"], "metadata": {"name": "\u00e9", "items": [{}, [{}]]}}
    rows = [{**tricky, "number": number, "padding": "x" * padding} for number in range(count)]
    for items_first in (False, True):
        head = {"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "x" * padding, "items": [1]}}
        whole = {"items": rows, **head} if items_first else {**head, "items": rows}
        found_head, found = parse_list(json.dumps(whole).encode())
        assert (found_head, list(found)) == (head, rows)


@pytest.mark.draws
@pytest.mark.parametrize("pages", [1, 40], ids=["one answer", "many pages"])
def test_a_list_that_is_too_large_is_an_error_of_its_reader(pages: int) -> None:
    item = json.dumps({"metadata": {"name": "x"}, "data": {"x": "x" * (ANSWER_BYTES_MAX // pages)}}).encode()

    def answer(_path: str, query: dict[str, list[str]]) -> bytes:
        number = int(query.get("continue", ["0"])[0])
        return list_text(item, more=str(number + 1) if number < pages else "")

    with server(answer) as url, pytest.raises(Retry, match="more than 32 MiB: delete some") as refused:
        api_of(url).list(CONFIG_MAP, "team", labels="a=b")
    assert refused.value.reason == "ApiAnswerTooLarge"


async def test_kopf_receives_only_what_it_reads_and_the_cache_what_decisions_read() -> None:
    deep, honest = run_text("deep", 9_990), run_text("honest", padding=100_000)
    error = b'{"kind": "Status", "status": "Failure", "code": 410, "message": "too old", "metadata": {}}'
    bookmark = b'{"kind": "SpecBenchRun", "metadata": {"resourceVersion": "12"}}'
    newer = honest.replace(b'"resourceVersion": "1"', b'"resourceVersion": "7"')
    rows = ((b"MODIFIED", newer), (b"BOOKMARK", bookmark), (b"ERROR", error))
    events = b"".join(b'{"type": "%s", "object": %s}\n' % row for row in rows)
    groups = b'{"kind": "APIResourceList", "resources": [{"name": "pods", "verbs": ["list"]}]}'
    path = path_of(RUN, None)

    others = {"/error": error, "/groups": groups}

    def answer(asked: str, query: dict[str, list[str]]) -> bytes:
        if asked != path:
            return others[asked]
        if "watch" in query:
            return events
        return list_text(honest) if "continue" in query else list_text(deep, more="more")

    cache = ObjectCache(frozenset({RUN}))
    with server(answer) as url:
        session = open_session(kopf.ConnectionInfo(server=url), cache).aiohttp_session
        async with session:
            pages = [await (await session.get(f"{url}{path}{query}")).json() for query in ("", "?continue=more")]
            assert cache.versions == {(RUN, None): 1}
            watch = await session.get(f"{url}{path}?watch=true")
            streamed = b"".join([chunk async for chunk in watch.content.iter_chunked(2**20)])
            unchanged = [await (await session.get(f"{url}{path}")).json() for path in others]
    assert [[row["metadata"]["name"] for row in page["items"]] for page in pages] == [["deep"], ["honest"]]
    assert [page["metadata"] for page in pages] == [{"resourceVersion": "1", "continue": more} for more in ("more", "")]
    passed_on = [json.loads(line) for line in streamed.splitlines()]
    assert [row["type"] for row in passed_on] == ["MODIFIED", "BOOKMARK", "ERROR"]
    assert passed_on[2]["object"]["code"] == 410
    assert len(streamed) < 2_000
    assert unchanged == [json.loads(text) for text in others.values()]
    assert cache.versions == {(RUN, None): 12}
    kept = cache.get(RUN, "default", "honest")
    assert kept is not None
    assert kept["metadata"]["resourceVersion"] == "7"
    assert kept["spec"] == json.loads(honest)["spec"]
    assert "managedFields" not in kept["metadata"]


EXPIRED = b'{"kind": "Status", "code": 410, "message": "too old"}'
BROKEN = b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd event without a value"}}\n'
ODD = b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "x", "uid": "u"}}}\n'
LATIN = "<html>n\u00e3o".encode("latin-1")


@asynccontextmanager
async def kopf_session(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_session(kopf.ConnectionInfo(server=url), ObjectCache(frozenset({RUN}))).aiohttp_session as session:
        yield session


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((410, EXPIRED), (410, b""), (400, b'{"kind": "Status", "code": 400}'), (404, b"404 page not found\n")),
        *((431, LATIN), (200, BROKEN), (200, b""), (200, b"<html>\n"), (200, b"<html>"), (200, LATIN), (200, b"[1]\n")),
        *((200, b'"x"\n'), (200, b"null\n"), (200, b'{"type": "ADDED"}\n'), (200, ODD), (200, ODD[:-20])),
    ],
)
@pytest.mark.parametrize("missing_bytes", [0, 9])
async def test_a_watch_that_the_server_ends_makes_kopf_list_again(status: int, body: bytes, missing_bytes: int) -> None:
    # kopf does so after one event only: an error of code 410.
    headers = {"Content-Length": str(len(body) + missing_bytes), "Connection": "close"}
    with http_server(lambda _request: (status, headers, body)) as port:
        url = f"http://127.0.0.1:{port}"
        async with kopf_session(url) as session, session.get(f"{url}{path_of(RUN, None)}?watch=true") as watch:
            (line,) = b"".join([chunk async for chunk in watch.content.iter_chunked(2**20)]).splitlines()
    event = json.loads(line)
    assert (watch.status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)


UNREADABLE = [
    *(b"", b"not ready", b"null", b"[]", b"5", b"{}", list_text()[:-9], list_text(b"[]"), list_text(b"{}")),
    *(list_text().replace(b'"1"', version) for version in (b'"x"', b"null", b"1e999")),
]


ERRORS: list[tuple[int, dict[str, str], bytes]] = [
    *((429, {"Retry-After": text}, b"{}") for text in (formatdate(0, usegmt=True), "soon", "-1", "1e999", "9" * 20)),
    (429, {}, b'{"kind": "Status", "details": {"retryAfterSeconds": "soon"}}'),
    *((status, {}, LATIN) for status in (403, 500, 502, 503, 600)),
    *((302, {"Location": to}, b"") for to in ("/login", "ftp://elsewhere", "http://[")),
    *((204, {}, b""), (502, {"Content-Encoding": "gzip"}, LATIN)),
    (502, {"Content-Length": "99", "Connection": "close"}, LATIN),
    *((200, {"Content Length": "1"}, b""), (200, {"Transfer-Encoding": "x"}, b"")),
]


@pytest.mark.parametrize(
    ("query", "status", "headers", "body", "error"),
    [
        *(
            (query, *row, aiohttp.ClientConnectionError)
            for query in ("", "?continue=x", "?watch=true")
            for row in ERRORS
        ),
        *(("", 200, {}, body, aiohttp.ClientConnectionError) for body in UNREADABLE),
        *(("?limit=32", status, {}, EXPIRED, aiohttp.ClientConnectionError) for status in (400, 404, 410)),
        *(("?continue=x", status, {}, EXPIRED, aiohttp.ClientPayloadError) for status in (400, 410)),
    ],
)
async def test_kopf_tries_again_after_an_answer_that_it_cannot_handle(
    query: str, status: int, headers: dict[str, str], body: bytes, error: type[Exception]
) -> None:
    # After a payload error of a page, it begins the list again. After an odd number of seconds, it would end.
    with http_server(lambda _request: (status, headers, body)) as port:
        url = f"http://127.0.0.1:{port}{path_of(RUN, None)}{query}"
        async with kopf_session(url) as session:
            with pytest.raises(error, match="/specbenchruns"):
                await session.get(url)


async def test_what_kopf_handles_itself_remains_an_error() -> None:
    # It logs in again after 401, and 404 is how it learns that a group has no resources.
    asked = {"/apis/x/v1": 404, path_of(RUN, None): 401}
    with api_server(lambda _method, path, _query: (asked[path], LATIN)) as url:
        async with kopf_session(url) as session:
            for path, status in asked.items():
                async with session.get(url + path) as answer:
                    assert (answer.status, await answer.json()) == (status, None)


THREADS = THREADS_MAX + OperatorSettings(client_image="c").workers


def connected(monkeypatch: pytest.MonkeyPatch, url: str) -> KubernetesApi:
    """The operator's client as in a pod, for this server."""

    def configure(client_configuration: Any) -> None:
        client_configuration.host = url

    monkeypatch.setattr("specbench_operator.cluster.kubernetes_api._config.load_incluster_config", configure)
    return connect(30)


def test_no_connection_of_a_thread_is_discarded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections are kept for all threads that use them: workers, and looks at stores."""
    together = threading.Barrier(THREADS)

    def answer(_path: str, _query: object) -> bytes:
        together.wait(30)
        return OBJECT

    with server(answer) as url:
        api = connected(monkeypatch, url)
        with caplog.at_level(logging.WARNING), ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda name: api.get(RUN, "default", str(name)), range(THREADS)))
    assert found == [json.loads(OBJECT)] * THREADS
    assert "pool is full" not in caplog.text


@pytest.mark.parametrize("status", [429, 503])
def test_no_thread_waits_for_as_long_as_the_server_asks(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Each request is sent once: the work queue and the leader election try again by themselves."""
    asked: list[str] = []

    def answer(request: Request) -> Reply:
        asked.append(request.target)
        return status, {"Retry-After": "0"}, b"{}"

    with http_server(answer) as port, pytest.raises(Retry):
        connected(monkeypatch, f"http://127.0.0.1:{port}").get(RUN, "default", "demo")
    assert len(asked) == 1


NOW_S = 1_796_000_000


@pytest.mark.parametrize(
    ("ahead_s", "took_s", "noted_s"),
    [
        *((90, 0, 90), (-90, 0, -90), (90, 4, 86), (90, 6, 0), (4, 0, 0), (-4, 0, 0), ("soon", 0, 0), ("", 0, 0)),
        *((f"Mon, 30 Nov {year} 00:00:00 +0000", 0, 0) for year in (10_000, 9**99)),
    ],
)
def test_the_time_is_that_of_the_api_servers_clock(
    monkeypatch: pytest.MonkeyPatch, ahead_s: float | str, took_s: float, noted_s: float
) -> None:
    """Deadlines and waits are compared with times in objects, which other nodes have written."""
    theirs = ahead_s if isinstance(ahead_s, str) else formatdate(NOW_S + ahead_s, usegmt=True)
    monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", lambda *_: theirs)
    times = chain([NOW_S], repeat(NOW_S + took_s))
    monkeypatch.setattr(f"{KubernetesApi.__module__}.time", SimpleNamespace(time=lambda: next(times)))
    with server(lambda _path, _query: OBJECT) as url:
        api = api_of(url)
        api.get(RUN, "default", "demo")
        assert api.now() == datetime.fromtimestamp(NOW_S + took_s + noted_s, UTC)
