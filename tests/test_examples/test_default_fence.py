"""The examples against the fence of an installation with default values: what it refuses, and how to allow it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expansion import campaign_refusals, expand_campaign
from specbench_api.errors import Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.fence.model import Fence
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_resource

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
