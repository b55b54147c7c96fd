"""The summary of a campaign's runs in its status."""

from __future__ import annotations

import json

import pytest

from specbench_api.spec.campaign import RUNS_MAX
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.campaign.decide import decide_campaign
from specbench_operator.campaign.round_plan import plan_round
from specbench_operator.state.campaign import CampaignObservation, ObservedRun, RunCondition
from specbench_operator.state.objects import ObjectRef
from specbench_testing.campaign_world import CampaignWorld
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
