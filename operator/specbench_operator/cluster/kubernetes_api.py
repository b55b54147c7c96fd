"""Requests to the API server with plain dicts, and the mapping of its errors to OperatorError.

Every write is fenced, so that it never changes an object that the operator has not observed:

- Children are created, and creating one whose name is taken is refused, so that a child is never changed by a creation.
- Patches and deletions carry the observed UID, so that a new object of the same name is not affected; those of a
  campaign's runs also the observed resourceVersion.
- Status carries the observed resourceVersion, so that a status computed from outdated data is rejected.

Only the leader writes: every write checks `Leadership` when its connection is open, right before the request is sent.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import urllib3.exceptions
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from kubernetes import client, config
from specbench_api import GROUP, VERSION
from specbench_operator.cluster.bounded_json import parse_json, parse_list
from specbench_operator.cluster.leader_election import LEASE, Leadership
from specbench_operator.errors import Changed, OperatorError, Retry, Stop
from specbench_operator.render.engine_job import LWS_KIND
from specbench_operator.render.network_policies import POLICY_KIND

# The kinds that the operator uses, with their URL paths. They are listed here instead of being discovered: discovery
# costs requests at every start, and its cache file is wrong after another cluster takes over an address.

RUN = "SpecBenchRun"
CAMPAIGN = "SpecBenchCampaign"
JOB, POD, SERVICE, CONFIG_MAP, SECRET, EVENT = "Job", "Pod", "Service", "ConfigMap", "Secret", "Event"
NODE = "Node"
NETWORK_POLICY = POLICY_KIND
WORKLOADS = ("Workload.v1beta2", "Workload.v1beta1")
"""Kueue's Workload in the API versions that Kueue has served, newest first."""
LEADER_WORKER_SET = LWS_KIND

_PATHS = {
    RUN: (f"/apis/{GROUP}/{VERSION}", "specbenchruns"),
    CAMPAIGN: (f"/apis/{GROUP}/{VERSION}", "specbenchcampaigns"),
    JOB: ("/apis/batch/v1", "jobs"),
    POD: ("/api/v1", "pods"),
    SERVICE: ("/api/v1", "services"),
    CONFIG_MAP: ("/api/v1", "configmaps"),
    SECRET: ("/api/v1", "secrets"),
    EVENT: ("/api/v1", "events"),
    NODE: ("/api/v1", "nodes"),
    LEASE: ("/apis/coordination.k8s.io/v1", "leases"),
    NETWORK_POLICY: ("/apis/networking.k8s.io/v1", "networkpolicies"),
    **{kind: (f"/apis/kueue.x-k8s.io/{kind.partition('.')[2]}", "workloads") for kind in WORKLOADS},
    LEADER_WORKER_SET: ("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
}


def path_of(kind: str, namespace: str | None, name: str | None = None) -> str:
    """URL path of an object, or of a collection if no name is given. Without a namespace: cluster-wide."""
    root, plural = _PATHS[kind]
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{plural}" + (f"/{name}" if name else "")


def resource_of(kind: str) -> tuple[str, str, str]:
    """Group, version and plural name of a kind."""
    root, plural = _PATHS[kind]
    _, _, *group, version = root.split("/")
    return "".join(group), version, plural


_COLLECTION = re.compile(r"(?P<root>/api(?:s/[^/]+)?/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)")
_KINDS = {path: kind for kind, path in _PATHS.items()}


def scope_of(path: str) -> tuple[str, str | None] | None:
    """Kind and namespace of a collection's URL path, the inverse of `path_of`; None for any other path."""
    found = _COLLECTION.fullmatch(path)
    kind = _KINDS.get((found["root"], found["plural"])) if found else None
    return None if found is None or kind is None else (kind, found["namespace"])


Raw = dict[str, Any]
FIELD_MANAGER = "specbench-operator"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_OF_LIST_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
PAGE_OF_METADATA = 100
"""Objects of a page if only their metadata is read. With `managedFields`, each has some 4 kB, and a page of less than
1 MiB is parsed as a whole, ten times faster."""
PAGE_OF_WATCHED = 32
"""Objects of a page of those that the operator watches. Anybody may store 1.5 MiB in each. A page is kept in memory as
text, and its objects are parsed one at a time."""
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Size of an answer, and of all pages of a list that is kept in memory. A run's own children need a tenth of it."""
CONNECTIONS_MAX = 64
"""How many connections to the API server are kept. The library's default is five for each core, and the threads that
look at stores use it too."""
UNPROCESSABLE = 422
UNREACHABLE = "ApiUnreachable"
EXISTS, CONFLICT = "AlreadyExists", "Conflict"
"""Reasons of HTTP 409. A conflict need not concern the object itself: two requests may use the same quota."""
TRANSIENT = (UNREACHABLE, CONFLICT, "ApiBusy", "ApiFailing")
"""Reasons of errors after which the same request may succeed."""
CLOCK_TOLERANCE_S = 5.0
"""Clocks that differ by less count as equal, in seconds. The API server states its time in whole seconds."""
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What is raised where an answer is read that is none of the API server, for example a gateway's page."""
MESSAGE_MAX = 1024
"""Maximum length of a server's message, because it may quote the whole object that was sent."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Memory addresses of Python objects in library messages. They differ each time, and status would change with them."""

_log = logging.getLogger(__name__)
_dynamic_client: Any = DynamicClient  # the library is only partly typed
_config: Any = config


class Reader(Protocol):
    """Reads objects: from the API server, or from the cache."""

    def get(self, kind: str, namespace: str | None, name: str, *, bare: bool = False) -> Raw | None:
        """Read one object; None if it does not exist."""
        ...

    def list(
        self,
        kind: str,
        namespace: str | None,
        *,
        labels: str = "",
        fields: str = "",
        prefix: str = "",
        bare: bool = False,
    ) -> list[Raw]:
        """Read all objects that match. `prefix`: the begin of their names."""
        ...

    def each(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "", bare: bool = False
    ) -> Iterator[Raw]:
        """Yield the objects of `list`."""
        ...


class WrittenObjects(Protocol):
    """Receives the objects that the operator has written."""

    def wrote(self, raw: Mapping[str, Any]) -> None:
        """An object is like this now."""
        ...

    def deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """The object with this UID does not exist any more."""
        ...


class KubernetesApi:
    """A client of the API server with one connection pool. Safe for use from several threads.

    With `leadership`, it sends writes only while this replica leads; otherwise they raise NotLeading.
    """

    def __init__(self, client_: client.ApiClient, timeout_s: float, leadership: Leadership | None = None) -> None:
        self._dynamic = _dynamic_client(client_, discoverer=lambda _client, _cache: None)
        self._timeout_s = timeout_s
        self.written: WrittenObjects | None = None
        self.count_request: Callable[[str], object] = lambda _method: None
        """Called with the HTTP method of each request."""
        self._leadership = leadership
        self._clock_ahead_s = 0.0
        if leadership:
            _check_before_writes(client_.rest_client.pool_manager, leadership)

    def now(self) -> datetime:
        """The current time in UTC: that of the API server's clock, because it is compared with times in objects."""
        return datetime.fromtimestamp(time.time() + self._clock_ahead_s, UTC)

    def _compare_clocks(self, sent: float, date: str | None) -> None:
        """Note a large difference between the API server's clock and this one's. A slow answer proves none."""
        received = time.time()
        try:
            ahead_s = parsedate_to_datetime(date or "").timestamp() - received
        except (ArithmeticError, ValueError):  # not a time
            return
        if received - sent <= CLOCK_TOLERANCE_S < abs(ahead_s - self._clock_ahead_s):
            _log.warning("the API server's clock is %+.0f s ahead of this node's: its time is used", ahead_s)
            self._clock_ahead_s = ahead_s

    def get(self, kind: str, namespace: str | None, name: str, *, bare: bool = False) -> Raw | None:
        """Read one object; None if it does not exist. Without a namespace: a cluster-scoped object.

        `bare`: only its metadata.
        """
        headers = {"Accept": METADATA_ONLY} if bare else None
        return self._unless_missing("get", path_of(kind, namespace, name), header_params=headers)

    def list(
        self,
        kind: str,
        namespace: str | None,
        *,
        labels: str = "",
        fields: str = "",
        prefix: str = "",
        bare: bool = False,
    ) -> list[Raw]:
        """Read all objects that match. `bare`: only their metadata. Raises Retry if they exceed ANSWER_BYTES_MAX."""
        found: list[Raw] = []
        size = 0
        for items, page_bytes in self._pages(kind, namespace, labels, fields, bare=bare):
            size += page_bytes
            if size > ANSWER_BYTES_MAX:
                raise _too_large(f"get {path_of(kind, namespace)}")
            found += [raw for raw in items if raw["metadata"]["name"].startswith(prefix)]
        return found

    def each(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "", bare: bool = False
    ) -> Iterator[Raw]:
        """Yield the objects of `list`, with one page in memory at a time, so that their number is not limited."""
        for items, _ in self._pages(kind, namespace, labels, fields, bare=bare):
            yield from items

    def version(self, kind: str, namespace: str | None) -> str:
        """The resourceVersion of a collection: that of the newest write to any of its objects, or newer."""
        query = {"limit": 1, "header_params": {"Accept": METADATA_OF_LIST_ONLY}}
        page = self._request("get", path_of(kind, namespace), **query)
        return str(page["metadata"]["resourceVersion"])

    def is_served(self, kind: str) -> bool:
        """Whether the cluster has this kind. Raises Retry."""
        plurals = {row["name"] for row in (self._unless_missing("get", _PATHS[kind][0]) or {}).get("resources", ())}
        return _PATHS[kind][1] in plurals

    def may_watch(self, kind: str, namespace: str | None) -> bool:
        """Whether the operator may list and watch a kind, in a namespace or in the whole cluster. Raises Retry."""
        group, _, plural = resource_of(kind)
        return all(
            self._request("post", _ACCESS_REVIEWS, body=_access_review(verb, group, plural, namespace or ""))["status"][
                "allowed"
            ]
            for verb in ("list", "watch")
        )

    def _pages(
        self, kind: str, namespace: str | None, labels: str, fields: str, *, bare: bool
    ) -> Iterator[tuple[Iterator[Raw], int]]:
        """Yield the objects of each page, and the size of the page in bytes. A page that is too large is divided."""
        limit = PAGE_OF_METADATA if bare else PAGE
        next_page: str | None = None
        while next_page is None or next_page:
            try:
                data = self._bytes(
                    "get",
                    path_of(kind, namespace),
                    label_selector=labels or None,
                    field_selector=fields or None,
                    limit=limit,
                    _continue=next_page or None,
                    header_params={"Accept": METADATA_OF_LIST_ONLY} if bare else None,
                )
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(limit // 8, 1)
                continue
            operation = f"get {path_of(kind, namespace)}"
            with map_errors(operation):
                head, items = parse_list(data)
                next_page = head["metadata"].get("continue", "")
            yield _errors_mapped(items, operation), len(data)

    def apply(self, manifest: Mapping[str, Any], subresource: str = "") -> Raw:
        """Apply a manifest server-side. `metadata.resourceVersion` and `metadata.uid` in it are preconditions."""
        meta = manifest["metadata"]
        # Conflicts are forced because the operator must own every field that it applies. A person who edited one of
        # these fields by hand would otherwise block all further reconciliations.
        path = path_of(manifest["kind"], meta["namespace"], meta["name"]) + (f"/{subresource}" if subresource else "")
        return self._wrote(
            self._request(
                "patch",
                path,
                body=dict(manifest),
                content_type=APPLY,
                field_manager=FIELD_MANAGER,
                force_conflicts=True,
            )
        )

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Raw | None:
        """Merge-patch an existing object; None if it does not exist."""
        path = path_of(kind, namespace, name)
        options = {"body": dict(patch), "content_type": MERGE, "field_manager": FIELD_MANAGER}
        found = self._unless_missing("patch", path, **options)
        return None if found is None else self._wrote(found)

    def delete(self, kind: str, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """Delete the object with this UID and, in the background, what it owns. No error if it is already gone.

        With `version`, raises Changed if it has another resourceVersion.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, **({"resourceVersion": version} if version else {})},
            "propagationPolicy": "Background",
        }
        try:
            left = self._unless_missing("delete", path_of(kind, namespace, name), body=options)
        except Changed:
            found = self.get(kind, namespace, name, bare=True)
            if found is not None and found["metadata"]["uid"] == uid:
                raise  # refused for another reason
            left = None  # another object has this name now, so the one with this UID is already gone
        if left is not None and left["kind"] == kind:  # it is only marked, for example because it has a finalizer
            self._wrote(left)
        elif self.written is not None:
            self.written.deleted(kind, namespace, name, uid)

    def create(self, manifest: Mapping[str, Any]) -> Raw:
        """Create an object. Raises Changed if the name is taken."""
        path = path_of(manifest["kind"], manifest["metadata"]["namespace"])
        return self._wrote(self._request("post", path, body=dict(manifest), field_manager=FIELD_MANAGER))

    def _wrote(self, raw: Raw) -> Raw:
        if self.written is not None:
            self.written.wrote(raw)
        return raw

    def _unless_missing(self, method: str, path: str, **options: Any) -> Raw | None:
        try:
            return self._request(method, path, **options)
        except NotFound:
            return None

    def _request(self, method: str, path: str, **options: Any) -> Raw:
        data = self._bytes(method, path, **options)
        with map_errors(f"{method} {path}"):
            body: Raw = parse_json(data)
            if body["kind"] not in ("APIResourceList", "SelfSubjectAccessReview", "Status"):  # others are stored
                int(body["metadata"]["resourceVersion"])
            return body

    def _bytes(self, method: str, path: str, **options: Any) -> bytes:
        """Send a request; returns the body of the answer. Raises TooLarge, or the OperatorError of another failure."""
        operation = f"{method} {path}"
        in_progress = self._leadership.writing() if self._leadership and method != "get" else nullcontext()
        with in_progress, map_errors(operation):
            self.count_request(method.upper())
            used = {key: value for key, value in options.items() if value is not None}
            sent = time.time()
            response = self._dynamic.request(method, path, serialize=False, _request_timeout=self._timeout_s, **used)
            self._compare_clocks(sent, response.headers.get("Date"))
            data: bytes = response.read(ANSWER_BYTES_MAX + 1)
            if len(data) > ANSWER_BYTES_MAX:
                response.close()
                raise _too_large(operation)
            return data


_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def _access_review(verb: str, group: str, plural: str, namespace: str) -> Raw:
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


class TooLarge(Retry):
    """An answer, or all pages of a list, have more than ANSWER_BYTES_MAX."""


class NotFound(Retry):
    """HTTP 404: the object, its namespace or its kind does not exist."""


class Forbidden(Retry):
    """HTTP 403: missing rights, an exceeded quota, an admission webhook or a terminating namespace; all may change."""


class StillForbidden(Forbidden):
    """The same answer as at the last request, which was reported then."""


@contextmanager
def map_errors(operation: str) -> Iterator[None]:
    """Convert errors of the client library to OperatorError. `operation` begins the message."""
    try:
        yield
    except ApiException as error:
        raise _operator_error(error, operation) from error
    except (urllib3.exceptions.HTTPError, OSError, *MALFORMED) as error:
        message = _ADDRESS.sub("", f"{operation}: {type(error).__name__}: {error}")
        raise Retry(UNREACHABLE, message[:MESSAGE_MAX]) from error


def _errors_mapped(items: Iterator[Raw], operation: str) -> Iterator[Raw]:
    with map_errors(operation):
        yield from items


def _check_before_writes(connections: urllib3.PoolManager, leadership: Leadership) -> None:
    """Let every connection check the leadership before it sends a write.

    The check is here and not before the call, because opening a connection can take as long as a lease, and urllib3
    sends some requests twice. A question about access is a POST, but changes nothing.
    """

    class Checked:
        def request(self: Any, method: str, url: str, *args: Any, **kwargs: Any) -> None:
            if method not in ("GET", "HEAD") and _ACCESS_REVIEWS not in url:
                if self.is_closed:
                    self.connect()
                leadership.check()
            super().request(method, url, *args, **kwargs)  # type: ignore[misc] # the other base class has it

    plain = type("CheckedConnection", (Checked, HTTPConnection), {})
    secure = type("CheckedSecureConnection", (Checked, HTTPSConnection), {})
    connections.pool_classes_by_scheme = {
        "http": type("CheckedPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("CheckedSecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


UNACKNOWLEDGED_MAX_MS = 5000
"""The kernel drops a connection whose data is not acknowledged for this long, in milliseconds.

Otherwise a write that was sent during a partition could arrive many minutes later, when another replica leads.
"""
_BOUNDED_DELIVERY = (
    [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MAX_MS)]
    if hasattr(socket, "TCP_USER_TIMEOUT")  # Linux
    else []
)


def connect(timeout_s: float, leadership: Leadership | None = None) -> KubernetesApi:
    """Connect to the cluster that the operator runs in, else to the kubeconfig's current context.

    With `leadership`, writes are sent only while this replica leads.
    """
    with map_errors("connect"):
        configuration = client.Configuration()
        try:
            _config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            try:
                _config.load_kube_config(client_configuration=configuration)
            except config.ConfigException as error:
                message = f"no cluster: the operator runs in no pod and found no kubeconfig (set KUBECONFIG): {error}"
                raise Stop("NoCluster", message) from error
        # The work queue and the election wait by themselves: no thread sleeps for as long as a server asks it to.
        configuration.retries = urllib3.Retry(1, redirect=0, respect_retry_after_header=False)
        configuration.connection_pool_maxsize = CONNECTIONS_MAX
        configuration.socket_options = [*HTTPConnection.default_socket_options, *_BOUNDED_DELIVERY]
        return KubernetesApi(client.ApiClient(configuration), timeout_s, leadership)


def _too_large(operation: str) -> TooLarge:
    message = f"{operation}: the objects have more than {ANSWER_BYTES_MAX // 2**20} MiB: delete some of them"
    return TooLarge("ApiAnswerTooLarge", message)


_MISSING_RIGHT = re.compile(r'User "system:serviceaccount:[^"]+" cannot ')
_BIND_ROLE = (
    ": give the operator its rights in this namespace (watchNamespaces, or rbac.namespaces, in specbench's chart), or"
    " create the run in a namespace where it has them"
)


def _operator_error(error: ApiException, operation: str) -> OperatorError:
    body = error.body if isinstance(error.body, bytes) else str(error.body or "").encode()
    answer = _answer(body)
    text = answer.get("message", f"{error.status} {error.reason} {body.decode(errors='replace')}")
    message = f"{operation}: {text}"[:MESSAGE_MAX]
    message += _BIND_ROLE if _MISSING_RIGHT.search(message) else ""
    status = int(error.status or 0)
    # This is how the API server rejects a patch whose UID is not that of the object.
    if status == UNPROCESSABLE and _fields(answer) == {"metadata.uid"}:
        return Changed("Replaced", message)
    kinds: dict[int, tuple[type[OperatorError], str]] = {
        400: (Stop, "BadRequest"),
        401: (Retry, "Unauthorized"),
        403: (Forbidden, "Forbidden"),
        # A gateway without a way to the API server answers with a page.
        404: (Retry, "ApiFailing") if body.lstrip().startswith(b"<") else (NotFound, "Missing"),
        409: (Changed, EXISTS if answer.get("reason") == EXISTS else CONFLICT),
        UNPROCESSABLE: (Stop, "ManifestRefused"),
        429: (Retry, "ApiBusy"),
    }
    kind, reason = kinds.get(status, (Retry, "ApiFailing"))
    return kind(reason, message)


def _answer(body: bytes) -> Raw:
    """The API server's Status; empty if the answer is none."""
    try:
        found = parse_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _fields(answer: Raw) -> set[str]:
    """The fields that were refused."""
    try:
        return {cause["field"] for cause in answer["details"]["causes"]}
    except (KeyError, TypeError):
        return set()
