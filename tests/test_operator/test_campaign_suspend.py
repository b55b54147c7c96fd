"""Suspending and resuming: by the campaign and by hand."""

from __future__ import annotations

import pytest

from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.errors import Retry, Stop
from specbench_operator.state.campaign import ANNOTATION_SUSPEND_REASON
from specbench_testing.campaign_world import CampaignWorld

TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


@pytest.fixture
def world() -> CampaignWorld:
    world = CampaignWorld({"spec.parallelism": 2})
    world.settle()
    return world


def held(world: CampaignWorld) -> dict[str, str]:
    return {
        name: run["metadata"]["annotations"].get(ANNOTATION_SUSPEND_REASON, "")
        for name, run in world.runs.items()
        if run["spec"]["suspend"]
    }


def test_suspending_a_campaign_suspends_its_runs_and_begins_nothing(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.finish(first)
    world.edit("spec.suspend", True)
    world.settle()
    assert held(world) == {second: "Suspended"}
    assert len(world.store.created) == 2
    assert world.status.phase is CampaignPhase.SUSPENDED
    assert {world.said(kind)[0] for kind in (Kind.READY, Kind.RECONCILING, Kind.STALLED)} == {FALSE}
    assert "Suspended" in world.events


def test_a_run_whose_change_is_refused_keeps_no_other_from_giving_its_gpus_back(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.store.refuse_changes[first] = Stop("ManifestRefused", "an admission webhook says no")
    world.edit("spec.suspend", True)
    with pytest.raises(Stop, match="webhook"):
        world.look()
    assert held(world) == {second: "Suspended"}
    world.store.refuse_changes.clear()
    world.settle()
    assert held(world) == {first: "Suspended", second: "Suspended"}


def test_an_api_server_that_is_away_is_not_asked_for_every_run(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.store.refuse_changes[first] = Retry("ApiUnreachable", "read timed out")
    world.edit("spec.suspend", True)
    with pytest.raises(Retry, match="timed out"):
        world.look()
    assert not world.runs[second]["spec"]["suspend"]


def test_resuming_lets_go_on_what_was_suspended_before_anything_new_begins(world: CampaignWorld) -> None:
    world.edit("spec.suspend", True)
    world.settle()
    world.edit("spec.suspend", False)
    world.settle()
    assert held(world) == {}
    assert len(world.store.created) == 2
    assert "Resumed" in world.events
    world.finish_all()
    assert len(world.store.created) == 6


def test_a_lower_parallelism_resumes_no_more_than_it_allows(world: CampaignWorld) -> None:
    world.edit("spec.suspend", True)
    world.settle()
    world.edit("spec.suspend", False)
    world.edit("spec.parallelism", 1)
    world.settle()
    assert list(held(world)) == [world.planned[1]]
    world.finish(world.planned[0])
    world.settle()
    assert held(world) == {}
    assert len(world.store.created) == 2


def test_a_lower_parallelism_takes_nothing_from_runs_at_work(world: CampaignWorld) -> None:
    world.edit("spec.parallelism", 1)
    world.settle()
    assert held(world) == {}
    world.finish(world.planned[0])
    world.settle()
    assert len(world.store.created) == 2
    world.finish(world.planned[1])
    world.settle()
    assert len(world.store.created) == 3


def test_a_run_that_was_suspended_by_hand_stays_so_and_keeps_its_place(world: CampaignWorld) -> None:
    by_hand, other = world.planned[:2]
    world.suspend_by_hand(by_hand)
    world.edit("spec.suspend", True)
    world.settle()
    world.edit("spec.suspend", False)
    world.settle()
    assert held(world) == {by_hand: ""}
    assert world.status.runs[0].reason == "SuspendedByHand"
    world.finish(other)
    world.settle()
    assert len(world.store.created) == 3, "its place is not given away, the other one's is"


def test_a_campaign_that_waits_for_a_persons_hand_says_so(world: CampaignWorld) -> None:
    for name in world.planned[:2]:
        world.suspend_by_hand(name)
    world.settle()
    assert world.said(Kind.RECONCILING) == (TRUE, "WaitingForResume")
    assert world.planned[0] in world.message(Kind.RECONCILING)
    world.suspend_by_hand(world.planned[0], suspend=False)
    world.settle()
    assert world.said(Kind.RECONCILING) == (TRUE, "Running")


def test_a_run_that_is_resumed_by_hand_is_suspended_again_while_the_campaign_is(world: CampaignWorld) -> None:
    world.edit("spec.suspend", True)
    world.settle()
    world.suspend_by_hand(world.planned[0], suspend=False)
    world.settle()
    assert len(held(world)) == 2


def test_a_mark_that_no_longer_holds_is_taken_off_so_that_the_next_hand_counts(world: CampaignWorld) -> None:
    name = world.planned[0]
    world.edit("spec.suspend", True)
    world.settle()
    world.edit("spec.suspend", False)
    world.suspend_by_hand(name, suspend=False)
    world.settle()
    assert ANNOTATION_SUSPEND_REASON not in world.runs[name]["metadata"]["annotations"]
    world.suspend_by_hand(name)
    world.settle()
    assert held(world) == {name: ""}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_failed_run_that_can_be_mended_is_let_go_on_with_the_others(world: CampaignWorld, parallelism: int) -> None:
    """Else it would be suspended still when somebody has mended it."""
    failed, other = world.planned[:2]
    world.fail(failed, "ReportFailed", mendable=True)
    world.edit("spec.suspend", True)
    world.settle()
    assert failed in held(world)
    assert other in held(world)
    world.edit("spec.parallelism", parallelism)
    world.edit("spec.suspend", False)
    world.settle()
    assert held(world) == {}, "what failed takes nobody's place"
    world.finish(failed)
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED


def test_a_run_that_failed_for_good_is_left_as_it_is(world: CampaignWorld) -> None:
    failed = world.planned[0]
    world.edit("spec.suspend", True)
    world.settle()
    world.fail(failed)
    world.edit("spec.suspend", False)
    world.settle()
    assert list(held(world)) == [failed]
