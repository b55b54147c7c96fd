"""A campaign adopts a run that was recovered from its lost results, and no other run."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.parsing import parse_campaign
from specbench_testing.campaign_world import NAME, CampaignWorld
from specbench_testing.fake_api_store import Raw
from specbench_testing.resources import edit

LOST = "7d0f6bd8-4c4b-4d53-9d53-000000000001"


def put_recovered_run(world: CampaignWorld, **edits: Any) -> str:
    """Store the matrix's first run as a user recreates it from lost results, edited by path."""
    planned = expand_campaign(parse_campaign(world.resource)).runs[0]
    spec = {**planned.resource["spec"], "results": {**planned.resource["spec"]["results"], "adopt": LOST}}
    run = {
        "apiVersion": "specbench.io/v1alpha1",
        "kind": "SpecBenchRun",
        "metadata": {"name": planned.name, "namespace": "default"},
        "spec": spec,
    }
    for path, value in edits.items():
        edit(run, path.replace("__", "."), value)
    world.store.put(run)
    return planned.name


@pytest.mark.parametrize("already", [False, True], ids=["at work", "finished"])
def test_a_recovered_run_is_adopted_with_the_campaigns_labels(already: bool) -> None:
    world = CampaignWorld({"spec.parallelism": 2})
    name = put_recovered_run(world)
    if already:
        world.finish(name)
    uid = world.runs[name]["metadata"]["uid"]
    world.reconcile()
    assert "NameTaken" not in world.events
    world.settle()
    run = world.owned_runs[name]
    assert run["metadata"]["uid"] == uid, "the run is not recreated"
    assert run["metadata"]["labels"]["specbench.io/campaign"] == NAME
    assert "specbench.io/cell" in run["metadata"]["annotations"]
    assert run["spec"]["results"]["adopt"] == LOST
    assert len(world.store.created) == (2 if already else 1), "an active run occupies a slot"
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert (world.status.counts.succeeded, world.status.counts.failed) == (6, 0)
    assert name not in world.store.created


OTHERS: dict[str, dict[str, Any]] = {
    "adopts nothing": {"spec__results": {"s3": {"bucket": "results"}}},
    "other points": {"spec__load__repeats": 9},
    "another owner": {
        "metadata__ownerReferences": [{"kind": "Workflow", "name": "w", "uid": "w", "apiVersion": "a/b"}]
    },
    "unparsable": {"spec__load__repeats": "many"},
}


@pytest.mark.parametrize("why", OTHERS)
def test_other_runs_with_a_planned_name_are_not_adopted(why: str) -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    name = put_recovered_run(world, **OTHERS[why])
    before = world.runs[name]["metadata"]["resourceVersion"]
    world.settle()
    assert world.runs[name]["metadata"]["resourceVersion"] == before
    assert world.status.runs[0].reason == "NameTaken"
    assert "NameTaken" in world.events


def test_a_killed_operator_adopts_the_run_once() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    name = put_recovered_run(world)
    world.reconcile()
    world.lose_status()
    world.finish_all()
    assert world.status_and_reason(Kind.READY)[0] == "True"
    assert world.store.created.count(name) == 0


def test_runs_that_only_share_a_name_prefix_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reconcile reads candidates one by one, and a pipeline may have created hundreds of `nightly-COMMIT`."""
    world = CampaignWorld({"spec.parallelism": 6})
    name = put_recovered_run(world)
    for other in (f"{NAME}-1f00ba81", f"{NAME}-by-hand", f"{NAME}-{name}", f"{name}-later"):
        world.store.put({**world.runs[name], "metadata": {"name": other, "namespace": "default"}})
    read = names_read(world, monkeypatch)
    world.reconcile()
    assert read == [NAME, name]


def test_only_runs_that_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    world.settle()
    read = names_read(world, monkeypatch)
    world.reconcile()
    assert read == [NAME]
    world.launch(world.planned[2])
    world.reconcile()
    assert read == [NAME, NAME, world.planned[2]]
    assert world.status.runs[2].phase == "Running"


def names_read(world: CampaignWorld, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that are read one by one from now on."""
    read: list[str] = []
    get = world.store.get

    def recording_get(kind: str, namespace: str | None, name: str) -> Raw | None:
        read.append(name)
        return get(kind, namespace, name)

    monkeypatch.setattr(world.store, "get", recording_get)
    return read
