"""Local prerequisites: `run` rejects what is missing on this machine, `plan` and `validate` warn."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.outcome.exit_codes import Exit
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


def test_run_of_several_machines_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_run(tmp_path, simulated_run(placement={"nodes": 2}))
    assert exit_code(["run", str(file), "--results", str(tmp_path / "results")]) == Exit.BAD_INPUT
    assert "spec.placement.nodes: an engine on several nodes needs a cluster" in capsys.readouterr().err


def test_a_service_is_rejected_outside_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    servers = [
        {"name": "none", "url": "http://127.0.0.1:1"},
        {"name": "service", "serviceRef": {"name": "llama", "port": 8000}},
    ]
    file = write_run(tmp_path, simulated_run(engine={"kind": "external", "endpoints": servers}, drafters=[]))
    assert exit_code(["run", str(file), "--results", str(tmp_path / "results")]) == Exit.BAD_INPUT
    refused = capsys.readouterr().err
    assert refused.count("spec.engine.endpoints[") == 1
    assert "spec.engine.endpoints[1]: a Service (http://llama.local.svc:8000)" in refused
    for command in ("plan", "validate"):
        assert exit_code([command, str(file)]) == Exit.OK
        assert "spec.engine.endpoints[1]: a Service" in capsys.readouterr().err
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert exit_code(["validate", str(file)]) == Exit.OK
    assert "spec.engine.endpoints[1]" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "drafter", "message"),
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
def test_run_rejects_a_missing_model_and_plan_and_validate_warn(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: dict[str, Any],
    drafter: dict[str, Any] | None,
    message: str,
) -> None:
    file, expected = llama_run(tmp_path, model, drafter), message.format(folder=tmp_path)
    assert exit_code(["run", str(file), "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    assert f"error: BadInput: {expected}" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("plan.json"))
    for command in ("plan", "validate"):
        assert exit_code([command, str(file)]) == Exit.OK
        assert f"warning: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "variable", "why"),
    [
        ("sglang", "SGLANG_SIMULATE_ACC_LEN", "makes acceptance up"),
        ("tensorrt-llm", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", "makes acceptance up"),
        ("llama-cpp", "LLAMA_ARG_SPEC_TYPE", "configures drafting on every arm, also the baseline"),
    ],
)
def test_run_rejects_variables_that_an_engine_would_inherit(  # noqa: PLR0917 -- the columns of the table
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    variable: str,
    why: str,
) -> None:
    file = write_run(tmp_path, simulated_run(engine={"kind": kind, "command": ["serve"]}, drafters=[]))
    monkeypatch.setenv(variable, "1")
    assert exit_code(["run", str(file), "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    assert f"error: BadInput: environment of specbench: {variable} {why}" in capsys.readouterr().err
    assert exit_code(["validate", str(file)]) == Exit.OK
    assert f"warning: environment of specbench: {variable} {why}" in capsys.readouterr().err


def test_model_path_is_not_checked_for_a_custom_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = llama_run(tmp_path, {"path": "/in/my/container.gguf"})
    run = yaml.safe_load(file.read_text())
    run["spec"]["engine"]["command"] = ["docker", "run", "llama"]
    file.write_text(yaml.safe_dump(run))
    assert exit_code(["validate", str(file)]) == Exit.OK
    assert "warning" not in capsys.readouterr().err


def test_missing_transformers_extra_is_rejected_with_the_install_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    spec = simulated_run(engine={"kind": "transformers"}, model={"name": "acme/tiny"}, drafters=[])
    assert exit_code(["run", str(write_run(tmp_path, spec)), "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    remedy = "pip install 'WHEEL[transformers]' (in a clone: '.[transformers]'; as an image: docker build"
    problem = f"spec.engine: torch and transformers are an extra: {remedy}"
    assert f"error: BadInput: {problem}" in capsys.readouterr().err


def test_missing_sglang_is_rejected_unless_a_command_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    spec = simulated_run(engine={"kind": "sglang"}, model={"name": "acme/tiny"}, drafters=[])
    file, problem = str(write_run(tmp_path, spec)), f"spec.engine: sglang is not installed for {sys.executable}"
    assert exit_code(["run", file, "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
    assert f"error: BadInput: {problem}" in capsys.readouterr().err
    spec["spec"]["engine"]["command"] = ["elsewhere/python", "-m", "sglang.launch_server"]
    assert exit_code(["validate", str(write_run(tmp_path, spec))]) == Exit.OK
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "load", "warning"),
    [
        (["--ctx-size=4096"], {"concurrency": [1, 32]}, "--ctx-size 4096 over 32 slots leaves 128 tokens"),
        (["-c", "600"], {"rate": [1], "slots": 2}, "--ctx-size 600 over 2 slots leaves 300 tokens"),
        (["--ctx-size=32768"], {"concurrency": [1, 32]}, None),
        (["--ctx-size=4096", "--kv-unified"], {"concurrency": [1, 32]}, None),
        (["--ctx-size=0"], {"concurrency": [1, 32]}, None),
        ([], {"concurrency": [1, 32]}, None),
    ],
    ids=["closed loop", "open loop", "enough", "unified", "model default", "not given"],
)
def test_context_per_slot_too_small_for_an_answer_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], load: dict[str, Any], warning: str | None
) -> None:
    """Answers have 256 tokens; the model file is missing, so `run` fails after it has warned."""
    spec = simulated_run(engine={"kind": "llama-cpp", "args": args}, model={"name": "tiny", "path": "no.gguf"})
    spec["spec"] |= {"drafters": [], "load": load}
    spec["spec"]["workloads"][0]["output"] = {"maxTokens": 256}
    file = str(write_run(tmp_path, spec))
    for command in (["plan", file], ["validate", file], ["run", file, "--results", str(tmp_path / "out")]):
        exit_code(command)
        warnings = [line for line in capsys.readouterr().err.splitlines() if "--ctx-size" in line]
        assert len(warnings) == (warning is not None)
        assert all(line.startswith(f"warning: spec.engine.args: {warning} to a request") for line in warnings)


@pytest.mark.parametrize(
    ("command", "uri"),
    [("plan", "/usr/share/specbench/gone"), ("validate", "/usr/share/specbench/gone")],
)
def test_missing_prompt_file_that_a_cluster_may_have_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, uri: str
) -> None:
    file = write_run(tmp_path, simulated_run())
    expected = f"spec.workloads[0].dataset.uri: {tmp_path / uri} does not exist"
    setting = f"spec.workloads[0].dataset.uri={uri}"
    assert exit_code([command, str(file), "--output", "json", "--set", setting]) == Exit.OK
    captured = capsys.readouterr()
    assert f"warning: {expected}" in captured.err
    few, warning = json.loads(captured.out)["warnings"]
    assert (few.partition(":")[0], warning.startswith(expected)) == ("spec.load.repeats", True)


RELATIVE = " Relative paths are relative to the spec's folder."
CLUSTER = " For a cluster, give a path below /usr/share/specbench, dataset.pvc or s3://BUCKET/KEY."


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("gone", RELATIVE),
        ("/nowhere/gone.jsonl", ""),
        ("/usr/share/specbench/../gone.jsonl", ""),
        ("promts.jsonl", f" Did you mean prompts.jsonl?{RELATIVE}"),
        ("{folder}/promts.jsonl", " Did you mean {folder}/prompts.jsonl?"),
    ],
    ids=["relative", "absolute", "out of the image", "mistyped", "absolute and mistyped"],
)
@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_missing_prompt_file_is_rejected_in_the_same_words_by_validate_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, uri: str, remedy: str
) -> None:
    file = write_run(tmp_path, simulated_run())
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Hello"}\n')
    uri, remedy = uri.format(folder=tmp_path), remedy.format(folder=tmp_path)
    options = ["--output", "json", "--set", f"spec.workloads[0].dataset.uri={uri}"]
    options += ["--results", str(tmp_path / "out")] if command == "run" else []
    assert exit_code([command, str(file), *options]) == Exit.BAD_INPUT
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["reason"] == "DatasetMissing"
    where = CLUSTER if command == "validate" else ""
    message = f"spec.workloads[0].dataset.uri: {tmp_path / uri} does not exist.{remedy}{where}"
    assert error["messages"] == [message]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"messages": [{"role": "user", "content": "Hi"}]}\nnot JSON\n', "prompts.jsonl"),
        ("", "prompts.jsonl"),
        ('{"question_id": 1}\n', "prompts.jsonl"),
    ],
    ids=["broken row", "empty", "no prompt"],
)
def test_broken_prompts_are_rejected_with_the_same_error_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, problem: str
) -> None:
    file = str(write_run(tmp_path, simulated_run()))
    (tmp_path / "prompts.jsonl").write_text(content)
    errors = set[str]()
    for command in (["validate", file], ["plan", file], ["run", file, "--results", str(tmp_path / "out")]):
        assert exit_code(command) == Exit.BAD_INPUT
        errors.update(line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    (error,) = errors
    assert problem in error


LONG_ANSWER = json.dumps({"timestamp": 0, "input_length": 9, "output_length": 49, "hash_ids": [1]})


@pytest.mark.parametrize(
    ("text", "dataset", "message"),
    [
        ("timestamp\nsoon\n", {}, "trace.csv, line 2: timestamp is 'soon'"),
        ("timestamp\n1\n1\n", {}, "the trace's 2 timestamps are all the same"),
        ("timestamp\n1\n2\n", {"source": "mooncake", "uri": "long.jsonl"}, "longer than output.maxTokens 48"),
        (None, {}, "nothing.csv"),
        (None, {"source": "jsonl", "uri": "s3://bucket/prompts.jsonl"}, "nothing.csv"),
    ],
    ids=["damaged", "cannot be repeated", "answers too long", "missing", "missing beside remote prompts"],
)
def test_validate_reports_prompts_and_traces_that_run_rejects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, dataset: dict[str, str], message: str
) -> None:
    (tmp_path / "trace.csv").write_text(text or "")
    (tmp_path / "long.jsonl").write_text(LONG_ANSWER)
    trace = {"process": "Trace", "uri": "trace.csv" if text else "nothing.csv"}
    run = simulated_run(load={"arrival": trace, "slots": 2, "repeats": 1})
    run["spec"]["workloads"][0]["dataset"] |= dataset
    file = str(write_run(tmp_path, run))
    assert exit_code(["validate", file]) == (Exit.BAD_INPUT if text else Exit.OK)
    assert message in capsys.readouterr().err
    if "s3://bucket/prompts.jsonl" not in dataset.values():
        assert exit_code(["run", file, "--results", str(tmp_path / "out")]) == Exit.BAD_INPUT
        assert message in capsys.readouterr().err


def test_a_trace_in_s3_is_not_read_by_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = {"arrival": {"process": "Trace", "uri": "s3://bucket/trace.csv"}, "slots": 2, "repeats": 1}
    assert exit_code(["validate", str(write_run(tmp_path, simulated_run(load=load)))]) == Exit.OK
    assert "trace" not in capsys.readouterr().err


@pytest.mark.parametrize(("command", "limits"), [("validate", {"inputTokens": {"max": 1000}}), ("plan", {})])
def test_that_prompts_cannot_be_counted_is_one_warning_for_all_workloads(
    command: str,
    limits: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    spec = simulated_run()
    (first,) = spec["spec"]["workloads"]
    first["dataset"] |= limits
    spec["spec"]["workloads"].append({**first, "name": "second", "output": {"maxTokens": 9}})
    assert exit_code([command, str(write_run(tmp_path, spec)), "--output", "json"]) == Exit.OK
    printed = capsys.readouterr().out
    (warning,) = (each for each in json.loads(printed)["warnings"] if "tiktoken" in each)
    assert printed.count("tiktoken's table") == 1
    assert command == "plan" or all(repr(name) in warning for name in (first["name"], "second"))
