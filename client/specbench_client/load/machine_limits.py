"""The cores and the memory that this process may use, by the machine and its cgroups, and the workers of a load."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores() -> int:
    """Return the number of cores that this process may use, by its CPU affinity and its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_quota(root: Path, membership: Path) -> float | None:
    """Return the CPU quota in cores, the lowest of the control group and its ancestors; None: no limit."""
    quotas = [
        quota
        for controllers, group in _cgroups(membership, "cpu")
        for folder in _ancestors(group)
        for quota in (_quota_v1(root / "cpu" / folder) if "cpu" in controllers else _quota_v2(root / folder),)
        if quota is not None
    ]
    return min(quotas, default=None)


def memory_limit(root: Path, membership: Path) -> int | None:
    """Return the memory limit in bytes, the lowest of the control group and its ancestors; None: no limit."""
    names = {True: ("memory", "memory.limit_in_bytes"), False: ("", "memory.max")}
    limits = [
        int(limit)
        for controllers, group in _cgroups(membership, "memory")
        for folder in _ancestors(group)
        for hierarchy, name in (names["memory" in controllers],)
        if (limit := _read_text(root / hierarchy / folder / name).strip()).isdigit()
    ]
    return min(limits, default=None)


MIN_HELD_BYTES = 64 * 1024 * 1024


def held_bytes_of_worker(workers: int) -> int:
    """Return the memory of a worker for answers that are not parsed yet: half of this machine's, over all workers."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return max(MIN_HELD_BYTES, min(memory, limit or memory) // 2 // workers)


def _cgroups(membership: Path, controller: str) -> list[tuple[list[str], str]]:
    """Return controllers and path of each hierarchy with this controller; that of version 2 lists no controllers."""
    lines = [line.split(":", 2) for line in _read_text(membership).splitlines()]
    hierarchies = [(parts[1].split(","), parts[2].strip("/")) for parts in lines if len(parts) == 3]
    return [one for one in hierarchies if controller in one[0] or one[0] == [""]]


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


# The number of workers is limited by the usable cores and by the load's size.

STREAMS_PER_WORKER = 64
"""A worker with fewer streams is mostly idle: 512 streams of 20 ms steps need half a core to three quarters."""
RATE_PER_WORKER = 50.0
"""Conversations per second; each may have hundreds of chunks."""
WORKERS_PER_CORE = 2
"""Maximum that a user may request. A worker polls its sockets continuously, so two workers on one core already delay
each other's reads; more of them would measure their own queue for the core."""


def workers_for_streams(streams: int, cores: int) -> int:
    """Return the number of workers of a closed loop."""
    return max(1, min(cores, math.ceil(streams / STREAMS_PER_WORKER)))


def workers_for_rate(rate: float, cores: int) -> int:
    """Return the number of workers of an open loop."""
    return max(1, min(cores, math.ceil(rate / RATE_PER_WORKER)))
