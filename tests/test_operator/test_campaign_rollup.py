"""The summary of a campaign's runs in its status, how its runs are parsed, and when its schedule fires."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from specbench_api.spec.campaign import RUNS_MAX, CampaignSpec
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.placement import Placement
from specbench_operator.campaign.decide import decide_campaign
from specbench_operator.campaign.rounds import fires_at, last_firing, next_firing, plan_round
from specbench_operator.cluster.campaigns import CampaignObserver, parse_observed_run
from specbench_operator.state.campaign import CampaignObservation, ObservedRun, RunCondition
from specbench_operator.state.objects import ObjectRef
from specbench_testing.campaign_world import CampaignWorld
from specbench_testing.campaigns import campaign_of
from specbench_testing.fake_api_store import FakeApiStore, Raw
from specbench_testing.operator_builders import NOON

STALLED = {"Stalled": RunCondition("True", "R" * 40, "m" * 4096), "Trustworthy": RunCondition("False", "R" * 128)}
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


@pytest.fixture
def world() -> CampaignWorld:
    world = CampaignWorld({"spec.parallelism": 6})
    world.settle()
    return world


def test_best_reports_the_largest_speedup_with_its_combination(world: CampaignWorld) -> None:
    for number, name in enumerate(world.planned):
        world.finish(name, speedup=1.2 + number / 10)
    world.settle()
    assert world.status.best == "ngram 1.70x at 1 (engine=sglang temperature=1)"
    assert world.status.trust == "Trustworthy"


def test_best_excludes_untrustworthy_runs(world: CampaignWorld) -> None:
    world.finish(world.planned[0], speedup=9.0, trustworthy=False)
    world.finish(world.planned[1], speedup=1.3)
    world.finish_all()
    assert world.status.best.startswith("ngram 1.50x")
    assert world.status.trust == "1 of 6 untrustworthy"
    assert world.status_and_reason(Kind.TRUSTWORTHY) == (FALSE, "Untrustworthy")
    assert world.planned[0] in world.message(Kind.TRUSTWORTHY)
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")


def test_none_faster_is_reported_only_after_the_last_run(world: CampaignWorld) -> None:
    for name in world.planned[:5]:
        world.finish(name, speedup=0.9)
    world.settle()
    assert world.status.best == ""
    assert world.status.trust == ""
    world.finish(world.planned[5], speedup=0.9)
    world.settle()
    assert world.status.best == "none faster"


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
    world: CampaignWorld, gates: list[str], expected: tuple[ConditionStatus, str], text: str
) -> None:
    for name, gate in zip(world.planned, gates, strict=True):
        world.finish(name, gate=gate)
    world.settle()
    assert world.status_and_reason(Kind.GATE_PASSED) == expected
    assert world.status.gate == text
    assert ("GateFailed" in world.events) is (expected[0] is FALSE)


def test_results_that_are_not_stored_are_reported_with_their_run(world: CampaignWorld) -> None:
    name = world.planned[2]
    world.finish(name)
    rows = world.runs[name]["status"]["conditions"]
    rows[[row["type"] for row in rows].index("ResultsStored")] |= {"status": "False", "reason": "BucketMissing"}
    world.settle()
    assert world.status_and_reason(Kind.RESULTS_STORED) == (FALSE, "BucketMissing")
    assert name in world.message(Kind.RESULTS_STORED)


def test_run_rows_are_truncated_and_accept_unknown_conditions(world: CampaignWorld) -> None:
    name = world.planned[0]
    world.runs[name]["status"] = {
        "phase": "Analyzing",
        "progress": "100000/1000000",
        "best": "x" * 128,
        "trust": "y" * 32,
        "conditions": [{"type": "SomethingNew", "status": "True"}],
    }
    world.store.touch(world.runs[name])
    world.settle()
    row = world.status.runs[0]
    assert (row.phase, len(row.best), row.progress) == ("Analyzing", 64, "100000/10000")


def test_the_status_of_the_largest_campaign_is_below_100_kilobytes() -> None:
    values = [round(step / 100, 2) for step in range(64)]
    axes = [
        {"name": "drafter-configuration-of-the-run", "path": "workloads[0].sampling.temperature", "values": values},
        {"name": "repeats", "path": "load.repeats", "values": [3, 4, 5, 6]},
    ]
    world = CampaignWorld({"spec.axes": axes})
    seen = [
        ObservedRun(ObjectRef("SpecBenchRun", name, name), "1", 1, NOON, phase="Analyzing", conditions=STALLED,
                progress="9" * 12, trust="Untrustworthy", best="b" * 64, gpu_seconds=1234567.8)
        for name in plan_round(world.resource, 1).names
    ]  # fmt: skip
    status = decide_campaign(CampaignObservation(world.resource, tuple(seen)), NOON).status
    assert len(status.runs) == RUNS_MAX
    assert {len(row.reason) for row in status.runs} == {32}
    assert len(json.dumps(status.to_dict())) < 100_000


def test_metrics_report_gpu_hours_of_each_campaign(world: CampaignWorld) -> None:
    for name in world.planned:
        world.launch(name)
    world.pass_time(3600)
    world.settle()
    world.edit("spec.budget.gpuHours", 40)
    world.telemetry.counted_campaigns([world.resource])
    value = world.telemetry.registry.get_sample_value
    labels = {"namespace": "default", "campaign": "nightly"}
    assert value("specbench_campaign_gpu_held_seconds", labels) == 12 * 3600
    assert value("specbench_campaign_gpu_budget_seconds", labels) == 40 * 3600
    assert value("specbench_campaigns", {"phase": "Running"}) == 1
    world.telemetry.counted_campaigns([])
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


def test_a_new_run_has_no_state() -> None:
    seen = parse_observed_run(raw(spec={}))
    assert seen.ref == ObjectRef("SpecBenchRun", "nightly-abcdefgh", "u")
    assert [seen.over, seen.ended, seen.queued, seen.suspended, seen.deleting] == [False] * 5
    assert (seen.number, seen.speedup, seen.gpu_seconds) == (None, None, 0)


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
    assert CampaignObserver(FakeApiStore()).observe("default", "gone") is None


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
