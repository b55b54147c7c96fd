"""The facts of this machine, such as its GPUs, which are observed at each launch.

Missing ones have a reason and are never an error: machines without a GPU can measure too.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import JsonValue

from specbench_api.outcome.provenance import (
    GPUS,
    OF_GPUS,
    SUMMARY,
    TOPOLOGY,
    Fact,
    FactName,
    HostFacts,
    cuda_fact,
    gpu_facts,
    links_fact,
)

TIMEOUT_S = 20.0
"""Without the persistence daemon, nvidia-smi initialises every GPU first, which takes seconds each."""
_CPUINFO = Path("/proc/cpuinfo")
_CPU = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


class CommandFailed(Exception):
    """A program failed; the message contains the reason."""


CommandRunner = Callable[[tuple[str, ...]], str]


def observe_machine(command: Sequence[str], started: str, run: CommandRunner | None = None) -> HostFacts:
    """Return the facts of this machine. Blocks.

    `command`: the command of the engine; `started`: its start, RFC 3339. `run`: runs an NVIDIA command and returns its
    output.
    """
    values: dict[FactName, tuple[JsonValue, str]] = {
        FactName.NODE: (platform.node(), "this machine's name"),
        FactName.KERNEL: (platform.release(), "uname"),
        FactName.CPU: (_cpu_model(), str(_CPUINFO)),
        FactName.CORES: (os.cpu_count(), "this machine"),
        FactName.MEMORY_BYTES: (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "sysconf"),
        FactName.COMMAND: (list(command), "the process"),
        FactName.STARTED: (started, "the process"),
    }
    facts = {name: Fact.of(value, source, f"{source} does not report it") for name, (value, source) in values.items()}
    image = Fact.unknown("a process of this machine has no image")
    facts |= {FactName.IMAGE: image, FactName.IMAGE_DIGEST: image}
    return HostFacts(facts=facts | _gpus(run or _run_command), unknown_reason="this machine does not report it")


def _gpus(run: CommandRunner) -> dict[FactName, Fact]:
    try:
        facts = gpu_facts(run(GPUS), "nvidia-smi")
    except CommandFailed as error:
        return dict.fromkeys((*OF_GPUS, FactName.DRIVER_CUDA, FactName.INTERCONNECT), Fact.unknown(str(error)))
    facts[FactName.DRIVER_CUDA] = _fact_from_command(run, SUMMARY, cuda_fact)
    facts[FactName.INTERCONNECT] = _fact_from_command(run, TOPOLOGY, links_fact)
    return facts


def _fact_from_command(run: CommandRunner, command: tuple[str, ...], read: Callable[[str, str], Fact]) -> Fact:
    try:
        return read(run(command), " ".join(command))
    except CommandFailed as error:
        return Fact.unknown(str(error))


def _cpu_model() -> str | None:
    try:
        match = _CPU.search(_CPUINFO.read_text())
    except OSError:
        return None
    return match[1] if match else None


def _run_command(command: tuple[str, ...]) -> str:
    """Return the output of a command. Raises CommandFailed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 -- our own
    except FileNotFoundError as error:
        raise CommandFailed(f"there is no {command[0]} on this machine") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise CommandFailed(
            f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[:200]}"
        )
    return done.stdout
