"""How many workers a load gets: no more than there are cores to run them, and no more than have something to do."""

from __future__ import annotations

import math
import os
from pathlib import Path

STREAMS_A_WORKER = 64
"""A worker with fewer has time to spare: 512 streams of 20 ms steps are the work of one core, hardly more."""
RATE_A_WORKER = 50.0
"""Conversations a second; each may stand for hundreds of chunks."""


WORKERS_A_CORE = 2
"""Most that may be asked for: a worker watches its sockets all the while, so two on one core take turns already, and
each sees its bytes late by the other's turn. More of them would measure their own queue for the core."""


def most_workers(cores: int) -> int:
    """Return the most workers that so many cores can carry."""
    return WORKERS_A_CORE * cores


def workers_for_streams(streams: int, cores: int) -> int:
    """For a closed loop."""
    return max(1, min(cores, math.ceil(streams / STREAMS_A_WORKER)))


def workers_for_rate(rate: float, cores: int) -> int:
    """For an open loop."""
    return max(1, min(cores, math.ceil(rate / RATE_A_WORKER)))


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and what its control group is allowed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_quota(root: Path, membership: Path) -> float | None:
    """Cores' worth of time that the control group may use, the least of it and all above it; None: no limit."""
    found = [
        quota
        for controllers, group in _groups(membership)
        for folder in _upwards(group)
        for quota in (_v1(root / "cpu" / folder) if "cpu" in controllers else _v2(root / folder),)
        if quota is not None
    ]
    return min(found, default=None)


def _groups(membership: Path) -> list[tuple[list[str], str]]:
    """Controllers and path of each hierarchy; without a controller it is version 2's."""
    lines = [line.split(":", 2) for line in _text(membership).splitlines()]
    hierarchies = [(parts[1].split(","), parts[2].strip("/")) for parts in lines if len(parts) == 3]
    return [one for one in hierarchies if "cpu" in one[0] or one[0] == [""]]


def _upwards(group: str) -> list[str]:
    """The group and those above it; in a container the mounted root is the group itself."""
    parts = group.split("/") if group else []
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


def _v1(folder: Path) -> float | None:
    quota, period = _text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()
    return _share(quota, period)


def _v2(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    return _share(quota, period)


def _share(quota: str, period: str) -> float | None:
    limited = quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0
    return int(quota) / int(period) if limited else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""  # not there: not limited there
