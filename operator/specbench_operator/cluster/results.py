"""Reads a run's results in S3: which points have a manifest, status.json, and whether an engine has answered.

A point's manifest is written last and never changes, so a manifest that was found once is cached. Only points that were
begun and had no manifest yet are requested, so reading a run of a thousand points takes a handful of requests.

What is stored may have been written by anybody. Every object has a maximum size, and one look at a store, with all of
its requests, has a deadline. Whatever goes wrong becomes a StoreFailure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.fence.model import Fence
from specbench_api.outcome.layout import CHECK_OBJECT, ENDED, GATE, LAUNCHES, PLAN, STATUS, manifest_key, run_root
from specbench_api.outcome.provenance import FactName, LaunchRecord
from specbench_api.outcome.status_document import StatusDocument
from specbench_api.plan.canonical import differing_fields
from specbench_api.plan.expansion import expand, without_added_rounds
from specbench_api.plan.limits import POINTS_MAX
from specbench_api.plan.plan import Plan
from specbench_api.spec.results import LATEST, S3, UID
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import GateStatus
from specbench_api.spec.store_endpoints import AddressRule, StoreAccess, store_access
from specbench_operator.cluster.s3 import Bucket
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.cluster.store_session import StoreError, look_at_store
from specbench_operator.state.run import StoredLaunch, StoredResults, StoreFailure

KIB, MIB = 1024, 1024 * 1024
PLAN_MAX_BYTES = MIB
"""Maximum size of plan.json. The operator's own plan is in a ConfigMap, which has the same limit."""
STATUS_MAX_BYTES = 256 * KIB
GATE_MAX_BYTES = MIB
LAUNCH_MAX_BYTES = 256 * KIB
PROGRESS_MAX_BYTES = 64 * KIB
POINT_NAME_MAX = 64
"""Maximum length of the name of a point's folder: a SHA-256 digest in hexadecimal."""
FOLDERS_MAX = 2 * POINTS_MAX
"""Maximum number of folders of points. A run that was edited may also have those of its earlier plan."""
EARLIER_RESULTS_MAX = 50
"""How many results of a run's name are searched for those that `adopt: Latest` adopts, the newest first."""

_LAUNCH_DOCUMENT = re.compile(r"([0-9]{1,4})-([0-9]{1,9})-[0-9a-f]+\.json")
"""GROUP-LAUNCH-PROCESS.json. Launches of local runs have no number and do not match.

Numbers are bounded, because the name of the next launch's Job contains a larger one."""
_ENDED_DOCUMENT = re.compile(r"([0-9]{1,4})-([0-9]{1,4})\.json")
"""GROUP-POINTS.json."""


def last_launch_numbers(keys: Iterable[str]) -> dict[int, int]:
    """Group → number of its last launch, from the keys of launch records."""
    return dict(sorted(_numbers(keys, _LAUNCH_DOCUMENT)))  # the last, largest number of a group stays


def groups_ended_early(keys: Iterable[str]) -> dict[int, int]:
    """Group → its number of points when the plan's stop rule ended it, from the keys below `ended/`."""
    return dict(sorted(_numbers(keys, _ENDED_DOCUMENT), reverse=True))  # the last, smallest number of a group stays


def _numbers(keys: Iterable[str], document: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the two numbers in the name of each document of this kind; other keys are left out."""
    for key in keys:
        if match := document.fullmatch(key.rpartition("/")[2]):
            yield int(match[1]), int(match[2])


def last_stored_launch(bucket: Bucket, stored: Mapping[str, datetime]) -> StoredLaunch | None:
    """Read the launch record that was stored last. `stored`: key → time of storing.

    None if there is none, or if it contains no node. Raises StoreError.
    """
    if not stored:
        return None
    newest = max(stored, key=lambda key: (stored[key], key))
    try:
        record = LaunchRecord.from_untrusted_json(bucket.get(newest, LAUNCH_MAX_BYTES) or b"")
        node, queried_at = record.value(FactName.NODE), datetime.fromisoformat(record.queried_at)
    except ValueError:
        return None  # written by another version; the node is only a preference, so it is left out
    return StoredLaunch(node, queried_at) if isinstance(node, str) and node and queried_at.tzinfo else None


# `spec.results.adopt: Latest` is resolved once. The UID is found in S3, and from then on it is in the run's plan and
# its status, so that results which are stored later do not change it. `run` receives the run with that UID in
# `adopt`.


def adopts_latest(resource: Mapping[str, Any]) -> bool:
    """Whether the run's spec adopts the newest results."""
    return bool((resource.get("spec", {}).get("results") or {}).get("adopt") == LATEST)


def known_results_uid(resource: Mapping[str, Any], plan_data: Mapping[str, str]) -> str | None:
    """The UID resolved before, from the plan in the run's ConfigMap, else from status; None if there is none."""
    try:
        by_plan = json.loads(plan_data.get(PLAN, "{}")).get("uid")
    except (ValueError, AttributeError):
        by_plan = None
    uri = ((resource.get("status") or {}).get("results") or {}).get("uri", "")
    found = by_plan or uri.rpartition("/")[2]
    return str(found) if found else None


def with_adopted_uid(resource: Mapping[str, Any], uid: str) -> Mapping[str, Any]:
    """The run with `adopt: Latest` replaced by this UID; without `adopt` if the UID is the run's own."""
    spec = resource["spec"]
    results = {name: value for name, value in spec["results"].items() if name != "adopt"}
    adopted = {} if uid == resource["metadata"]["uid"] else {"adopt": uid}
    return {**resource, "spec": {**spec, "results": {**results, **adopted}}}


def newest_matching_results(bucket: Bucket, root: str, plan: Plan, stored: dict[str, datetime]) -> str | None:
    """UID of the newest results below `root` whose plan measures the same; None if none does. Raises StoreError.

    `stored`: folder → when its plan was stored, filled in here. A folder's name has no time, so each must be listed.
    Thousands take several looks, each of which lists only those that none before it has listed.
    """
    folders = bucket.listing(f"{root}/").prefixes
    for prefix in folders:
        if prefix not in stored and (at := bucket.listing(prefix).modified.get(f"{prefix}{PLAN}")):
            stored[prefix] = at
    newest_first = sorted(stored.keys() & set(folders), key=lambda prefix: (stored[prefix], prefix), reverse=True)
    for prefix in newest_first[:EARLIER_RESULTS_MAX]:
        uid = prefix.rstrip("/").rpartition("/")[2]
        if _is_adoptable(bucket.get(f"{prefix}{PLAN}", PLAN_MAX_BYTES), plan, uid):
            return uid
    return None


def _is_adoptable(data: bytes | None, plan: Plan, uid: str) -> bool:
    """Whether the document is this plan. `uid`: name of its folder in S3."""
    if not re.fullmatch(UID, uid):
        return False
    try:
        stored_plan = Plan.from_untrusted_json(data or b"")
    except ValueError:
        return False  # written by another version, so these results cannot be adopted
    return not (
        stored_plan.unknown_field(data or b"")
        or differing_fields(without_added_rounds(stored_plan), plan.model_copy(update={"uid": uid}))
    )


PROGRESS = "progress.json"
NOT_ANSWERING = ("", "starting")
"""Phases of progress.json before the engine's first completion."""
ADOPTING_MAX = 16
"""Maximum number of runs whose earlier results are remembered until the newest is found: up to 6 MB each."""
CACHED_MAX = 256
"""Maximum number of runs, and of S3 clients, that are cached in memory. A client takes about 0.5 MB."""


def check_access(s3: S3, fence: Fence | None) -> StoreAccess:
    """What the operator may do at this store: without a fence, everything. Raises StoreError before any request."""
    access = store_access(fence.stores, s3.endpoint, s3.bucket) if fence and fence.enabled else StoreAccess()
    if not access.allowed:
        message = (
            "the administrator's fence does not allow spec.results.s3: use an endpoint and a bucket of fence.stores,"
            " or ask the administrator to add these"
        )
        raise StoreError(StoreFailure("StoreNotAllowed", message, refused=True))
    if s3.secret_name is None and not access.operator_identity:
        message = (
            "spec.results.s3 names no Secret, and the operator's own cloud identity may not be used for this store:"
            " set credentialsSecretRef, or ask the administrator for operatorIdentity in fence.stores"
        )
        raise StoreError(StoreFailure("CredentialsMissing", message, refused=True))
    return access


class ResultsReader:
    """Reads results. Safe for use from several threads, one a run."""

    def __init__(
        self, secrets: SecretReader, timeout_s: float, deadline_s: float = 20, fence: Fence | None = None
    ) -> None:
        self._secrets = secrets
        self._deadline_s = deadline_s
        self._fence = fence
        self._open_bucket = lru_cache(CACHED_MAX)(partial(_open_bucket, timeout_s=timeout_s))
        # To be filled in. One run is never read by two threads at a time.
        self._known_points = lru_cache(CACHED_MAX)(lambda _root: set[str]())
        self._known_plans = lru_cache(ADOPTING_MAX)(lambda _root: dict[str, datetime]())

    def read(self, run: SpecBenchRun, *, last_launch: bool = False) -> StoredResults | StoreFailure:
        """Read the results of a run; with `last_launch`, also the record of its last launch.

        A failure of S3 is returned as an observation, because the run's status reports it. Raises Retry for errors of
        the API server.
        """
        s3, root = run.spec.results.store, _root(run, run.results_uid)
        try:
            with look_at_store(self._deadline_s):
                bucket = self._bucket_of(run)
                known = self._known_points(f"{s3.endpoint} {s3.bucket} {root}")
                stored = _read_results(bucket, root, known, last_launch=last_launch)
                if s3.secret_name and not stored.measured and not stored.launches:  # The client has the same keys.
                    bucket.require_conditional_writes(s3.key(CHECK_OBJECT))
                return replace(stored, plan_json=_plan_json(bucket, root)) if run.spec.results.adopt else stored
        except StoreError as error:
            return error.failure

    def latest(self, run: SpecBenchRun) -> str | StoreFailure | None:
        """UID of the newest results of this run's name that measure the same; None if there are none.

        Raises Retry for errors of the API server.
        """
        try:
            with look_at_store(self._deadline_s):
                s3, root = run.spec.results.store, _root(run, "").rstrip("/")
                known = self._known_plans(f"{s3.endpoint} {s3.bucket} {root}")
                return newest_matching_results(self._bucket_of(run), root, expand(run), known)
        except StoreError as error:
            return error.failure
        except InvalidSpec:
            return None  # `run` rejects the run with the reason

    def read_gate(self, run: SpecBenchRun) -> GateStatus | StoreFailure | None:
        """The result in gate.json of a run; None if there is none that this version can read.

        Raises Retry for errors of the API server.
        """
        try:
            with look_at_store(self._deadline_s):
                data = self._bucket_of(run).get(f"{_root(run, run.results_uid)}/{GATE}", GATE_MAX_BYTES)
        except StoreError as error:
            return error.failure
        try:
            return None if data is None else GateStatus.from_untrusted_json(data)
        except ValueError:
            return None  # gate.json is derived from results, so it is made again

    def _bucket_of(self, run: SpecBenchRun) -> Bucket:
        s3 = run.spec.results.store
        access, secret = check_access(s3, self._fence), s3.secret_name
        keys = None if secret is None else self._secrets.s3_keys(run.metadata.namespace, secret)
        # Runs that differ only in these fields share a client.
        server = s3.model_copy(update={"prefix": "", "credentials_secret_ref": None})
        return self._open_bucket(server, tuple(sorted(keys.items())) if keys else None, access.addresses)


def _root(run: SpecBenchRun, uid: str) -> str:
    """Key prefix of a run's results within the bucket."""
    return run.spec.results.store.key(run_root(run.metadata.namespace, run.metadata.name, uid))


def _read_results(bucket: Bucket, root: str, measured: set[str], *, last_launch: bool) -> StoredResults:
    top = bucket.listing(f"{root}/")
    begun = _begun_points(bucket.listing(f"{root}/points/").prefixes)
    measured &= begun  # results may have been deleted
    for point in sorted(begun - measured):
        if bucket.has(f"{root}/{manifest_key(point)}"):
            measured.add(point)
    status, answering = f"{root}/{STATUS}", None
    if f"{root}/{PROGRESS}" in top.modified:
        answering = _answering(bucket.get(f"{root}/{PROGRESS}", PROGRESS_MAX_BYTES))
    launches = f"{root}/{LAUNCHES}/"
    records = bucket.listing(launches).modified if launches in top.prefixes else {}
    ended = f"{root}/{ENDED}/"
    return StoredResults(
        measured=frozenset(measured),
        results=_results(bucket.get(status, STATUS_MAX_BYTES)) if status in top.modified else None,
        answering=answering,
        answered_at=top.modified.get(f"{root}/{PROGRESS}") if answering else None,
        last_launch=last_stored_launch(bucket, records) if last_launch else None,
        launches=last_launch_numbers(records),
        ended=groups_ended_early(bucket.listing(ended).modified) if ended in top.prefixes else {},
    )


def _begun_points(prefixes: Iterable[str]) -> set[str]:
    """The names of the points' folders. Raises StoreError if there are more than a plan can have."""
    names = {prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes}
    points = {name for name in names if len(name) <= POINT_NAME_MAX}
    if len(points) > FOLDERS_MAX:
        message = (
            f"there are more than {FOLDERS_MAX} folders below points/ of this run:"
            " remove what specbench did not write there, or use another prefix"
        )
        raise StoreError(StoreFailure("AnswerTooLarge", message, refused=True))
    return points


def _plan_json(bucket: Bucket, root: str) -> str | None:
    data = bucket.get(f"{root}/{PLAN}", PLAN_MAX_BYTES)
    return None if data is None else data.decode(errors="replace")


def _results(data: bytes | None) -> StatusDocument | None:
    try:
        return None if data is None else StatusDocument.from_untrusted_json(data)
    except ValueError as error:
        message = (
            "status.json cannot be read because another version of specbench, or another program, wrote it:"
            f" delete the file to have it made again: {error}"
        )
        raise StoreError(StoreFailure("StatusUnreadable", message[:1024], refused=True)) from error


def _answering(data: bytes | None) -> tuple[int, int] | None:
    """(group, launch) whose engine has answered a completion, from progress.json; None if none has or it is invalid."""
    try:
        progress = json.loads(data or b"")
        launch = int(progress["group"]), int(progress["attempt"].partition("-")[0])
        return launch if progress.get("phase", "") not in NOT_ANSWERING else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _open_bucket(
    s3: S3, credentials: tuple[tuple[str, str], ...] | None, addresses: AddressRule, timeout_s: float
) -> Bucket:
    try:
        return Bucket(s3, dict(credentials) if credentials else None, timeout_s, addresses)
    except ValueError as error:  # botocore raises it for an endpoint that is not a URL, or an impossible region
        message = f"spec.results.s3 is invalid: {error}; correct endpoint or region"
        raise StoreError(StoreFailure("EndpointInvalid", message, refused=True)) from error
