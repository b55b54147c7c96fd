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


def imported(world: CampaignWorld, **edits: Any) -> str:
    """The first run of the matrix, made by hand of the results of one that was lost; edited by path."""
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
def test_it_is_taken_over_with_all_that_a_run_of_the_campaign_bears(already: bool) -> None:
    world = CampaignWorld({"spec.parallelism": 2})
    name = imported(world)
    if already:
        world.finish(name)
    uid = world.runs[name]["metadata"]["uid"]
    world.look()
    assert "NameTaken" not in world.events
    world.settle()
    run = world.mine[name]
    assert run["metadata"]["uid"] == uid, "it is the same run"
    assert run["metadata"]["labels"]["specbench.io/campaign"] == NAME
    assert "specbench.io/cell" in run["metadata"]["annotations"]
    assert run["spec"]["results"]["adopt"] == LOST
    assert len(world.store.created) == (2 if already else 1), "it has a place while it is at work"
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert (world.status.counts.succeeded, world.status.counts.failed) == (6, 0)
    assert name not in world.store.created


OTHERS: dict[str, dict[str, Any]] = {
    "it carries nothing on": {"spec__results": {"s3": {"bucket": "results"}}},
    "it measures something else": {"spec__load__repeats": 9},
    "somebody owns it": {
        "metadata__ownerReferences": [{"kind": "Workflow", "name": "w", "uid": "w", "apiVersion": "a/b"}]
    },
    "it cannot be read": {"spec__load__repeats": "many"},
}


@pytest.mark.parametrize("why", OTHERS)
def test_any_other_run_of_that_name_is_left_alone(why: str) -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    name = imported(world, **OTHERS[why])
    before = world.runs[name]["metadata"]["resourceVersion"]
    world.settle()
    assert world.runs[name]["metadata"]["resourceVersion"] == before
    assert world.status.runs[0].reason == "NameTaken"
    assert "NameTaken" in world.events


def test_an_operator_that_dies_in_between_takes_it_over_once() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    name = imported(world)
    world.look()
    world.lose_status()
    world.finish_all()
    assert world.said(Kind.READY)[0] == "True"
    assert world.store.created.count(name) == 0


def test_of_runs_that_only_begin_like_its_own_none_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads what may be its own one by one, and a pipeline may have made hundreds of `nightly-COMMIT`."""
    world = CampaignWorld({"spec.parallelism": 6})
    name = imported(world)
    for other in (f"{NAME}-1f00ba81", f"{NAME}-by-hand", f"{NAME}-{name}", f"{name}-later"):
        world.store.put({**world.runs[name], "metadata": {"name": other, "namespace": "default"}})
    read: list[str] = []
    get = world.store.get

    def noted(kind: str, namespace: str | None, of: str) -> Raw | None:
        read.append(of)
        return get(kind, namespace, of)

    monkeypatch.setattr(world.store, "get", noted)
    world.look()
    assert read == [NAME, name]
