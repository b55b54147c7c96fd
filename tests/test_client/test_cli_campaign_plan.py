"""`specbench plan` and `validate` of a campaign: its runs, measured points and cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.outcome.termination import Exit
from specbench_api.spec.parsing import parse_campaign
from specbench_client.cli import exit_code
from specbench_testing.specs import simulated_campaign, write_campaign


def test_plan_lists_the_runs_of_the_expansion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plan", write_campaign(tmp_path)]) == Exit.OK
    printed = capsys.readouterr().out
    for run in expand_campaign(parse_campaign(simulated_campaign())).runs:
        assert (
            f"  {run.name}  dialect={run.combination['dialect']} temperature={run.combination['temperature']}"
            in printed
        )
    assert "small: dialect (2) × temperature (2)" in printed
    assert printed.count("    none:1  eagle3:1") == 3
    assert "3 runs, 6 launches, 6 points (0 measured already)" in printed


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
    assert printed.err == "warning: over budget by 1.2 GPU-hours: 2.2 needed, budget.gpuHours is 1\n"
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
    assert document["warnings"] == ["over budget by 1.2 GPU-hours: 2.2 needed, budget.gpuHours is 1"]


def test_duration_of_a_rate_follows_from_its_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = {"rate": [0.5], "slots": 2, "repeats": 1}
    settings = ["--set", f"spec.template.spec.load={json.dumps(load)}", "--assume", "launchSeconds=300"]
    assert exit_code(["plan", write_campaign(tmp_path), *settings, "-o", "json"]) == Exit.OK
    estimate = json.loads(capsys.readouterr().out)["estimate"]
    assert (estimate["pointsByBasis"], estimate["gpuHours"]) == ({"Load": 6}, 0)
    assert estimate["engineHours"] == pytest.approx(6 * (300 + 16) / 3600)


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
    assert printed.err == "warning: spec.exclude[0] matches no combination: check its values\n"
    assert exit_code(["validate", file, "-o", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["points"], len(document["runs"]), len(document["warnings"])) == (
        "small",
        8,
        4,
        1,
    )


def test_missing_prompts_are_reported_once_for_all_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = "spec.template.spec.workloads[0].dataset.uri=gone.jsonl"
    assert exit_code(["plan", write_campaign(tmp_path), "--set", setting]) == Exit.OK
    assert capsys.readouterr().err.count("gone.jsonl does not exist") == 1
