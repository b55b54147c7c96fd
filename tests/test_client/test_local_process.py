"""Local engine processes: the program that is started, and errors if there is none."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from specbench_api.launch.launcher import CONFIG_FOLDER, LaunchSpec
from specbench_client.errors import BadInput
from specbench_client.local.engine_process import EngineProcess, local_command, planned_command


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
