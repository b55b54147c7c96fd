"""Each experiment in examples/seeds is a campaign that `specbench plan` accepts, within its own budget."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code

SEEDS = Path(__file__).resolve().parents[2] / "examples/seeds"
PAGE = (SEEDS / "README.md").read_text(encoding="utf-8")
ENGINE_MISSING = r"spec\.engine: (no program|sglang is not installed)"
"""Warnings about missing engines, which test machines do not have."""
VARIED = {
    "batch": {"model"},
    "draft-length": {"engine"},
    "max-length": {"length"},
    "output-length": {"tokens"},
    "production-mix": {"loop"},
    "prompt-cache": {"cache"},
    "quantisation": {"target"},
    "random-vs-real": {"prompts"},
    "speed-bench-table": {"engine", "temperature"},
    "temperature": {"temperature"},
    "throughput-isl-entropy": {"isl"},
    "tree-vs-chain": {"prompts"},
}


def planned(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    durations = "launchSeconds=240,pointSeconds=240"
    assert exit_code(["plan", str(SEEDS / f"{name}.yaml"), "--assume", durations, "--output", "json"]) == Exit.OK
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_readme_and_this_test_list_every_seed() -> None:
    assert {path.stem for path in SEEDS.glob("*.yaml")} == set(VARIED)
    assert set(re.findall(r"^\| \[([a-z-]+)\.yaml\]", PAGE, re.MULTILINE)) == set(VARIED)


@pytest.mark.parametrize("name", VARIED)
def test_a_seed_plans_without_warnings_within_its_budget_and_has_its_own_prefix(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = planned(name, capsys)
    assert len(document["runs"]) > 1
    assert {axis for run in document["runs"] for axis in run["cell"]} == VARIED[name]
    assert [line for line in document["warnings"] if not re.match(ENGINE_MISSING, line)] == []
    assert 0 < document["estimate"]["gpuHours"] <= document["budget"]["gpuHours"]
    prefixes = {run["resource"]["spec"]["results"]["s3"]["prefix"] for run in document["runs"]}
    assert prefixes == {f"seeds/{document['name']}"}


@pytest.mark.parametrize("name", VARIED)
def test_the_header_of_a_seed_contains_its_source_and_its_prompts(name: str) -> None:
    head = re.match(r"(#.*\n)+", (SEEDS / f"{name}.yaml").read_text(encoding="utf-8"))
    assert head
    assert re.search(r"arXiv|SPEED-Bench|illusion|Production benchmark|free lunch", head[0])
    assert "# Prompts: " in head[0]
    assert "README.md" in head[0]


def test_seeds_vary_the_expected_batches_temperatures_and_draft_lengths(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batch, temperature = planned("batch", capsys), planned("temperature", capsys)
    loads = [run["resource"]["spec"]["load"]["concurrency"] for run in batch["runs"]]
    assert all((load[0], load[-1]) == (1, 512) for load in loads)
    assert [run["cell"]["temperature"] for run in temperature["runs"]] == [0, 0.3, 0.5, 0.7, 1, 1.2, 1.5]
    drafters = planned("draft-length", capsys)["runs"][0]["resource"]["spec"]["drafters"]
    assert [row["numSpeculativeTokens"] for row in drafters] == [1, 3, 5, 7, 10, 15]
    shapes = planned("tree-vs-chain", capsys)["runs"][0]["resource"]["spec"]["drafters"]
    assert [(row.get("eagleTopk"), row.get("numDraftTokens")) for row in shapes] == [(None, None), (2, 6), (4, 21)]


def test_the_largest_model_uses_its_own_draft_head_and_four_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    small, _, large = (run["resource"]["spec"] for run in planned("batch", capsys)["runs"])
    assert (small["placement"]["gpus"], large["placement"]["gpus"]) == (1, 4)
    assert (large["drafters"][1]["method"], large["engine"]["tensorParallelSize"]) == ("eagle", 4)
