"""`specbench plan` and `validate` show the load of each point and the estimate, as far as they are known."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.summary import MIN_WINDOWS
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code, validate
from specbench_testing.agent_traces import otlp, span, user
from specbench_testing.chat_templates import tokenizer_folder
from specbench_testing.specs import simulated_run, write_run

OPEN = {"rate": [2.5, 1], "slots": 8, "durationSeconds": 60, "repeats": 1}
ENDLESS = {"concurrency": [2], "durationSeconds": 60, "repeats": 1}


def plan_exit_code(folder: Path, load: dict[str, Any], *arguments: str) -> int:
    return exit_code(["plan", str(write_run(folder, simulated_run(load=load))), *arguments])


@pytest.mark.parametrize(
    ("load", "requests", "seconds"),
    [
        ({"concurrency": [2], "repeats": 1}, 2 * 10, None),
        ({"concurrency": [2], "repeats": 1, "requests": 9}, 2 * 12, None),
        ({"rate": [0.5], "slots": 2, "repeats": 1}, 2 * 10, 2 * 16),
        (ENDLESS, None, 2 * 60),
    ],
    ids=str,
)
def test_estimate_follows_the_requested_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], load: dict[str, Any], requests: int | None, seconds: int | None
) -> None:
    """There are eight prompts; the first two have two turns."""
    assert plan_exit_code(tmp_path, load, "--output", "json") == Exit.OK
    size = json.loads(capsys.readouterr().out)["estimate"]
    assert (size["requests"], size["loadSeconds"]) == (requests, seconds)


@pytest.mark.parametrize(
    ("resources", "total"),
    [
        ({}, "8 CPU cores and 16Gi"),
        ({"limits": {"cpu": "500m", "memory": "8G"}}, "2 CPU cores and 29.8Gi"),
        ({"requests": {"cpu": 1}, "limits": {"cpu": 4}}, "4 CPU cores and 16Gi"),
    ],
    ids=str,
)
def test_number_of_clients_is_printed_with_what_they_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], resources: dict[str, Any], total: str
) -> None:
    load = {"concurrency": [8], "repeats": 1, "clients": 4}
    file = str(write_run(tmp_path, simulated_run(load=load, placement={"client": {"resources": resources}})))
    assert exit_code(["plan", file]) == Exit.OK
    assert f"4 client pods for each launch with together {total}\n" in capsys.readouterr().out
    assert exit_code(["plan", file, "--output", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["estimate"]["clients"] == 4


def planned_estimate(capsys: pytest.CaptureFixture[str], file: Path, *arguments: str) -> dict[str, Any]:
    assert exit_code(["plan", str(file), "--output", "json", *arguments]) == Exit.OK
    estimate: dict[str, Any] = json.loads(capsys.readouterr().out)["estimate"]
    return estimate


LAUNCH, DURATIONS = ("--assume", "launchSeconds=300"), ("--assume", "launchSeconds=300,pointSeconds=60")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([*LAUNCH, "--max-gpu-hours", "1"], Exit.OK, ""),
        (
            [*LAUNCH, "--max-gpu-hours", "0.4"],
            Exit.BAD_INPUT,
            "0.47 GPU-hours are expected, and --max-gpu-hours is 0.4",
        ),
        (["--max-gpu-hours", "16"], Exit.OK, ""),
        (["--max-gpu-hours", "15"], Exit.BAD_INPUT, "launches can use 16.00 GPU-hours until their activeDeadline"),
    ],
    ids=["expected", "expected above", "limit", "limit above"],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_plan_above_the_allowed_gpu_hours_is_printed_and_fails(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    arguments: list[str],
    code: Exit,
    message: str,
    output: str,
) -> None:
    file = str(write_run(tmp_path, simulated_run(load=OPEN, placement={"gpus": 2})))
    assert exit_code(["plan", file, *arguments, "--output", output]) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert ("limitGpuHours" if output == "json" else "limit on a cluster") in printed.out


def test_a_run_without_declared_gpus_is_not_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_exit_code(tmp_path, OPEN, "--max-gpu-hours", "0") == Exit.OK
    assert "warning: --max-gpu-hours was not checked: the run declares no GPUs" in capsys.readouterr().err


@pytest.mark.parametrize("size", [1, 2])
def test_gpu_hours_of_a_local_engine_follow_its_tensor_parallel_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    engine, drafter = {"kind": "vllm", "tensorParallelSize": size}, {"name": "n", "method": "ngram"}
    spec = simulated_run(load=OPEN, engine=engine, drafters=[{**drafter, "numSpeculativeTokens": 3}])
    found = planned_estimate(capsys, write_run(tmp_path, spec), *LAUNCH)
    assert found["gpuHours"] == pytest.approx(size * found["engineHours"])


def test_a_launch_that_would_outlast_its_deadline_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = {"concurrency": [2], "requests": 900, "repeats": 1}
    file = str(write_run(tmp_path, simulated_run(load=closed, placement={"gpus": 1}, activeDeadlineSeconds=360)))
    assert exit_code(["plan", file, "--assume", "launchSeconds=300,pointSeconds=61"]) == Exit.OK
    assert "361 s, more than activeDeadlineSeconds (360): on a cluster, raise" in capsys.readouterr().err
    assert exit_code(["plan", file, *DURATIONS]) == Exit.OK
    assert "activeDeadlineSeconds (" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gpu=H100", "--assume: gpu: unknown field (known fields: launchSeconds, pointSeconds)"),
        ("launchSeconds=0", "--assume: launchSeconds: input should be greater than 0"),
        ("pointSeconds", "--assume: pointSeconds: input should be a valid number"),
    ],
)
def test_unusable_assumptions_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    assert plan_exit_code(tmp_path, OPEN, "--assume", given) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err


def client_template_run(folder: Path, **declared: Any) -> str:
    """Write a run whose chat template the client applies."""
    run = simulated_run()
    run["spec"]["workloads"][0]["chatTemplate"] = {"appliedBy": "Client", **declared}
    return str(write_run(folder, run))


def test_prompt_lengths_are_in_the_models_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", "chatml")
    assert exit_code(["plan", client_template_run(tmp_path, tokenizer="tokenizer")]) == Exit.OK
    printed = capsys.readouterr().out.splitlines()[-1]
    sha = hashlib.sha256((tokenizer / "chat_template.jinja").read_bytes()).hexdigest()
    assert f"chat template applied by the client: {sha[:12]}; token ids of the median prompt: " in printed


def test_template_that_run_would_reject_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
    assert exit_code(["validate", client_template_run(tmp_path, tokenizer="./none")]) == Exit.OK
    printed = capsys.readouterr().err
    assert f"spec.workloads[0].chatTemplate: chatTemplate.tokenizer: {tmp_path}/none has no tokenizer.json" in printed
    assert exit_code(["validate", client_template_run(tmp_path, tokenizer="s3://bucket/tokenizer")]) == Exit.OK
    assert "chatTemplate" not in capsys.readouterr().err, "remote tokenizers are not checked"


def test_missing_library_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "installed", lambda: False)
    assert exit_code(["validate", client_template_run(tmp_path, tokenizer="./none")]) == Exit.OK
    assert (
        "applying a chat template needs the package tokenizers: pip install 'specbench[tokenizers]'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("load", [{"concurrency": [1, 2]}, {"concurrency": [2], "slots": 4}], ids=["default", "slots"])
def test_requests_of_sessions_that_may_be_open_at_once_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], load: dict[str, Any]
) -> None:
    file = write_run(tmp_path, simulated_run(load={**load, "repeats": 1}))
    spans = [span("t", 0.0, 9.0, [user("a")]), span("t", 1.0, 2.0, [user("b")]), span("t", 3.0, 4.0, [user("c")])]
    (tmp_path / "prompts.jsonl").write_text(json.dumps(otlp(*spans)))
    assert exit_code(["plan", str(file), "--set", "spec.workloads[0].dataset.source=agent-traces"]) == Exit.OK
    printed = capsys.readouterr()
    slots = load.get("slots", 2)
    assert (
        f"requests of one session that may be open at once: 2; of all sessions: 4 (load.slots: {slots})" in printed.out
    )
    assert ("the session 't' has up to 2 requests in flight at once" in printed.err) is ("slots" not in load)


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_a_soak_test_with_too_few_windows_for_changes_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    soak = {"concurrency": [2], "order": "Soak", "durationSeconds": 60}
    for windows, warned in ((3, True), (MIN_WINDOWS - 1, True), (MIN_WINDOWS, False)):
        file = write_run(tmp_path, simulated_run(load={**soak, "repeats": windows}))
        assert exit_code([command, str(file)]) == Exit.OK
        message = f"warning: spec.load.repeats: {windows} windows are too few to see a change over time"
        assert (message in capsys.readouterr().err) is warned


def test_launches_and_points_are_listed_with_load_files_and_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensorrt = {"engine": {"kind": "tensorrt-llm"}, "drafters": [{"name": "ngram", "method": "ngram"}]}
    file = str(write_run(tmp_path, simulated_run(load=OPEN, placement={"gpus": 2}, **tensorrt)))
    assert exit_code(["plan", file, *LAUNCH]) == Exit.OK
    printed = capsys.readouterr()
    lines = [line.strip() for line in printed.out.splitlines()]
    points = [line.split("  ")[-2] for line in lines if line.endswith("repeat 0")]
    assert points == ["at 1/s", "at 2.5/s"] * 2
    assert "2 launches, 4 points (0 measured already)" in printed.out
    assert "240 s of load" in printed.out
    assert lines.count("/etc/specbench/engine/config.yaml:") == 2
    assert lines.count("decoding_type: NGram") == 1
    assert "estimate of what remains: 0.23 engine hours, 0.47 GPU-hours\n  4 points" in printed.out
    assert "no program trtllm-serve on PATH" in printed.err
    assert exit_code(["plan", file, "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert {arm: list(files) for arm, files in document["configs"].items()} == {
        "none": ["config.yaml"],
        "ngram": ["config.yaml"],
    }
    unknown = document["estimate"]
    assert (unknown["engineHours"], unknown["gpuHours"], unknown["limitGpuHours"]) == (None, None, 16)
