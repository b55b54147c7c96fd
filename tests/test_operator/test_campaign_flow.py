"""A campaign from its first run to its last, what its status sums up, and runs that other people change."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_limits import RUNS_MAX
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.placement import Placement
from specbench_operator.campaign.decide import decide_campaign
from specbench_operator.campaign.rounds import fires_at, last_firing, next_firing, plan_round
from specbench_operator.cluster.campaign_observer import CampaignObserver, parse_observed_run
from specbench_operator.errors import Changed, Retry, Stop
from specbench_operator.state.campaign import CampaignObservation, ObservedRun
from specbench_operator.state.conditions import no, yes
from specbench_operator.state.objects import ObjectRef
from specbench_testing.campaign_world import NAME, CampaignWorld
from specbench_testing.fake_api import FakeApi, Raw
from specbench_testing.operator_builders import NOON
from specbench_testing.resources import MISSING, campaign_of, resource

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


@pytest.fixture
def new_world() -> CampaignWorld:
    return CampaignWorld()


@pytest.fixture
def world(new_world: CampaignWorld) -> CampaignWorld:
    """A campaign whose first run exists."""
    new_world.settle()
    return new_world


def test_the_first_planned_run_is_created_and_owned_by_the_campaign(world: CampaignWorld) -> None:
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


def test_a_campaign_being_deleted_creates_nothing_and_keeps_its_status(world: CampaignWorld) -> None:
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
    world.edit("spec.axes[0].values", ["no-such-engine"])
    before = dict(world.store.objects)
    world.reconcile()
    assert world.status_and_reason(Kind.VALIDATED)[0] is FALSE
    assert world.runs.keys() == {name for kind, name in before if kind == "SpecBenchRun"}
    world.edit("spec.axes[0].values", ["vllm", "sglang"])
    world.finish_all()
    assert world.status.phase is CampaignPhase.SUCCEEDED
    assert len(world.store.created) == 6


def test_a_foreign_run_with_a_planned_name_is_reported_and_left_unchanged(new_world: CampaignWorld) -> None:
    names = new_world.planned
    foreign_run = new_world.store.put(resource(name=names[1]))
    before = dict(foreign_run["metadata"])
    new_world.finish_all()
    assert new_world.runs[names[1]]["metadata"] == before, "the foreign run is unchanged"
    assert len(new_world.store.created) == 5
    row = new_world.status.runs[1]
    assert (row.name, row.phase, row.reason) == (names[1], "", "NameTaken")
    assert new_world.status_and_reason(Kind.READY) == (TRUE, "FinishedWithFailures")
    assert "NameTaken" in new_world.message(Kind.READY)
    assert "NameTaken" in new_world.events
    new_world.delete(names[1])
    new_world.finish_all()
    assert new_world.status_and_reason(Kind.READY) == (TRUE, "Finished")


def test_a_run_with_our_label_but_another_owner_counts_as_foreign(new_world: CampaignWorld) -> None:
    names = new_world.planned
    forged = resource(name=names[0])
    forged["metadata"]["labels"] = {"specbench.io/campaign-uid": new_world.resource["metadata"]["uid"]}
    new_world.store.put(forged)
    new_world.settle()
    assert new_world.status.runs[0].reason == "NameTaken"
    assert new_world.store.created == [names[1]]


def test_only_runs_that_changed_are_read_again(new_world: CampaignWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    new_world.change("spec.parallelism", 6)
    read: list[str] = []
    get = new_world.store.get

    def recording_get(kind: str, namespace: str | None, name: str) -> Raw | None:
        read.append(name)
        return get(kind, namespace, name)

    monkeypatch.setattr(new_world.store, "get", recording_get)
    new_world.reconcile()
    assert read == [NAME]
    new_world.launch(new_world.planned[2])
    new_world.reconcile()
    assert read == [NAME, NAME, new_world.planned[2]]
    assert new_world.status.runs[2].phase == "Running"


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


def test_a_name_conflict_on_create_is_retried(new_world: CampaignWorld) -> None:
    new_world.store.refuse["create", new_world.planned[0]] = Changed("Conflict", "exists")
    with pytest.raises(Changed):
        new_world.reconcile()
    assert "status" not in new_world.resource
    new_world.store.refuse.clear()
    new_world.settle()
    assert new_world.store.created == new_world.planned[:1]


@pytest.mark.parametrize(
    ("error", "phase", "kind"),
    [(Retry("Forbidden", "exceeded quota"), TRUE, FALSE), (Stop("ManifestRefused", "spec.x"), FALSE, TRUE)],
)
def test_a_refused_run_is_reported_and_does_not_block_other_runs(
    error: Retry | Stop, phase: ConditionStatus, kind: ConditionStatus
) -> None:
    world = CampaignWorld({"spec.parallelism": 3})
    world.store.refuse["create", world.planned[0]] = error
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
    world.store.refuse["create", world.planned[0]] = Retry("ApiUnreachable", "read timed out")
    with pytest.raises(Retry):
        world.reconcile()
    assert world.status == last
    assert world.events[-1] == "ApiUnreachable"


def test_failed_runs_do_not_block_others_and_are_named_at_the_end(world: CampaignWorld) -> None:
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


def test_a_campaign_without_results_is_stalled(new_world: CampaignWorld) -> None:
    for name in new_world.planned:
        new_world.settle()
        new_world.fail(name)
    new_world.settle()
    assert new_world.status_and_reason(Kind.STALLED) == (TRUE, "NothingMeasured")
    assert new_world.status_and_reason(Kind.READY)[0] is FALSE
    assert new_world.status_and_reason(Kind.RECONCILING)[0] is FALSE


def test_a_stalled_unfinished_run_does_not_occupy_a_slot(world: CampaignWorld) -> None:
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


# The summary of a campaign's runs in its status, how its runs are parsed, and when its schedule fires.

STALLED = {"Stalled": yes("R" * 40, "m" * 4096), "Trustworthy": no("R" * 128)}


@pytest.fixture
def settled() -> CampaignWorld:
    settled = CampaignWorld({"spec.parallelism": 6})
    settled.settle()
    return settled


def test_best_reports_the_largest_speedup_with_its_combination(settled: CampaignWorld) -> None:
    for number, name in enumerate(settled.planned):
        settled.finish(name, speedup=1.2 + number / 10)
    settled.settle()
    assert settled.status.best == "ngram 1.70x at 1 (engine=sglang temperature=1)"
    assert settled.status.trust == "Trustworthy"


def test_best_excludes_untrustworthy_runs(settled: CampaignWorld) -> None:
    settled.finish(settled.planned[0], speedup=9.0, trustworthy=False)
    settled.finish(settled.planned[1], speedup=1.3)
    settled.finish_all()
    assert settled.status.best.startswith("ngram 1.50x")
    assert settled.status.trust == "1 of 6 untrustworthy"
    assert settled.status_and_reason(Kind.TRUSTWORTHY) == (FALSE, "Untrustworthy")
    assert settled.planned[0] in settled.message(Kind.TRUSTWORTHY)
    assert settled.status_and_reason(Kind.READY) == (TRUE, "Finished")


def test_none_faster_is_reported_only_after_the_last_run(settled: CampaignWorld) -> None:
    for name in settled.planned[:5]:
        settled.finish(name, speedup=0.9)
    settled.settle()
    assert settled.status.best == ""
    assert settled.status.trust == ""
    settled.finish(settled.planned[5], speedup=0.9)
    settled.settle()
    assert settled.status.best == "none faster"


@pytest.mark.parametrize(
    ("gates", "expected", "text"),
    [
        (["True"] * 6, (TRUE, "GatePassed"), "6 of 6 passed"),
        (["True", "False", "True", "True", "True", "True"], (FALSE, "GateFailed"), "5 of 6 passed, 1 failed"),
        (["True", "Unknown", "", "", "", ""], (UNKNOWN, "NotFinished"), "1 of 2 passed"),
        ([""] * 6, (UNKNOWN, "NoGate"), ""),
    ],
)
def test_gate_results_of_all_runs_are_combined(
    settled: CampaignWorld, gates: list[str], expected: tuple[ConditionStatus, str], text: str
) -> None:
    for name, gate in zip(settled.planned, gates, strict=True):
        settled.finish(name, gate=gate)
    settled.settle()
    assert settled.status_and_reason(Kind.GATE_PASSED) == expected
    assert settled.status.gate == text
    assert ("GateFailed" in settled.events) is (expected[0] is FALSE)


def test_results_that_are_not_stored_are_reported_with_their_run(settled: CampaignWorld) -> None:
    name = settled.planned[2]
    settled.finish(name)
    rows = settled.runs[name]["status"]["conditions"]
    rows[[row["type"] for row in rows].index("ResultsStored")] |= {"status": "False", "reason": "BucketMissing"}
    settled.settle()
    assert settled.status_and_reason(Kind.RESULTS_STORED) == (FALSE, "BucketMissing")
    assert name in settled.message(Kind.RESULTS_STORED)


def test_run_rows_are_truncated_and_accept_unknown_conditions(settled: CampaignWorld) -> None:
    name = settled.planned[0]
    settled.runs[name]["status"] = {
        "phase": "Analyzing",
        "progress": "100000/1000000",
        "best": "x" * 128,
        "trust": "y" * 32,
        "conditions": [{"type": "SomethingNew", "status": "True"}],
    }
    settled.store.touch(settled.runs[name])
    settled.settle()
    row = settled.status.runs[0]
    assert (row.phase, len(row.best), row.progress) == ("Analyzing", 64, "100000/10000")


@pytest.mark.draws
def test_the_status_of_the_largest_campaign_is_below_100_kilobytes() -> None:
    values = [round(step / 100, 2) for step in range(64)]
    axes = [
        {"name": "drafter-configuration-of-the-run", "path": "workloads[0].sampling.temperature", "values": values},
        {"name": "repeats", "path": "load.repeats", "values": [3, 4, 5, 6]},
    ]
    settled = CampaignWorld({"spec.axes": axes})
    seen = [
        ObservedRun(ObjectRef("SpecBenchRun", name, name), "1", 1, NOON, phase="Analyzing", conditions=STALLED,
                progress="9" * 12, trust="Untrustworthy", best="b" * 64, gpu_seconds=1234567.8)
        for name in plan_round(settled.resource, 1).names
    ]  # fmt: skip
    status = decide_campaign(CampaignObservation(settled.resource, tuple(seen)), NOON).status
    assert len(status.runs) == RUNS_MAX
    assert {len(row.reason) for row in status.runs} == {32}
    assert len(json.dumps(status.to_dict())) < 100_000


def test_metrics_report_gpu_hours_of_each_campaign(settled: CampaignWorld) -> None:
    for name in settled.planned:
        settled.launch(name)
    settled.pass_time(3600)
    settled.settle()
    settled.edit("spec.budget.gpuHours", 40)
    settled.telemetry.counted_campaigns([settled.resource])
    value = settled.telemetry.registry.get_sample_value
    labels = {"namespace": "default", "campaign": "nightly"}
    assert value("specbench_campaign_gpu_held_seconds", labels) == 12 * 3600
    assert value("specbench_campaign_gpu_budget_seconds", labels) == 40 * 3600
    assert value("specbench_campaigns", {"phase": "Running"}) == 1
    settled.telemetry.counted_campaigns([])
    assert value("specbench_campaign_gpu_held_seconds", labels) is None
    assert value("specbench_campaigns", {"phase": "Running"}) == 0


# How a campaign parses its runs, and its schedule.


META = {
    "name": "nightly-abcdefgh",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "2026-01-02T12:00:00Z",
}


def raw(**parts: object) -> Raw:
    return {"metadata": {**META, **parts.pop("metadata", {})}, **parts}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        ({}, 0),
        ({"gpus": 8, "nodes": 4}, 32),
        ({"gpus": 0, "claimedGpus": 4, "resourceClaimTemplateName": "four", "nodes": 2}, 8),
    ],
)
def test_gpus_of_a_launch_include_all_nodes_and_claims(placement: Raw, gpus: int) -> None:
    assert parse_observed_run(raw(spec={"placement": placement})).gpus == gpus
    assert Placement.model_validate(placement).engine_devices == gpus


def test_parses_every_field_that_campaigns_use() -> None:
    seen = parse_observed_run(
        raw(
            metadata={
                "labels": {"specbench.io/round": "3"},
                "annotations": {
                    "specbench.io/suspended-by-campaign": "Suspended",
                    "specbench.io/rerun": "token",
                    "specbench.io/fire-time": "2026-01-02T03:00:00Z",
                },
                "deletionTimestamp": "2026-01-02T13:00:00Z",
            },
            spec={"suspend": True, "placement": {"claimedGpus": 2, "nodes": 2}},
            status={
                "phase": "Suspended",
                "gpuSecondsHeld": 12,
                "gpuSecondsUntil": "2026-01-02T12:30:00Z",
                "conditions": [{"type": "Queued", "status": "True", "reason": "WaitingForQuota"}],
            },
        )
    )
    assert (seen.number, seen.rerun, seen.fire_time, seen.suspend_reason) == (
        3,
        "token",
        "2026-01-02T03:00:00Z",
        "Suspended",
    )
    assert (seen.gpus, seen.gpu_seconds) == (4, 12)
    assert seen.gpu_seconds_until == datetime(2026, 1, 2, 12, 30, tzinfo=UTC)
    assert seen.queued
    assert seen.resumable
    assert seen.deleting


@pytest.mark.parametrize(
    ("arms", "speedup"),
    [
        ([], None),
        ([{"arm": "none"}], None),
        ([{"speedup": {"value": 1.2, "low": 0.9, "high": 1.4}}], None),
        ([{"speedup": {"value": 1.2, "low": 1.1, "high": 1.4}}, {"speedup": {"value": 2, "low": 1.5, "high": 3}}], 2),
        ([{"speedup": {"value": 9, "low": 8, "high": 10}, "valid": False}], None),
    ],
)
def test_speedup_is_the_largest_significant_and_valid_one(arms: list[Raw], speedup: float | None) -> None:
    assert parse_observed_run(raw(spec={}, status={"arms": arms})).speedup == speedup


@pytest.mark.parametrize("label", ["", "three", "-1", "1.5"])
def test_an_invalid_round_label_is_none(label: str) -> None:
    assert parse_observed_run(raw(metadata={"labels": {"specbench.io/round": label}}, spec={})).number is None


@pytest.mark.parametrize(
    ("condition", "succeeded", "failed"),
    [
        ({"type": "Ready", "status": "True"}, True, False),
        ({"type": "Stalled", "status": "True"}, False, True),
        ({"type": "Stalled", "status": "False"}, False, False),
        ({"type": "Ready", "status": "Unknown"}, False, False),
    ],
)
def test_run_state_is_derived_from_its_conditions(condition: Raw, succeeded: bool, failed: bool) -> None:
    seen = parse_observed_run(raw(spec={}, status={"phase": "Running", "conditions": [condition]}))
    assert (seen.succeeded, seen.failed, seen.over) == (succeeded, failed, succeeded or failed)


def test_a_campaign_that_does_not_exist_is_not_observed() -> None:
    assert CampaignObserver(FakeApi()).observe("default", "gone") is None


# Schedules.


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def spec(schedule: str, zone: str | None = None) -> CampaignSpec:
    edits = {"spec.schedule": schedule} | ({"spec.timeZone": zone} if zone else {})
    return campaign_of(edits).spec


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "fires"),
    [
        ("0 3 * * *", None, "2026-01-02T03:00:00", "2026-01-03T03:00:00"),
        ("0 3 * * *", None, "2026-01-02T02:59:59.5", "2026-01-02T03:00:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-01-02T12:00:00", "2026-01-03T02:00:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-07-02T12:00:00", "2026-07-03T01:00:00"),
        ("0 3 * * mon-fri", None, "2026-01-02T12:00:00", "2026-01-05T03:00:00"),
        ("@hourly", None, "2026-01-02T12:00:00", "2026-01-02T13:00:00"),
        ("@daily", None, "2026-01-02T12:00:00", "2026-01-03T00:00:00"),
        ("@weekly", None, "2026-01-02T12:00:00", "2026-01-04T00:00:00"),
        ("@monthly", None, "2026-01-02T12:00:00", "2026-02-01T00:00:00"),
        ("@yearly", None, "2026-01-02T12:00:00", "2027-01-01T00:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("0 0 29 2 *", None, "2026-01-02T12:00:00", "2028-02-29T00:00:00"),
    ],
)
def test_a_schedule_fires_at_the_expected_times(schedule: str, zone: str | None, after: str, fires: str) -> None:
    given = spec(schedule, zone)
    assert next_firing(given, at(after)) == at(fires)
    assert fires_at(given, at(fires))
    assert last_firing(given, at(fires)) == at(fires)
    assert not fires_at(given, at(fires).replace(second=1))


@pytest.mark.parametrize("schedule", ["", "0 0 31 2 *"])
def test_a_schedule_that_never_fires_has_no_next_or_last_firing(schedule: str) -> None:
    given = spec(schedule)
    assert next_firing(given, at("2026-01-02T12:00:00")) is None
    assert last_firing(given, at("2026-01-02T12:00:00")) is None
