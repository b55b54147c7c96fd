"""The API server takes the campaign's definition, and refuses what `specbench validate` refuses. Nothing is a mock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from specbench_api.campaign.expand import expand_campaign
from specbench_api.crdgen import campaign as generated
from specbench_api.spec.reading import parse_campaign
from specbench_testing.campaigns import campaign, campaign_of
from specbench_testing.cluster import Cluster, Refused
from specbench_testing.resources import MISSING
from specbench_testing.runs import Definition, Runs

pytestmark = pytest.mark.cluster

LOOKAHEAD = {"spec.template.spec.engine.kind": "vllm", "spec.template.spec.drafters[0].method": "lookahead"}


@pytest.fixture(scope="module")
def campaigns(cluster: Cluster, campaign_crd: Definition) -> Iterator[Runs]:
    """SpecBenchCampaigns of a namespace of our own."""
    with cluster.namespace("campaigns") as namespace:
        yield Runs(cluster, namespace, generated.PLURAL)


def test_the_definition_is_structural_established_and_kept_as_it_was_generated(campaign_crd: Definition) -> None:
    conditions = {row["type"]: row["status"] for row in campaign_crd.status["conditions"]}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    wanted = generated.definition()["spec"]["versions"][0]["schema"]
    assert campaign_crd.spec["versions"][0]["schema"] == wanted


@pytest.mark.parametrize(
    ("edits", "path", "says"),
    [
        ({"spec.template": MISSING}, "spec.template", "Required value"),
        ({"spec.tmplate": {}}, "spec.tmplate", "unknown field"),
        ({"spec.template.spec.load.repeats": 0}, "spec.template.spec.load.repeats", "greater than or equal to 1"),
        ({"spec.template.spec.load.rate": [1]}, "spec.template.spec.load", "give exactly one of load.concurrency"),
        (LOOKAHEAD, "spec.template.spec", "vllm cannot do lookahead"),
        ({"spec.axes[0].name": "set"}, "spec.axes[0]", "cannot be named set"),
        ({"spec.axes[1].path": "engine.kind"}, "spec.axes[1]", "Duplicate value"),
        ({"spec.axes[0].path": "[0]"}, "spec.axes[0].path", "should match"),
        ({"spec.maxFailedRuns": 2}, "spec", "maxFailedRuns goes with failurePolicy Stop"),
        ({"spec.timeZone": "UTC"}, "spec", "timeZone goes with schedule"),
        ({"spec.schedule": "every day"}, "spec.schedule", "should match"),
        ({"spec.budget": {"gpuHours": 0}}, "spec.budget.gpuHours", "should be greater than 0"),
        ({"metadata.name": "n" * 29}, "", "longer than 28 characters"),
        ({"metadata.name": "9nights"}, "", "must begin with a letter"),
    ],
    ids=lambda given: str(given)[:60],
)
def test_the_server_refuses_a_bad_campaign(edits: Mapping[str, Any], path: str, says: str, campaigns: Runs) -> None:
    message = campaigns.refusal_of(campaign(edits))
    assert path in message
    assert says in message


ANYTHING = [None, 0, 1.5, "text", True, [{"name": "a", "args": ["x"]}], {"deep": {"null": None}}]


def test_the_server_keeps_every_value_as_it_was_given(campaigns: Runs) -> None:
    rows = {"spec.axes[0].values": ANYTHING, "spec.exclude": [{"engine": None}], "spec.include": [{"set": {"a": None}}]}
    stored = campaigns.try_out(campaign(rows))
    assert stored["spec"]["axes"][0]["values"] == ANYTHING
    assert (stored["spec"]["exclude"], stored["spec"]["include"]) == ([{"engine": None}], [{"set": {"a": None}}])


def test_the_server_fills_in_the_very_defaults_of_the_models_and_no_name_changes_by_it(campaigns: Runs) -> None:
    edits = {"spec.axes[1].values": [0, 1.0], "spec.template.spec.workloads[0].extraBody": {"min_p": 1.0}}
    stored = campaigns.try_out(campaign(edits))
    assert stored["spec"] == campaign_of(edits).spec.to_dict()
    kept, written = expand_campaign(parse_campaign(stored)), expand_campaign(campaign_of(edits))
    assert [run.name for run in kept.runs] == [run.name for run in written.runs]


def test_a_campaign_may_be_changed_and_is_unfinished_from_its_first_moment(campaigns: Runs) -> None:
    assert campaigns.create(campaign(name="living"))["status"] == {"observedGeneration": -1}
    changed = campaigns.apply(campaign({"spec.template.spec.load.repeats": 9, "spec.axes": []}, name="living"))
    assert changed["metadata"]["generation"] == 2


def test_the_largest_status_is_taken(campaigns: Runs) -> None:
    campaigns.create(campaign(name="large"))
    rows = [{"name": f"{row:040d}", "cell": "x" * 96, "best": "y" * 64} for row in range(256)]
    campaigns.set_status("large", {"observedGeneration": 1, "runs": rows})
    with pytest.raises(Refused, match="must have at most 256 items"):
        campaigns.set_status("large", {"observedGeneration": 1, "runs": [*rows, {"name": "one-more"}]})


def test_the_table_of_kubectl_shows_how_far_how_good_and_what_is_wrong(campaigns: Runs) -> None:
    campaigns.create(campaign(name="shown"))
    moment = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "False", "reason": "RunsFailed", "message": "2 of 64 runs failed"}
    campaigns.set_status(
        "shown",
        {
            "observedGeneration": 1,
            "phase": "Running",
            "progress": "12/64",
            "counts": {"total": 64, "failed": 2},
            "best": "eagle3 1.83x, engine=vllm",
            "verdict": "Trustworthy",
            "gate": "passed",
            "budget": "3.2 of 40 GPU-hours",
            "round": {"number": 2},
            "conditions": [{**ready, "lastTransitionTime": moment}],
        },
    )
    columns, cells = campaigns.table("shown")
    assert columns == ["Name", *(column["name"] for column in generated.COLUMNS)]
    assert cells[1:8] == [
        "Running", "12/64", 2, "eagle3 1.83x, engine=vllm", "Trustworthy", "passed", "3.2 of 40 GPU-hours",
    ]  # fmt: skip
    assert cells[8] == 2
    assert cells[10:12] == ["RunsFailed", "2 of 64 runs failed"]
