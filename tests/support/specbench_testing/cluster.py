"""Access to a real Kubernetes in plain JSON, so that tests see the server's own responses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config
from specbench_cluster import Cluster as Ground

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class ApiError(Exception):
    """An error response of the API server, with its status code and message."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class Cluster:
    """A running cluster, as its administrator.

    `ground` is what hack/cluster provides beyond Kubernetes (S3, image loading, killing components); None for any
    other cluster.
    """

    kubeconfig: Path
    api: client.ApiClient = field(compare=False, repr=False)
    ground: Ground | None = None
    user: str = ""
    """The user that requests impersonate. Empty: the administrator."""

    @classmethod
    def at(cls, kubeconfig: Path, ground: Ground | None = None) -> Cluster:
        """Open the cluster of a kubeconfig's current context."""
        return cls(kubeconfig, config.new_client_from_config(str(kubeconfig)), ground)  # type: ignore[no-untyped-call]

    def acting_as(self, user: str) -> Cluster:
        """Return the same cluster, accessed with the rights of another user or service account."""
        return replace(self, user=user)

    @contextmanager
    def namespace(self, purpose: str) -> Iterator[str]:
        """A new namespace that is deleted afterwards with its contents."""
        name = f"{purpose}-{uuid.uuid4().hex[:8]}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            yield name
        finally:
            self.call("DELETE", f"/api/v1/namespaces/{name}")

    def call(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] | None = None,
        kind: str = "application/json", accept: str = "application/json",
    ) -> Any:  # fmt: skip
        """Send one request. Raises ApiError with the server's message."""
        return json.loads(self._request(method, path, body, query, {"Content-Type": kind, "Accept": accept}))

    def text(self, path: str) -> str:
        """Read a path that returns plain text, such as a pod's log. Raises ApiError."""
        return self._request("GET", path, None, None, {}).decode()

    def _request(
        self, method: str, path: str, body: Any, query: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> bytes:
        url = f"{self.api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {**headers, "Impersonate-User": self.user} if self.user else headers
        given = self.api.configuration.auth_settings().values()
        known = {row["key"]: row["value"] for row in given if row["in"] == "header"}
        sent = None if body is None else json.dumps(body).encode()
        answer = self.api.rest_client.pool_manager.request(method, url, headers={**known, **headers}, body=sent)
        if answer.status >= 400:
            raise ApiError(answer.status, _message(answer.data))
        return bytes(answer.data)


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError):
        return data.decode(errors="replace")
