"""This machine: engine processes, and facts of its processor and GPUs.

Outputs of nvidia-smi follow its documentation; they are not recordings.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from specbench_api.launch.launcher import CONFIG_FOLDER, LaunchSpec
from specbench_api.outcome.provenance import (
    GPUS,
    SUMMARY,
    TOPOLOGY,
    Fact,
    FactName,
    HostFacts,
    cuda_fact,
    gpu_facts,
    links_fact,
)
from specbench_client.errors import BadInput
from specbench_client.local.engine_process import EngineProcess, local_command, planned_command
from specbench_client.local.host_facts import CommandFailed, observe_machine
from specbench_testing.nvidia_smi import HEAD, MIXED, PAIR, SINGLE


def launch(*command: str, args: tuple[str, ...] = ()) -> LaunchSpec:
    return LaunchSpec(image="", args=args, port=1, command=command)


def start(folder: Path, what: LaunchSpec) -> None:
    async def once() -> None:
        async with EngineProcess(what, folder, folder / "log"):
            pass

    asyncio.run(once())


def test_program_can_be_given_by_absolute_path() -> None:
    assert local_command(launch("/bin/sh", "-c"), 80)[:2] == ["/bin/sh", "-c"]


def test_program_beside_the_python_interpreter_is_found_by_name() -> None:
    assert local_command(launch(Path(sys.executable).name), 80)[0].endswith(Path(sys.executable).name)


@pytest.mark.parametrize("program", ["/nowhere/engine", "/tmp", "./engine", "..", "no-such-program"])
def test_missing_program_is_rejected_with_its_name(program: str) -> None:
    with pytest.raises(BadInput, match=r"spec\.engine") as caught:
        local_command(launch(program), 80)
    assert program in str(caught.value)


def test_program_that_cannot_be_executed_is_rejected(tmp_path: Path) -> None:
    program = tmp_path / "engine"
    program.write_bytes(b"\x00 no program")
    program.chmod(0o755)
    with pytest.raises(BadInput, match="cannot be started"):
        start(tmp_path, launch(str(program)))


def test_argument_with_a_null_byte_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be started"):
        start(tmp_path, launch("/bin/sh", args=("a\0b",)))


@pytest.mark.parametrize("relative", [False, True])
def test_configuration_files_are_written_beside_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    """Also holds for a relative log path, although the engine runs in another folder."""
    monkeypatch.chdir(tmp_path)
    base, logs = tmp_path / "spec", Path("logs") if relative else tmp_path / "logs"
    base.mkdir()
    words = f"cat {CONFIG_FOLDER}/a.yaml {CONFIG_FOLDER}/b.json"
    what = LaunchSpec("", (words,), 1, ("/bin/sh", "-c"), configs={"a.yaml": "tree: ä\n", "b.json": "{}"})

    async def log_tail() -> str:
        async with EngineProcess(what, base, logs / "engine.log") as engine:
            return str(await engine.explain())

    assert asyncio.run(log_tail()).endswith("the end of its log: tree: ä\n{}")
    assert (tmp_path / "logs/engine.config/a.yaml").read_text(encoding="utf-8") == "tree: ä\n"


def test_engine_without_configuration_files_has_no_folder_for_them(tmp_path: Path) -> None:
    start(tmp_path, launch("/bin/true"))
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_planned_command_uses_the_name_of_a_missing_program() -> None:
    launch_spec = LaunchSpec("", ("--x",), 80, local_programs=(("no-such-engine", "serve"), ("neither",)))
    assert planned_command(launch_spec) == ["no-such-engine", "serve", "--x", "--host", "127.0.0.1", "--port", "80"]
    assert planned_command(launch("/bin/sh")) == local_command(launch("/bin/sh"), 1)


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


def test_identical_gpus_are_counted() -> None:
    facts = gpu_facts("NVIDIA H200, 143771, 570.133.20\n" * 2, "here")
    assert facts == {
        FactName.GPU: Fact.observed("NVIDIA H200", "here"),
        FactName.GPU_COUNT: Fact.observed(2, "here"),
        FactName.GPU_MEMORY_BYTES: Fact.observed(143771 << 20, "here"),
        FactName.DRIVER: Fact.observed("570.133.20", "here"),
    }


@pytest.mark.parametrize("rows", ["A, 80, 5\nB, 40, 5\n", "A and B, [N/A], 5"])
def test_different_gpus_are_all_listed_and_their_memory_is_unknown(rows: str) -> None:
    facts = gpu_facts(rows, "here")
    assert facts[FactName.GPU].value == "A and B"
    assert facts[FactName.GPU_MEMORY_BYTES].value is None


@pytest.mark.parametrize(
    ("rows", "reason"),
    [("", "its output is empty"), ("sh: 1: nvidia-smi:\n not found", "sh: 1: nvidia-smi: not found")],
)
def test_unparsable_output_is_quoted_in_the_reason(rows: str, reason: str) -> None:
    facts = gpu_facts(rows, "here")
    assert facts == dict.fromkeys(facts, Fact.unknown(f"here reports none: {reason}"))
    assert FactName.GPU in facts


@pytest.mark.parametrize(("matrix", "expected"), [(PAIR, "NV18"), (MIXED, "NV4, SYS"), (SINGLE, "none"), ("", None)])
def test_links_fact_lists_only_links_between_gpus(matrix: str, expected: str | None) -> None:
    assert links_fact(matrix, "here").value == expected


@pytest.mark.parametrize(("head", "expected"), [(HEAD, "12.8"), ("no devices", None)])
def test_the_drivers_cuda_version_is_read_from_the_header(head: str, expected: str | None) -> None:
    assert cuda_fact(head, "here").value == expected
