"""What stand-in clients did and saw, line by line in one file, and what must never be read there.

One line an act, appended whole, so that several processes may write and a killed one leaves no half act: `begun`,
`measured` or `abandoned` for points, `reported` for runs, `two-engines` where a run had two at once. A point that was
begun and has no further line was being measured when its stand-in was killed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class WorkAction(StrEnum):
    """What a client did, or saw."""

    BEGUN = "begun"
    MEASURED = "measured"
    ABANDONED = "abandoned"
    REPORTED = "reported"
    TWO_ENGINES = "two-engines"


@dataclass(frozen=True)
class WorkLogEntry:
    """One act of one client. `run`: the run's UID. `client`: names one process, as in the names of parts; empty where
    none has its part in it."""

    act: WorkAction
    at: str
    name: str
    run: str
    client: str
    point: str = ""
    why: str = ""
    """Of what was abandoned; which two engines."""


@dataclass(frozen=True)
class WorkLog:
    """The file."""

    path: Path

    def add(self, entry: WorkLogEntry) -> None:
        """Append."""
        line = json.dumps(asdict(entry)).encode() + b"\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)

    def entries(self) -> list[WorkLogEntry]:
        """All, oldest first. A last line without its end is still being written."""
        whole, _, _ = self.path.read_text().rpartition("\n") if self.path.exists() else ("", "", "")
        lines = whole.splitlines()
        rows = [json.loads(line) for line in lines]
        return [WorkLogEntry(**{**row, "act": WorkAction(row["act"])}) for row in rows]


def measured(entries: Iterable[WorkLogEntry], run: str) -> list[str]:
    """Points of a run (by UID), as often as they were measured."""
    return [entry.point for entry in entries if entry.act is WorkAction.MEASURED and entry.run == run]


def measured_twice(entries: Iterable[WorkLogEntry]) -> list[str]:
    """Points that became a result more than once."""
    return _named(entries, Counter(_point(entry) for entry in entries if entry.act is WorkAction.MEASURED))


def started_twice(entries: Iterable[WorkLogEntry]) -> list[str]:
    """Points that a second client began. After a lost engine or a suspension that is right; else work was wasted."""
    return _named(entries, Counter(_point(entry) for entry in entries if entry.act is WorkAction.BEGUN))


def two_engines(entries: Iterable[WorkLogEntry]) -> list[str]:
    """Runs that were seen with two engines that could hold GPUs at the same moment."""
    return list(dict.fromkeys(f"{entry.name}: {entry.why}" for entry in entries if entry.act is WorkAction.TWO_ENGINES))


def measured_concurrently(entries: Iterable[WorkLogEntry]) -> list[str]:
    """Runs of which two clients measured at the same moment."""
    working: dict[str, set[str]] = {}
    found: dict[str, None] = {}
    for entry in entries:
        clients = working.setdefault(entry.run, set())
        if entry.act is WorkAction.BEGUN:
            clients.add(entry.client)
        else:
            clients.discard(entry.client)
        if len(clients) > 1:
            found[f"{entry.name}: {sorted(clients)}"] = None
    return list(found)


def _point(entry: WorkLogEntry) -> tuple[str, str]:
    return entry.run, entry.point


def _named(entries: Iterable[WorkLogEntry], counted: Counter[tuple[str, str]]) -> list[str]:
    names = {entry.run: entry.name for entry in entries}
    return [f"{names[run]} {point[:12]}: {times} times" for (run, point), times in counted.items() if times > 1]
