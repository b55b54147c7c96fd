"""Each experiment in examples/seeds is a campaign that `specbench plan` accepts, within its own budget."""

from __future__ import annotations

import json
import re
from pathlib import Path

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


def test_the_readme_and_this_test_list_every_seed() -> None:
    assert {path.stem for path in SEEDS.glob("*.yaml")} == set(VARIED)
    assert set(re.findall(r"^\| \[([a-z-]+)\.yaml\]", PAGE, re.MULTILINE)) == set(VARIED)


@pytest.mark.parametrize("name", VARIED)
def test_a_seed_plans_without_warnings_within_its_budget_and_has_its_own_prefix(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    durations = "launchSeconds=240,pointSeconds=240"
    assert exit_code(["plan", str(SEEDS / f"{name}.yaml"), "--assume", durations, "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert len(document["runs"]) > 1
    assert {axis for run in document["runs"] for axis in run["combination"]} == VARIED[name]
    assert [line for line in document["warnings"] if not re.match(ENGINE_MISSING, line)] == []
    assert 0 < document["estimate"]["gpuHours"] <= document["budget"]["gpuHours"]
    prefixes = {run["resource"]["spec"]["results"]["s3"]["prefix"] for run in document["runs"]}
    assert prefixes == {f"seeds/{document['name']}"}
