"""Pins processes to cores, and samples the CPU time of a process tree from /proc."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """A core for the client's processes and one for the server and the benchmark; the same one if there is only one."""

    client: int
    server: int

    @property
    def shared(self) -> bool:
        return self.client == self.server


def cores() -> Cores:
    """Return the first and the last available core."""
    usable = sorted(os.sched_getaffinity(0))
    return Cores(usable[0], usable[-1])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin processes that are started inside the block, and their children, to this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a process, its running descendants, and those that they have waited for."""
    try:
        # The name is in parentheses and may contain any character, so fields are counted after the last parenthesis.
        fields = Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()
        threads = list(Path(f"/proc/{root}/task").iterdir())
        children = [int(pid) for thread in threads for pid in _text(thread / "children").split()]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) * _TICK_S + sum(map(tree_cpu_s, children))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
        return ""


@dataclass
class CpuLog:
    """Samples of used CPU seconds over time; interpolated linearly between samples."""

    at_ns: list[int] = field(default_factory=list)
    used_s: list[float] = field(default_factory=list)

    def look(self, now_ns: int, used_s: float) -> None:
        """Add a sample, never below the last one: a process that ended is missing until it is waited for."""
        self.at_ns.append(now_ns)
        self.used_s.append(max([used_s, *self.used_s[-1:]]))

    def until(self, moment_ns: int) -> float:
        """Return the CPU seconds used until that time."""
        place = bisect_left(self.at_ns, moment_ns)
        if place == 0:
            return self.used_s[0]
        if place == len(self.at_ns):
            return self.used_s[-1]
        (before_ns, after_ns), (before_s, after_s) = (each[place - 1 : place + 1] for each in (self.at_ns, self.used_s))
        return before_s + (after_s - before_s) * (moment_ns - before_ns) / (after_ns - before_ns)
