"""Finds and creates the results of local runs.

A local run has the namespace `local` and a UID that is created once. The same spec finds its earlier results under the
same root and continues them, also with more repeats or loads if specbench starts the engine; another change gets a new
UID, and so does `--new`, which measures points again. Nothing that was measured is ever overwritten. UIDs contain their
creation time (UUID version 7), so the newest of several runs is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.plan.canonical import extends
from specbench_api.plan.expansion import without_added_rounds
from specbench_api.plan.plan import Plan
from specbench_api.spec.load import Load
from specbench_client.store.folder import FolderStore, exclusive_lock
from specbench_client.store.run_uids import new_run_uid, uid_created_ms
from specbench_client.store.store import Store
from specbench_client.stored_runs.run import Run, lock_name


def find_local_run(results: Store, plan: Plan) -> Run:
    """Return the newest run of this plan, else of one with fewer repeats or loads, else a new one. Writes nothing."""
    return _matching_run(results, plan, _stored_plans(results, plan)) or new_local_run(results, plan)


def find_begun_plan(
    results: Store, plan: Plan, planned_again: Callable[[Load], Plan | None], *, finished: bool = False
) -> Plan | None:
    """Return the plan of the newest run that has a point; None if that run is complete, unless `finished`.

    Only runs of this plan's name count whose plan is the one that `planned_again` returns for their load. Raises
    NotDurable(Damaged) if a manifest cannot be read.
    """
    for uid, kept in _stored_plans(results, plan):
        again = planned_again(without_added_rounds(kept).load)
        found = again and _matching_run(results, again, [(uid, kept)])
        if found and found.manifests:
            return again if finished or not found.is_complete else None
    return None


def _stored_plans(results: Store, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield UID and plan of all runs of this name, the newest first, without plans that this version cannot read."""
    family = run_root(plan.namespace, plan.name, "")
    uids = {key.removeprefix(family).split("/")[0] for key in results.keys(family)}
    for uid in newest_first(uids):
        text = results.get(f"{run_root(plan.namespace, plan.name, uid)}/{PLAN}")
        with suppress(ValidationError):
            yield uid, Plan.from_json(text or b"")


def _matching_run(results: Store, plan: Plan, stored: Iterable[tuple[str, Plan]]) -> Run | None:
    """Return the first stored run of this plan, with rounds that were added to it; else the first that it extends.

    A run of running servers is not extended: by now they may be others, or started with other settings.
    """
    extended: Plan | None = None
    for uid, kept in stored:
        wanted = plan.model_copy(update={"uid": uid})
        if without_added_rounds(kept) == wanted:
            return _stored_run(results, kept)
        if extended is None and not plan.engine.is_external and extends(wanted, kept):
            extended = wanted
    return None if extended is None else _stored_run(results, extended)


def _stored_run(results: Store, plan: Plan) -> Run:
    return Run(results.below(run_root(plan.namespace, plan.name, plan.uid)), plan)


def exclusive_run(results: Store, plan: Plan, who: str) -> AbstractContextManager[None]:
    """Lock this plan in this folder, so that no other process runs it; has no effect in S3.

    Raises BadInput(AlreadyRunning) with the description of the other process, NotDurable.
    """
    return _lock_in_folder(results, f"{run_root(plan.namespace, plan.name, '')}/{lock_name(plan)}", who)


def exclusive_campaign(results: Store, namespace: str, name: str, who: str) -> AbstractContextManager[None]:
    """Lock a whole campaign, also between its runs; see `exclusive_run`."""
    return _lock_in_folder(results, f"{run_root(namespace, f'.{name}.lock', '')}", who)


def _lock_in_folder(results: Store, key: str, who: str) -> AbstractContextManager[None]:
    """Lock a file; the dot at the beginning of the last part of `key` hides it from the store's keys."""
    return exclusive_lock(Path(results.uri()) / key, who) if isinstance(results, FolderStore) else nullcontext()


def new_local_run(results: Store, plan: Plan, now_ns: Callable[[], int] = time.time_ns) -> Run:
    """Return a run with a new UID. Writes nothing."""
    fresh = plan.model_copy(update={"uid": new_run_uid(now_ns() // 1_000_000)})
    run = _stored_run(results, fresh)
    run.manifests = {}
    return run


def newest_first(uids: Iterable[str]) -> list[str]:
    """Sort UIDs by creation time, newest first; UIDs without one come last."""
    return sorted(uids, key=lambda uid: (uid_created_ms(uid), uid), reverse=True)
