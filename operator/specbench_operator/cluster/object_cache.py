"""The cache of the watched objects, and the reader that answers from it.

The cache is filled from two sources: what kopf's lists and watches receive (`handlers.list_watch`), and what the
API server returns for the operator's own writes, so that a decision never misses a write of its own. Of two versions
of an object, the newer one is kept: resourceVersions of one kind are comparable numbers.

An object is kept as compressed JSON without the fields that nothing reads. It is parsed when it is read, because ten
thousand parsed runs would not fit into the operator's memory.
"""

from __future__ import annotations

import threading
import time
import zlib
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import from_json, to_json

from specbench_api.campaign.names import LABEL_CAMPAIGN, LABEL_CAMPAIGN_UID
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER
from specbench_operator.cluster.kubernetes_api import CAMPAIGN, RUN, SECRET, Forbidden, Raw, Reader, StillForbidden
from specbench_operator.cluster.parsing import kept_fields
from specbench_operator.cluster.s3 import KEYS

OBJECT_BYTES_MAX = 256 * 1024
"""Size up to which an object is kept. A larger one, which only a person can make, is read when it is needed."""
PACKED_BYTES_MAX = 128 * 1024 * 1024
"""Size of all compressed objects. Those that do not fit are read when they are needed. A run needs about 1 kB."""
GONE_MAX = 10_000
"""How many deleted objects are remembered, so that a late event or answer does not bring them back."""
INDEXED_LABELS = (LABEL_RUN, LABEL_CAMPAIGN_UID, LABEL_CAMPAIGN)
Scope = tuple[str, str | None]
"""Kind and namespace of one watch; without a namespace: of the whole cluster."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object, with what is read of all objects at once; the rest is packed."""

    uid: str
    version: int
    """Its resourceVersion."""
    labels: tuple[str | None, ...]
    """Values of INDEXED_LABELS."""
    owners: tuple[tuple[str, str, str, bool], ...]
    """Kind, name, UID and `controller` of its owners."""
    phase: str
    """status.phase; empty if it has none."""
    since: str = ""
    """Time of its end, else of its start, else of its creation."""
    packed: bytes = b""
    """Empty if it is too large to be kept."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """An unfinished list."""

    version: int
    restored: bool
    """Whether the watch has delivered newer objects than the list can contain."""
    names: set[tuple[str, str]] = field(default_factory=set)
    """Namespace and name of its objects so far."""

    def replaces(self, known: CachedObject) -> bool:
        """Whether a cached object must be as in the list: it is not an own write after the list."""
        return self.restored or known.version <= self.version


class NotKept(Exception):
    """The cache has no current copy of a watched object: it must be read from the API server."""


@dataclass
class ObjectCache:
    """The watched objects. Safe for use from several threads.

    `missed` is called with kind, namespace, name and labels of an object that a new list no longer contains: its
    deletion happened while the watch was interrupted, so that no event will report it.
    """

    kinds: frozenset[str]
    """The kinds that are watched."""
    serves: Callable[[str], bool] = lambda _namespace: True
    """Whether objects of a namespace are kept."""
    missed: Callable[[str, str, str, Mapping[str, str]], None] = lambda *_: None
    forbidden: Mapping[Scope, str] = field(default_factory=dict)
    """The API server's answers about watched collections that the operator may not list at present."""
    _objects: dict[tuple[str, str], dict[str, CachedObject]] = field(default_factory=dict)
    """(Kind, namespace) → name → object."""
    _labelled: dict[tuple[str, str, int, str], dict[str, None]] = field(default_factory=dict)
    """(Kind, namespace, index of the label, value) → names."""
    _sorted: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(Kind, namespace) → names, sorted."""
    _versions: dict[Scope, int] = field(default_factory=dict)
    """The resourceVersion up to which each watch has delivered everything."""
    _listing: dict[Scope, _Listing] = field(default_factory=dict)
    _packed_bytes: int = 0
    _gone: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """UIDs of deleted objects."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # ---- filled by the watches

    def list_begun(self, scope: Scope, version: str) -> None:
        """A list begins, in this resourceVersion; an earlier one that was interrupted is forgotten."""
        with self._lock:
            # kopf lists without a resourceVersion, so the API server answers with the current state. Only after a
            # restore of etcd is it older than what the watch has delivered. If another list were, nothing would be
            # lost either: the watch that follows it begins at its version and delivers everything newer again.
            restored = int(version) < self._versions.get(scope, 0)
            self._listing[scope] = _Listing(int(version), restored)

    def listed(self, scope: Scope, raw: Mapping[str, Any]) -> None:
        """Take one object of a list."""
        meta, kind = raw["metadata"], scope[0]
        namespace, name = meta["namespace"], meta["name"]
        with self._lock:
            listing = self._listing[scope]
            listing.names.add((namespace, name))
            known = self._objects.get((kind, namespace), {}).get(name)
            # An own write after the list is newer than it and is kept. A restore of etcd may also raise the revision:
            # then the list is newer than everything cached, and an object of it may still be older.
            if known is not None and known.version > int(meta["resourceVersion"]) and listing.replaces(known):
                self._drop(kind, namespace, name, known.version)
            self._gone.pop(meta["uid"], None)  # a restore brings deleted objects back
            self._put(kind, raw)

    def list_ended(self, scope: Scope) -> None:
        """The list is complete: drop the objects that it did not contain."""
        with self._lock:
            listing = self._listing.pop(scope)
            dropped = self._drop_unlisted(scope, listing)
            self._versions[scope] = listing.version
        for namespace, name, found in dropped:
            self.missed(scope[0], namespace, name, _labels_of(found))

    def watch_event(self, scope: Scope, event: str, raw: Mapping[str, Any]) -> None:
        """Take one event: ADDED, MODIFIED, DELETED or BOOKMARK."""
        meta, version = raw["metadata"], int(raw["metadata"]["resourceVersion"])
        with self._lock:
            if event == "DELETED":
                self._remember_gone(meta["uid"])
                self._drop(scope[0], meta["namespace"], meta["name"], version)
            elif event != "BOOKMARK" and meta["uid"] not in self._gone:
                self._put(scope[0], raw)
            self._versions[scope] = max(version, self._versions[scope])

    # ---- filled by the operator's own writes

    def wrote(self, raw: Mapping[str, Any]) -> None:
        """Take the answer to a write: the object as it is now."""
        with self._lock:
            if raw.get("kind") in self.kinds and raw["metadata"]["uid"] not in self._gone:
                self._put(raw["kind"], raw)

    def deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """The object with this UID does not exist any more."""
        with self._lock:
            self._remember_gone(uid)
            found = self._objects.get((kind, namespace), {}).get(name)
            if found is not None and found.uid == uid:
                self._drop(kind, namespace, name, found.version)

    # ---- read

    @property
    def versions(self) -> Mapping[Scope, int]:
        """The resourceVersion up to which each watch that has listed once has delivered everything."""
        with self._lock:
            return dict(self._versions)

    def ready(self, namespace: str) -> bool:
        """Whether what is missing does not exist, or is forbidden: all watched kinds of the namespace were listed."""
        with self._lock:
            known = (self._versions, self.forbidden)
            return all(
                any((kind, each) in scopes for each in (namespace, None) for scopes in known)
                for kind in self.kinds
                if kind != CAMPAIGN  # its definition may not be installed
            )

    def overview(self, kind: str) -> list[tuple[str, str, CachedObject]]:
        """Namespace, name and object of all objects of a kind."""
        with self._lock:
            return [
                (namespace, name, found)
                for (each, namespace), names in self._objects.items()
                if each == kind
                for name, found in names.items()
            ]

    def get(self, kind: str, namespace: str, name: str) -> Raw | None:
        """One object; None if it does not exist. Raises NotKept."""
        with self._lock:
            found = self._objects.get((kind, namespace), {}).get(name)
        return None if found is None else _unpacked(found)

    def select(self, kind: str, namespace: str, labels: str, prefix: str = "") -> list[tuple[str, CachedObject]]:
        """Name and object of those that match a selector of equalities and inequalities of indexed labels.

        `prefix`: the begin of their names.
        """
        wanted = [row for part in labels.split(",") if part and (row := _requirement(part))]
        equal_to = next(((index, value) for index, value, equal in wanted if equal), None)
        with self._lock:
            objects = self._objects.get((kind, namespace), {})
            names: Iterable[str]
            if equal_to is not None:
                names = self._labelled.get((kind, namespace, *equal_to), {})
            else:
                names = _with_prefix(self._sorted.get((kind, namespace), []), prefix)
            found = [(name, objects[name]) for name in names if name.startswith(prefix)]
        return [row for row in found if all((row[1].labels[i] == value) is equal for i, value, equal in wanted)]

    # ---- below, the lock is held

    def _put(self, kind: str, raw: Mapping[str, Any]) -> None:
        meta = raw["metadata"]
        namespace, name, version = meta["namespace"], meta["name"], int(meta["resourceVersion"])
        known = self._objects.get((kind, namespace), {}).get(name)
        if not self.serves(namespace) or (known is not None and known.version >= version):
            return
        if known is not None:
            self._drop(kind, namespace, name, version)
        made = _cached(kind, raw, version)
        if self._packed_bytes + len(made.packed) > PACKED_BYTES_MAX:
            made = replace(made, packed=b"")
        self._packed_bytes += len(made.packed)
        self._objects.setdefault((kind, namespace), {})[name] = made
        insort(self._sorted.setdefault((kind, namespace), []), name)
        for index, value in enumerate(made.labels):
            if value is not None:
                self._labelled.setdefault((kind, namespace, index, value), {})[name] = None

    def _drop(self, kind: str, namespace: str, name: str, version: int) -> None:
        """Remove an object, unless a newer one has its name."""
        names = self._objects.get((kind, namespace), {})
        known = names.get(name)
        if known is None or known.version > version:
            return
        del names[name]
        del self._sorted[kind, namespace][bisect_left(self._sorted[kind, namespace], name)]
        self._packed_bytes -= len(known.packed)
        if not names:
            del self._objects[kind, namespace]
            del self._sorted[kind, namespace]
        for index, value in enumerate(known.labels):
            if value is not None:
                others = self._labelled[kind, namespace, index, value]
                del others[name]
                if not others:
                    del self._labelled[kind, namespace, index, value]

    def _drop_unlisted(self, scope: Scope, listing: _Listing) -> list[tuple[str, str, CachedObject]]:
        kind, only = scope
        unlisted = [
            (namespace, name, found)
            for namespace, name, found in self.overview(kind)
            if only in (None, namespace) and (namespace, name) not in listing.names and listing.replaces(found)
        ]
        for namespace, name, found in unlisted:
            self._remember_gone(found.uid)
            self._drop(kind, namespace, name, found.version)
        return unlisted

    def _remember_gone(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > GONE_MAX:
            self._gone.popitem(last=False)


UNWATCHED_KEPT_S = 30.0
"""How long an answer about an object that is not watched is used, in seconds."""
REFUSED_KEPT_S = 10.0
"""The same for a list that was refused, in seconds: rights that return are to be used soon."""
ANSWERS_BYTES_MAX = 8 * 1024 * 1024
"""Size of all these answers, compressed. Without a limit, a tenant with many large Secrets could fill the memory."""


@dataclass
class CacheReader:
    """Answers from the cache. Kinds that are not watched are read from the API server, and the answer is kept a while.

    Safe for use from several threads.
    """

    cache: ObjectCache
    api: Reader
    clock: Callable[[], float] = time.monotonic
    _answers: OrderedDict[tuple[Hashable, ...], tuple[float, bytes]] = field(default_factory=OrderedDict)
    """Request → until when its answer is used, and the answer as compressed JSON; the oldest first."""
    _answers_bytes: int = 0
    _refused: dict[Scope, tuple[float, str]] = field(default_factory=dict)
    """Until when the refusal of a list is used, and its text. A right to list does not depend on labels."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, kind: str, namespace: str | None, name: str, *, bare: bool = False) -> Raw | None:
        """Read one object; None if it does not exist. Raises what the API server's reader raises."""
        if kind in self.cache.kinds and namespace:
            self._check_right(kind, namespace)
            try:
                return self.cache.get(kind, namespace, name)
            except NotKept:
                return self.api.get(kind, namespace, name)
        found: Raw | None = self._kept(
            ("get", kind, namespace, name, bare),
            lambda: _without_other_data(kind, self.api.get(kind, namespace, name, bare=bare)),
        )
        return found

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
        """Read all objects that match. `bare`: only names, UIDs, versions and owners of watched objects.

        Raises what the API server's reader raises.
        """
        if kind in self.cache.kinds and namespace and not fields:
            return [*self._watched(kind, namespace, labels, prefix, bare=bare)]
        request = ("list", kind, namespace, labels, fields, prefix, bare)
        until, why = self._refused.get((kind, namespace), (0.0, ""))
        if self.clock() < until:
            raise StillForbidden("Forbidden", why)
        try:
            found: list[Raw] = self._kept(
                request, lambda: self.api.list(kind, namespace, labels=labels, fields=fields, prefix=prefix, bare=bare)
            )
        except Forbidden as error:
            with self._lock:
                known = (kind, namespace) in self._refused  # maybe since another thread has asked
                self._refused[kind, namespace] = (self.clock() + REFUSED_KEPT_S, str(error))
            if known:
                raise StillForbidden(error.reason, str(error)) from error
            raise
        self._refused.pop((kind, namespace), None)
        return found

    def each(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = "", bare: bool = False
    ) -> Iterator[Raw]:
        """Yield the objects of `list`; of watched objects, one is parsed at a time."""
        if kind in self.cache.kinds and namespace and not fields:
            yield from self._watched(kind, namespace, labels, bare=bare)
        else:
            yield from self.list(kind, namespace, labels=labels, fields=fields, bare=bare)

    def _check_right(self, kind: str, namespace: str) -> None:
        """Raise StillForbidden if the operator may not list the collection, because the cache may be outdated then."""
        forbidden = self.cache.forbidden
        if why := forbidden.get((kind, namespace)) or forbidden.get((kind, None)):
            raise StillForbidden("Forbidden", why)

    def _watched(self, kind: str, namespace: str, labels: str, prefix: str = "", *, bare: bool) -> Iterator[Raw]:
        self._check_right(kind, namespace)
        for name, found in self.cache.select(kind, namespace, labels, prefix):
            raw = _bare(namespace, name, found) if bare else self.get(kind, namespace, name)
            if raw is not None:  # it may have been deleted since
                yield raw

    def _kept(self, request: tuple[Hashable, ...], ask: Callable[[], Any]) -> Any:
        with self._lock:
            self._drop_answers()
            _, packed = self._answers.get(request, (0.0, b""))
        if packed:
            return from_json(zlib.decompress(packed))
        answer = ask()
        packed = zlib.compress(to_json(answer), 1)
        if len(packed) <= OBJECT_BYTES_MAX:
            with self._lock:
                _, replaced = self._answers.pop(request, (0.0, b""))
                self._answers[request] = (self.clock() + UNWATCHED_KEPT_S, packed)
                self._answers_bytes += len(packed) - len(replaced)
                self._drop_answers()
        return answer

    def _drop_answers(self) -> None:
        """Drop the answers that have expired, and the oldest ones beyond the limit. The lock is held."""
        now = self.clock()
        while self._answers:
            request, (until, packed) = next(iter(self._answers.items()))
            if now < until and self._answers_bytes <= ANSWERS_BYTES_MAX:
                return
            del self._answers[request]
            self._answers_bytes -= len(packed)


def _without_other_data(kind: str, raw: Raw | None) -> Raw | None:
    """A Secret with only the keys for S3, because nothing else of its data is read; other objects unchanged."""
    if kind != SECRET or raw is None or "data" not in raw:
        return raw
    return {**raw, "data": {key: text for key, text in (raw["data"] or {}).items() if key in KEYS}}


def _cached(kind: str, raw: Mapping[str, Any], version: int) -> CachedObject:
    meta, status = raw["metadata"], (raw.get("status") or {}) if kind in (RUN, CAMPAIGN) else {}
    labels = meta.get("labels") or {}
    since = status.get("completionTime") or status.get("startTime") or meta.get("creationTimestamp", "")
    text = to_json(kept_fields(kind, raw))
    return CachedObject(
        uid=meta["uid"],
        version=version,
        labels=tuple(labels.get(name) for name in INDEXED_LABELS),
        owners=tuple(
            (owner["kind"], owner["name"], owner["uid"], bool(owner.get("controller")))
            for owner in meta.get("ownerReferences") or ()
        ),
        phase=str(status.get("phase", "")),
        since=str(since) if kind == RUN else "",
        packed=zlib.compress(text, 1) if len(text) <= OBJECT_BYTES_MAX else b"",
    )


def _unpacked(found: CachedObject) -> Raw:
    if not found.packed:
        raise NotKept
    raw: Raw = from_json(zlib.decompress(found.packed))
    return raw


def _bare(namespace: str, name: str, found: CachedObject) -> Raw:
    owners = [
        {"kind": kind, "name": owner, "uid": uid, "controller": controller}
        for kind, owner, uid, controller in found.owners
    ]
    version = str(found.version)
    meta = {"namespace": namespace, "name": name, "uid": found.uid, "resourceVersion": version}
    return {"metadata": {**meta, "labels": _labels_of(found), "ownerReferences": owners}}


def _with_prefix(names: Sequence[str], prefix: str) -> Sequence[str]:
    """The names that begin with this prefix. `names`: sorted."""
    return names[bisect_left(names, prefix) : bisect_left(names, f"{prefix}\U0010ffff")]


def _labels_of(found: CachedObject) -> dict[str, str]:
    return {name: value for name, value in zip(INDEXED_LABELS, found.labels, strict=True) if value is not None}


def _requirement(part: str) -> tuple[int, str, bool] | None:
    """Index of the label, its value, and whether they must be equal.

    None for a label that all watched objects have. Raises ValueError for other selectors.
    """
    name, _, value = part.partition("=")
    label = name.removesuffix("!")
    if part == f"{LABEL_MANAGED}={MANAGER}":  # the watches of children select by it
        return None
    if label not in INDEXED_LABELS or "=" not in part:
        raise ValueError(f"the cache does not select by {part!r}, which is unknown to it")
    return INDEXED_LABELS.index(label), value, label == name
