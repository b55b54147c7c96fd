"""Looks at stores, in threads of their own: the workers never wait for a store.

A worker observes the cluster and starts a look with that observation. When the answer is there, the key is queued
again, and a worker decides with the observation and the answer. The store is read after the cluster, as `decide_run`
requires.

A store that is slow or hostile delays only its own runs as far as possible:

- a namespace has at most `NAMESPACE_MAX` looks at a time, and free threads go to the namespaces in turn;
- stores that have not answered properly yet, or no longer do, have at most `UNPROVEN_MAX` of these looks;
- of the runs of a namespace, those whose looks have failed the fewest times go first, and of these, those that an event
  has queued, except that every `ROUTINE_TURN`th look is the oldest one;
- after a failed look the next one of that run waits, longer each time, and its decisions use the last failure;
- a look that waits too long for a thread ends with a failure, so that decisions which need no store are still made.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from specbench_operator.handlers.work_queue import ROUTINE_TURN, Backoff, ResourceKey
from specbench_operator.run.decide import S3_RETRY_S
from specbench_operator.state.run import RunObservation, StoreFailure

THREADS_MAX = 16
"""How many looks take place at a time."""
NAMESPACE_MAX = 4
"""How many looks of one namespace take place at a time."""
UNPROVEN_MAX = 2
"""How many of them may be at stores that have not answered properly yet."""
WAIT_MAX_S = 30.0
"""How long a look may wait for a thread, in seconds."""
FRESH_S = 5.0
"""How old an observation of the cluster may be when the store is read, in seconds; otherwise it is made again."""
KEPT_S = 10.0
"""How long an answer is kept for the worker, in seconds."""
REMEMBERED_MAX = 10_000
"""Maximum number of stores and of failures that are remembered."""
BACKOFF = Backoff(first_s=S3_RETRY_S, cap_s=60.0)
BUSY = StoreFailure(
    "S3Waiting",
    "the store was not read, because other stores of this namespace are slow: correct or suspend the runs that report"
    " S3Slow; the operator retries automatically",
    refused=False,
)
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True)
class StoreKey:
    """A store as the runs of one namespace use it."""

    namespace: str
    store: Hashable


@dataclass(frozen=True)
class Answer:
    """What is known about a look. Without an observation and not in progress: there is no look."""

    observed: RunObservation | None = None
    again: bool = False
    """Something happened since the observation, so the run is to be reconciled once more."""
    in_progress: bool = False


@dataclass
class _Look:
    """A look that waits for a thread, takes place, or has an answer."""

    key: ResourceKey
    store: StoreKey
    observe: Callable[[float], RunObservation | None]
    """Returns the complete observation, given the age of the observation that the look started with."""
    asked_at: float
    routine: bool = False
    """No event requires it, so that others go first."""
    again: bool = False
    """Something happened since the observation, so the run is reconciled once more after it."""
    started: bool = False
    answer: RunObservation | None = None
    error: Exception | None = None
    answered_at: float | None = None


@dataclass(frozen=True)
class _Failed:
    failure: StoreFailure
    store: StoreKey
    count: int
    until: float
    by_store: int
    """How many of these failures the store caused, which did not only wait for others."""


def _spawn(function: Callable[[], None], name: str) -> None:
    # A daemon, so that a slow store does not delay the end of the process.
    threading.Thread(target=function, name=name, daemon=True).start()


@dataclass
class StoreLooks:
    """Starts looks and keeps their answers. Safe for use from several threads.

    `answered` is called with the key of a look that has an answer, and whether it was routine, from the look's thread.
    """

    answered: Callable[[ResourceKey, bool], None]
    clock: Callable[[], float] = time.monotonic
    backoff: Backoff = BACKOFF
    spawn: Callable[[Callable[[], None], str], None] = _spawn
    """Runs a function in a thread of this name."""
    is_routine: Callable[[ResourceKey], bool] = lambda _key: False
    """Whether the key that is being processed was queued without an event."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _looks: dict[ResourceKey, _Look] = field(default_factory=dict)
    _waiting: OrderedDict[str, deque[_Look]] = field(default_factory=OrderedDict)
    """By namespace, in the order of their turns."""
    _running: dict[ResourceKey, _Look] = field(default_factory=dict)
    _starts: int = 0
    """How many looks were started."""
    _proven: OrderedDict[StoreKey, None] = field(default_factory=OrderedDict)
    _failed: OrderedDict[ResourceKey, _Failed] = field(default_factory=OrderedDict)

    @property
    def waiting(self) -> int:
        """How many looks wait for a thread."""
        with self._lock:
            return sum(len(looks) for looks in self._waiting.values())

    def take(self, key: ResourceKey) -> Answer:
        """The answer of a key's look, which is then forgotten. Raises what the look raised.

        If the look is in progress, the run is reconciled once more after it.
        """
        with self._lock:
            look = self._looks.get(key)
            if look is None:
                return Answer()
            if look.answered_at is None:
                if look.started or self.clock() - look.asked_at < WAIT_MAX_S:
                    routine = self.is_routine(key)
                    look.again, look.routine = look.again or not routine, look.routine and routine
                    return Answer(in_progress=True)
                self._waiting[key.namespace].remove(look)
                self._remember_failure(look, BUSY)
            del self._looks[key]
        if look.error is not None:
            raise look.error
        fresh = look.answered_at is not None and self.clock() - look.answered_at < KEPT_S
        return Answer(look.answer if fresh else None, again=look.again)

    def failure(self, key: ResourceKey, store: StoreKey) -> StoreFailure | None:
        """The last failure of this run at this store, while the next look waits for the back-off."""
        with self._lock:
            last = self._failed.get(key)
            return last.failure if last and last.store == store and self.clock() < last.until else None

    def start(self, key: ResourceKey, store: StoreKey, observe: Callable[[float], RunObservation | None]) -> None:
        """Start a look, or let it wait for its turn. There must be none of this key."""
        with self._lock:
            look = _Look(key, store, observe, self.clock(), self.is_routine(key))
            self._looks[key] = look
            self._waiting.setdefault(key.namespace, deque()).append(look)
            self._start_waiting()

    def forget(self, key: ResourceKey) -> None:
        """Forget a run that does not exist any more."""
        with self._lock:
            self._failed.pop(key, None)

    def _start_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            if len(self._running) >= THREADS_MAX:
                return
            namespace, looks = self._waiting.popitem(last=False)
            look = self._next(namespace, looks)
            if look is not None:
                looks.remove(look)
                self._run(look)
            if looks:
                self._waiting[namespace] = looks  # at the end: the next turn is another namespace's
        if any(self._next(namespace, looks) for namespace, looks in self._waiting.items()):
            self._start_waiting()

    def _next(self, namespace: str, looks: deque[_Look]) -> _Look | None:
        """The look of the namespace that may start now."""
        running = [look for look in self._running.values() if look.key.namespace == namespace]
        if len(running) >= NAMESPACE_MAX:
            return None
        unproven_full = sum(look.store not in self._proven for look in running) >= UNPROVEN_MAX
        allowed = (look for look in looks if look.store in self._proven or not unproven_full)
        events_first = (self._starts + 1) % ROUTINE_TURN != 0
        return min(
            allowed, key=lambda look: (self._failures_by_store(look), look.routine and events_first), default=None
        )

    def _failures_by_store(self, look: _Look) -> int:
        last = self._failed.get(look.key)
        return last.by_store if last and last.store == look.store else 0

    def _run(self, look: _Look) -> None:
        look.started = True
        self._starts += 1
        self._running[look.key] = look
        self.spawn(partial(self._look, look), f"store of {look.key.name}")

    def _look(self, look: _Look) -> None:
        try:
            look.answer = look.observe(self.clock() - look.asked_at)
        except Exception as error:  # noqa: BLE001 - the worker that takes the answer raises it
            look.error = error
        with self._lock:
            look.answered_at = self.clock()
            del self._running[look.key]
            failure = failure_of(look.answer)
            if failure:
                self._remember_failure(look, failure)
            elif look.error is None:
                self._failed.pop(look.key, None)
                _remember(self._proven, look.store, None)
            self._start_waiting()
        self.answered(look.key, look.routine)

    def _remember_failure(self, look: _Look, failure: StoreFailure) -> None:
        last = self._failed.get(look.key)
        count = last.count + 1 if last and last.store == look.store else 1
        until = self.clock() + self.backoff.after(count)
        by_store = self._failures_by_store(look) + (failure is not BUSY)
        _remember(self._failed, look.key, _Failed(failure, look.store, count, until, by_store))
        if failure is not BUSY and not failure.refused:
            self._proven.pop(look.store, None)


def failure_of(observed: RunObservation | None) -> StoreFailure | None:
    """Why the store could not be read; None if it was."""
    found = (observed.stored, observed.gate) if observed else ()
    return next((each for each in found if isinstance(each, StoreFailure)), None)


def _remember(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED_MAX:
        memory.popitem(last=False)
