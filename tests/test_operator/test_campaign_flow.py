"""A campaign from its first run to its last, and runs that other people change."""

from __future__ import annotations

import pytest

from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_run
from specbench_operator.errors import Changed, Retry, Stop
from specbench_testing.campaign_world import NAME, CampaignWorld
from specbench_testing.resources import MISSING, resource

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


@pytest.fixture
def world() -> CampaignWorld:
    return CampaignWorld()


def test_the_first_run_of_the_plan_is_created_and_belongs_to_the_campaign(world: CampaignWorld) -> None:
    world.settle()
    (run,) = world.runs.values()
    assert run["metadata"]["name"] == world.planned[0]
    assert run["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "specbench.io/v1alpha1",
            "kind": "SpecBenchCampaign",
            "name": NAME,
            "uid": world.resource["metadata"]["uid"],
            "controller": True,
        }
    ]
    assert run["metadata"]["labels"]["specbench.io/round"] == "1"
    assert parse_run(run).spec.placement.gpus == 2
    assert world.events == ["RoundStarted"]
    assert world.status.counts.to_dict() == {
        "total": 6, "active": 1, "queued": 0, "succeeded": 0, "failed": 0, "untrustworthy": 0,
    }  # fmt: skip
    assert (world.status.phase, world.status.progress) == (CampaignPhase.RUNNING, "0/6")


def test_runs_follow_one_another_in_the_plans_order_and_none_is_made_twice(world: CampaignWorld) -> None:
    world.finish_all()
    assert world.store.created == world.planned
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert world.status.progress == "6/6"
    assert world.said(Kind.READY) == (TRUE, "Finished")
    assert [world.said(kind)[0] for kind in (Kind.RECONCILING, Kind.STALLED, Kind.QUEUED)] == [FALSE] * 3
    assert [world.said(kind)[0] for kind in (Kind.MEASUREMENT_COMPLETE, Kind.RESULTS_STORED, Kind.TRUSTWORTHY)] == [
        TRUE
    ] * 3
    assert world.said(Kind.GATE_PASSED) == (UNKNOWN, "NoGate")
    assert world.status.round is not None
    assert world.status.round.completion_time is not None
    assert world.events[-1] == "RoundFinished"


@pytest.mark.parametrize("parallelism", [1, 2, 4, 9])
def test_no_more_runs_are_at_work_than_parallelism_and_the_queued_count(parallelism: int) -> None:
    world = CampaignWorld({"spec.parallelism": parallelism})
    world.settle()
    assert len(world.runs) == min(parallelism, 6)
    for name in world.runs:
        world.queue(name)
    world.settle()
    assert len(world.runs) == min(parallelism, 6)
    assert world.said(Kind.QUEUED) == (TRUE, "WaitingForQuota")
    assert world.status.counts.queued == min(parallelism, 6)
    assert world.status.counts.active == 0


def test_a_look_that_finds_nothing_new_writes_nothing(world: CampaignWorld) -> None:
    world.settle()
    version = world.resource["metadata"]["resourceVersion"]
    world.pass_time(3600)
    world.look()
    assert world.resource["metadata"]["resourceVersion"] == version


def test_a_campaign_that_is_being_deleted_is_left_to_the_garbage_collector(world: CampaignWorld) -> None:
    world.settle()
    (name,), said = world.runs, world.status
    world.resource["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    world.fail(name)
    world.settle()
    assert world.store.created == [name]
    assert world.status == said


def test_a_campaign_that_cannot_be_run_is_refused_with_its_combination_and_creates_nothing() -> None:
    world = CampaignWorld({"spec.axes[0].values": ["vllm", "tensorrt-llm", "no-such-engine"]})
    world.settle()
    assert world.runs == {}
    assert world.said(Kind.VALIDATED) == (FALSE, "InvalidSpec")
    assert "engine=no-such-engine" in world.message(Kind.VALIDATED)
    assert world.said(Kind.STALLED) == (TRUE, "InvalidSpec")
    assert world.status.phase is CampaignPhase.INVALID
    assert world.events == ["Invalid"]


def test_a_campaign_that_becomes_invalid_leaves_its_runs_alone(world: CampaignWorld) -> None:
    world.settle()
    world.edit("spec.axes[0].values", ["no-such-engine"])
    before = dict(world.store.objects)
    world.look()
    assert world.said(Kind.VALIDATED)[0] is FALSE
    assert world.runs.keys() == {name for kind, name in before if kind == "SpecBenchRun"}
    world.edit("spec.axes[0].values", ["vllm", "sglang"])
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert len(world.store.created) == 6


def test_a_stranger_with_a_runs_name_is_told_and_left_alone_while_the_others_go_on(world: CampaignWorld) -> None:
    names = world.planned
    stranger = world.store.put(resource(name=names[1]))
    before = dict(stranger["metadata"])
    world.finish_all()
    assert world.runs[names[1]]["metadata"] == before, "nobody wrote to it"
    assert len(world.store.created) == 5
    row = world.status.runs[1]
    assert (row.name, row.phase, row.reason) == (names[1], "", "NameTaken")
    assert world.said(Kind.READY) == (TRUE, "FinishedWithFailures")
    assert "NameTaken" in world.message(Kind.READY)
    assert "NameTaken" in world.events
    world.delete(names[1])
    world.finish_all()
    assert world.said(Kind.READY) == (TRUE, "Finished")


def test_a_run_that_bears_our_label_and_is_not_ours_is_a_stranger(world: CampaignWorld) -> None:
    names = world.planned
    forged = resource(name=names[0])
    forged["metadata"]["labels"] = {"specbench.io/campaign-uid": world.resource["metadata"]["uid"]}
    world.store.put(forged)
    world.settle()
    assert world.status.runs[0].reason == "NameTaken"
    assert world.store.created == [names[1]]


def test_a_campaign_that_is_made_again_waits_for_what_the_old_one_left(world: CampaignWorld) -> None:
    world.finish_all()
    old = dict(world.runs)
    world.resource["metadata"]["uid"] = "another"
    world.lose_status()
    world.settle()
    assert world.runs == old
    assert {row.reason for row in world.status.runs} == {"WaitingForRemoval"}
    assert world.said(Kind.RECONCILING) == (TRUE, "WaitingForRemoval")
    assert "NameTaken" not in world.events
    for name in old:
        world.delete(name)
    world.finish_all()
    assert len(world.store.created) == 12
    assert world.said(Kind.READY) == (TRUE, "Finished")


def test_a_name_that_is_taken_between_look_and_write_is_looked_at_again(world: CampaignWorld) -> None:
    world.store.refuse[world.planned[0]] = Changed("Conflict", "exists")
    with pytest.raises(Changed):
        world.look()
    assert "status" not in world.resource
    world.store.refuse.clear()
    world.settle()
    assert world.store.created == world.planned[:1]


@pytest.mark.parametrize(
    ("error", "phase", "kind"),
    [(Retry("Forbidden", "exceeded quota"), TRUE, FALSE), (Stop("ManifestRefused", "spec.x"), FALSE, TRUE)],
)
def test_a_run_that_is_refused_is_told_and_holds_up_no_other(
    error: Retry | Stop, phase: ConditionStatus, kind: ConditionStatus
) -> None:
    world = CampaignWorld({"spec.parallelism": 3})
    world.store.refuse[world.planned[0]] = error
    with pytest.raises(type(error)):
        world.look()
    assert world.store.created == world.planned[1:3]
    assert world.said(Kind.RECONCILING)[0] is phase
    assert world.said(Kind.STALLED)[0] is kind
    world.store.refuse.clear()
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED


def test_what_hinders_after_the_end_is_an_event_and_leaves_the_last_word(world: CampaignWorld) -> None:
    world.finish_all()
    last = world.status
    world.delete(world.planned[0])
    world.store.refuse[world.planned[0]] = Retry("ApiUnreachable", "read timed out")
    with pytest.raises(Retry):
        world.look()
    assert world.status == last
    assert world.events[-1] == "ApiUnreachable"


def test_a_run_that_is_deleted_by_hand_is_made_again(world: CampaignWorld) -> None:
    world.settle()
    (name,) = world.runs
    world.fail(name)
    world.delete(name)
    world.finish_all()
    assert world.store.created.count(name) == 2
    assert world.said(Kind.READY) == (TRUE, "Finished")


def test_failed_runs_do_not_hold_up_others_and_are_named_at_the_end(world: CampaignWorld) -> None:
    world.settle()
    world.fail(world.planned[0], "OOMKilled")
    world.settle()
    world.fail(world.planned[1], "InvalidSpec", "Invalid")
    world.finish_all()
    assert world.status.counts.failed == 2
    assert world.status.phase is CampaignPhase.FAILED
    assert world.said(Kind.READY) == (TRUE, "FinishedWithFailures")
    assert "OOMKilled" in world.message(Kind.READY)
    assert [row.reason for row in world.status.runs][:3] == ["OOMKilled", "InvalidSpec", ""]
    assert world.events.count("RunFailed") == 2


def test_a_campaign_without_any_results_is_stalled(world: CampaignWorld) -> None:
    for name in world.planned:
        world.settle()
        world.fail(name)
    world.settle()
    assert world.said(Kind.STALLED) == (TRUE, "NothingMeasured")
    assert world.said(Kind.READY)[0] is FALSE
    assert world.said(Kind.RECONCILING)[0] is FALSE


def test_a_run_that_is_stalled_without_an_end_takes_nobodys_place(world: CampaignWorld) -> None:
    world.settle()
    run = world.runs[world.planned[0]]
    run["status"] = {"phase": "Starting", "conditions": [{"type": "Stalled", "status": "True", "reason": "BadRequest"}]}
    world.settle()
    assert world.store.created == world.planned[:2]
    assert world.status.runs[0].reason == "BadRequest"


@pytest.mark.parametrize(("failed_max", "begins"), [(MISSING, 1), (1, 1), (2, 2), (3, 3)])
def test_failure_policy_stop_begins_nothing_more_and_lets_the_others_end(failed_max: object, begins: int) -> None:
    edits = {"spec.failurePolicy": "Stop", "spec.maxFailedRuns": failed_max}
    world = CampaignWorld({path: value for path, value in edits.items() if value is not MISSING})
    for name in world.planned[:begins]:
        world.settle()
        world.fail(name)
    world.settle()
    assert len(world.store.created) == begins
    assert world.said(Kind.STALLED) == (TRUE, "TooManyFailed")
    assert world.status.phase is CampaignPhase.FAILED
    world.delete(world.planned[0])
    world.finish_all()
    assert len(world.store.created) == 7 if begins == 1 else begins + 1


def test_with_failure_policy_stop_what_is_at_work_ends() -> None:
    world = CampaignWorld({"spec.failurePolicy": "Stop", "spec.parallelism": 3})
    world.settle()
    world.fail(world.planned[0])
    world.settle()
    assert len(world.runs) == 3
    assert world.said(Kind.RECONCILING) == (TRUE, "TooManyFailed")
    for name in world.planned[1:3]:
        world.finish(name)
    world.settle()
    assert world.said(Kind.STALLED) == (TRUE, "TooManyFailed")
    assert world.status.counts.succeeded == 2
