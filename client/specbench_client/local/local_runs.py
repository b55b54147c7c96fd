"""Finds and creates the results of local runs.

A local run has the namespace `local` and a UID that is created once. The same spec finds its earlier results under the
same root and continues them; a changed spec gets a new UID, and so does `--new`, which measures points again. Nothing
that was measured is ever overwritten. UIDs contain their creation time (UUID version 7), so the newest of several runs
is known.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from specbench_api.outcome.layout import OVERVIEW, PLAN, SUMMARY, run_root
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.store.folder import FolderStore, exclusive_lock, lock_holder
from specbench_client.store.locations import open_store
from specbench_client.store.points import read_manifests
from specbench_client.store.run_uids import new_run_uid, uid_created_ms
from specbench_client.store.store import Store


@dataclass(frozen=True)
class LocalRun:
    """A plan with its UID, the store of its run, and the hashes of points that are measured already."""

    plan: Plan
    store: Store
    measured: set[str]
    concluded: bool = False
    """Whether results are stored that lack no point. A run with a stop rule may lack none before its last repeat."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to measure."""
        stopped = self.plan.stop is not None and self.concluded
        return stopped or all(point.hash in self.measured for point in self.plan.points)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do. A client that ends during its analysis leaves a finished, incomplete run."""
        return self.finished and self.concluded


def open_results(location: str) -> Store:
    """Open the root of results: a folder or s3://bucket/prefix. Raises BadInput."""
    return open_store(location)


def find_local_run(results: Store, plan: Plan) -> LocalRun:
    """Return the newest run of this very plan, or a new one. Writes nothing.

    Raises NotDurable(Damaged) if one of its manifests cannot be read.
    """
    return _matching_run(results, plan, _stored_plans(results, plan)) or new_local_run(results, plan)


def find_interrupted_plan(results: Store, plans: Iterable[Plan]) -> Plan | None:
    """Return the first of these plans whose newest run was begun and is not complete. All have the same name.

    The stored plans are read once. Raises as `find_local_run`.
    """
    stored: list[tuple[str, bytes | None]] | None = None
    for plan in plans:
        stored = list(_stored_plans(results, plan)) if stored is None else stored
        found = _matching_run(results, plan, stored)
        if found is not None and found.measured and not found.complete:
            return plan
    return None


def _stored_plans(results: Store, plan: Plan) -> Iterator[tuple[str, bytes | None]]:
    """Yield UID and plan.json of all runs of this name, the newest first."""
    family = run_root(plan.namespace, plan.name, "")
    uids = {key.removeprefix(family).split("/")[0] for key in results.keys(family)}
    for uid in newest_first(uids):
        yield uid, results.get(f"{run_root(plan.namespace, plan.name, uid)}/{PLAN}")


def _matching_run(results: Store, plan: Plan, stored: Iterable[tuple[str, bytes | None]]) -> LocalRun | None:
    """Return the first stored run of this very plan."""
    for uid, text in stored:
        candidate = plan.model_copy(update={"uid": uid})
        if text == candidate.to_json().encode():
            store = results.below(run_root(plan.namespace, plan.name, uid))
            measured = set(read_manifests(store, [point.hash for point in plan.points]))
            return LocalRun(candidate, store, measured, _is_concluded(store))
    return None


def _is_concluded(store: Store) -> bool:
    """Return whether there are results that lack no point.

    The overview is written last, after the report, but does not list missing points. One that is older than the summary
    is of an earlier analysis: the last one did not end.
    """
    try:
        summary, overview = (RunSummary.from_json(store.get(key) or b"") for key in (SUMMARY, OVERVIEW))
    except ValidationError:  # the analysis has not ended, or a file is damaged: both are written again
        return False
    return overview.created == summary.created and not summary.missing


def exclusive_run(results: Store, plan: Plan, who: str) -> AbstractContextManager[None]:
    """Lock this plan in this folder, so that no other process runs it; has no effect in S3.

    Raises BadInput(AlreadyRunning) with the description of the other process, NotDurable.
    """
    return _lock_in_folder(results, f"{run_root(plan.namespace, plan.name, '')}/{_lock_name(plan)}", who)


def measuring_process(run: Store, plan: Plan) -> str | None:
    """Return the description of the process that measures this plan now; None if none does, or in S3."""
    return lock_holder(Path(run.uri()).parent / _lock_name(plan)) if isinstance(run, FolderStore) else None


def _lock_name(plan: Plan) -> str:
    without_uid = plan.model_copy(update={"uid": ""}).to_json()  # Two processes that start together have no UID yet.
    return f".{hashlib.sha256(without_uid.encode()).hexdigest()[:16]}.lock"


def exclusive_campaign(results: Store, namespace: str, name: str, who: str) -> AbstractContextManager[None]:
    """Lock a whole campaign, also between its runs; see `exclusive_run`."""
    return _lock_in_folder(results, f"{run_root(namespace, f'.{name}.lock', '')}", who)


def _lock_in_folder(results: Store, key: str, who: str) -> AbstractContextManager[None]:
    """Lock a file; the dot at the beginning of the last part of `key` hides it from the store's keys."""
    return exclusive_lock(Path(results.uri()) / key, who) if isinstance(results, FolderStore) else nullcontext()


def new_local_run(results: Store, plan: Plan, now_ns: Callable[[], int] = time.time_ns) -> LocalRun:
    """Return a run with a new UID. Writes nothing."""
    fresh = plan.model_copy(update={"uid": new_run_uid(now_ns() // 1_000_000)})
    return LocalRun(fresh, results.below(run_root(plan.namespace, plan.name, fresh.uid)), set())


def newest_first(uids: Iterable[str]) -> list[str]:
    """Sort UIDs by creation time, newest first; UIDs without one come last."""
    return sorted(uids, key=lambda uid: (uid_created_ms(uid), uid), reverse=True)
