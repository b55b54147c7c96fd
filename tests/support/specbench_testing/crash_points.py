"""Crash points: a fault at one write of a life, and whether the life then ends like an uninterrupted one.

The points are generated from the writes of uninterrupted lives, so that a write which is added to the product becomes a
new case. `operator_crash_points` and `client_crash_points` have the lives of the two writers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from specbench_testing.fault_proxy import KILLS, FaultKind, WriteKey

API_FAULTS = tuple(kind for kind in FaultKind if kind not in (FaultKind.NAMESPACE_LOST, FaultKind.ROLLED_BACK))
"""Without the loss of a namespace, which ends all of its runs, and without two kills in one life."""
STORE_FAULTS = (
    *(FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER, FaultKind.UNANSWERED),
    *(FaultKind.CONFLICT, FaultKind.BUSY, FaultKind.FAILING),
)
"""S3 is strongly consistent: a read after a write never shows an earlier state. A Job keeps its client's version."""


class CrashPoint(NamedTuple):
    """A fault at one write of a life."""

    life: str
    kind: FaultKind
    at: WriteKey

    def __str__(self) -> str:
        return f"{self.life}: {self.kind}: {self.at}"


@dataclass(frozen=True)
class CrashPointResult:
    """The outcome of one crash point. `reached`: whether the life had this write."""

    point: CrashPoint
    reached: bool
    differences: Sequence[str]
    seconds: float

    def __str__(self) -> str:
        outcome = "; ".join(self.differences) or ("same" if self.reached else "not reached")
        return f"{self.point}: {outcome} ({self.seconds:.0f} s)"


Select = Callable[[str, Sequence[WriteKey]], list[CrashPoint]]
"""The crash points of a life, given its name and its writes."""


def every_write(kinds: Iterable[FaultKind]) -> Select:
    """Every fault at every write that no earlier life has."""
    return _selecting(kinds, lambda key: key.kind)


def one_of_each_kind(kinds: Iterable[FaultKind] = KILLS) -> Select:
    """Every fault at one write of each kind."""
    return _selecting(kinds, lambda key: kind_of_write(key.kind))


def one_of_each_phase(kinds: Iterable[FaultKind]) -> Select:
    """Every fault at one write of each kind, and at the first status of each phase."""
    return _selecting(
        kinds, lambda key: key.kind.partition(":")[0] if "status" in key.kind else kind_of_write(key.kind)
    )


def _selecting(kinds: Iterable[FaultKind], name_of: Callable[[WriteKey], str]) -> Select:
    seen: set[str] = set()
    chosen = tuple(kinds)

    def select(life: str, writes: Sequence[WriteKey]) -> list[CrashPoint]:
        points = []
        for key in writes:
            if name_of(key) not in seen:
                seen.add(name_of(key))
                points += [CrashPoint(life, kind, key) for kind in chosen]
        return points

    return select


def kind_of_write(write: str) -> str:
    """What is written, without the number of the group, the point or the file."""
    verb, _, rest = write.partition(" ")
    if verb in ("event", "status"):
        return verb
    return f"{verb} " + re.sub(r"POINT\d+(-\d+)?", "POINT", re.sub(r"(?<=-g)\d+-\d+|(?<=arm=)\w+", "N", rest))


@dataclass
class Enumeration:
    """All results of one writer, and what its uninterrupted lives wrote. Safe for use from several threads.

    It prints the progress: pytest shows it when the test fails, and with -s.
    """

    writes: dict[str, list[WriteKey]] = field(default_factory=dict)
    points: list[CrashPoint] = field(default_factory=list)
    results: list[CrashPointResult] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    """Differences that appeared after a life had been compared."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lived(self, life: str, writes: Sequence[WriteKey], select: Select) -> None:
        """Add an uninterrupted life and its crash points."""
        self.writes[life] = list(writes)
        new = select(life, writes)
        self.points += new
        print(f"{life}: {len(writes)} writes, {len(new)} crash points", flush=True)  # noqa: T201

    def add(self, result: CrashPointResult) -> None:
        """Add a result."""
        with self._lock:
            self.results.append(result)
            print(f"[{len(self.results)}/{len(self.points)}] {result}", flush=True)  # noqa: T201

    @property
    def kinds_of_writes(self) -> set[str]:
        """The kinds of all writes."""
        return {kind_of_write(key.kind) for keys in self.writes.values() for key in keys}

    @property
    def failures(self) -> list[str]:
        """Every difference, and every crash point that was not reached, one line each."""
        rows = [f"{each.point}: {line}" for each in self.results for line in each.differences]
        missed = [f"{each.point}: not reached" for each in self.results if not each.reached]
        return [*rows, *missed, *self.later, *(f"{point}: not tried" for point in self._untried())]

    def _untried(self) -> list[CrashPoint]:
        tried = {each.point for each in self.results}
        return [point for point in self.points if point not in tried]
