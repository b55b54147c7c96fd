"""Waits out a server that is away: only that one refusal is repeated, with growing pauses, up to a deadline.

Wrong credentials or a full disk do not heal by waiting, and an engine that costs money would idle meanwhile.
The deadline counts from the first failure of one operation, so a server that comes back in time costs nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from specbench_client.errors import NotDurable
from specbench_client.store.store import Refusal, Store

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long, and by which clock. Pauses double from the first to the longest.

    `pause_s` sleeps so many seconds and tells whether somebody asked to stop waiting: an Event's `wait`.
    """

    deadline_s: float = 600.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 15.0
    monotonic_s: Callable[[], float] = time.monotonic
    pause_s: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)


class PatientStore:
    """A store that is asked again while it is away. It blocks: never use it in the event loop's thread."""

    def __init__(self, store: Store, patience: Patience) -> None:
        self._store = store
        self._patience = patience

    def put(self, key: str, data: bytes) -> None:
        self._insist(lambda: self._store.put(key, data), key)

    def replace(self, key: str, data: bytes) -> None:
        self._insist(lambda: self._store.replace(key, data), key)

    def get(self, key: str) -> bytes | None:
        return self._insist(lambda: self._store.get(key), key)

    def keys(self, prefix: str = "") -> list[str]:
        return self._insist(lambda: self._store.keys(prefix), prefix)

    def uri(self, key: str = "") -> str:
        return self._store.uri(key)

    def below(self, prefix: str) -> PatientStore:
        return PatientStore(self._store.below(prefix), self._patience)

    def _insist(self, act: Callable[[], T], what: str) -> T:
        patience, started, pause = self._patience, None, self._patience.first_pause_s
        while True:
            try:
                return act()
            except NotDurable as refused:
                if refused.reason != Refusal.AWAY:
                    raise
                now = patience.monotonic_s()
                started = now if started is None else started
                left = started + patience.deadline_s - now
                if left <= 0:
                    waited = f"{self._store.uri(what)}: given up after {now - started:.0f} s: {refused}"
                    raise NotDurable(waited, Refusal.AWAY) from refused
                _log.warning("%s: asking again in %.1f s: %s", self._store.uri(what), min(pause, left), refused)
                if patience.pause_s(min(pause, left)):
                    raise
            pause = min(pause * 2, patience.longest_pause_s)
