"""This machine as the place of an engine: its processor, its memory, and its GPUs as `nvidia-smi` tells them.

What is not there is a reason and never an error: a machine without a GPU measures as well.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact, Whereabouts
from specbench_api.outcome.nvidia import GPUS, OF_GPUS, SUMMARY, TOPOLOGY, cuda_fact, gpu_facts, links_fact

TIMEOUT_S = 20.0
"""Without its daemon, nvidia-smi initialises every GPU first, which takes seconds each."""
RUNS_ALREADY = Whereabouts(unseen="the endpoint ran before we came: where it runs was not seen")
_CPUINFO = Path("/proc/cpuinfo")
_CPU = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


class Silent(Exception):
    """A program tells nothing; the message says why."""


Run = Callable[[tuple[str, ...]], str]


def this_machine(command: Sequence[str], started: str, run: Run | None = None) -> Whereabouts:
    """What is seen of it. `started`: when the engine was, by this command, RFC 3339. Blocks.

    `run`: a command of NVIDIA's → its output.
    """
    told: dict[FactName, tuple[JsonValue, str]] = {
        FactName.NODE: (platform.node(), "this machine's name"),
        FactName.KERNEL: (platform.release(), "uname"),
        FactName.CPU: (_cpu(), str(_CPUINFO)),
        FactName.CORES: (os.cpu_count(), "this machine"),
        FactName.MEMORY_BYTES: (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "sysconf"),
        FactName.COMMAND: (list(command), "the process"),
        FactName.STARTED: (started, "the process"),
    }
    facts = {name: Fact.of(value, source, f"{source} does not tell it") for name, (value, source) in told.items()}
    image = Fact.unseen("a process of this machine has no image")
    facts |= {FactName.IMAGE: image, FactName.IMAGE_DIGEST: image}
    return Whereabouts(facts=facts | _gpus(run or _output), unseen="this machine does not tell it")


def _gpus(run: Run) -> dict[FactName, Fact]:
    try:
        facts = gpu_facts(run(GPUS), "nvidia-smi")
    except Silent as silent:
        return dict.fromkeys((*OF_GPUS, FactName.DRIVER_CUDA, FactName.INTERCONNECT), Fact.unseen(str(silent)))
    facts[FactName.DRIVER_CUDA] = _asked(run, SUMMARY, cuda_fact)
    facts[FactName.INTERCONNECT] = _asked(run, TOPOLOGY, links_fact)
    return facts


def _asked(run: Run, command: tuple[str, ...], read: Callable[[str, str], Fact]) -> Fact:
    try:
        return read(run(command), " ".join(command))
    except Silent as silent:
        return Fact.unseen(str(silent))


def _cpu() -> str | None:
    try:
        found = _CPU.search(_CPUINFO.read_text())
    except OSError:
        return None
    return found[1] if found else None


def _output(command: tuple[str, ...]) -> str:
    """What it prints. Raises Silent."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 -- our own
    except FileNotFoundError as error:
        raise Silent(f"there is no {command[0]} on this machine") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Silent(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise Silent(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[:200]}")
    return done.stdout
