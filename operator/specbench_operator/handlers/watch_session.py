"""The HTTP session of kopf's watches, which passes on only what the watches read of an object.

kopf keeps an object for seconds after each event, and ends the process if it cannot parse an answer. Anybody may store
objects of 1.5 MiB, or nested thousands of levels deep. So every answer is parsed and reduced here, object by object.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import aiohttp
import kopf

from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN
from specbench_operator.cluster.bounded_json import parse_json

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_LABELS = (LABEL_MANAGED, LABEL_RUN, LABEL_CAMPAIGN)
_STATUS = ("completionTime",)


def open_session(info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """Open a session with these credentials; kopf closes it. Must be called in the event loop."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=_ReducedResponse,
    )
    return kopf.AiohttpSession(
        server=info.server,
        priority=info.priority,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
        aiohttp_session=session,
    )


def reduced(answer: Any) -> Any:
    """Reduce an object, a list or a watch event to what the watches read; other answers are returned unchanged."""
    if not isinstance(answer, Mapping) or answer.get("kind") == "Status":
        return answer
    if "items" in answer:
        return {**answer, "items": [_reduced_object(row) for row in answer["items"] or ()]}
    if "object" in answer:
        return {**answer, "object": reduced(answer["object"])}
    return _reduced_object(answer) if "metadata" in answer else answer


def _reduced_object(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    meta, status = raw["metadata"], raw.get("status") or {}
    labels = {name: meta["labels"][name] for name in _LABELS if name in (meta.get("labels") or {})}
    return {
        **{name: raw[name] for name in ("apiVersion", "kind") if name in raw},
        "metadata": {**{name: meta[name] for name in _METADATA if name in meta}, "labels": labels},
        "status": {name: status[name] for name in _STATUS if name in status},
    }


class _ReducedResponse(aiohttp.ClientResponse):
    """A response whose JSON is reduced, read as a whole or as a stream of watch events."""

    async def json(self, **_: Any) -> Any:
        """Return the whole answer, reduced."""
        return reduced(parse_json(await self.read()))

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Receive the head, then reduce what kopf reads of the body."""
        await super().start(connection)
        self.content = cast("aiohttp.StreamReader", _ReducedLines(self.content))
        return self


class _ReducedLines:
    """The body of a response; read in chunks, it consists of one reduced watch event per line."""

    def __init__(self, body: aiohttp.StreamReader) -> None:
        self._body = body

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
                yield json.dumps(reduced(parse_json(line))).encode() + b"\n"
