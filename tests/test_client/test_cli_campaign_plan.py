"""`specbench plan` and `validate` take a campaign: the runs by name, what is measured, what it will cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expand import expand_campaign
from specbench_api.outcome.ending import Exit
from specbench_api.spec.reading import parse_campaign
from specbench_client.cli import exit_code
from specbench_testing.specs import prompts_file, simulated_campaign


def campaign_file(folder: Path, **spec: Any) -> str:
    prompts_file(folder)
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(simulated_campaign(**spec)))
    return str(path)


def test_the_plan_names_the_runs_that_the_expansion_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plan", campaign_file(tmp_path)]) == Exit.OK
    told = capsys.readouterr().out
    for run in expand_campaign(parse_campaign(simulated_campaign())).runs:
        assert f"  {run.name}  dialect={run.cell['dialect']} temperature={run.cell['temperature']}" in told
    assert "small: dialect (2) × temperature (2)" in told
    assert told.count("    none:1  eagle3:1") == 3
    assert "3 runs, 6 launches, 6 points (0 measured already)" in told


def test_the_document_holds_every_run_as_it_will_be_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["plan", campaign_file(tmp_path), "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    wanted = expand_campaign(parse_campaign(simulated_campaign())).runs
    assert [row["resource"] for row in document["runs"]] == [run.resource for run in wanted]
    assert [len(row["launches"]) for row in document["runs"]] == [2, 2, 2]
    assert [row["commands"]["eagle3"][1:4] for row in document["runs"]] == [
        ["simulate", "--dialect", dialect] for dialect in ("vllm", "vllm", "sglang")
    ]
    assert document["runs"][0]["launches"][1]["points"] == [point.hash for point in wanted[0].plan.groups[1].points]


def test_the_estimate_names_what_it_assumes_and_warns_above_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = {"gpuHours": 1, "launchSeconds": 600, "pointSeconds": 60}
    settings = ["--set", "spec.template.spec.placement.gpus=2"]
    file = campaign_file(tmp_path, budget=budget)
    assert exit_code(["plan", file, *settings]) == Exit.OK
    told = capsys.readouterr()
    assert "still to do: 1.1 hours of engines, 2.2 GPU-hours, of a budget of 1\n" in told.out
    assert "600 s (budget.launchSeconds) for each of 6 launches" in told.out
    assert "60 s (budget.pointSeconds) for each of 6 points" in told.out
    assert told.err == "warning: over budget by 1.2 GPU-hours: 2.2 of 1\n"
    assert exit_code(["plan", file, *settings, "-o", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["estimate"] == {
        "launches": 6,
        "points": 6,
        "pointsAssumed": 6,
        "engineHours": pytest.approx(1.1),
        "gpuHours": pytest.approx(2.2),
        "assumed": {"launchSeconds": 600, "pointSeconds": 60},
        "budgetGpuHours": 1,
        "overBudgetByGpuHours": pytest.approx(1.2),
    }
    assert document["warnings"] == ["over budget by 1.2 GPU-hours: 2.2 of 1"]


def test_a_rate_takes_as_long_as_its_prompts_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = {"rate": [0.5], "slots": 2, "repeats": 1}
    setting = f"spec.template.spec.load={json.dumps(load)}"
    assert exit_code(["plan", campaign_file(tmp_path), "--set", setting]) == Exit.OK
    told = capsys.readouterr().out
    assert "for each of 0 points, 6 points with the seconds of their own load" in told
    assert f"still to do: {6 * (300 + 16) / 3600:.1f} hours" in told


def test_what_cannot_be_run_is_told_with_its_combination(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["validate", campaign_file(tmp_path), "--set", "spec.axes[0].values=[vllm, vlllm]", "-o", "json"]
    assert exit_code(arguments) == Exit.BAD_INPUT
    (message,) = json.loads(capsys.readouterr().out)["error"]["messages"]
    assert message.startswith("[dialect=vlllm temperature=0; dialect=vlllm temperature=1] spec.engine.dialect: ")


def test_a_valid_campaign_is_counted_and_its_slips_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = campaign_file(tmp_path, exclude=[{"dialect": "openai"}])
    assert exit_code(["validate", file]) == Exit.OK
    told = capsys.readouterr()
    assert told.out == f"{file}: valid: 4 runs, 8 launches, 8 points\n"
    assert told.err == "warning: spec.exclude[0] stands for no combination: is a value mistyped?\n"
    assert exit_code(["validate", file, "-o", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["points"], len(document["runs"]), len(document["warnings"])) == (
        "small",
        8,
        4,
        1,
    )


def test_prompts_that_are_missing_are_told_once_for_all_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = "spec.template.spec.workloads[0].dataset.uri=gone.jsonl"
    assert exit_code(["plan", campaign_file(tmp_path), "--set", setting]) == Exit.OK
    assert capsys.readouterr().err.count("gone.jsonl is not there") == 1
