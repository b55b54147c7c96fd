"""Prompts, seeds and the examples for a cluster: format, plans within their budgets, and the default fence."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expansion import campaign_refusals, expand_campaign
from specbench_api.errors import Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.fence.model import Fence
from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_resource
from specbench_client.cli import exit_code

PROMPTS = Path(__file__).parents[2] / "examples" / "prompts.jsonl"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


def turns(row: dict[str, Any]) -> list[str]:
    return list(row["turns"]) if "turns" in row else [row["prompt"]]


def words(row: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(turns(row)).lower()))


def test_rows_have_an_id_a_category_and_either_a_prompt_or_turns() -> None:
    for row in rows():
        assert set(row) in ({"id", "category", "prompt"}, {"id", "category", "turns"}), row["id"]
        assert all(isinstance(turn, str) and turn == turn.strip() and turn for turn in turns(row)), row["id"]
        assert re.fullmatch(rf"{row['category']}-[1-9]\d*", row["id"])
        assert 60 <= sum(map(len, turns(row))) <= 2500, row["id"]
        assert len(words(row)) >= 15, row["id"]


def test_ids_are_unique_and_at_least_eight_categories_have_equal_sizes_and_conversations() -> None:
    sizes = Counter(row["category"] for row in rows())
    assert len(sizes) >= 8
    assert set(sizes.values()) == {6}
    assert len({row["id"] for row in rows()}) == len(rows())
    assert sum(len(turns(row)) == 2 for row in rows()) >= 5


def test_no_two_prompts_of_a_category_are_nearly_the_same() -> None:
    for one, two in itertools.combinations(rows(), 2):
        similarity = len(words(one) & words(two)) / len(words(one) | words(two))
        assert similarity < 0.6 or one["category"] != two["category"], (one["id"], two["id"])


SEEDS = Path(__file__).resolve().parents[2] / "examples/seeds"
SEEDS_PAGE = (SEEDS / "README.md").read_text(encoding="utf-8")
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
    assert set(re.findall(r"^\| \[([a-z-]+)\.yaml\]", SEEDS_PAGE, re.MULTILINE)) == set(VARIED)


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


ROOT = Path(__file__).resolve().parents[2]
VALUES: Mapping[str, Any] = yaml.safe_load((ROOT / "helm/specbench/values.yaml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/how-to/shared-clusters.md").read_text(encoding="utf-8")
EXAMPLES = {
    path.name: text
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if "\nkind: SpecBench" in (text := path.read_text(encoding="utf-8")) and not path.name.startswith("local-")
}
"""Examples for a cluster."""
REFUSED = {
    "cluster-endpoints.yaml": {"fence.endpoints", "fence.stores"},
    "cluster-llama-cpp.yaml": {"fence.images", "fence.stores"},
    "cluster-simulator.yaml": {"fence.stores"},
}
"""Examples that a default installation refuses, and the values that allow them."""


def refusals(text: str, **changed: Any) -> list[Problem]:
    """What the default fence with these changes refuses in an example."""
    fence = Fence.from_json(json.dumps({**VALUES["fence"], **changed}))
    check = FenceCheck(fence, VALUES["image"]["repository"])
    resource = parse_resource(yaml.safe_load(text))
    if isinstance(resource, SpecBenchCampaign):
        return campaign_refusals(resource, [(run.name, run.run.spec) for run in expand_campaign(resource).runs], check)
    return check.problems_of(resource.spec, "bench")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_default_installation_refuses_only_what_the_page_lists(name: str) -> None:
    missing = {word for problem in refusals(EXAMPLES[name]) for word in re.findall(r"fence\.\w+", problem.remedy or "")}
    assert missing == REFUSED.get(name, set())
    listed = {row.split(" | ")[1].strip("`") for row in PAGE.splitlines() if f"`{name}`" in row and row.startswith("|")}
    assert listed == missing


@pytest.mark.parametrize("name", REFUSED)
def test_the_values_in_the_head_of_an_example_allow_it(name: str) -> None:
    heads = EXAMPLES[name] + EXAMPLES["cluster-simulator.yaml"]
    store = {
        field: re.findall(rf"--set 'fence\.stores\[0\]\.{field}=(\S+)'", heads)[0] for field in ("endpoint", "bucket")
    }
    images = [image for line in re.findall(r"--set 'fence\.images=\{(\S+)\}'", heads) for image in line.split(",")]
    endpoints = re.findall(r"--set 'fence\.endpoints=\{(\S+)\}'", heads)
    assert refusals(EXAMPLES[name], stores=[store], images=images, endpoints=endpoints) == []
