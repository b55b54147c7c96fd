"""What is missing on this machine is told before anything starts: `run` refuses, `plan` and `validate` warn."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_testing.specs import simulated_run, write_run

DRAFTER = {"name": "draft", "method": "draft_model", "model": "small.gguf"}


@pytest.fixture(autouse=True)
def no_llama_server_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}" if name != "llama-server" else None)


def llama_run(folder: Path, model: dict[str, Any], drafter: dict[str, Any] | None = None) -> Path:
    spec = simulated_run(engine={"kind": "llama-cpp"}, model={"name": "acme/tiny", **model}, drafters=[])
    spec["spec"]["drafters"] = [drafter] if drafter else []
    return write_run(folder, spec)


def test_an_engine_on_several_nodes_is_refused_on_one_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_run(tmp_path, simulated_run(placement={"nodes": 2}))
    assert exit_code(["run", str(file), "--results", str(tmp_path / "results")]) == Exit.BAD_INPUT
    assert "spec.placement.nodes: an engine on several nodes needs a cluster" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "drafter", "says"),
    [
        ({"path": "tiny.gguf"}, None, "spec.model.path: {folder}/tiny.gguf does not exist"),
        ({"path": "run.yaml"}, DRAFTER, "spec.drafters[0].model: {folder}/small.gguf does not exist"),
        ({"pvc": {"claimName": "c", "path": "x"}}, None, "spec.model.pvc: a volume claim exists only on a cluster"),
        (
            {},
            None,
            "spec.model.name: the prebuilt llama.cpp server cannot download models from a hub (acme/tiny): set spec.",
        ),
        ({"path": "run.yaml"}, DRAFTER | {"model": "acme/small"}, "spec.drafters[0].model: the prebuilt llama.cpp"),
    ],
    ids=["target", "drafter", "claim", "hub", "hub for the drafter"],
)
def test_a_model_that_is_not_here_is_refused_by_run_and_told_by_plan_and_validate(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: dict[str, Any],
    drafter: dict[str, Any] | None,
    says: str,
) -> None:
    file, wanted = llama_run(tmp_path, model, drafter), says.format(folder=tmp_path)
    assert exit_code(["run", str(file), "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    assert f"error: BadInput: {wanted}" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("plan.json"))
    for command in ("plan", "validate"):
        assert exit_code([command, str(file)]) == Exit.OK
        assert f"warning: {wanted}" in capsys.readouterr().err


def test_a_program_of_the_users_own_may_keep_its_models_where_it_likes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = llama_run(tmp_path, {"path": "/in/my/container.gguf"})
    run = yaml.safe_load(file.read_text())
    run["spec"]["engine"]["command"] = ["docker", "run", "llama"]
    file.write_text(yaml.safe_dump(run))
    assert exit_code(["validate", str(file)]) == Exit.OK
    assert "warning" not in capsys.readouterr().err


def test_the_research_runtimes_extra_is_told_where_it_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    spec = simulated_run(engine={"kind": "transformers"}, model={"name": "acme/tiny"}, drafters=[])
    assert exit_code(["run", str(write_run(tmp_path, spec)), "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    remedy = "pip install 'specbench[transformers]' (in a clone: '.[transformers]'; as an image: docker build"
    told = f"spec.engine: torch and transformers are an extra: {remedy}"
    assert f"error: BadInput: {told}" in capsys.readouterr().err


def test_sglang_is_looked_for_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    spec = simulated_run(engine={"kind": "sglang"}, model={"name": "acme/tiny"}, drafters=[])
    file, told = str(write_run(tmp_path, spec)), f"spec.engine: sglang is not installed for {sys.executable}"
    assert exit_code(["run", file, "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    assert f"error: BadInput: {told}" in capsys.readouterr().err
    spec["spec"]["engine"]["command"] = ["elsewhere/python", "-m", "sglang.launch_server"]
    assert exit_code(["validate", str(write_run(tmp_path, spec))]) == Exit.OK
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "load", "leaves"),
    [
        (["--ctx-size=4096"], {"concurrency": [1, 32]}, "--ctx-size 4096 over 32 slots leaves 128 tokens"),
        (["-c", "600"], {"rate": [1], "slots": 2}, "--ctx-size 600 over 2 slots leaves 300 tokens"),
        (["--ctx-size=32768"], {"concurrency": [1, 32]}, None),
        (["--ctx-size=4096", "--kv-unified"], {"concurrency": [1, 32]}, None),
        (["--ctx-size=0"], {"concurrency": [1, 32]}, None),
        ([], {"concurrency": [1, 32]}, None),
    ],
    ids=["README of old", "open loop", "enough", "shared by all slots", "the model's", "not given"],
)
def test_slots_too_small_for_an_answer_are_a_warning_before_they_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], load: dict[str, Any], leaves: str | None
) -> None:
    """Answers of 256 tokens; the model is not there, so `run` refuses after it has warned."""
    spec = simulated_run(engine={"kind": "llama-cpp", "args": args}, model={"name": "tiny", "path": "no.gguf"})
    spec["spec"] |= {"drafters": [], "load": load}
    spec["spec"]["workloads"][0]["output"] = {"maxTokens": 256}
    file = str(write_run(tmp_path, spec))
    for command in (["plan", file], ["validate", file], ["run", file, "--results", str(tmp_path / "out")]):
        exit_code(command)
        told = [line for line in capsys.readouterr().err.splitlines() if "--ctx-size" in line]
        assert len(told) == (leaves is not None)
        assert all(line.startswith(f"warning: spec.engine.args: {leaves} to a request") for line in told)


def test_prompts_that_are_not_here_are_a_warning_with_the_path_that_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_run(tmp_path, simulated_run())
    (tmp_path / "prompts.jsonl").unlink()
    wanted = f"spec.workloads[0].dataset.uri: {tmp_path}/prompts.jsonl does not exist"
    for command in ("plan", "validate"):
        assert exit_code([command, str(file), "--output", "json"]) == Exit.OK
        told = capsys.readouterr()
        assert f"warning: {wanted}" in told.err
        (warning,) = json.loads(told.out)["warnings"]
        assert warning.startswith(wanted)
