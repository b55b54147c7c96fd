"""Requests to the API server in plain dicts, and its errors as ours, mapped here and nowhere else.

Every write is fenced: created by server-side apply under one field manager, deleted and patched with the UID as
precondition, status with the resourceVersion that was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import urllib3.exceptions
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient

from kubernetes import client, config
from specbench_operator.cluster.kinds import path_of
from specbench_operator.errors import Changed, OperatorError, Retry, Stop

Raw = dict[str, Any]
FIELD_MANAGER = "specbench-operator"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
UNPROCESSABLE = 422
UNREACHABLE = "ApiUnreachable"
MESSAGE_MAX = 1024
"""Of the server's own words: they may quote what was sent."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of Python's objects in other people's messages: it differs each time, and status would with it."""

_dynamic_client: Any = DynamicClient  # the library has types for half of itself
_config: Any = config


class Api:
    """One connection pool. Safe for use from several threads."""

    def __init__(self, client_: client.ApiClient, timeout_s: float) -> None:
        self._dynamic = _dynamic_client(client_, discoverer=lambda _client, _cache: None)
        self._timeout_s = timeout_s

    def get(self, kind: str, namespace: str | None, name: str) -> Raw | None:
        """One object, or None where there is none. Without a namespace, one of the cluster's own."""
        return self._unless_missing("get", path_of(kind, namespace, name))

    def list(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "", bare: bool = False
    ) -> list[Raw]:
        """All objects that match, page by page. `bare`: their metadata alone."""
        found: list[Raw] = []
        following: str | None = None
        while following is None or following:
            page = self._request(
                "get",
                path_of(kind, namespace),
                label_selector=labels or None,
                field_selector=fields or None,
                limit=PAGE,
                _continue=following or None,
                header_params={"Accept": METADATA_ONLY} if bare else None,
            )
            found += page["items"] or []  # null, where metadata alone was asked for and there is none
            following = page["metadata"].get("continue", "")
        return found

    def apply(self, manifest: Mapping[str, Any], subresource: str = "") -> Raw:
        """Apply server-side. `metadata.resourceVersion` or `metadata.uid` in the manifest are preconditions."""
        meta = manifest["metadata"]
        path = path_of(manifest["kind"], meta["namespace"], meta["name"]) + (f"/{subresource}" if subresource else "")
        return self._request(
            "patch", path, body=dict(manifest), content_type=APPLY, field_manager=FIELD_MANAGER, force_conflicts=True
        )

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Raw | None:
        """Merge-patch an object that is there; None where it is not."""
        path = path_of(kind, namespace, name)
        return self._unless_missing("patch", path, body=dict(patch), content_type=MERGE, field_manager=FIELD_MANAGER)

    def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete this very object and, in the background, what it owns. Gone already is fine, replaced as well."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            self._unless_missing("delete", path_of(kind, namespace, name), body=options)
        except Changed:
            return  # another object has the name by now: the one we meant is gone

    def create(self, manifest: Mapping[str, Any]) -> Raw:
        """Create. Raises Changed where the name is taken."""
        path = path_of(manifest["kind"], manifest["metadata"]["namespace"])
        return self._request("post", path, body=dict(manifest), field_manager=FIELD_MANAGER)

    def _unless_missing(self, method: str, path: str, **how: Any) -> Raw | None:
        try:
            return self._request(method, path, **how)
        except Missing:
            return None

    def _request(self, method: str, path: str, **how: Any) -> Raw:
        with mapped(f"{method} {path}"):
            given = {key: value for key, value in how.items() if value is not None}
            answer = self._dynamic.request(method, path, serialize=False, _request_timeout=self._timeout_s, **given)
            body: Raw = json.loads(answer.data)
            return body


class Missing(Retry):
    """404: the object, its namespace, or the whole kind. Never leaves this room where None says it."""


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Errors of the client library → ours."""
    try:
        yield
    except ApiException as error:
        raise _ours(error, doing) from error
    except (urllib3.exceptions.HTTPError, OSError, json.JSONDecodeError) as error:
        message = _ADDRESS.sub("", f"{doing}: {type(error).__name__}: {error}")
        raise Retry(UNREACHABLE, message[:MESSAGE_MAX]) from error


def connect(timeout_s: float) -> Api:
    """The cluster that we run in, else the kubeconfig's current context."""
    with mapped("connect"):
        configuration = client.Configuration()
        try:
            _config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            try:
                _config.load_kube_config(client_configuration=configuration)
            except config.ConfigException as error:
                raise Stop("NoCluster", f"neither in a cluster nor with a kubeconfig: {error}") from error
        configuration.retries = urllib3.Retry(1, redirect=0)
        return Api(client.ApiClient(configuration), timeout_s)


def _ours(error: ApiException, doing: str) -> OperatorError:
    message = f"{doing}: {_words(error)}"[:MESSAGE_MAX]
    status = int(error.status or 0)
    if status == UNPROCESSABLE and _fields(error) == {"metadata.uid"}:
        return Changed("Replaced", message)  # so a patch says that its UID is no longer the object's
    kinds: dict[int, tuple[type[OperatorError], str]] = {
        400: (Stop, "BadRequest"),
        401: (Retry, "Unauthorized"),
        403: (Retry, "Forbidden"),  # rights, quota, admission, a namespace that ends: all may change
        404: (Missing, "Missing"),
        409: (Changed, "Conflict"),
        UNPROCESSABLE: (Stop, "ManifestRefused"),
        429: (Retry, "ApiBusy"),
    }
    kind, reason = kinds.get(status, (Retry, "ApiFailing"))
    return kind(reason, message)


def _fields(error: ApiException) -> set[str]:
    try:
        causes = json.loads(error.body or "")["details"]["causes"]
        return {cause["field"] for cause in causes}
    except (ValueError, KeyError, TypeError):
        return set()


def _words(error: ApiException) -> str:
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason} {body}"
