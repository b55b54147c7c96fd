"""Watches and resync: both only put names on the work queue.

An event of a run or its children queues the run. An event of a campaign, of one of its runs, or of a run that has a
name of one, queues the campaign.

Only kopf's `on.event` handlers are used, because they need no finalizer, no annotation and no memory. A finalizer would
block the deletion of runs while the operator is down. Retries are done by the work queue instead of kopf.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import chain, repeat
from typing import Any, cast

import aiohttp
import kopf

from specbench_api.campaign.names import LABEL_CAMPAIGN, campaign_in_name
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER
from specbench_operator.cluster.bounded_json import parse_json, parse_list
from specbench_operator.cluster.kubernetes_api import (
    CAMPAIGN,
    CONFIG_MAP,
    JOB,
    LEADER_WORKER_SET,
    MALFORMED,
    MESSAGE_MAX,
    NETWORK_POLICY,
    PAGE_OF_WATCHED,
    POD,
    RUN,
    SERVICE,
    Forbidden,
    KubernetesApi,
    NotFound,
    resource_of,
    scope_of,
)
from specbench_operator.cluster.object_cache import NotKept, ObjectCache, Scope
from specbench_operator.cluster.run_observer import CHILD_SELECTOR
from specbench_operator.errors import OperatorError, Retry
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.reconcilers import Workers
from specbench_operator.handlers.work_queue import ResourceKey, WorkQueue
from specbench_operator.settings import OperatorSettings
from specbench_operator.telemetry import RunRow, Telemetry

WATCH_TIMEOUT_S = 300
"""A watch request is renewed after this time in seconds, whatever the server's own limit is."""
CAMPAIGN_DELAY_S = 0.5
"""How long a campaign waits after the phase of one of its runs changed, in seconds, so that several need one look."""
PROGRESS_DELAY_S = 5.0
"""The same after other events of its runs: a look at a campaign of 256 runs takes 10 ms, and each run has many events.
"""
RIGHTS_RETRY_S = 10.0
"""How long until a watch that failed many times, a refused token, or missing rights are tried again, in seconds."""
_ALWAYS_WATCHED = (RUN, CAMPAIGN, JOB, POD)


def watched_kinds(api: KubernetesApi, settings: OperatorSettings) -> frozenset[str]:
    """The kinds to watch. Raises Retry.

    Where the operator executes runs only in some of the namespaces that it watches, it may not watch all of their
    children; those that it may not watch are read with every look.
    """
    optional = [SERVICE, CONFIG_MAP]
    optional += [NETWORK_POLICY] if settings.network_policies is not None else []
    optional += [LEADER_WORKER_SET] if settings.leader_worker_sets and api.is_served(LEADER_WORKER_SET) else []
    namespaces = _watch_scopes(settings)
    return frozenset(
        (*_ALWAYS_WATCHED, *(kind for kind in optional if all(api.may_watch(kind, each) for each in namespaces)))
    )


def unlisted(cache: ObjectCache, settings: OperatorSettings) -> str | None:
    """Which namespaces have not been listed once, so that nothing is decided in them yet; None if all have."""
    missing = sorted(each or "all namespaces" for each in _watch_scopes(settings) if not cache.ready(each or ""))
    return f"not listed yet: {', '.join(missing)}" if missing else None


def _watch_scopes(settings: OperatorSettings) -> tuple[str | None, ...]:
    """The namespaces of the watches of each kind; None: the whole cluster."""
    return settings.watched_namespaces or (None,)


@dataclass
class WatchHandlers:
    """What kopf calls for each event of a watch, and for each object of a list. For one event loop.

    After an interrupted watch everything is listed again; what did not change while it was at rest is not queued.
    """

    queue: WorkQueue
    telemetry: Telemetry
    workers: Workers
    _phases: dict[ResourceKey, str] = field(default_factory=dict)
    """The phase of each run at its last event."""

    async def on_run(
        self, name: str, namespace: str | None, body: kopf.Body, labels: kopf.Labels, event: kopf.RawEvent, **_: Any
    ) -> None:
        """Queue the run, those that wait for it, and its campaign."""
        self.telemetry.last_watch_event.set_to_current_time()
        key, deleted = ResourceKey(RUN, namespace or "", name), event["type"] == "DELETED"
        delay_s = CAMPAIGN_DELAY_S if self._has_new_phase(key, body, deleted=deleted) else PROGRESS_DELAY_S
        listed = _is_listed(event)
        if deleted or not self.workers.rests(key, body["metadata"]["resourceVersion"]):
            self.queue.add(key, routine=listed)
        elif listed:
            return
        for waiter in self.workers.waiters_of(key, body):
            self.queue.add(waiter)
        self._queue_campaign(key.namespace, labels, name, delay_s, routine=listed)

    async def on_campaign(self, name: str, namespace: str | None, event: kopf.RawEvent, **_: Any) -> None:
        """Queue the campaign."""
        self.telemetry.last_watch_event.set_to_current_time()
        self.queue.add(ResourceKey(CAMPAIGN, namespace or "", name), routine=_is_listed(event))

    async def on_child(self, namespace: str | None, labels: kopf.Labels, event: kopf.RawEvent, **_: Any) -> None:
        """Queue the run that the child belongs to."""
        self.telemetry.last_watch_event.set_to_current_time()
        self._queue_owner(namespace or "", labels, routine=_is_listed(event))

    def on_missed(self, kind: str, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        """Queue what the deletion of an object concerns that only a list has shown."""
        key = ResourceKey(kind, namespace, name)
        self._phases.pop(key, None)
        if kind in (RUN, CAMPAIGN):
            self.queue.add(key)
        if kind == RUN:
            self._queue_campaign(namespace, labels, name, CAMPAIGN_DELAY_S)
        else:
            self._queue_owner(namespace, labels)

    def _queue_owner(self, namespace: str, labels: Mapping[str, str], *, routine: bool = False) -> None:
        """Queue the run or the campaign that an object with these labels belongs to."""
        if LABEL_RUN in labels:
            self.queue.add(ResourceKey(RUN, namespace, labels[LABEL_RUN]), routine=routine)
        self._queue_campaign(namespace, labels, "", CAMPAIGN_DELAY_S, routine=routine)

    def _queue_campaign(
        self, namespace: str, labels: Mapping[str, str], run: str, delay_s: float, *, routine: bool = False
    ) -> None:
        # A run may have a name that a campaign needs, whoever created it.
        if campaign := labels.get(LABEL_CAMPAIGN) or campaign_in_name(run):
            key = ResourceKey(CAMPAIGN, namespace, campaign)
            self.queue.add_after(key, delay_s, routine=routine or delay_s >= PROGRESS_DELAY_S)

    def _has_new_phase(self, key: ResourceKey, body: Mapping[str, Any], *, deleted: bool) -> bool:
        known = self._phases.pop(key, None)
        if deleted:
            return True
        self._phases[key] = str((body.get("status") or {}).get("phase", ""))
        return self._phases[key] != known


def _is_listed(event: kopf.RawEvent) -> bool:
    """Whether an event is an object of a list, which need not have changed."""
    return event["type"] is None


def build_registry(handlers: WatchHandlers, cache: ObjectCache) -> kopf.OperatorRegistry:
    """The watch handlers in a separate registry, so that importing this module registers nothing."""
    registry = kopf.OperatorRegistry()

    def is_served(namespace: str | None, **_: Any) -> bool:
        return cache.serves(namespace or "")

    kopf.on.event(*resource_of(RUN), registry=registry, when=is_served)(handlers.on_run)
    kopf.on.event(*resource_of(CAMPAIGN), registry=registry, when=is_served)(handlers.on_campaign)
    for kind in sorted(cache.kinds - {RUN, CAMPAIGN}):
        ours = {LABEL_MANAGED: MANAGER}
        watched = kopf.on.event(*resource_of(kind), labels=ours, registry=registry, when=is_served, id=f"on_{kind}")
        watched(handlers.on_child)
    cache.missed = handlers.on_missed

    known: kopf.ConnectionInfo | None = None

    async def on_login(**kwargs: Any) -> kopf.AiohttpSession | None:
        nonlocal known
        info = await asyncio.to_thread(kopf.login_via_client, **kwargs)
        # An expired token that is not replaced yet. kopf would try it again at once, sixty times a second.
        if info == known:
            await asyncio.sleep(RIGHTS_RETRY_S)
        known = info
        return None if info is None else open_session(info, cache)

    kopf.on.login(registry=registry)(on_login)
    return registry


class _EndlessBackoffs:
    """The waits of one watch after its errors, in seconds. After a last one, kopf would end all watches."""

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 2.0, 5.0), repeat(RIGHTS_RETRY_S))


def kopf_settings(settings: OperatorSettings, kinds: frozenset[str]) -> kopf.OperatorSettings:
    """Kopf's settings: fixed resources, server-side filters, and a timeout for every request."""
    chosen = kopf.OperatorSettings()
    # Without scanning, kopf needs no right to list namespaces and definitions.
    chosen.scanning.disabled = True
    chosen.posting.level = logging.WARNING
    chosen.watching.chunk_size = PAGE_OF_WATCHED
    chosen.watching.reconnect_backoff = 1.0  # in seconds: a server may end each watch at once
    chosen.networking.error_backoffs = _EndlessBackoffs()
    chosen.networking.request_timeout = settings.request_timeout_s
    chosen.networking.connect_timeout = settings.request_timeout_s
    chosen.watching.server_timeout = WATCH_TIMEOUT_S
    chosen.watching.client_timeout = WATCH_TIMEOUT_S + settings.request_timeout_s
    chosen.watching.connect_timeout = settings.request_timeout_s
    # The API server filters by label, so the operator does not receive events of all Jobs and pods of the cluster.
    for kind in kinds - {RUN, CAMPAIGN}:
        chosen.watching.label_selectors[resource_of(kind)] = CHILD_SELECTOR
    return chosen


CAMPAIGN_CRD_MISSING = (
    "the definition of SpecBenchCampaign is not installed, so the operator serves only SpecBenchRuns: install it"
    " (crds.install=true, or kubectl apply --server-side -f crds/); the operator then restarts automatically"
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resync:
    """Queues all runs and campaigns periodically, from the cache, except those at rest.

    It also asks for the version that each watch should reach, for the liveness check: a watch can fail silently.
    """

    api: KubernetesApi
    cache: ObjectCache
    queue: WorkQueue
    workers: Workers
    liveness: Liveness
    telemetry: Telemetry
    settings: OperatorSettings
    logged: set[str] = field(default_factory=set)
    """Messages that were logged already, because each is logged once per process."""

    async def keep_going(self) -> None:
        """Resync forever. An unreachable API server is logged and tried again; it is no reason to restart."""
        while True:
            self.queue_all()
            try:
                self.liveness.stored(await asyncio.to_thread(self.stored_versions))
            except OperatorError as error:
                self.liveness.unreachable()
                self.telemetry.resync_errors.inc()
                _log.error("the watched collections cannot be read: %s", error)
            await asyncio.sleep(self.period_s)

    @property
    def period_s(self) -> float:
        """How long until the next resync, in seconds: soon while rights are missing."""
        return min(self.settings.resync_s, RIGHTS_RETRY_S if self.cache.forbidden else math.inf)

    def queue_all(self) -> None:
        """Queue every object that is not at rest, spread over the period, and count all objects."""
        runs, campaigns = self.cache.overview(RUN), self.cache.overview(CAMPAIGN)
        rows = [RunRow(namespace, name, found.phase or "Pending", found.since) for namespace, name, found in runs]
        self.telemetry.counted_runs(rows, partial(self._kept, RUN))
        kept = (self._kept(CAMPAIGN, namespace, name) for namespace, name, _ in campaigns)
        self.telemetry.counted_campaigns(campaign for campaign in kept if campaign is not None)
        keys = [
            key
            for kind, objects in ((RUN, runs), (CAMPAIGN, campaigns))
            for namespace, name, found in objects
            if not self.workers.rests(key := ResourceKey(kind, namespace, name), str(found.version))
        ]
        # Spread over the period: hundreds of runs at once would keep all threads busy for seconds.
        for number, key in enumerate(keys):
            self.queue.add_after(key, self.settings.resync_s * number / len(keys))

    def _kept(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The object; None if it is too large for the cache, and so for metrics."""
        with suppress(NotKept):
            return self.cache.get(kind, namespace, name)
        return None

    def stored_versions(self) -> dict[Scope, int]:
        """The version that each watch should reach, except those that may not be watched. Raises Retry."""
        scopes = [(kind, namespace) for kind in self.cache.kinds for namespace in _watch_scopes(self.settings)]
        versions: dict[Scope, int] = {}
        forbidden: dict[Scope, str] = {}
        for kind, namespace in sorted(scopes, key=str):
            try:
                versions[kind, namespace] = self._version_to_reach(kind, namespace)
            except Forbidden as error:
                forbidden[kind, namespace] = str(error)
            except NotFound:
                if kind != CAMPAIGN:
                    raise
                if CAMPAIGN_CRD_MISSING not in self.logged:
                    self.logged.add(CAMPAIGN_CRD_MISSING)
                    _log.warning(CAMPAIGN_CRD_MISSING)
        self._report_rights(forbidden)
        return versions

    def _version_to_reach(self, kind: str, namespace: str | None) -> int:
        """The version of the collection; for a suspect, that of its newest object, unless it missed a deletion."""
        version = int(self.api.version(kind, namespace))
        if (kind, namespace) not in self.liveness.suspects():
            return version
        labels = "" if kind in (RUN, CAMPAIGN) else CHILD_SELECTOR
        try:
            stored = {
                (raw["metadata"]["namespace"], raw["metadata"]["name"]): int(raw["metadata"]["resourceVersion"])
                for raw in self.api.each(kind, namespace, labels=labels, bare=True)
            }
        except Retry:  # the API server answers, but this list failed: the watch stays a suspect
            return version
        kept = {(each, name) for each, name, _ in self.cache.overview(kind) if namespace in (None, each)}
        return version if kept - stored.keys() else max(stored.values(), default=0)

    def _report_rights(self, forbidden: dict[Scope, str]) -> None:
        """Report which collections the operator may not list, and let looks at runs in these namespaces fail."""
        known, self.cache.forbidden = self.cache.forbidden, forbidden
        self.telemetry.set_forbidden(forbidden)
        for namespace in sorted({scope[1] for scope in (*known, *forbidden)}, key=str):
            before, now = ([kind for kind, each in rows if each == namespace] for rows in (known, forbidden))
            where = namespace or "all namespaces"
            if now and now != before:
                why = forbidden[now[0], namespace]
                _log.error("nothing is reconciled in %s: no right to list %s: %s", where, ", ".join(now), why)
            elif not now:
                _log.info("the operator has its rights in %s again", where)


# The HTTP session of kopf's watches: it fills the cache, and passes on to kopf only what kopf and the handlers read.
#
# kopf lists and watches, and connects again. It keeps an object for seconds after each event,
# and ends the process if it cannot parse an answer. Anybody may store objects of 1.5 MiB, or nested thousands of
# levels deep. So every answer is parsed here, object by object.

_REFUSED = {*range(400, 500)} - {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
"""Statuses of requests that will not succeed later."""
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_LABELS = (LABEL_MANAGED, LABEL_RUN, LABEL_CAMPAIGN)
_STATUS = ("completionTime", "phase")


def open_session(info: kopf.ConnectionInfo, cache: ObjectCache) -> kopf.AiohttpSession:
    """Open a session with these credentials; kopf closes it. Must be called in the event loop."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=partial(_CachingResponse, cache=cache),  # type: ignore[arg-type]  # called, never subclassed
    )
    return kopf.AiohttpSession(
        server=info.server,
        priority=info.priority,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
        aiohttp_session=session,
    )


def reduced(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce an object to what kopf and the handlers read."""
    meta, status = raw["metadata"], raw.get("status") or {}
    labels = {name: meta["labels"][name] for name in _LABELS if name in (meta.get("labels") or {})}
    return {
        **{name: raw[name] for name in ("apiVersion", "kind") if name in raw},
        "metadata": {**{name: meta[name] for name in _METADATA if name in meta}, "labels": labels},
        "status": {name: status[name] for name in _STATUS if name in status},
    }


class _CachingResponse(aiohttp.ClientResponse):
    """A response of the API server. If it is a list or a watch of a cached kind, its objects go to the cache."""

    def __init__(self, *args: Any, cache: ObjectCache, **options: Any) -> None:
        super().__init__(*args, **options)
        self._object_cache = cache
        self._value: Any = None

    def _scope(self) -> Scope | None:
        scope = scope_of(self.url.path)
        return scope if scope is not None and scope[0] in self._object_cache.kinds else None

    async def json(self, **_: Any) -> Any:
        """Return the answer, a list with reduced objects; None for an error, of which kopf needs only the status."""
        return self._value

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Receive the answer; of a watch only the head. Cache and reduce what kopf reads of it.

        kopf tries again after a connection error, and begins a list again after a payload error. After most other
        errors, and after an answer or a header that it cannot read, it ends the process.
        """
        try:
            await super().start(connection)
            scope, watch = self._scope(), self.url.query.get("watch") == "true"
            if scope is not None and watch and (self.status == HTTPStatus.OK or self.status in _REFUSED):
                self.status = HTTPStatus.OK
                self.content = cast("aiohttp.StreamReader", _CachedLines(self.content, scope, self._object_cache))
            elif self.status == HTTPStatus.OK:
                self._value = self._parsed(scope, await self.read())
            elif self.status != HTTPStatus.UNAUTHORIZED and (scope is not None or self.status != HTTPStatus.NOT_FOUND):
                raise ValueError(f"HTTP {self.status} {self.reason}: {(await self.read())[:MESSAGE_MAX]!r}")
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, *MALFORMED) as error:
            begin_again = self.status in _REFUSED and "continue" in self.url.query  # for example, the list has expired
            error_class = aiohttp.ClientPayloadError if begin_again else aiohttp.ClientConnectionError
            raise error_class(f"{self.url}: {error!r}") from error
        return self

    def _parsed(self, scope: Scope | None, data: bytes) -> Any:
        """Parse an answer; of a list, cache and reduce the objects. Raises one of MALFORMED."""
        if scope is None:
            return parse_json(data)
        head, items = parse_list(data)
        meta = head["metadata"]
        if "continue" not in self.url.query:
            self._object_cache.list_begun(scope, meta["resourceVersion"])
        kept = []
        for raw in items:
            self._object_cache.listed(scope, raw)
            kept.append(reduced(raw))
        if not meta.get("continue"):
            self._object_cache.list_ended(scope)
        return {**head, "items": kept}


_LIST_AGAIN = {"type": "ERROR", "object": {"code": HTTPStatus.GONE}}
"""The only end of a watch after which kopf lists again. After other errors it ends the process, and after none it sends
the same request at once."""


class _CachedLines:
    """The body of a watch; read in chunks, it consists of one reduced event per line, and at least one."""

    def __init__(self, body: aiohttp.StreamReader, scope: Scope, cache: ObjectCache) -> None:
        self._body, self._scope, self._cache = body, scope, cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def iter_chunked(self, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Yield whole lines."""
        rest, event = bytearray(), None
        with suppress(aiohttp.ClientPayloadError):  # cut off: kopf watches on after the last event
            async for chunk in self._body.iter_chunked(chunk_bytes):
                rest += chunk
                if b"\n" not in chunk:
                    continue
                *lines, last = bytes(rest).split(b"\n")
                rest = bytearray(last)
                for line in filter(None, lines):
                    event = self._take(line)
                    yield json.dumps(event).encode() + b"\n"
        if event is None:
            yield json.dumps(self._take(bytes(rest))).encode() + b"\n"

    def _take(self, line: bytes) -> dict[str, Any]:
        """Cache the object of an event, and reduce it."""
        try:
            event = parse_json(line)
            if event["type"] != "ERROR":
                self._cache.watch_event(self._scope, event["type"], event["object"])
                return {**event, "object": reduced(event["object"])}
            why: object = "the server has ended it"
        except MALFORMED as error:  # for example, the page of a gateway
            why = error
        _log.info("a watch of %ss begins again: %r: %r", self._scope[0], why, line[:MESSAGE_MAX])
        return _LIST_AGAIN
