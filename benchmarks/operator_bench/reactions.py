"""Reactions of the operator: from an event to the operator's resulting write, as an independent watch receives it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
ObservedKey = tuple[str, str]
"""Plural of a resource, and the name of the run that the object is or belongs to."""


@dataclass
class Reaction:
    """One event and the operator's write. Times are monotonic, in seconds; None until they are known."""

    kind: str
    acted: Callable[[Object], bool]
    """Whether an object shows the operator's write."""
    began_at: float | None = None
    """When the API server had answered the write of the user."""
    acted_at: float | None = None

    @property
    def latency_s(self) -> float | None:
        """The latency; None while one of the times is unknown.

        It is 0 if the watch delivers the operator's write before the answer to the user's write is read.
        """
        if self.began_at is None or self.acted_at is None:
            return None
        return max(self.acted_at - self.began_at, 0.0)


@dataclass
class Reactions:
    """The reactions that are awaited. Safe for use from several threads."""

    clock: Callable[[], float] = time.monotonic
    _awaited: dict[ObservedKey, list[Reaction]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, kind: str, key: ObservedKey, acted: Callable[[Object], bool]) -> Reaction:
        """Await a reaction. Call it before the user's write, because the reaction may arrive before the answer."""
        reaction = Reaction(kind, acted)
        with self._lock:
            self._awaited.setdefault(key, []).append(reaction)
        return reaction

    def began(self, reaction: Reaction) -> Reaction:
        """The API server has just answered the user's write."""
        reaction.began_at = self.clock()
        return reaction

    def observed(self, key: ObservedKey, found: Object, at: float) -> None:
        """A watch has delivered this object at this time."""
        with self._lock:
            awaited = self._awaited.get(key)
            if not awaited:
                return
            for reaction in [row for row in awaited if row.acted(found)]:
                reaction.acted_at = at
                awaited.remove(reaction)
            if not awaited:
                del self._awaited[key]

    def drop(self) -> None:
        """Await nothing any more: reactions that have not arrived stay without a time."""
        with self._lock:
            self._awaited.clear()


@dataclass(frozen=True)
class Latencies:
    """Latencies of one kind of reaction, in seconds."""

    count: int
    missing: int
    """Reactions that had not arrived when the phase ended. They are not part of the percentiles."""
    p50_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None

    @property
    def text(self) -> str:
        """Median and 99th percentile, for people."""
        if self.p50_s is None or self.p99_s is None:
            return f"none of {self.missing} arrived"
        missing = f", {self.missing} missing" if self.missing else ""
        return f"{self.p50_s:.2f} / {self.p99_s:.2f} s (n = {self.count:,}{missing})"

    @classmethod
    def of(cls, reactions: Iterable[Reaction]) -> Latencies:
        """Summarise reactions."""
        rows = list(reactions)
        found = sorted(latency for row in rows if (latency := row.latency_s) is not None)
        missing = len(rows) - len(found)
        if not found:
            return cls(0, missing)
        return cls(len(found), missing, percentile(found, 50), percentile(found, 99), found[-1])


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of values in ascending order."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def by_kind(reactions: Iterable[Reaction]) -> dict[str, Latencies]:
    """Kind → its latencies, in the order of their first reaction."""
    rows = list(reactions)
    return {kind: Latencies.of(row for row in rows if row.kind == kind) for kind in dict.fromkeys(r.kind for r in rows)}
