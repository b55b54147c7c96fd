"""Watches that are independent of the operator: they record when each object arrives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson
from urllib3 import Timeout
from urllib3.exceptions import HTTPError

from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.operator_process import retry_until_available

OnEvent = Callable[[str, dict[str, Any], float], None]
"""Receives the type of an event, the object, and the time at which it arrived."""
_RETRY_S = 0.1
_PAGE = 500


class _Expired(Exception):
    """The server no longer has the events after the requested version."""


class Watch:
    """A watch of one collection, in a thread. It reconnects, also after a restart of the API server."""

    def __init__(self, cluster: Cluster, path: str, on_event: OnEvent, **query: str) -> None:
        self._cluster, self._path, self._on_event, self._query = cluster, path, on_event, query
        self._version = self._list({"limit": "1"})["metadata"]["resourceVersion"]
        self._stopped = threading.Event()
        self.gaps = 0
        """How many times the server no longer had the next events, so that all objects were listed instead."""
        threading.Thread(target=self._keep_watching, name=f"watch of {path}", daemon=True).start()

    def stop(self) -> None:
        """End the thread with the next event or error."""
        self._stopped.set()

    def _list(self, page: Mapping[str, str]) -> dict[str, Any]:
        query = {**self._query, **page}
        return dict(retry_until_available(lambda: self._cluster.call("GET", self._path, query=query)))

    def _relist(self) -> None:
        """Deliver all objects as they are now, as if they had changed, and continue from there."""
        self.gaps += 1
        token: str | None = None
        while token is None or token:
            found = self._list({"limit": str(_PAGE), **({"continue": token} if token else {})})
            self._version = found["metadata"]["resourceVersion"]
            for item in found["items"]:
                self._on_event("MODIFIED", item, time.monotonic())
            token = found["metadata"].get("continue", "")

    def _keep_watching(self) -> None:
        while not self._stopped.is_set():
            try:
                self._watch_once()
            except (HTTPError, OSError, ApiError):
                time.sleep(_RETRY_S)
            except _Expired:
                self._relist()

    def _watch_once(self) -> None:
        query = {**self._query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        for line, at in self._lines(query):
            event = orjson.loads(line)
            found = event["object"]
            if event["type"] == "ERROR":
                raise _Expired
            self._version = found["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._on_event(event["type"], found, at)
            if self._stopped.is_set():
                return

    def _lines(self, query: Mapping[str, str]) -> Iterator[tuple[bytes, float]]:
        api = self._cluster.api
        given = api.configuration.auth_settings().values()
        headers = {row["key"]: row["value"] for row in given if row["in"] == "header"}
        url = f"{api.configuration.host}{self._path}?{urlencode(query)}"
        response = api.rest_client.pool_manager.request(
            "GET", url, headers=headers, preload_content=False, timeout=Timeout(connect=5, read=None), retries=False
        )
        try:
            if response.status == HTTPStatus.GONE:
                raise _Expired
            if response.status >= 400:
                raise ApiError(response.status, response.read().decode(errors="replace"))
            rest = b""
            for chunk in response.stream(None):
                at = time.monotonic()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line, at
        finally:
            response.close()
