"""Observe → decide → act → patch status once; and what an error means, here and nowhere else.

Changed     somebody wrote in between: look again at once, that is no error
Retry       said in status, looked at again with backoff
Stop        said in status as Stalled, looked at again with backoff
else        a bug of ours: logged with its traceback, counted, looked at again with backoff
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from specbench_operator.cluster.act import Actor
from specbench_operator.cluster.observe import Observer
from specbench_operator.errors import Changed, OperatorError
from specbench_operator.handlers.awaiting import Awaiting
from specbench_operator.handlers.queue import Key, WorkQueue
from specbench_operator.reconcile.refused import hindered, is_finished
from specbench_operator.reconcile.run import decide
from specbench_operator.reconcile.scene import status_of
from specbench_operator.reconcile.telling.transitions import WARNING
from specbench_operator.settings import Settings
from specbench_operator.state.decision import Event
from specbench_operator.state.observed import Observed
from specbench_operator.telemetry import Telemetry

CHANGED_AGAIN_S = 0.1
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """`resting`: the version of the resource at which nothing is left to be done, if that is so."""

    look_again_s: float | None = None
    resting: str | None = None
    awaits: frozenset[str] = frozenset()
    """Names of runs of the same namespace at whose end it is looked at again."""


def wall_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


class Reconciles(Protocol):
    """What looks at one kind of resource. Called from several threads, never for one key at the same time."""

    def reconcile(self, key: Key) -> Outcome:
        """Look at one once. Raises OperatorError after having said it in status."""
        ...


@dataclass(frozen=True)
class Reconciler:
    """SpecBenchRuns: one at a time, in whichever thread it is called from."""

    observer: Observer
    actor: Actor
    settings: Settings
    telemetry: Telemetry
    now: Callable[[], datetime] = wall_clock

    def reconcile(self, key: Key) -> Outcome:
        """Look at a run once. Raises OperatorError after having said it in status."""
        began = time.monotonic()
        try:
            observed = self.observer.observe(key.namespace, key.name)
            return Outcome() if observed is None else self._follow(observed)
        finally:
            self.telemetry.reconciled(time.monotonic() - began)

    def _follow(self, observed: Observed) -> Outcome:
        now, resource = self.now(), observed.resource
        decision = decide(observed, self.settings, now)
        try:
            self.actor.act(resource, decision)
        except Changed:
            raise
        except OperatorError as error:
            self.actor.tell(resource, hindered(resource, decision.status, error, now))
            if is_finished(status_of(resource)):  # its status is the last word of it, so people are told elsewhere
                self.actor.announce(resource, (Event(WARNING, error.reason, str(error)),), now)
            raise
        if self.actor.tell(resource, decision.status):
            self.telemetry.wrote(status_of(resource), decision.status)
            self.actor.announce(resource, decision.events, now)
            return Outcome(decision.look_again_s, awaits=decision.awaits)
        version = resource["metadata"]["resourceVersion"] if decision.at_rest else None
        return Outcome(decision.look_again_s, version, decision.awaits)


class Workers:
    """Takes keys from the queue to whoever looks at their kind, and knows which of them rest."""

    def __init__(self, queue: WorkQueue, reconcilers: Mapping[str, Reconciles], telemetry: Telemetry) -> None:
        self._queue = queue
        self._reconcilers = reconcilers
        self._telemetry = telemetry
        self._resting: dict[Key, str] = {}
        self.awaiting = Awaiting()
        """Who is looked at again when another run ends."""

    def rests(self, key: Key, version: str) -> bool:
        """Whether it needs no further look in this version."""
        return self._resting.get(key) == version

    async def work(self) -> None:
        """Work for ever."""
        while True:
            await self.work_once()

    async def work_once(self) -> None:
        """One piece of work."""
        key = await self._queue.get()
        try:
            outcome = await asyncio.to_thread(self._reconcilers[key.kind].reconcile, key)
        except Changed:
            self._queue.done(key, CHANGED_AGAIN_S)
        except OperatorError as error:
            self._failed(key, type(error).__name__, error)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the operator: it is said, and tried again
            self._failed(key, "Bug", error)
        else:
            self._rest(key, outcome.resting)
            self.awaiting.told(key, outcome.awaits)
            self._queue.done(key, outcome.look_again_s)

    def _failed(self, key: Key, kind: str, error: Exception) -> None:
        self._telemetry.failed(kind)
        wait_s = self._queue.failed(key)
        bug = error if kind == "Bug" else None
        _log.error("%s %s/%s: %s: %s; again in %.0f s", *key, kind, error, wait_s, exc_info=bug)

    def _rest(self, key: Key, version: str | None) -> None:
        if version is None:
            self._resting.pop(key, None)
        else:
            self._resting[key] = version
