"""`specbench plan` and `validate` of a campaign: its runs, measured points and cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.outcome.termination import Exit
from specbench_api.spec.parsing import parse_campaign
from specbench_client.cli import exit_code
from specbench_testing.specs import prompts_file, simulated_campaign


def campaign_file(folder: Path, **spec: Any) -> str:
    prompts_file(folder)
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(simulated_campaign(**spec)))
    return str(path)


def test_plan_lists_the_runs_of_the_expansion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plan", campaign_file(tmp_path)]) == Exit.OK
    printed = capsys.readouterr().out
    for run in expand_campaign(parse_campaign(simulated_campaign())).runs:
        assert f"  {run.name}  dialect={run.cell['dialect']} temperature={run.cell['temperature']}" in printed
    assert "small: dialect (2) × temperature (2)" in printed
    assert printed.count("    none:1  eagle3:1") == 3
    assert "3 runs, 6 launches, 6 points (0 measured already)" in printed


def test_json_contains_every_run_as_it_will_be_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plan", campaign_file(tmp_path), "--output", "json"]) == Exit.OK
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


def test_estimate_lists_its_assumptions_and_warns_above_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = {"gpuHours": 1, "launchSeconds": 600, "pointSeconds": 60}
    settings = ["--set", "spec.template.spec.placement.gpus=2"]
    file = campaign_file(tmp_path, budget=budget)
    assert exit_code(["plan", file, *settings]) == Exit.OK
    printed = capsys.readouterr()
    assert "counted for the budget: 1.1 engine hours, 2.2 GPU-hours, of a budget of 1\n" in printed.out
    assert "on a node of 8 GPUs, 6 are not used. 2 arms at once would take" in printed.out
    assert "limit: 48 GPU-hours, if each launch runs once to its activeDeadlineSeconds\n" in printed.out
    assert "600 s (budget.launchSeconds) for each of 6 launches" in printed.out
    assert "60 s (budget.pointSeconds) for each of 6 points" in printed.out
    assert printed.err == "warning: over budget by 1.2 GPU-hours: 2.2 needed, budget.gpuHours is 1\n"
    assert exit_code(["plan", file, *settings, "--max-gpu-hours", "0.01"]) == Exit.BAD_INPUT
    assert "GPU-hours are expected, and --max-gpu-hours is 0.01: " in capsys.readouterr().err
    assert exit_code(["plan", file, *settings, "-o", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["budget"] == {
        "gpuHours": 1,
        "countedGpuHours": pytest.approx(2.2),
        "overByGpuHours": pytest.approx(1.2),
        "pointsAssumed": 6,
        "launchSeconds": 600,
        "pointSeconds": 60,
    }
    estimate = document["estimate"]
    assert (estimate["launches"], estimate["points"], estimate["limitGpuHours"]) == (6, 6, pytest.approx(6 * 4 * 2))
    assert estimate["gpuHours"] == pytest.approx(sum(row["estimate"]["gpuHours"] for row in document["runs"]))
    assert 2 * 6 * 600 / 3600 < estimate["gpuHours"] == pytest.approx(2 * estimate["engineHours"])
    assert document["warnings"] == ["over budget by 1.2 GPU-hours: 2.2 needed, budget.gpuHours is 1"]


def test_duration_of_a_rate_follows_from_its_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = {"rate": [0.5], "slots": 2, "repeats": 1}
    setting = f"spec.template.spec.load={json.dumps(load)}"
    assert exit_code(["plan", campaign_file(tmp_path), "--set", setting]) == Exit.OK
    printed = capsys.readouterr().out
    assert "for each of 0 points, 6 points with the duration of their own load" in printed
    assert f"counted for the budget: {6 * (300 + 16) / 3600:.1f} engine hours" in printed


def test_invalid_run_is_reported_with_its_combination(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["validate", campaign_file(tmp_path), "--set", "spec.axes[0].values=[vllm, vlllm]", "-o", "json"]
    assert exit_code(arguments) == Exit.BAD_INPUT
    (message,) = json.loads(capsys.readouterr().out)["error"]["messages"]
    assert message.startswith("[dialect=vlllm temperature=0; dialect=vlllm temperature=1] spec.engine.dialect: ")


def test_valid_campaign_is_counted_with_its_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = campaign_file(tmp_path, exclude=[{"dialect": "openai"}])
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
    assert exit_code(["plan", campaign_file(tmp_path), "--set", setting]) == Exit.OK
    assert capsys.readouterr().err.count("gone.jsonl does not exist") == 1
