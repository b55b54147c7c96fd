"""A real API server accepts the campaign's definition, and rejects what `specbench validate` rejects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.custom_resources import CAMPAIGN
from generators.structural_schema import walk
from specbench_api.campaign.expansion import expand_campaign
from specbench_api.errors import InvalidSpec
from specbench_api.spec.parsing import parse_campaign
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.resources import MISSING, Resource, campaign, campaign_of

pytestmark = pytest.mark.cluster

LOOKAHEAD = {"spec.template.spec.engine.kind": "vllm", "spec.template.spec.drafters[0].method": "lookahead"}


@pytest.fixture(scope="module")
def campaigns(cluster: Cluster, campaign_crd: Definition) -> Iterator[Runs]:
    """SpecBenchCampaigns in a namespace of this module."""
    with cluster.namespace("campaigns") as namespace:
        yield Runs(cluster, namespace, CAMPAIGN.plural)


def test_the_definition_is_structural_and_stored_as_generated(campaign_crd: Definition) -> None:
    assert "NonStructuralSchema" not in {row["type"] for row in campaign_crd.status["conditions"]}
    assert campaign_crd.spec["versions"][0]["schema"] == CAMPAIGN.definition()["spec"]["versions"][0]["schema"]


INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({"spec.template": MISSING}, "spec.template", "Required value"),
    ({"spec.tmplate": {}}, "spec.tmplate", "unknown field"),
    ({"spec.template.spec.load.repeats": 0}, "spec.template.spec.load.repeats", "greater than or equal to 1"),
    ({"spec.template.spec.load.rate": [1]}, "spec.template.spec.load", "set exactly one of load.concurrency"),
    (LOOKAHEAD, "spec.template.spec", "vllm does not support lookahead"),
    ({"spec.axes[0].name": "set"}, "spec.axes[0]", "cannot be named set"),
    ({"spec.axes[1].path": "engine.kind"}, "spec.axes[1]", "Duplicate value"),
    ({"spec.axes[0].path": "[0]"}, "spec.axes[0].path", "should match"),
    ({"spec.maxFailedRuns": 2}, "spec", "maxFailedRuns has no effect without failurePolicy: Stop"),
    ({"spec.timeZone": "UTC"}, "spec", "timeZone has no effect without schedule"),
    ({"spec.schedule": "every day"}, "spec.schedule", "should match"),
    ({"spec.budget": {"gpuHours": 0}}, "spec.budget.gpuHours", "should be greater than 0"),
    ({"metadata.name": "n" * 29}, "", "longer than 28 characters"),
    ({"metadata.name": "9nights"}, "", "start with a letter"),
]


def test_the_server_rejects_each_invalid_campaign(campaigns: Runs) -> None:
    for edits, path, expected in INVALID:
        message = campaigns.refusal_of(campaign(edits))
        assert path in message, edits
        assert expected in message, edits


ANYTHING = [None, 0, 1.5, "text", True, [{"name": "a", "args": ["x"]}], {"deep": {"null": None}}]


def test_the_server_stores_axis_values_exclude_and_include_unchanged(campaigns: Runs) -> None:
    rows = {"spec.axes[0].values": ANYTHING, "spec.exclude": [{"engine": None}], "spec.include": [{"set": {"a": None}}]}
    stored = campaigns.try_out(campaign(rows))
    assert stored["spec"]["axes"][0]["values"] == ANYTHING
    assert (stored["spec"]["exclude"], stored["spec"]["include"]) == ([{"engine": None}], [{"set": {"a": None}}])


def test_the_server_sets_the_same_defaults_as_the_models_and_run_names_stay_the_same(campaigns: Runs) -> None:
    edits = {"spec.axes[1].values": [0, 1.0], "spec.template.spec.workloads[0].extraBody": {"min_p": 1.0}}
    stored = campaigns.try_out(campaign(edits))
    assert stored["spec"] == campaign_of(edits).spec.to_dict()
    kept, written = expand_campaign(parse_campaign(stored)), expand_campaign(campaign_of(edits))
    assert [run.name for run in kept.runs] == [run.name for run in written.runs]


def test_a_new_campaign_has_observed_generation_minus_one_and_its_spec_is_mutable(campaigns: Runs) -> None:
    assert campaigns.create(campaign(name="living"))["status"] == {"observedGeneration": -1}
    changed = campaigns.apply(campaign({"spec.template.spec.load.repeats": 9, "spec.axes": []}, name="living"))
    assert changed["metadata"]["generation"] == 2


def test_the_status_accepts_at_most_256_runs(campaigns: Runs) -> None:
    campaigns.create(campaign(name="large"))
    rows = [{"name": f"{row:040d}", "combination": "x" * 96, "best": "y" * 64} for row in range(256)]
    campaigns.set_status("large", {"observedGeneration": 1, "runs": rows})
    with pytest.raises(ApiError, match="must have at most 256 items"):
        campaigns.set_status("large", {"observedGeneration": 1, "runs": [*rows, {"name": "one-more"}]})


def test_kubectl_get_prints_the_defined_columns_of_a_campaign(campaigns: Runs) -> None:
    campaigns.create(campaign(name="shown"))
    timestamp = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "False", "reason": "RunsFailed", "message": "2 of 64 runs failed"}
    campaigns.set_status(
        "shown",
        {
            "observedGeneration": 1,
            "phase": "Running",
            "progress": "12/64",
            "counts": {"total": 64, "failed": 2},
            "best": "eagle3 1.83x, engine=vllm",
            "trust": "Trustworthy",
            "gate": "passed",
            "budget": "3.2 of 40 GPU-hours",
            "round": {"number": 2},
            "conditions": [{**ready, "lastTransitionTime": timestamp}],
        },
    )
    columns, cells = campaigns.table("shown")
    assert columns == ["Name", *(column["name"] for column in CAMPAIGN.columns)]
    assert cells[1:8] == [
        "Running", "12/64", 2, "eagle3 1.83x, engine=vllm", "Trustworthy", "passed", "3.2 of 40 GPU-hours",
    ]  # fmt: skip
    assert cells[8] == 2
    assert cells[10:12] == ["RunsFailed", "2 of 64 runs failed"]


PATHS = [
    path.replace("[]", "[0]").replace("{}", ".key")
    for path, _ in walk(CAMPAIGN.schema()["properties"]["spec"], "spec")
    if not path.startswith("spec.template.spec.")  # test_admission.py covers the fields of a run
]


WHOLE = {
    "spec.failurePolicy": "Stop",
    "spec.maxFailedRuns": 2,
    "spec.schedule": "0 3 * * *",
    "spec.timeZone": "UTC",
    "spec.startingDeadlineSeconds": 60,
    "spec.exclude": [{"engine": "x"}],
    "spec.include": [{"engine": "y", "set": {"load.repeats": 2}}],
    "spec.template.metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec.budget": {"gpuHours": 1},
}
VALUES = st.one_of(
    st.just(MISSING),
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 0.5, 70, 2**31]),
    st.sampled_from(["", "a", "A b", "x" * 33, "set", "0 3 * * *", "@daily", "Continue", "a[0].b", 'a["x.y"]']),
    st.sampled_from([[], {}, [None], ["a", "a"], {"k": 1}, [{"engine": None}], {"path": "a", "values": [1]}]),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    base=st.sampled_from([{}, WHOLE]),
    edits=st.dictionaries(st.sampled_from(PATHS), VALUES, min_size=1, max_size=2),
)
def test_server_and_models_accept_the_same_campaigns(
    campaigns: Runs, base: dict[str, Any], edits: dict[str, Any]
) -> None:
    try:
        given_campaign = campaign({**base, **edits})
    except (KeyError, IndexError, TypeError, AttributeError):
        return  # one edit removes the parent of the other
    assert (not campaigns.refusal_of(given_campaign)) == _models_accept(given_campaign), json.dumps(given_campaign)


def _models_accept(given_campaign: Resource) -> bool:
    try:
        parse_campaign(given_campaign)
    except InvalidSpec:
        return False
    return True
