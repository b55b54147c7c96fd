"""Which runs are looked at again when another one ends: those whose gate waits for it.

Memory, and no more than a saving: an operator that forgot it looks at every run when it starts, and each run that waits
is looked at again after a while by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_operator.cluster.kinds import RUN
from specbench_operator.handlers.queue import Key


class Awaiting:
    """For one event loop."""

    def __init__(self) -> None:
        self._by_waiter: dict[Key, frozenset[Key]] = {}
        self._by_awaited: dict[Key, set[Key]] = {}

    def told(self, waiter: Key, names: frozenset[str]) -> None:
        """What a run waits for now: other runs of its namespace, by their names. Empty: for none any more."""
        for awaited in self._by_waiter.pop(waiter, frozenset()):
            self._by_awaited[awaited].discard(waiter)
            if not self._by_awaited[awaited]:
                del self._by_awaited[awaited]
        if names:
            self._by_waiter[waiter] = frozenset(Key(RUN, waiter.namespace, name) for name in names)
            for awaited in self._by_waiter[waiter]:
                self._by_awaited.setdefault(awaited, set()).add(waiter)

    def ended(self, key: Key, run: Mapping[str, Any]) -> list[Key]:
        """Who waits for a run of which something was heard, if it has ended; in a fixed order."""
        over = bool((run.get("status") or {}).get("completionTime"))
        return sorted(self._by_awaited.get(key, ())) if over else []
