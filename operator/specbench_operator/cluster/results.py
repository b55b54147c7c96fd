"""What of a run lies in S3: which points have a manifest, the summary, and whether an engine has answered.

Manifests are written once and last, so one that was seen is remembered; only points that are begun and not yet seen
to be finished are asked for. A look at a run of a thousand points costs a handful of requests.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.gate import GateReport
from specbench_api.outcome.layout import GATE, LAUNCHES, PLAN, SUMMARY, manifest_key, run_root
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.expand import expand
from specbench_api.spec.results import S3
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.cluster.adopting import newest_alike
from specbench_operator.cluster.api import Api
from specbench_operator.cluster.bucket import KEYS, Bucket, StoreError
from specbench_operator.cluster.kinds import SECRET
from specbench_operator.cluster.launches import last_numbers, last_stored
from specbench_operator.errors import Retry
from specbench_operator.state.stored import Stored, StoreTrouble

PROGRESS = "progress.json"
NOT_ANSWERING = ("", "starting")
"""Phases of progress.json before the engine's first completion."""
REMEMBERED = 256
"""Runs (and buckets) whose manifests (and connections) are kept in memory."""


@dataclass
class _Memory:
    """What was seen of one run. A worker holds one run at a time, so no two threads share one."""

    measured: set[str] = field(default_factory=set)
    summary: tuple[str, RunSummary | None] = ("", None)


class Results:
    """Reads results. Safe for use from several threads, one a run."""

    def __init__(self, api: Api, timeout_s: float) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._buckets: OrderedDict[object, Bucket] = OrderedDict()
        self._memories: OrderedDict[str, _Memory] = OrderedDict()

    def read(self, run: SpecBenchRun, *, last_launch: bool = False) -> Stored | StoreTrouble:
        """Look; also for the last launch, where that is wanted.

        An S3 that does not answer is an observation, not an error. Raises Retry for the API server's.
        """
        s3, meta = run.spec.results.s3, run.metadata
        below = run_root(meta.namespace, meta.name, run.results_uid)
        root = f"{s3.prefix}/{below}" if s3.prefix else below
        try:
            bucket = self._bucket(s3, self._credentials(meta.namespace, s3.credentials_secret))
            stored = _look(bucket, root, self._memory(f"{s3.endpoint} {s3.bucket} {root}"), last_launch=last_launch)
            return replace(stored, plan_json=_plan_json(bucket, root)) if run.spec.results.adopt else stored
        except StoreError as error:
            return error.trouble

    def latest(self, run: SpecBenchRun) -> str | StoreTrouble | None:
        """UID of the newest results of this name that measure the same; None where there are none. Raises Retry."""
        s3, meta = run.spec.results.s3, run.metadata
        below = run_root(meta.namespace, meta.name, "").rstrip("/")
        try:
            bucket = self._bucket(s3, self._credentials(meta.namespace, s3.credentials_secret))
            return newest_alike(bucket, f"{s3.prefix}/{below}" if s3.prefix else below, expand(run))
        except StoreError as error:
            return error.trouble
        except InvalidSpec:
            return None  # whoever decides refuses it, and says why

    def read_gate(self, run: SpecBenchRun) -> GateReport | StoreTrouble | None:
        """gate.json of a run; None where there is none that this version can read. Raises Retry."""
        s3, meta = run.spec.results.s3, run.metadata
        below = f"{run_root(meta.namespace, meta.name, run.results_uid)}/{GATE}"
        try:
            bucket = self._bucket(s3, self._credentials(meta.namespace, s3.credentials_secret))
            data = bucket.get(f"{s3.prefix}/{below}" if s3.prefix else below)
        except StoreError as error:
            return error.trouble
        try:
            return None if data is None else GateReport.from_json(data)
        except ValidationError:
            return None  # it is derived: whoever asks has it made again

    def _credentials(self, namespace: str, secret: str | None) -> Mapping[str, str] | None:
        if secret is None:
            return None
        try:
            found = self._api.get(SECRET, namespace, secret)
        except Retry as error:
            if error.reason != "Forbidden":
                raise
            remedy = "the operator needs `get` on Secrets in this namespace"
            message = f"the Secret {secret!r} cannot be read: {error}; {remedy}"
            raise StoreError(StoreTrouble("SecretForbidden", message, refused=True)) from error
        if found is None:
            message = f"there is no Secret {secret!r} in this namespace: create it with {KEYS[0]} and {KEYS[1]}"
            raise StoreError(StoreTrouble("SecretMissing", message, refused=True))
        return _decoded(secret, found.get("data") or {})

    def _bucket(self, s3: S3, credentials: Mapping[str, str] | None) -> Bucket:
        key = (s3.endpoint, s3.region, s3.bucket, tuple(sorted((credentials or {}).items())))
        with self._lock:
            if key not in self._buckets:
                self._buckets[key] = _opened(s3, credentials, self._timeout_s)
            self._buckets.move_to_end(key)
            while len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
            return self._buckets[key]

    def _memory(self, root: str) -> _Memory:
        with self._lock:
            memory = self._memories.setdefault(root, _Memory())
            self._memories.move_to_end(root)
            while len(self._memories) > REMEMBERED:
                self._memories.popitem(last=False)
            return memory


def _look(bucket: Bucket, root: str, memory: _Memory, *, last_launch: bool) -> Stored:
    top = bucket.listing(f"{root}/")
    begun = {prefix.rstrip("/").rpartition("/")[2] for prefix in bucket.listing(f"{root}/points/").prefixes}
    memory.measured &= begun  # somebody deleted results
    for point in sorted(begun - memory.measured):
        if bucket.has(f"{root}/{manifest_key(point)}"):
            memory.measured.add(point)
    etag = top.keys.get(f"{root}/{SUMMARY}")
    if etag is None:
        memory.summary = ("", None)
    elif etag != memory.summary[0]:
        memory.summary = (etag, _summary(bucket.get(f"{root}/{SUMMARY}")))
    answering = None
    if f"{root}/{PROGRESS}" in top.keys:
        answering = _answering(bucket.get(f"{root}/{PROGRESS}"))
    launches = f"{root}/{LAUNCHES}/"
    launched = bucket.listing(launches).modified if launches in top.prefixes else {}
    return Stored(
        measured=frozenset(memory.measured),
        summary=memory.summary[1],
        answering=answering,
        answered_at=top.modified.get(f"{root}/{PROGRESS}") if answering else None,
        last_launch=last_stored(bucket, launched) if last_launch else None,
        launches=last_numbers(launched),
    )


def _plan_json(bucket: Bucket, root: str) -> str | None:
    data = bucket.get(f"{root}/{PLAN}")
    return None if data is None else data.decode(errors="replace")


def _summary(data: bytes | None) -> RunSummary | None:
    if data is None:
        return None
    try:
        return RunSummary.from_json(data)
    except ValidationError as error:
        message = f"summary.json cannot be read: it was written by another version of specbench: {error}"
        raise StoreError(StoreTrouble("SummaryUnreadable", message[:1024], refused=True)) from error


def _answering(data: bytes | None) -> tuple[int, int] | None:
    """A sign of life, no more: what cannot be read is no sign."""
    try:
        progress = json.loads(data or b"")
        launch = int(progress["group"]), int(progress["attempt"].partition("-")[0])
        return launch if progress.get("phase", "") not in NOT_ANSWERING else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _decoded(secret: str, data: Mapping[str, str]) -> Mapping[str, str]:
    missing = [key for key in KEYS[:2] if not data.get(key)]
    if missing:
        message = f"the Secret {secret!r} has no {' and no '.join(missing)}"
        raise StoreError(StoreTrouble("SecretIncomplete", message, refused=True))
    try:
        return {key: base64.b64decode(data[key], validate=True).decode() for key in KEYS if data.get(key)}
    except (binascii.Error, UnicodeDecodeError) as error:
        message = f"the Secret {secret!r} does not hold text"
        raise StoreError(StoreTrouble("SecretIncomplete", message, refused=True)) from error


def _opened(s3: S3, credentials: Mapping[str, str] | None, timeout_s: float) -> Bucket:
    try:
        return Bucket(s3, credentials, timeout_s)
    except ValueError as error:  # botocore: an endpoint that is no URL
        message = f"spec.results.s3: {error}"
        raise StoreError(StoreTrouble("EndpointInvalid", message, refused=True)) from error
