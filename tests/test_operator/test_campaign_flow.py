"""A campaign from its first run to its last, and runs that other people change."""

from __future__ import annotations

import pytest

from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_run
from specbench_operator.errors import Changed, Retry, Stop
from specbench_testing.campaign_world import NAME, CampaignWorld
from specbench_testing.fake_api_store import Raw
from specbench_testing.resources import MISSING, resource

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


@pytest.fixture
def world() -> CampaignWorld:
    return CampaignWorld()


def test_the_first_planned_run_is_created_and_owned_by_the_campaign(world: CampaignWorld) -> None:
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


def test_runs_are_created_once_each_in_plan_order(world: CampaignWorld) -> None:
    world.finish_all()
    assert world.store.created == world.planned
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert world.status.progress == "6/6"
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")
    assert [world.status_and_reason(kind)[0] for kind in (Kind.RECONCILING, Kind.STALLED, Kind.QUEUED)] == [FALSE] * 3
    assert [
        world.status_and_reason(kind)[0] for kind in (Kind.MEASUREMENT_COMPLETE, Kind.RESULTS_STORED, Kind.TRUSTWORTHY)
    ] == [TRUE] * 3
    assert world.status_and_reason(Kind.GATE_PASSED) == (UNKNOWN, "NoGate")
    assert world.status.round is not None
    assert world.status.round.completion_time is not None
    assert world.events[-1] == "RoundFinished"


@pytest.mark.parametrize("parallelism", [1, 2, 4, 9])
def test_active_and_queued_runs_never_exceed_parallelism(parallelism: int) -> None:
    world = CampaignWorld({"spec.parallelism": parallelism})
    world.settle()
    assert len(world.runs) == min(parallelism, 6)
    for name in world.runs:
        world.queue(name)
    world.settle()
    assert len(world.runs) == min(parallelism, 6)
    assert world.status_and_reason(Kind.QUEUED) == (TRUE, "WaitingForQuota")
    assert world.status.counts.queued == min(parallelism, 6)
    assert world.status.counts.active == 0


def test_an_unchanged_campaign_causes_no_status_write(world: CampaignWorld) -> None:
    world.settle()
    version = world.resource["metadata"]["resourceVersion"]
    world.pass_time(3600)
    world.reconcile()
    assert world.resource["metadata"]["resourceVersion"] == version


def test_a_campaign_being_deleted_creates_nothing_and_keeps_its_status(world: CampaignWorld) -> None:
    world.settle()
    (name,), status_before = world.runs, world.status
    world.resource["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    world.fail(name)
    world.settle()
    assert world.store.created == [name]
    assert world.status == status_before


def test_an_invalid_combination_is_reported_and_creates_no_run() -> None:
    world = CampaignWorld({"spec.axes[0].values": ["vllm", "tensorrt-llm", "no-such-engine"]})
    world.settle()
    assert world.runs == {}
    assert world.status_and_reason(Kind.VALIDATED) == (FALSE, "InvalidSpec")
    assert "engine=no-such-engine" in world.message(Kind.VALIDATED)
    assert world.status_and_reason(Kind.STALLED) == (TRUE, "InvalidSpec")
    assert world.status.phase is CampaignPhase.INVALID
    assert world.events == ["Invalid"]


def test_a_campaign_that_becomes_invalid_keeps_its_runs(world: CampaignWorld) -> None:
    world.settle()
    world.edit("spec.axes[0].values", ["no-such-engine"])
    before = dict(world.store.objects)
    world.reconcile()
    assert world.status_and_reason(Kind.VALIDATED)[0] is FALSE
    assert world.runs.keys() == {name for kind, name in before if kind == "SpecBenchRun"}
    world.edit("spec.axes[0].values", ["vllm", "sglang"])
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert len(world.store.created) == 6


def test_a_foreign_run_with_a_planned_name_is_reported_and_left_unchanged(world: CampaignWorld) -> None:
    names = world.planned
    foreign_run = world.store.put(resource(name=names[1]))
    before = dict(foreign_run["metadata"])
    world.finish_all()
    assert world.runs[names[1]]["metadata"] == before, "the foreign run is unchanged"
    assert len(world.store.created) == 5
    row = world.status.runs[1]
    assert (row.name, row.phase, row.reason) == (names[1], "", "NameTaken")
    assert world.status_and_reason(Kind.READY) == (TRUE, "FinishedWithFailures")
    assert "NameTaken" in world.message(Kind.READY)
    assert "NameTaken" in world.events
    world.delete(names[1])
    world.finish_all()
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")


def test_a_run_with_our_label_but_another_owner_counts_as_foreign(world: CampaignWorld) -> None:
    names = world.planned
    forged = resource(name=names[0])
    forged["metadata"]["labels"] = {"specbench.io/campaign-uid": world.resource["metadata"]["uid"]}
    world.store.put(forged)
    world.settle()
    assert world.status.runs[0].reason == "NameTaken"
    assert world.store.created == [names[1]]


def test_only_runs_that_changed_are_read_again(world: CampaignWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.edit("spec.parallelism", 6)
    world.settle()
    read: list[str] = []
    get = world.store.get

    def recording_get(kind: str, namespace: str | None, name: str) -> Raw | None:
        read.append(name)
        return get(kind, namespace, name)

    monkeypatch.setattr(world.store, "get", recording_get)
    world.reconcile()
    assert read == [NAME]
    world.launch(world.planned[2])
    world.reconcile()
    assert read == [NAME, NAME, world.planned[2]]
    assert world.status.runs[2].phase == "Running"


def test_a_recreated_campaign_waits_until_the_old_runs_are_removed(world: CampaignWorld) -> None:
    world.finish_all()
    old = dict(world.runs)
    world.resource["metadata"]["uid"] = "another"
    world.lose_status()
    world.settle()
    assert world.runs == old
    assert {row.reason for row in world.status.runs} == {"WaitingForRemoval"}
    assert world.status_and_reason(Kind.RECONCILING) == (TRUE, "WaitingForRemoval")
    assert "NameTaken" not in world.events
    for name in old:
        world.delete(name)
    world.finish_all()
    assert len(world.store.created) == 12
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")


def test_a_name_conflict_on_create_is_retried(world: CampaignWorld) -> None:
    world.store.refuse[world.planned[0]] = Changed("Conflict", "exists")
    with pytest.raises(Changed):
        world.reconcile()
    assert "status" not in world.resource
    world.store.refuse.clear()
    world.settle()
    assert world.store.created == world.planned[:1]


@pytest.mark.parametrize(
    ("error", "phase", "kind"),
    [(Retry("Forbidden", "exceeded quota"), TRUE, FALSE), (Stop("ManifestRefused", "spec.x"), FALSE, TRUE)],
)
def test_a_refused_run_is_reported_and_does_not_block_other_runs(
    error: Retry | Stop, phase: ConditionStatus, kind: ConditionStatus
) -> None:
    world = CampaignWorld({"spec.parallelism": 3})
    world.store.refuse[world.planned[0]] = error
    with pytest.raises(type(error)):
        world.reconcile()
    assert world.store.created == world.planned[1:3]
    assert world.status_and_reason(Kind.RECONCILING)[0] is phase
    assert world.status_and_reason(Kind.STALLED)[0] is kind
    world.store.refuse.clear()
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED


def test_an_error_after_the_end_is_an_event_and_leaves_the_status_unchanged(world: CampaignWorld) -> None:
    world.finish_all()
    last = world.status
    world.delete(world.planned[0])
    world.store.refuse[world.planned[0]] = Retry("ApiUnreachable", "read timed out")
    with pytest.raises(Retry):
        world.reconcile()
    assert world.status == last
    assert world.events[-1] == "ApiUnreachable"


def test_a_manually_deleted_run_is_recreated(world: CampaignWorld) -> None:
    world.settle()
    (name,) = world.runs
    world.fail(name)
    world.delete(name)
    world.finish_all()
    assert world.store.created.count(name) == 2
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")


def test_failed_runs_do_not_block_others_and_are_named_at_the_end(world: CampaignWorld) -> None:
    world.settle()
    world.fail(world.planned[0], "OOMKilled")
    world.settle()
    world.fail(world.planned[1], "InvalidSpec", "Invalid")
    world.finish_all()
    assert world.status.counts.failed == 2
    assert world.status.phase is CampaignPhase.FAILED
    assert world.status_and_reason(Kind.READY) == (TRUE, "FinishedWithFailures")
    assert "OOMKilled" in world.message(Kind.READY)
    assert [row.reason for row in world.status.runs][:3] == ["OOMKilled", "InvalidSpec", ""]
    assert world.events.count("RunFailed") == 2


def test_each_failure_of_a_repeated_run_has_one_event() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    name = world.planned[0]
    for failures, reason in enumerate(("EngineCrashed", "OOMKilled"), 1):
        world.settle()
        world.fail(name, reason)
        world.settle()
        world.lose_status()  # as for an operator that stopped before it wrote the status
        world.settle()
        assert world.events.count("RunFailed") == failures
        world.delete(name)


def test_a_campaign_without_results_is_stalled(world: CampaignWorld) -> None:
    for name in world.planned:
        world.settle()
        world.fail(name)
    world.settle()
    assert world.status_and_reason(Kind.STALLED) == (TRUE, "NothingMeasured")
    assert world.status_and_reason(Kind.READY)[0] is FALSE
    assert world.status_and_reason(Kind.RECONCILING)[0] is FALSE


def test_a_stalled_unfinished_run_does_not_occupy_a_slot(world: CampaignWorld) -> None:
    world.settle()
    run = world.runs[world.planned[0]]
    run["status"] = {"phase": "Starting", "conditions": [{"type": "Stalled", "status": "True", "reason": "BadRequest"}]}
    world.store.touch(run)
    world.settle()
    assert world.store.created == world.planned[:2]
    assert world.status.runs[0].reason == "BadRequest"


@pytest.mark.parametrize(("failed_max", "begins"), [(MISSING, 1), (1, 1), (2, 2), (3, 3)])
def test_failure_policy_stop_creates_no_further_runs(failed_max: object, begins: int) -> None:
    edits = {"spec.failurePolicy": "Stop", "spec.maxFailedRuns": failed_max}
    world = CampaignWorld({path: value for path, value in edits.items() if value is not MISSING})
    for name in world.planned[:begins]:
        world.settle()
        world.fail(name)
    world.settle()
    assert len(world.store.created) == begins
    assert world.status_and_reason(Kind.STALLED) == (TRUE, "TooManyFailed")
    assert world.status.phase is CampaignPhase.FAILED
    world.delete(world.planned[0])
    world.finish_all()
    assert len(world.store.created) == 7 if begins == 1 else begins + 1


def test_failure_policy_stop_lets_active_runs_finish() -> None:
    world = CampaignWorld({"spec.failurePolicy": "Stop", "spec.parallelism": 3})
    world.settle()
    world.fail(world.planned[0])
    world.settle()
    assert len(world.runs) == 3
    assert world.status_and_reason(Kind.RECONCILING) == (TRUE, "TooManyFailed")
    for name in world.planned[1:3]:
        world.finish(name)
    world.settle()
    assert world.status_and_reason(Kind.STALLED) == (TRUE, "TooManyFailed")
    assert world.status.counts.succeeded == 2
