"""Facts of the local machine. Outputs of nvidia-smi follow its documentation; they are not recordings."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import pytest

from specbench_api.outcome.provenance import GPUS, SUMMARY, TOPOLOGY, Fact, FactName, HostFacts
from specbench_client.local.executor import CommandFailed, observe_machine
from specbench_testing.nvidia_smi import HEAD, PAIR

COMMAND = ["llama-server", "-m", "m.gguf"]
STARTED = "2030-01-02T03:04:05.000Z"


def machine(answers: Mapping[tuple[str, ...], str]) -> HostFacts:
    def run(command: tuple[str, ...]) -> str:
        if command not in answers:
            raise CommandFailed(f"{' '.join(command)} ended with 9: no devices")
        return answers[command]

    return observe_machine(COMMAND, STARTED, run)


def test_gpus_are_reported_with_their_interconnect() -> None:
    rows = "NVIDIA H200, 143771, 570.133.20\n" * 2
    seen = machine({GPUS: rows, SUMMARY: HEAD, TOPOLOGY: PAIR})
    names = ("gpu", "gpu_count", "gpu_memory_bytes", "driver", "driver_cuda", "interconnect")
    assert [seen.value(FactName(name)) for name in names] == [
        "NVIDIA H200",
        2,
        143771 << 20,
        "570.133.20",
        "12.8",
        "NV18",
    ]
    assert seen.facts[FactName.INTERCONNECT].source == "nvidia-smi topo -m"


def test_failed_command_leaves_only_its_facts_unknown() -> None:
    seen = machine({GPUS: "A, 80, 5\n"})
    assert seen.value(FactName.GPU) == "A"
    assert seen.facts[FactName.INTERCONNECT] == Fact.unknown("nvidia-smi topo -m ended with 9: no devices")


def test_node_cores_memory_and_command_are_reported() -> None:
    seen = machine({})
    assert seen.value(FactName.NODE) == platform.node()
    assert seen.value(FactName.CORES) == os.cpu_count()
    assert seen.value(FactName.STARTED) == STARTED
    assert seen.value(FactName.COMMAND) == COMMAND
    assert (seen.value(FactName.MEMORY_BYTES) or 0) > 1 << 20  # type: ignore[operator]
    assert seen.facts[FactName.IMAGE_DIGEST] == Fact.unknown("a process of this machine has no image")


def test_missing_nvidia_smi_is_the_reason_for_unknown_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = observe_machine(COMMAND, STARTED)
    assert seen.facts[FactName.DRIVER] == Fact.unknown("there is no nvidia-smi on this machine")


def test_error_output_of_nvidia_smi_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho couldn\\'t communicate with the driver\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "ended with 9: couldn't communicate" in (observe_machine(COMMAND, STARTED).facts[FactName.GPU].reason or "")
