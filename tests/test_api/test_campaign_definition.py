"""The campaign's definition: a run's schema without the immutability rule, and a small status."""

from __future__ import annotations

import re
from typing import Any

import pytest

from generators.custom_resources import CAMPAIGN
from generators.custom_resources import RUN as RUN_RESOURCE
from generators.structural_schema import VALIDATIONS, Schema, walk
from specbench_api.spec.campaign import RUNS_MAX
from specbench_api.spec.campaign_status import CampaignPhase, CampaignRunStatus, CampaignStatus, RunCounts

SCHEMA = CAMPAIGN.schema()
TEMPLATE = SCHEMA["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
RUN = RUN_RESOURCE.schema()["properties"]["spec"]
ETCD_FRIENDLY_BYTES = 100_000


def test_the_template_has_the_schema_of_a_run_without_the_immutability_rule() -> None:
    assert TEMPLATE["properties"] == RUN["properties"]
    assert TEMPLATE["required"] == RUN["required"]
    dropped = [rule for rule in RUN[VALIDATIONS] if rule not in TEMPLATE[VALIDATIONS]]
    assert [rule["message"][:34] for rule in dropped] == ["what is measured cannot be changed"]
    assert all(rule in RUN[VALIDATIONS] for rule in TEMPLATE[VALIDATIONS])


def test_no_cel_rule_of_a_campaign_uses_old_self_or_untyped_values() -> None:
    rules = [rule["rule"] for _, node in walk(SCHEMA) for rule in node.get(VALIDATIONS, [])]
    assert rules
    assert [rule for rule in rules if "oldSelf" in rule or re.search(r"\.(values|exclude|include)\b", rule)] == []


def test_axis_values_may_be_any_json_and_exclude_and_include_rows_are_open_maps() -> None:
    anything = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert spec["axes"]["x-kubernetes-list-map-keys"] == ["path"]
    assert spec["axes"]["items"]["properties"]["values"]["items"] == anything
    assert spec["exclude"]["items"]["additionalProperties"] == anything
    assert spec["include"]["items"]["maxProperties"] == spec["axes"]["maxItems"] + 1


@pytest.mark.parametrize("column", CAMPAIGN.columns, ids=lambda column: column["name"])
def test_every_printer_column_shows_an_existing_field_of_the_same_type(column: dict[str, Any]) -> None:
    path = column["jsonPath"]
    if path.startswith(".metadata") or "conditions" in path:
        return
    node: Schema = SCHEMA
    for step in path.strip(".").split("."):
        node = node["properties"][step]
    assert node["type"] == column["type"]


def test_the_names_of_a_campaign() -> None:
    names = CAMPAIGN.definition()["spec"]["names"]
    assert (names["plural"], names["shortNames"], names["categories"]) == (
        "specbenchcampaigns", ["sbc"], ["specbench"],
    )  # fmt: skip


def longest_row(row: int) -> CampaignRunStatus:
    """A row in which every string has its maximum length."""
    texts: dict[str, Any] = {}
    for name, field in CampaignRunStatus.model_fields.items():
        max_length = next((mark.max_length for mark in field.metadata if hasattr(mark, "max_length")), None)
        texts |= {name: "x" * max_length} if max_length else {}
    return CampaignRunStatus(**{**texts, "name": f"{row:040d}", "gpu_seconds": 123456.789})


def test_the_largest_status_is_below_100_kb() -> None:
    """Only the rows grow with a campaign; its other strings are few and have a maximum length."""
    rows = [longest_row(row) for row in range(RUNS_MAX)]
    status = CampaignStatus(phase=CampaignPhase.RUNNING, counts=RunCounts(total=RUNS_MAX), runs=rows)
    assert len(status.model_dump_json(by_alias=True, exclude_none=True).encode()) < ETCD_FRIENDLY_BYTES
