"""The acts of stand-in clients, one line each in one file, and queries for violations.

Each act is one appended line, so that several processes can write and a killed one leaves no partial act: `begun`,
`measured` or `abandoned` for points, `reported` for runs, `two-engines` for a run with two at once. A point with
`begun` and no further line was being measured when its stand-in was killed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from specbench_client.errors import NotDurable


class WorkAction(StrEnum):
    """An act or observation of a client."""

    BEGUN = "begun"
    MEASURED = "measured"
    ABANDONED = "abandoned"
    REPORTED = "reported"
    TWO_ENGINES = "two-engines"


@dataclass(frozen=True)
class WorkLogEntry:
    """One act of one client. `run`: the run's UID. `client`: the name of the process, as in part names; empty for
    observations of the stand-in itself. `job`: the Job that started it."""

    act: WorkAction
    at: str
    name: str
    run: str
    client: str
    point: str = ""
    why: str = ""
    """Why a point was abandoned (type and message of the error), or which two engines."""
    job: str = ""


@dataclass(frozen=True)
class WorkLog:
    """The log file."""

    path: Path

    def add(self, entry: WorkLogEntry) -> None:
        """Append an entry."""
        line = json.dumps(asdict(entry)).encode() + b"\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)

    def entries(self) -> list[WorkLogEntry]:
        """All entries, oldest first, without an incomplete last line."""
        whole, _, _ = self.path.read_text().rpartition("\n") if self.path.exists() else ("", "", "")
        lines = whole.splitlines()
        rows = [json.loads(line) for line in lines]
        return [WorkLogEntry(**{**row, "act": WorkAction(row["act"])}) for row in rows]


def measured(entries: Iterable[WorkLogEntry], run: str) -> list[str]:
    """Points of a run (by UID), once per measurement."""
    return [entry.point for entry in entries if entry.act is WorkAction.MEASURED and entry.run == run]


def measured_twice(entries: Sequence[WorkLogEntry]) -> list[str]:
    """Points with more than one result."""
    return _named(entries, [entry for entry in entries if entry.act is WorkAction.MEASURED])


def started_twice(entries: Sequence[WorkLogEntry]) -> list[str]:
    """Points that a second client started: correct after a lost engine or a suspension, otherwise wasted work.

    Points that a client abandoned because it could not store them have to start again.
    """
    unstored = Counter(
        _point(entry)
        for entry in entries
        if entry.act is WorkAction.ABANDONED and entry.why.startswith(NotDurable.__name__)
    )
    begun = [entry for entry in entries if entry.act is WorkAction.BEGUN]
    return _named(entries, begun, allowed=unstored)


def two_engines(entries: Iterable[WorkLogEntry]) -> list[str]:
    """Runs that had two engines that could hold GPUs at the same time."""
    return list(dict.fromkeys(f"{entry.name}: {entry.why}" for entry in entries if entry.act is WorkAction.TWO_ENGINES))


def measured_concurrently(entries: Iterable[WorkLogEntry]) -> list[str]:
    """Runs in which clients of two Jobs measured at the same time.

    Two clients of one Job are no fault of the operator: Kubernetes may start a pod of a Job twice, for example if the
    API server ends between creating a pod and answering. Of those, only one commits each point (`measured_twice`).
    """
    working: dict[str, dict[str, str]] = {}
    found: dict[str, None] = {}
    for entry in entries:
        jobs_by_client = working.setdefault(entry.run, {})
        if entry.act is WorkAction.BEGUN:
            jobs_by_client[entry.client] = entry.job
        else:
            jobs_by_client.pop(entry.client, None)
        if len(jobs := set(jobs_by_client.values())) > 1:
            found[f"{entry.name}: {sorted(jobs)}"] = None
    return list(found)


def _point(entry: WorkLogEntry) -> tuple[str, str]:
    return entry.run, entry.point


def _named(
    entries: Sequence[WorkLogEntry], found: Sequence[WorkLogEntry], allowed: Mapping[tuple[str, str], int] | None = None
) -> list[str]:
    """The points that are found more than once, and `allowed` times more."""
    names = {entry.run: entry.name for entry in entries}
    counted, more = Counter(map(_point, found)), allowed or {}
    return [
        f"{names[point[0]]} {point[1][:12]}: {times} times"
        for point, times in counted.items()
        if times > 1 + more.get(point, 0)
    ]
