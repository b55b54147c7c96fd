"""`specbench plan` and `validate` of runs and campaigns: points, sizes, hours, warnings, and what the fence refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.parsing import parse_campaign
from specbench_client.cli import exit_code, validate
from specbench_client.documents.summary import MIN_WINDOWS
from specbench_client.workload import prompts as prompt_loading
from specbench_testing.agent_traces import otlp, span, user
from specbench_testing.chat_templates import tokenizer_folder
from specbench_testing.resources import campaign
from specbench_testing.specs import simulated_campaign, simulated_run, write_campaign, write_run

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
    found = capsys.readouterr()
    assert f"spec.workloads[0].chatTemplate: chatTemplate.tokenizer: {tmp_path}/none has no tokenizer.json" in found.err
    assert ": valid, but not on this machine: " in found.out
    assert exit_code(["validate", client_template_run(tmp_path, tokenizer="s3://bucket/tokenizer")]) == Exit.OK
    found = capsys.readouterr()
    assert "chatTemplate" not in found.err, "remote tokenizers are not checked"
    assert ": valid: " in found.out


def test_prompts_too_long_for_the_context_with_their_template_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer_folder(tmp_path / "tokenizer", "chatml")
    template = {"appliedBy": "Client", "tokenizer": "tokenizer"}
    for tokens, code in ((49, Exit.BAD_INPUT), (1000, Exit.OK)):
        run = simulated_run(engine={"kind": "vllm", "args": [f"--max-model-len={tokens}"]}, drafters=[])
        run["spec"]["workloads"][0]["chatTemplate"] = template
        assert exit_code(["validate", str(write_run(tmp_path, run))]) == code
        assert (f"context of {tokens} tokens" in capsys.readouterr().err) == (code != Exit.OK)


def test_missing_library_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "installed", lambda: False)
    assert exit_code(["validate", client_template_run(tmp_path, tokenizer="./none")]) == Exit.OK
    assert (
        "applying a chat template needs the package tokenizers: pip install 'WHEEL[tokenizers]'"
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


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        (["spec.load.repeats=1"], "1 repeat gives"),
        (["spec.load.repeats=2"], "2 repeats give"),
        (["spec.load.repeats=3"], None),
        (["spec.load.repeats=1", "spec.baseline=Skip"], None),
        (["spec.load.repeats=1", "spec.drafters=[]"], None),
    ],
)
@pytest.mark.parametrize("command", ["plan", "validate"])
def test_repeats_that_give_no_interval_are_named_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, settings: list[str], count: str | None
) -> None:
    """Only a comparison has a speed-up."""
    options = [word for setting in settings for word in ("--set", setting)]
    assert exit_code([command, str(write_run(tmp_path, simulated_run())), *options]) == Exit.OK
    few = [line for line in capsys.readouterr().err.splitlines() if "spec.load.repeats" in line]
    expected = f"warning: spec.load.repeats: {count} a speed-up without an interval; set 3 or more"
    assert few == ([] if count is None else [expected])


@pytest.mark.parametrize(
    ("selected", "few"),
    [({}, False), ({"count": 5}, False), ({"count": 4}, True), ({"categories": ["math"]}, True)],
    ids=["all", "enough", "count", "category"],
)
@pytest.mark.parametrize("command", ["plan", "validate"])
def test_too_few_prompts_are_named_before_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str, selected: dict[str, Any], *, few: bool
) -> None:
    resource = simulated_run(load={"concurrency": [32]})
    workload = resource["spec"]["workloads"][0]
    workload["dataset"] |= selected
    prompt_loading.warn_once.cache_clear()
    assert exit_code([command, str(write_run(tmp_path, resource))]) == Exit.OK
    prompts = 4 if "count" in selected else 2
    message = f"the figures of workload 'mixed' rest on {prompts} different prompts and are valid only for those"
    assert [each.getMessage() for each in caplog.records] == (
        [f"warning: {message} (TooFewPrompts): use more prompts"] if few else []
    )


def test_launches_and_points_are_listed_with_load_files_and_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensorrt = {"engine": {"kind": "tensorrt-llm"}, "drafters": [{"name": "ngram", "method": "ngram"}]}
    file = str(write_run(tmp_path, simulated_run(load=OPEN, placement={"gpus": 2}, **tensorrt)))
    assert exit_code(["plan", file, *LAUNCH]) == Exit.OK
    printed = capsys.readouterr()
    lines = [line.strip() for line in printed.out.splitlines()]
    points = [line.split("  ")[-2] for line in lines if line.endswith("repeat 1")]
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


def test_json_contains_every_run_as_it_will_be_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plan", write_campaign(tmp_path), "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    expected_runs = expand_campaign(parse_campaign(simulated_campaign())).runs
    assert [row["resource"] for row in document["runs"]] == [run.resource for run in expected_runs]
    assert [len(row["launches"]) for row in document["runs"]] == [2, 2, 2]
    assert [row["commands"]["eagle3"][1:4] for row in document["runs"]] == [
        ["simulate", "--dialect", dialect] for dialect in ("vllm", "vllm", "sglang")
    ]
    assert document["runs"][0]["launches"][1]["points"] == [
        point.hash for point in expected_runs[0].plan.groups[1].points
    ]


def test_hours_of_a_campaign_are_those_of_its_runs_and_compared_with_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "spec.template.spec.placement.gpus=2", "--assume", "launchSeconds=600,pointSeconds=60"]
    file = write_campaign(tmp_path, budget={"gpuHours": 1})
    assert exit_code(["plan", file, *settings]) == Exit.OK
    printed = capsys.readouterr()
    assert "estimate of what remains: 1.1 engine hours, 2.2 GPU-hours\n  6 points from --assume point" in printed.out
    assert "limit on a cluster: 48 GPU-hours, if each launch runs once to its activeDeadlineSeconds\n" in printed.out
    assert printed.err.endswith("warning: over budget by 1.2 GPU-hours: 2.2 needed, budget.gpuHours is 1\n")
    assert exit_code(["plan", file, *settings, "--max-gpu-hours", "2.1"]) == Exit.BAD_INPUT
    assert "2.20 GPU-hours are expected, and --max-gpu-hours is 2.1: " in capsys.readouterr().err
    assert exit_code(["plan", file, *settings, "-o", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["budget"] == {"gpuHours": 1}
    assert document["estimate"] == {
        "launches": 6,
        "points": 6,
        "requests": 60,
        "engineHours": pytest.approx(1.1),
        "gpuHours": pytest.approx(2.2),
        "limitGpuHours": 6 * 4 * 2,
        "remainingLaunches": 6,
        "remainingPoints": 6,
        "pointsByBasis": {"Assumed": 6},
    }
    assert document["warnings"][-1] == "over budget by 1.2 GPU-hours: 2.2 needed, budget.gpuHours is 1"


def test_invalid_run_is_reported_with_its_combination(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["validate", write_campaign(tmp_path), "--set", "spec.axes[0].values=[vllm, vlllm]", "-o", "json"]
    assert exit_code(arguments) == Exit.BAD_INPUT
    (message,) = json.loads(capsys.readouterr().out)["error"]["messages"]
    assert message.startswith("[dialect=vlllm temperature=0; dialect=vlllm temperature=1] spec.engine.dialect: ")


def test_valid_campaign_is_counted_with_its_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_campaign(tmp_path, exclude=[{"dialect": "openai"}])
    assert exit_code(["validate", file]) == Exit.OK
    printed = capsys.readouterr()
    assert printed.out == f"{file}: valid: 4 runs, 8 launches, 8 points\n"
    few = "spec.load.repeats: 1 repeat gives a speed-up without an interval; set 3 or more"
    assert printed.err == f"warning: spec.exclude[0] matches no combination: check its values\nwarning: {few}\n"
    assert exit_code(["validate", file, "-o", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["points"], len(document["runs"]), len(document["warnings"])) == (
        "small",
        8,
        4,
        2,
    )


def test_missing_prompts_are_reported_once_for_all_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = "spec.template.spec.workloads[0].dataset.uri=gone.jsonl"
    assert exit_code(["plan", write_campaign(tmp_path), "--set", setting]) == Exit.BAD_INPUT
    assert capsys.readouterr().err.count("gone.jsonl does not exist") == 1


@pytest.mark.parametrize(
    ("uri", "code"),
    [("gone.jsonl", Exit.BAD_INPUT), ("/usr/share/specbench/gone.jsonl", Exit.OK), ("s3://a/gone.jsonl", Exit.OK)],
)
def test_plan_and_validate_agree_about_a_dataset_that_is_not_here(tmp_path: Path, uri: str, code: Exit) -> None:
    for command in ("plan", "validate"):
        setting = f"spec.workloads[0].dataset.uri={uri}"
        assert exit_code([command, str(write_run(tmp_path, simulated_run())), "--set", setting]) == code, command


CHART = Path(__file__).resolve().parents[2] / "helm/specbench/values.yaml"
DEFAULTS: dict[str, Any] = yaml.safe_load(CHART.read_text(encoding="utf-8"))["fence"]
OPEN_FENCE: dict[str, Any] = {"stores": [{"endpoint": "*", "bucket": "*", "operatorIdentity": True}]}


def validate_fenced(folder: Path, fence: Any, resource: Any = None) -> int:
    """The exit code for this fence file, and a run that mounts the claim `models` unless another is given."""
    (folder / "fence").write_text(fence if isinstance(fence, str) else yaml.safe_dump(fence))
    run = resource or simulated_run(placement={"modelCache": {"claimName": "models"}})
    return exit_code(["validate", str(write_run(folder, run)), "--fence", str(folder / "fence"), "--output", "json"])


@pytest.mark.parametrize(
    ("fence", "valid"),
    [
        ({**OPEN_FENCE, "claims": ["models"]}, True),
        (json.dumps({**OPEN_FENCE, "claims": ["models"]}), True),
        (
            {"fence": {**DEFAULTS, **OPEN_FENCE, "claims": ["models"]}, "image": {"repository": "own"}, "workers": 4},
            True,
        ),
        ({**OPEN_FENCE}, False),
        ({"fence": {**DEFAULTS, **OPEN_FENCE}}, False),
        ({"fence": {**OPEN_FENCE, "enabled": False}}, True),
    ],
    ids=str,
)
def test_a_run_is_checked_against_the_fence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fence: Any, valid: bool
) -> None:
    assert validate_fenced(tmp_path, fence) == (Exit.OK if valid else Exit.BAD_INPUT)
    printed = capsys.readouterr()
    if not valid:
        assert json.loads(printed.out)["error"]["reason"] == "NotAllowed"
        assert "spec.placement.modelCache.claimName: models is not allowed on this cluster" in printed.err


def test_a_campaign_is_checked_against_the_fence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = {"path": "engine.image", "values": ["vllm/vllm-openai:v0.30.0", "evil.example/vllm:v0.30.0"]}
    resource = campaign({"spec.axes": [images]})
    assert validate_fenced(tmp_path, OPEN_FENCE, resource) == Exit.BAD_INPUT
    assert "[image=evil.example/vllm:v0.30.0] spec.engine.image: evil.example/" in capsys.readouterr().err
    assert validate_fenced(tmp_path, {**OPEN_FENCE, "images": ["evil.example/*"]}, resource) == Exit.OK


WITHOUT_STORE = simulated_run(results={})
STORES = {"path": "results", "values": [{"s3": {"bucket": "results"}}]}


@pytest.mark.parametrize(
    ("resource", "fence", "valid"),
    [
        (WITHOUT_STORE, OPEN_FENCE, False),
        (WITHOUT_STORE, {**OPEN_FENCE, "enabled": False}, False),
        (WITHOUT_STORE, {**OPEN_FENCE, "defaultStore": {"bucket": "results"}}, True),
        (simulated_campaign(template={"spec": WITHOUT_STORE["spec"]}), OPEN_FENCE, False),
        (simulated_campaign(template={"spec": WITHOUT_STORE["spec"]}, axes=[STORES], exclude=[]), OPEN_FENCE, True),
    ],
    ids=["run", "no fence", "default store", "campaign", "campaign over stores"],
)
def test_a_run_on_a_cluster_without_default_store_needs_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], resource: Any, fence: Any, valid: bool
) -> None:
    assert validate_fenced(tmp_path, fence, resource) == (Exit.OK if valid else Exit.BAD_INPUT)
    printed = capsys.readouterr()
    assert ("spec.results.s3: " in printed.err) != valid
    if not valid:
        assert json.loads(printed.out)["error"]["reason"] == "InvalidSpec"


def test_values_without_those_of_the_chart_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without them, GPUs and tolerations that the chart allows by default would count as refused."""
    assert validate_fenced(tmp_path, {"fence": {**OPEN_FENCE, "claims": ["models"]}}) == Exit.BAD_INPUT
    message = capsys.readouterr().err
    assert f"{tmp_path / 'fence'} has no fence.capabilities, fence.commands" in message
    assert "helm get values RELEASE --all -o yaml" in message


@pytest.mark.parametrize(
    ("fence", "path"),
    [
        ("claim: []", "claim"),
        ("fence: 3", "(resource): input should be an object"),
        ("limits: {gpus: -1}", "limits.gpus"),
        ("fence: {stores: [{endpoint: ''}]}", "fence.stores[0].bucket"),
    ],
)
def test_a_bad_fence_is_reported_with_file_and_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fence: str, path: str
) -> None:
    assert validate_fenced(tmp_path, fence) == Exit.BAD_INPUT
    assert f"{tmp_path / 'fence'} is not a valid fence: {path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "missing", "remedy"),
    [
        ([], "of 2 of 2 points and of a launch", "pointSeconds=…,launchSeconds=…,"),
        (LAUNCH, "of 2 of 2 points", "pointSeconds=…,"),
        (["--assume", "pointSeconds=1"], "of a launch", "launchSeconds=…,"),
    ],
    ids=["both", "points", "launches"],
)
@pytest.mark.parametrize("has_results", [False, True], ids=["no results", "results of other runs"])
def test_hours_that_are_not_known_name_the_missing_durations(  # noqa: PLR0917 -- two tables
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    missing: str,
    remedy: str,
    has_results: bool,
) -> None:
    results = ["--results", str(tmp_path)] if has_results else []
    assert plan_exit_code(tmp_path, {"concurrency": [1], "repeats": 1}, *arguments, *results) == Exit.OK
    where = " in --results, which has no such run" if has_results else ""
    expected = f"hours: not known: there is no duration {missing}{where}: give --assume {remedy} or --results with runs"
    assert expected in capsys.readouterr().out
