"""`specbench demo`: the packaged run, and the models that it makes."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.expansion import expand
from specbench_api.spec.run import SpecBenchRun
from specbench_client.cli import demo as demo_command
from specbench_client.cli import exit_code
from specbench_client.cli.measure import measure
from specbench_client.cli.options import EXAMPLES, read_spec_file
from specbench_client.errors import BadInput
from specbench_client.local import demo_model
from specbench_client.local.llama_server import llama_server
from specbench_client.workload.prompts import load_workload

EXAMPLE = EXAMPLES / "local-llama-cpp.yaml"
NO_PIP = {"pip": None}


def test_the_packaged_run_has_its_prompts() -> None:
    resource = read_spec_file(EXAMPLE)
    assert isinstance(resource, SpecBenchRun)
    for workload in expand(resource).workloads:
        assert load_workload(workload, EXAMPLE.parent).rows


def test_the_demo_runs_the_packaged_file_with_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_command, "make_demo_models", lambda *_: {"target": tmp_path / "absent.gguf"})
    assert exit_code(["demo", "--results", str(tmp_path / "results")]) == Exit.BAD_INPUT
    assert f"spec.model.path: {tmp_path}/absent.gguf" in capsys.readouterr().err


def test_the_demo_takes_settings_and_ends_with_commands_for_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, given = tmp_path / "a model.gguf", dict[str, Any]()
    monkeypatch.setattr(demo_command, "make_demo_models", lambda *_: {"target": model})

    def measured(**options: Any) -> Exit:
        given.update(options)
        return Exit.UNTRUSTWORTHY

    monkeypatch.setattr("specbench_client.cli.run.run", measured)
    setting = "spec.load.concurrency=[1, 4]"
    assert exit_code(["demo", "--set", setting]) == Exit.UNTRUSTWORTHY
    assert given["settings"] == (f"spec.model.path={model}", setting)
    assert isinstance(read_spec_file(EXAMPLE, given["settings"]), SpecBenchRun)
    commands = [line[line.index("specbench ") :].removesuffix(" &") for line in capsys.readouterr().out.splitlines()]
    settings, server, load = (shlex.split(command)[2:] for command in commands)
    assert settings == ["--set", setting]
    served = llama_server.make_context("llama-server", server).params
    assert served["model__path"] == str(model)
    loads = measure.make_context("measure", load).params["concurrency"]
    assert max(loads) == served["n_parallel"], "no request waits for a slot"


@pytest.mark.parametrize("command", ["demo", "measure"])
def test_a_wrong_flag_is_reported_before_large_libraries_are_imported(command: str) -> None:
    script = (
        "import sys; from specbench_client.cli import exit_code\n"
        f"code = exit_code(['{command}', '--nosuchflag'])\n"
        "print(code, *sorted({'pandas', 'pyarrow', 'numpy', 'scipy', 'aiohttp', 'datasets'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.split() == [str(int(Exit.BAD_INPUT))]
    assert "--nosuchflag" in found.stderr


@pytest.mark.parametrize(
    ("missing", "program"),
    [({}, [sys.executable, "-m", "pip"]), (NO_PIP, ["uv", "pip"])],
    ids=["pip", "uv"],
)
def test_a_failed_download_names_the_folder_for_the_file(
    missing: dict[str, None], program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = list[list[str]]()

    def fail(command: list[str], **_: Any) -> None:
        called.append(command)
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(subprocess, "run", fail)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: missing.get(name, name))
    with pytest.raises(BadInput, match=str(tmp_path / "models")):
        demo_model.make_demo_models(tmp_path / "models", "f32")
    assert called[0][: len(program)] == program
    assert list((tmp_path / "models").iterdir()) == []


def test_missing_gguf_is_reported_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / demo_model.DRAFTER_NAME).touch()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(BadInput, match=r"WHEEL\[llama-cpp\]"):
        demo_model.make_demo_models(tmp_path, "f32")
