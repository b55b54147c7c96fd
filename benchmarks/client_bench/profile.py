"""Profiles a client with py-spy and summarises the samples by function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from client_bench.clients.client import Command
from client_bench.clients.registry import PY_SPY

RATE_HZ = 100
_IMPORTING = "_find_and_load ("
_LINE = re.compile(r":\d+\)$")


def profiled(command: Command, output: Path) -> Command:
    """Return the command under py-spy, for all processes. It shares the client's core, so the figures are not valid."""
    spy = [str(PY_SPY.folder / "bin/py-spy"), "record", "--subprocesses", "--format", "raw"]
    spy += ["--rate", str(RATE_HZ), "--output", str(output), "--"]
    return Command([*spy, *command.argv], command.environment)


def by_function(lines: Iterable[str], most: int = 25) -> str:
    """Return per process the functions with the most samples: own samples, and samples within them. Excludes imports.

    Time in C code counts for the Python function that called it.
    """
    processes: dict[str, list[tuple[list[str], int]]] = {}
    for line in lines:
        stack, _, count = line.rpartition(" ")
        process, *frames = stack.split(";")
        if frames and not any(_IMPORTING in frame for frame in frames):
            functions = [_LINE.sub(")", frame) for frame in frames]
            processes.setdefault(process.partition(":")[0], []).append((functions, int(count)))
    return "\n".join(row for process, stacks in processes.items() for row in _process(process, stacks, most))


def _process(process: str, stacks: list[tuple[list[str], int]], most: int) -> Iterator[str]:
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for functions, count in stacks:
        own[functions[-1]] += count
        for function in set(functions):
            within[function] += count
    total = own.total()
    yield f"{process}: {total} samples, {total / RATE_HZ:.1f} s\n   own within  function"
    for function, count in own.most_common(most):
        yield f"{count / total:6.1%} {within[function] / total:6.1%}  {function}"
    yield ""
