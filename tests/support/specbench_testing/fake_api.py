"""API servers of tests: one in memory, with names, UIDs, resource versions and injected errors, and one over HTTP.

Observers, writers and reconcilers are the real ones and use it like `KubernetesApi`. The further behaviour of a real
server is tested in `test_campaign_on_cluster.py`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from kubernetes import client
from specbench_api.fence.model import Limits
from specbench_api.spec.results import S3
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import GateStatus
from specbench_operator.cluster.kubernetes_api import EXISTS, RUN, KubernetesApi
from specbench_operator.cluster.leader_election import Leadership
from specbench_operator.cluster.run_observer import RunObserver
from specbench_operator.cluster.s3 import Listing
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.errors import Changed, OperatorError
from specbench_operator.state.run import RunObservation, StoredResults, StoreFailure
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.operator_builders import NOON

Answer = Callable[[str, str, Mapping[str, list[str]]], tuple[int, bytes]]
"""Method, path and query of a request → status and JSON."""


@contextmanager
def api_server(answer: Answer) -> Iterator[str]:
    """Run the server; yields its URL."""

    def reply(request: Request) -> Reply:
        url = urlsplit(request.target)
        status, body = answer(request.method, url.path, parse_qs(url.query))
        return status, {"Content-Type": "application/json"}, body

    with http_server(reply) as port:
        yield f"http://127.0.0.1:{port}"


def api_of(url: str, leadership: Leadership | None = None) -> KubernetesApi:
    """The operator's client for this server. Without `leadership`, it may always write."""
    configuration = client.Configuration(host=url)
    return KubernetesApi(client.ApiClient(configuration), 10, leadership)


Raw = dict[str, Any]


class OperatorKilled(Exception):
    """The operator is killed before this write."""


@dataclass
class FakeApi:
    """Objects by kind and name, in one namespace."""

    now: datetime = NOON
    objects: dict[tuple[str, str], Raw] = field(default_factory=dict)
    outcomes: Iterator[Exception | None] = field(default_factory=lambda: itertools.repeat(None))
    """The error of each of the next writes."""
    refuse: dict[tuple[str, str], OperatorError] = field(default_factory=dict)
    """Verb, and name or kind → the error of every such request."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Verb, kind, and name or selector of each request."""

    def __post_init__(self) -> None:
        self._versions, self._uids = itertools.count(1), itertools.count(1)
        self.created: list[str] = []
        """Names of the created runs, once per creation."""

    @property
    def verbs(self) -> list[str]:
        """The verbs of all requests."""
        return [verb for verb, _, _ in self.requests]

    @classmethod
    def of(cls, *resources: Raw) -> Self:
        """A server with these objects as they are."""
        return cls(objects={(raw["kind"], raw["metadata"]["name"]): raw for raw in resources})

    def named(self, kind: str) -> dict[str, Raw]:
        """All objects of a kind by name, in order of creation."""
        return {name: raw for (each, name), raw in self.objects.items() if each == kind}

    def kill_after(self, writes: int) -> None:
        """Kill the operator after this number of further writes."""
        self.outcomes = itertools.chain(itertools.repeat(None, writes), itertools.repeat(OperatorKilled()))

    def restart(self) -> None:
        """The operator runs again."""
        self.outcomes = itertools.repeat(None)

    def get(self, kind: str, namespace: str | None, name: str, *, bare: bool = False) -> Raw | None:
        self._request("get metadata" if bare else "get", kind, name)
        found = self.objects.get((kind, name))
        return copy.deepcopy(found) if found else None

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
        self._request("list", kind, labels or fields)
        found = [raw for name, raw in sorted(self.named(kind).items()) if name.startswith(prefix)]
        found = [raw for raw in found if _selected(raw, labels, fields)]
        return copy.deepcopy([{"metadata": raw["metadata"]} for raw in found] if bare else found)

    def each(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "", bare: bool = False
    ) -> Iterator[Raw]:
        yield from self.list(kind, namespace, labels=labels, fields=fields, bare=bare)

    def create(self, manifest: Mapping[str, Any]) -> Raw:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._request("create", kind, name)
        if (kind, name) in self.objects:
            raise Changed(EXISTS, f"{name} exists")
        if kind == RUN:
            self.created.append(name)
        return copy.deepcopy(self.put(manifest))

    def put(self, manifest: Mapping[str, Any]) -> Raw:
        """Create an object as another client would."""
        raw: Raw = copy.deepcopy(dict(manifest))
        given = {"uid": f"uid-{next(self._uids)}", "creationTimestamp": format_timestamp(self.now), "generation": 1}
        raw["metadata"] = {**given, **raw["metadata"]}
        self.objects[raw["kind"], raw["metadata"]["name"]] = raw
        self.touch(raw)
        return raw

    def touch(self, raw: Raw) -> None:
        """Set a new resource version."""
        raw["metadata"]["resourceVersion"] = str(next(self._versions))

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Raw | None:
        self._request("merge", kind, name)
        raw = self.objects.get((kind, name))
        if raw is None:
            return None
        meta = dict(patch.get("metadata", {}))
        if meta.pop("uid", raw["metadata"]["uid"]) != raw["metadata"]["uid"]:
            raise Changed("Replaced", name)
        _check_version(raw, meta.pop("resourceVersion", None))
        before = copy.deepcopy(raw["spec"])
        _merge(raw, {**patch, "metadata": meta})
        if raw["spec"] != before:
            raw["metadata"]["generation"] += 1
        self.touch(raw)
        return copy.deepcopy(raw)

    def delete(self, kind: str, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        self._request("delete", kind, name)
        raw = self.objects.get((kind, name))
        if raw is None or raw["metadata"]["uid"] != uid:
            return
        _check_version(raw, version)
        del self.objects[kind, name]

    def apply(self, manifest: Mapping[str, Any], subresource: str = "spec") -> Raw:
        meta = manifest["metadata"]
        self._request("apply", manifest["kind"], meta["name"])
        raw = self.objects[manifest["kind"], meta["name"]]
        if "uid" in meta and meta["uid"] != raw["metadata"]["uid"]:
            raise Changed("Conflict", meta["name"])
        _check_version(raw, meta.get("resourceVersion"))
        raw[subresource] = copy.deepcopy(manifest[subresource])
        self.touch(raw)
        return copy.deepcopy(raw)

    def _request(self, verb: str, kind: str, target: str) -> None:
        self.requests.append((verb, kind, target))
        outcome = None if verb.startswith(("get", "list")) else next(self.outcomes, None)
        error = outcome or self.refuse.get((verb, target)) or self.refuse.get((verb, kind))
        if error:
            raise error


@dataclass
class FakeResults:
    """The store of a run without results; records what is looked up."""

    newest: str | StoreFailure | None = None
    """The UID that `adopt: Latest` finds."""
    gate: GateStatus | None = None
    lookups: list[str] = field(default_factory=list)

    def read(self, run: SpecBenchRun, *, last_launch: bool) -> StoredResults:
        assert last_launch, "no status records where the last engine ran"
        self.lookups.append(run.results_uid)
        return StoredResults()

    def latest(self, _run: SpecBenchRun) -> str | StoreFailure | None:
        self.lookups.append("Latest")
        return self.newest

    def read_gate(self, _run: SpecBenchRun) -> GateStatus | None:
        self.lookups.append("gate.json")
        return self.gate


@dataclass
class FakeBucket:
    """A bucket with documents by key, each with the hour at which it was stored."""

    documents: Mapping[str, tuple[int, str]]

    def listing(self, prefix: str) -> Listing:
        """The objects and folders below the prefix."""
        found = [key for key in self.documents if key.startswith(prefix)]
        below = [key.removeprefix(prefix).partition("/") for key in found]
        folders = dict.fromkeys(f"{prefix}{name}/" for name, slash, _ in below if slash)
        stored = {
            key: datetime(2026, 1, 2, self.documents[key][0], tzinfo=UTC)
            for key, (_, slash, _) in zip(found, below, strict=True)
            if not slash
        }
        return Listing(stored, tuple(folders))

    def get(self, key: str, _max_bytes: int) -> bytes:
        return self.documents[key][1].encode()


def observe(
    api: FakeApi,
    results: FakeResults | None = None,
    secrets: SecretReader | None = None,
    limits: Limits | None = None,
    default_store: S3 | None = None,
) -> RunObservation:
    """What an observer observes of the run `demo`."""
    store: Any = results or FakeResults()
    observer = RunObserver(api, store, secrets, limits=limits, default_store=default_store)
    observed = observer.observe_cluster("default", "demo")
    assert observed is not None
    return observer.read_store(observed)


def _check_version(raw: Raw, version: str | None) -> None:
    if version not in (None, raw["metadata"].get("resourceVersion")):
        raise Changed("Conflict", raw["metadata"]["name"])


def _selected(raw: Raw, labels: str, fields: str) -> bool:
    """Whether the object has these labels (`a=b`, `a!=b`) and these values of fields (`a.b=c`)."""
    has = raw["metadata"].get("labels", {})
    for key, _, value in (row.partition("=") for row in labels.split(",") if row):
        if (has.get(key.removesuffix("!")) == value) is key.endswith("!"):
            return False
    for path, _, value in (row.partition("=") for row in fields.split(",") if row):
        found: Any = raw
        for name in path.split("."):
            found = found.get(name, {})
        if found != value:
            return False
    return True


def _merge(target: Raw, patch: Mapping[str, Any]) -> None:
    """JSON merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = copy.deepcopy(value)
