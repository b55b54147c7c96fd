"""Determines how many workers a load gets: limited by the usable cores and by the load's size."""

from __future__ import annotations

import math
import os
from pathlib import Path

STREAMS_PER_WORKER = 64
"""A worker with fewer streams is mostly idle: 512 streams of 20 ms steps need about one core."""
RATE_PER_WORKER = 50.0
"""Conversations per second; each may have hundreds of chunks."""
WORKERS_PER_CORE = 2
"""Maximum that a user may request. A worker polls its sockets continuously, so two workers on one core already delay
each other's reads; more of them would measure their own queue for the core."""


def max_workers(cores: int) -> int:
    """Return the maximum number of workers on this many cores."""
    return WORKERS_PER_CORE * cores


def workers_for_streams(streams: int, cores: int) -> int:
    """Return the number of workers of a closed loop."""
    return max(1, min(cores, math.ceil(streams / STREAMS_PER_WORKER)))


def workers_for_rate(rate: float, cores: int) -> int:
    """Return the number of workers of an open loop."""
    return max(1, min(cores, math.ceil(rate / RATE_PER_WORKER)))


def usable_cores() -> int:
    """Return the number of cores that this process may use, by its CPU affinity and its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_quota(root: Path, membership: Path) -> float | None:
    """Return the CPU quota in cores, the lowest of the control group and its ancestors; None: no limit."""
    quotas = [
        quota
        for controllers, group in _cgroups(membership)
        for folder in _ancestors(group)
        for quota in (_quota_v1(root / "cpu" / folder) if "cpu" in controllers else _quota_v2(root / folder),)
        if quota is not None
    ]
    return min(quotas, default=None)


def _cgroups(membership: Path) -> list[tuple[list[str], str]]:
    """Return controllers and path of each cgroup hierarchy; that of version 2 has no controllers."""
    lines = [line.split(":", 2) for line in _read_text(membership).splitlines()]
    hierarchies = [(parts[1].split(","), parts[2].strip("/")) for parts in lines if len(parts) == 3]
    return [one for one in hierarchies if "cpu" in one[0] or one[0] == [""]]


def _ancestors(group: str) -> list[str]:
    """Return the group and its ancestors, down to the mounted root, which in a container is the group itself."""
    parts = group.split("/") if group else []
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read_text(folder / "cpu.cfs_quota_us").strip(), _read_text(folder / "cpu.cfs_period_us").strip()
    return _cores_of(quota, period)


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _read_text(folder / "cpu.max").strip().partition(" ")
    return _cores_of(quota, period)


def _cores_of(quota: str, period: str) -> float | None:
    limited = quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0
    return int(quota) / int(period) if limited else None


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""  # A missing file means no limit at this level.
