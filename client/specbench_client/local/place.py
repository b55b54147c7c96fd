"""Where a local run keeps its results, and how it finds them again.

A run of this machine has the namespace `local` and a UID that is made once: the same spec meets its own earlier results
under the same root and goes on with them; a spec that was changed gets a UID of its own, beside the old one. So does
one that is asked for anew, which is how a point is measured again: nothing that was measured is ever overwritten. A UID
holds the moment at which it was made (UUID version 7), so that of several runs of one spec the newest is known.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from specbench_api.outcome.layout import PLAN, run_root
from specbench_api.plan.plan import Plan
from specbench_client.store.folder import FolderStore
from specbench_client.store.hold import held
from specbench_client.store.locate import open_store
from specbench_client.store.manifests import read_manifests
from specbench_client.store.store import Store
from specbench_client.store.uids import made_ms, new_uid


@dataclass(frozen=True)
class Place:
    """A plan with its UID, the store of its run, and the points that are measured there already."""

    plan: Plan
    store: Store
    measured: set[str]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be measured."""
        return all(point.hash in self.measured for point in self.plan.points)


def open_results(location: str) -> Store:
    """The results' root: a folder or s3://bucket/prefix. Raises BadInput."""
    return open_store(location)


def find_run(results: Store, plan: Plan) -> Place:
    """The place of this plan's run: where the very same plan ran last, or a new one. Nothing is written.

    Raises NotDurable(Damaged) where a manifest of it cannot be read.
    """
    family = run_root(plan.namespace, plan.name, "")
    uids = {key.removeprefix(family).split("/")[0] for key in results.keys(family)}
    for uid in newest_first(uids):
        candidate = plan.model_copy(update={"uid": uid})
        store = results.below(run_root(plan.namespace, plan.name, uid))
        if store.get(PLAN) == candidate.to_json().encode():
            return Place(candidate, store, set(read_manifests(store, [point.hash for point in plan.points])))
    return new_run(results, plan)


def alone(results: Store, plan: Plan, who: str) -> AbstractContextManager[None]:
    """While it lasts, nobody else executes this plan into this folder; in S3, it holds nobody off.

    Raises BadInput(AlreadyRunning) with the words of whoever is at work, NotDurable.
    """
    nameless = plan.model_copy(update={"uid": ""}).to_json()  # two that begin together have no UID yet
    name = hashlib.sha256(nameless.encode()).hexdigest()[:16]
    return _held(results, f"{run_root(plan.namespace, plan.name, '')}/.{name}.lock", who)


def alone_with_campaign(results: Store, namespace: str, name: str, who: str) -> AbstractContextManager[None]:
    """The same of a whole campaign: between two of its runs, too, nobody else begins one of them."""
    return _held(results, f"{run_root(namespace, f'.{name}.lock', '')}", who)


def _held(results: Store, key: str, who: str) -> AbstractContextManager[None]:
    """`key`: with a dot before its last word it is no object of the store."""
    return held(Path(results.uri()) / key, who) if isinstance(results, FolderStore) else nullcontext()


def new_run(results: Store, plan: Plan, now_ns: Callable[[], int] = time.time_ns) -> Place:
    """A place of its own, whatever ran before. Nothing is written."""
    fresh = plan.model_copy(update={"uid": new_uid(now_ns() // 1_000_000)})
    return Place(fresh, results.below(run_root(plan.namespace, plan.name, fresh.uid)), set())


def newest_first(uids: Iterable[str]) -> list[str]:
    """Those that hold their moment by it; the others, which are older, behind them."""
    return sorted(uids, key=lambda uid: (made_ms(uid), uid), reverse=True)
