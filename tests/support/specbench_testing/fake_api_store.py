"""An in-memory API server with what campaigns need: names, UIDs, versions, and their preconditions.

Observer, writer and reconciler are the real ones and use it like `cluster.api.Api`. The further behaviour of a real
server is tested in `test_campaign_on_cluster.py`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from specbench_operator.cluster.api import NotFound
from specbench_operator.errors import Changed, OperatorError
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.operator_builders import NOON

Raw = dict[str, Any]


class OperatorKilled(Exception):
    """The operator is killed before this write."""


@dataclass
class FakeApiStore:
    """Objects by kind and name, in one namespace."""

    now: datetime = NOON
    objects: dict[tuple[str, str], Raw] = field(default_factory=dict)
    writes_left: int | None = None
    """The number of writes before the operator is killed; None: no kill."""
    refuse: dict[str, OperatorError] = field(default_factory=dict)
    """Name → the error of its creation."""
    refuse_changes: dict[str, OperatorError] = field(default_factory=dict)
    """Name → the error of each change."""
    unknown: set[str] = field(default_factory=set)
    """Kinds that are not installed."""

    def __post_init__(self) -> None:
        self._versions, self._uids = itertools.count(1), itertools.count(1)
        self.created: list[str] = []
        """Names of the created runs, once per creation."""

    def get(self, kind: str, namespace: str | None, name: str, *, bare: bool = False) -> Raw | None:
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
        if kind in self.unknown:
            raise NotFound("Missing", kind)
        found = [raw for (each, _), raw in sorted(self.objects.items()) if each == kind and _selected(raw, labels)]
        found = [raw for raw in found if raw["metadata"]["name"].startswith(prefix)]
        return copy.deepcopy([{"metadata": raw["metadata"]} for raw in found] if bare else found)

    def each(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "", bare: bool = False
    ) -> Iterator[Raw]:
        yield from self.list(kind, namespace, labels=labels, fields=fields, bare=bare)

    def create(self, manifest: Mapping[str, Any]) -> Raw:
        self._count_write()
        key = (manifest["kind"], manifest["metadata"]["name"])
        if key in self.objects:
            raise Changed("AlreadyExists", f"{key[1]} exists")
        if key[1] in self.refuse:
            raise self.refuse[key[1]]
        if key[0] == "SpecBenchRun":
            self.created.append(key[1])
        return self.put(manifest)

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
        self._count_write()
        if name in self.refuse_changes:
            raise self.refuse_changes[name]
        raw = self.objects.get((kind, name))
        if raw is None:
            return None
        meta = dict(patch.get("metadata", {}))
        if meta.pop("uid", raw["metadata"]["uid"]) != raw["metadata"]["uid"]:
            raise Changed("Replaced", name)
        if meta.pop("resourceVersion", raw["metadata"]["resourceVersion"]) != raw["metadata"]["resourceVersion"]:
            raise Changed("Conflict", name)
        before = copy.deepcopy(raw["spec"])
        _merge(raw, {**patch, "metadata": meta})
        if raw["spec"] != before:
            raw["metadata"]["generation"] += 1
        self.touch(raw)
        return copy.deepcopy(raw)

    def delete(self, kind: str, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        self._count_write()
        raw = self.objects.get((kind, name))
        if raw is None or raw["metadata"]["uid"] != uid:
            return
        if version not in (None, raw["metadata"]["resourceVersion"]):
            raise Changed("Conflict", name)
        del self.objects[kind, name]

    def apply(self, manifest: Mapping[str, Any], subresource: str = "") -> Raw:
        self._count_write()
        assert subresource == "status", "only status is applied"
        meta = manifest["metadata"]
        raw = self.objects[manifest["kind"], meta["name"]]
        if (meta["uid"], meta["resourceVersion"]) != (raw["metadata"]["uid"], raw["metadata"]["resourceVersion"]):
            raise Changed("Conflict", meta["name"])
        raw["status"] = copy.deepcopy(manifest["status"])
        self.touch(raw)
        return raw

    def _count_write(self) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise OperatorKilled
            self.writes_left -= 1


def _selected(raw: Raw, labels: str) -> bool:
    if not labels:
        return True
    has = raw["metadata"].get("labels", {})
    key, _, value = labels.partition("=")
    return bool(has.get(key[:-1]) != value) if key.endswith("!") else bool(has.get(key) == value)


def _merge(target: Raw, patch: Mapping[str, Any]) -> None:
    """JSON merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = copy.deepcopy(value)
