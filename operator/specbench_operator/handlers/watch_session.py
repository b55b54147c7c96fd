"""The HTTP session of kopf's watches: it fills the cache, and passes on to kopf only what kopf and the handlers read.

kopf lists and watches, connects again, and follows namespaces. It keeps an object for seconds after each event, and
ends the process if it cannot parse an answer. Anybody may store objects of 1.5 MiB, or nested thousands of levels deep.
So every answer is parsed here, object by object.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, cast

import aiohttp
import kopf

from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN
from specbench_operator.cluster.api import scope_of
from specbench_operator.cluster.bounded_json import parse_json, parse_list
from specbench_operator.cluster.object_cache import ObjectCache, Scope

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

    def _scope(self) -> Scope | None:
        scope = scope_of(self.url.path)
        return scope if scope is not None and scope[0] in self._object_cache.kinds else None

    async def json(self, **_: Any) -> Any:
        """Return the whole answer; a list with reduced objects."""
        data = await self.read()
        scope = self._scope()
        try:
            if scope is None or not self.ok:
                return parse_json(data)
            head, items = parse_list(data)
        except ValueError as error:  # of the parser; kopf expects that of json
            raise json.JSONDecodeError(str(error), "", 0) from error
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

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Receive the head, then cache and reduce what kopf reads of a watch."""
        await super().start(connection)
        scope = self._scope()
        if scope is not None and self.ok and self.url.query.get("watch") == "true":
            self.content = cast("aiohttp.StreamReader", _CachedLines(self.content, scope, self._object_cache))
        return self


class _CachedLines:
    """The body of a watch; read in chunks, it consists of one reduced event per line."""

    def __init__(self, body: aiohttp.StreamReader, scope: Scope, cache: ObjectCache) -> None:
        self._body, self._scope, self._cache = body, scope, cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def iter_chunked(self, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Yield whole lines."""
        rest = bytearray()
        async for chunk in self._body.iter_chunked(chunk_bytes):
            rest += chunk
            if b"\n" not in chunk:
                continue
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in filter(None, lines):
                yield json.dumps(self._take(parse_json(line))).encode() + b"\n"

    def _take(self, event: dict[str, Any]) -> dict[str, Any]:
        """Cache the object of an event, and reduce it."""
        if event["type"] == "ERROR":
            return event
        self._cache.watch_event(self._scope, event["type"], event["object"])
        return {**event, "object": reduced(event["object"])}
