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


def suspended_runs(world: CampaignWorld) -> dict[str, str]:
    return {
        name: run["metadata"]["annotations"].get(ANNOTATION_SUSPEND_REASON, "")
        for name, run in world.runs.items()
        if run["spec"]["suspend"]
    }


def test_suspending_a_campaign_suspends_its_runs_and_creates_none(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.finish(first)
    world.change("spec.suspend", True)
    assert suspended_runs(world) == {second: "Suspended"}
    assert len(world.store.created) == 2
    assert world.status.phase is CampaignPhase.SUSPENDED
    assert {world.status_and_reason(kind)[0] for kind in (Kind.READY, Kind.RECONCILING, Kind.STALLED)} == {FALSE}
    assert "Suspended" in world.events


def test_a_refused_suspend_of_one_run_does_not_block_the_others(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.store.refuse_changes[first] = Stop("ManifestRefused", "an admission webhook says no")
    world.edit("spec.suspend", True)
    with pytest.raises(Stop, match="webhook"):
        world.reconcile()
    assert suspended_runs(world) == {second: "Suspended"}
    world.store.refuse_changes.clear()
    world.settle()
    assert suspended_runs(world) == {first: "Suspended", second: "Suspended"}


def test_an_unreachable_api_server_ends_the_loop_over_the_runs(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.store.refuse_changes[first] = Retry("ApiUnreachable", "read timed out")
    world.edit("spec.suspend", True)
    with pytest.raises(Retry, match="timed out"):
        world.reconcile()
    assert not world.runs[second]["spec"]["suspend"]


def test_resuming_continues_suspended_runs_before_creating_new_ones(world: CampaignWorld) -> None:
    world.change("spec.suspend", True)
    world.change("spec.suspend", False)
    assert suspended_runs(world) == {}
    assert len(world.store.created) == 2
    assert "Resumed" in world.events
    world.finish_all()
    assert len(world.store.created) == 6


def test_resuming_respects_a_lower_parallelism(world: CampaignWorld) -> None:
    world.change("spec.suspend", True)
    world.edit("spec.suspend", False)
    world.change("spec.parallelism", 1)
    assert list(suspended_runs(world)) == [world.planned[1]]
    world.finish(world.planned[0])
    world.settle()
    assert suspended_runs(world) == {}
    assert len(world.store.created) == 2


def test_a_lower_parallelism_suspends_no_active_run(world: CampaignWorld) -> None:
    world.change("spec.parallelism", 1)
    assert suspended_runs(world) == {}
    world.finish(world.planned[0])
    world.settle()
    assert len(world.store.created) == 2
    world.finish(world.planned[1])
    world.settle()
    assert len(world.store.created) == 3


def test_a_manually_suspended_run_stays_suspended_and_keeps_its_slot(world: CampaignWorld) -> None:
    by_hand, other = world.planned[:2]
    world.suspend_by_hand(by_hand)
    world.change("spec.suspend", True)
    world.change("spec.suspend", False)
    assert suspended_runs(world) == {by_hand: ""}
    assert world.status.runs[0].reason == "SuspendedByHand"
    world.finish(other)
    world.settle()
    assert len(world.store.created) == 3, "only the finished run frees its slot"


def test_a_campaign_that_waits_for_a_manual_resume_reports_it(world: CampaignWorld) -> None:
    for name in world.planned[:2]:
        world.suspend_by_hand(name)
    world.settle()
    assert world.status_and_reason(Kind.RECONCILING) == (TRUE, "WaitingForResume")
    assert world.planned[0] in world.message(Kind.RECONCILING)
    world.suspend_by_hand(world.planned[0], suspend=False)
    world.settle()
    assert world.status_and_reason(Kind.RECONCILING) == (TRUE, "Running")


def test_a_manually_resumed_run_is_suspended_again_with_its_campaign(world: CampaignWorld) -> None:
    world.change("spec.suspend", True)
    world.suspend_by_hand(world.planned[0], suspend=False)
    world.settle()
    assert len(suspended_runs(world)) == 2


def test_an_obsolete_suspend_annotation_is_removed_after_a_manual_resume(world: CampaignWorld) -> None:
    name = world.planned[0]
    world.change("spec.suspend", True)
    world.edit("spec.suspend", False)
    world.suspend_by_hand(name, suspend=False)
    world.settle()
    assert ANNOTATION_SUSPEND_REASON not in world.runs[name]["metadata"]["annotations"]
    world.suspend_by_hand(name)
    world.settle()
    assert suspended_runs(world) == {name: ""}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_failed_but_recoverable_run_is_resumed_with_the_others(world: CampaignWorld, parallelism: int) -> None:
    """Otherwise it would still be suspended after its problem is fixed."""
    failed, other = world.planned[:2]
    world.fail(failed, "ReportFailed", recoverable=True)
    world.change("spec.suspend", True)
    assert failed in suspended_runs(world)
    assert other in suspended_runs(world)
    world.edit("spec.parallelism", parallelism)
    world.change("spec.suspend", False)
    assert suspended_runs(world) == {}, "a failed run occupies no slot"
    world.finish(failed)
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED


def test_a_permanently_failed_run_is_not_resumed(world: CampaignWorld) -> None:
    failed = world.planned[0]
    world.change("spec.suspend", True)
    world.fail(failed)
    world.change("spec.suspend", False)
    assert list(suspended_runs(world)) == [failed]
