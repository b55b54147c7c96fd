"""Edits of a campaign in progress: runs are added, removed and suspended, and changes of the template applied."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.plan.canonical import NOT_MEASURED
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.gate import Gate
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import NOTHING_CHANGES, RunSpec
from specbench_operator.campaign.decide import decide_campaign
from specbench_operator.campaign.rounds import PROPAGATED
from specbench_operator.cluster.campaign_observer import CampaignObserver
from specbench_operator.errors import Changed, Retry, Stop
from specbench_operator.state.campaign import ANNOTATION_SUSPEND_REASON, CampaignObservation, RunDeletion, RunPatch
from specbench_testing.campaign_world import CampaignWorld
from specbench_testing.fake_api import FakeApi

TEMPERATURES = "spec.axes[1].values"


@pytest.fixture
def world() -> CampaignWorld:
    return CampaignWorld({"spec.parallelism": 2})


@pytest.fixture
def started(world: CampaignWorld) -> CampaignWorld:
    """A campaign with two active runs."""
    world.settle()
    return world


def test_an_added_axis_value_adds_only_the_new_runs(world: CampaignWorld) -> None:
    world.finish_all()
    before = {name: run["metadata"]["uid"] for name, run in world.runs.items()}
    world.change(TEMPERATURES, [0, 0.7, 1.0, 1.5])
    assert world.status_and_reason(Kind.READY)[0] is ConditionStatus.FALSE
    world.finish_all()
    assert len(world.store.created) == 8
    assert {name: world.runs[name]["metadata"]["uid"] for name in before} == before
    assert world.status.progress == "8/8"
    assert world.status.round is not None
    assert world.status.round.number == 1


def test_unfinished_runs_removed_from_the_matrix_are_deleted(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.settle()
    world.finish(first)
    world.change(TEMPERATURES, [1.0])
    assert first in world.runs, "a finished run is kept"
    assert second not in world.runs, "an unfinished run is deleted"
    assert len(world.status.runs) == 3
    row = world.status.runs[-1]
    assert (row.name, row.reason) == (first, "OffTheMatrix")
    assert world.status.counts.total == 2
    world.finish_all()
    assert world.status.progress == "2/2"


def test_a_readded_combination_reuses_its_finished_run(world: CampaignWorld) -> None:
    world.finish_all()
    world.change(TEMPERATURES, [0])
    world.change(TEMPERATURES, [0, 0.7, 1.0])
    assert len(world.store.created) == 6
    assert world.status.progress == "6/6"


def test_changing_what_the_template_measures_replaces_the_runs(started: CampaignWorld) -> None:
    old = set(started.runs)
    started.change("spec.template.spec.load.repeats", 7)
    assert not old & set(started.runs)
    started.finish_all()
    assert len(started.runs) == 6
    assert all(run["spec"]["load"]["repeats"] == 7 for run in started.runs.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activeDeadlineSeconds", 4321),
        ("startupDeadlineSeconds", 4321),
        ("reportDeadlineSeconds", 4321),
        ("ttlSecondsAfterFinished", 4321),
        ("retries", 4),
    ],
)
def test_edits_of_deadlines_and_retries_are_propagated_to_existing_runs(
    started: CampaignWorld, field: str, value: int
) -> None:
    uids = [run["metadata"]["uid"] for run in started.runs.values()]
    started.change(f"spec.template.spec.{field}", value)
    assert [run["spec"][field] for run in started.runs.values()] == [value, value]
    assert [run["metadata"]["uid"] for run in started.runs.values()] == uids


@pytest.mark.parametrize(
    "after",
    [
        {"baselineRef": {"campaign": "nightly"}, "confidence": 0.9},
        {"baselineRef": {"uri": "s3://results/runs/default/main/0001"}},
        None,
    ],
    ids=["campaign", "uri", "none"],
)
def test_an_edited_gate_replaces_the_old_one_completely(after: dict[str, object] | None) -> None:
    world = CampaignWorld({"spec.parallelism": 2, "spec.template.spec.gate": {"baselineRef": {"run": "main"}}})
    world.settle()
    world.change("spec.template.spec.gate", after)
    gates = [parse_run(run).spec.gate for run in world.runs.values()]
    assert gates == [Gate.model_validate(after) if after else None] * 2


def test_mutable_run_fields_are_not_in_the_run_name_and_are_propagated() -> None:
    fixed = set(re.findall(r"self\.(\w+) == oldSelf", NOTHING_CHANGES.rule))
    changeable = {str(field.alias) for field in RunSpec.model_fields.values()} - fixed
    assert "activeDeadlineSeconds" in changeable
    assert changeable <= set(NOT_MEASURED)
    assert changeable - {"suspend"} <= set(PROPAGATED)
    assert not fixed & set(PROPAGATED)


def test_result_location_and_placement_edits_affect_only_new_runs(started: CampaignWorld) -> None:
    started.edit("spec.template.spec.results.s3.bucket", "elsewhere")
    started.change("spec.template.spec.placement.tolerations", [{"key": "gpu", "operator": "Exists"}])
    first, second = started.planned[:2]
    assert started.runs[first]["spec"]["results"]["s3"]["bucket"] == "results"
    started.finish(first)
    started.finish(second)
    started.settle()
    third = started.runs[started.planned[2]]["spec"]
    assert third["results"]["s3"]["bucket"] == "elsewhere"
    assert len(third["placement"]["tolerations"]) == 1


class OutdatedCache(CampaignObserver):
    """A cache that does not change any more."""

    def __init__(self, store: FakeApi) -> None:
        copied: Any = copy.deepcopy(store)
        super().__init__(copied)

    def observe(self, namespace: str, name: str) -> CampaignObservation | None:
        observed = super().observe(namespace, name)
        return replace(observed, live=False) if observed else None


@pytest.fixture
def outdated(started: CampaignWorld) -> CampaignWorld:
    """A campaign whose cache does not change any more, with two active runs."""
    started.reconciler = replace(started.reconciler, cached=OutdatedCache(started.store))
    return started


def test_a_drifted_field_is_reset_without_asking_the_api_server(outdated: CampaignWorld) -> None:
    name = outdated.planned[0]
    outdated.runs[name]["spec"]["activeDeadlineSeconds"] = 77
    outdated.store.touch(outdated.runs[name])
    unreachable: Any = None
    outdated.reconciler = replace(outdated.reconciler, observer=unreachable, cached=OutdatedCache(outdated.store))
    outdated.reconcile()
    assert outdated.runs[name]["spec"].get("activeDeadlineSeconds") != 77


def test_a_run_that_changed_since_it_was_observed_is_not_changed(outdated: CampaignWorld) -> None:
    name = outdated.planned[0]
    seen = outdated.reconciler.cached.observe("default", "nightly")
    assert seen is not None
    outdated.suspend_by_hand(name)
    run = next(run for run in seen.runs if run.name == name)
    decision = decide_campaign(seen, outdated.now)
    patch = RunPatch(run.ref, run.version, {"spec": {"suspend": False}})
    with pytest.raises(Changed):
        outdated.reconciler.writer.act_on_campaign(outdated.resource, replace(decision, patch=(patch,)))
    deletion = RunDeletion(run.ref, run.version)
    with pytest.raises(Changed):
        outdated.reconciler.writer.act_on_campaign(outdated.resource, replace(decision, delete=(deletion,)))
    assert outdated.runs[name]["spec"]["suspend"] is True


def test_nothing_begins_because_of_an_outdated_cache(outdated: CampaignWorld) -> None:
    first = outdated.planned[0]
    outdated.finish(first)
    outdated.reconciler = replace(outdated.reconciler, cached=OutdatedCache(outdated.store))
    outdated.edit("spec.suspend", value=True)
    before = set(outdated.runs)
    outdated.reconcile()
    assert set(outdated.runs) == before, "the cache shows a free place, and not that the campaign was suspended"


def test_an_error_is_reported_although_another_write_met_a_conflict(outdated: CampaignWorld) -> None:
    observed = outdated.reconciler.observer.observe("default", "nightly")
    assert observed is not None
    run = observed.runs[0]
    outdated.store.refuse["create", "new"] = Stop("Forbidden", "the quota is exceeded")
    manifest = {"kind": "SpecBenchRun", "metadata": {"name": "new", "namespace": "default"}}
    decision = replace(
        decide_campaign(observed, outdated.now),
        patch=(RunPatch(run.ref, "0", {"spec": {"suspend": True}}),),
        create=(manifest,),
    )
    with pytest.raises(Stop, match="quota"):
        outdated.reconciler.writer.act_on_campaign(outdated.resource, decision)


# Suspending and resuming: by the campaign and by hand.

TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


def suspended_runs(started: CampaignWorld) -> dict[str, str]:
    return {
        name: run["metadata"]["annotations"].get(ANNOTATION_SUSPEND_REASON, "")
        for name, run in started.runs.items()
        if run["spec"]["suspend"]
    }


def test_suspending_a_campaign_suspends_its_runs_and_creates_none(started: CampaignWorld) -> None:
    first, second = started.planned[:2]
    started.finish(first)
    started.change("spec.suspend", True)
    assert suspended_runs(started) == {second: "Suspended"}
    assert len(started.store.created) == 2
    assert started.status.phase is CampaignPhase.SUSPENDED
    assert {started.status_and_reason(kind)[0] for kind in (Kind.READY, Kind.RECONCILING, Kind.STALLED)} == {FALSE}
    assert "Suspended" in started.events


def test_a_refused_suspend_of_one_run_does_not_block_the_others(started: CampaignWorld) -> None:
    first, second = started.planned[:2]
    started.store.refuse["merge", first] = Stop("ManifestRefused", "an admission webhook says no")
    started.edit("spec.suspend", True)
    with pytest.raises(Stop, match="webhook"):
        started.reconcile()
    assert suspended_runs(started) == {second: "Suspended"}
    started.store.refuse.clear()
    started.settle()
    assert suspended_runs(started) == {first: "Suspended", second: "Suspended"}


def test_an_unreachable_api_server_ends_the_loop_over_the_runs(started: CampaignWorld) -> None:
    first, second = started.planned[:2]
    started.store.refuse["merge", first] = Retry("ApiUnreachable", "read timed out")
    started.edit("spec.suspend", True)
    with pytest.raises(Retry, match="timed out"):
        started.reconcile()
    assert not started.runs[second]["spec"]["suspend"]


def test_resuming_continues_suspended_runs_before_creating_new_ones(started: CampaignWorld) -> None:
    started.change("spec.suspend", True)
    started.change("spec.suspend", False)
    assert suspended_runs(started) == {}
    assert len(started.store.created) == 2
    assert "Resumed" in started.events
    started.finish_all()
    assert len(started.store.created) == 6


def test_resuming_respects_a_lower_parallelism(started: CampaignWorld) -> None:
    started.change("spec.suspend", True)
    started.edit("spec.suspend", False)
    started.change("spec.parallelism", 1)
    assert list(suspended_runs(started)) == [started.planned[1]]
    started.finish(started.planned[0])
    started.settle()
    assert suspended_runs(started) == {}
    assert len(started.store.created) == 2


def test_a_lower_parallelism_suspends_no_active_run(started: CampaignWorld) -> None:
    started.change("spec.parallelism", 1)
    assert suspended_runs(started) == {}
    started.finish(started.planned[0])
    started.settle()
    assert len(started.store.created) == 2
    started.finish(started.planned[1])
    started.settle()
    assert len(started.store.created) == 3


def test_a_manually_suspended_run_stays_suspended_and_keeps_its_slot(started: CampaignWorld) -> None:
    by_hand, other = started.planned[:2]
    started.suspend_by_hand(by_hand)
    started.change("spec.suspend", True)
    started.change("spec.suspend", False)
    assert suspended_runs(started) == {by_hand: ""}
    assert started.status.runs[0].reason == "SuspendedByHand"
    started.finish(other)
    started.settle()
    assert len(started.store.created) == 3, "only the finished run frees its slot"


def test_a_campaign_that_waits_for_a_manual_resume_reports_it(started: CampaignWorld) -> None:
    for name in started.planned[:2]:
        started.suspend_by_hand(name)
    started.settle()
    assert started.status_and_reason(Kind.RECONCILING) == (TRUE, "WaitingForResume")
    assert started.planned[0] in started.message(Kind.RECONCILING)
    started.suspend_by_hand(started.planned[0], suspend=False)
    started.settle()
    assert started.status_and_reason(Kind.RECONCILING) == (TRUE, "Running")


def test_a_manually_resumed_run_is_suspended_again_with_its_campaign(started: CampaignWorld) -> None:
    started.change("spec.suspend", True)
    started.suspend_by_hand(started.planned[0], suspend=False)
    started.settle()
    assert len(suspended_runs(started)) == 2


def test_an_obsolete_suspend_annotation_is_removed_after_a_manual_resume(started: CampaignWorld) -> None:
    name = started.planned[0]
    started.change("spec.suspend", True)
    started.edit("spec.suspend", False)
    started.suspend_by_hand(name, suspend=False)
    started.settle()
    assert ANNOTATION_SUSPEND_REASON not in started.runs[name]["metadata"]["annotations"]
    started.suspend_by_hand(name)
    started.settle()
    assert suspended_runs(started) == {name: ""}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_failed_but_recoverable_run_is_resumed_with_the_others(started: CampaignWorld, parallelism: int) -> None:
    """Otherwise it would still be suspended after its problem is fixed."""
    failed, other = started.planned[:2]
    started.fail(failed, "ReportFailed", recoverable=True)
    started.change("spec.suspend", True)
    assert failed in suspended_runs(started)
    assert other in suspended_runs(started)
    started.edit("spec.parallelism", parallelism)
    started.change("spec.suspend", False)
    assert suspended_runs(started) == {}, "a failed run occupies no slot"
    started.finish(failed)
    started.finish_all()
    assert started.status.phase is CampaignPhase.SUCCEEDED


def test_a_permanently_failed_run_is_not_resumed(started: CampaignWorld) -> None:
    failed = started.planned[0]
    started.change("spec.suspend", True)
    started.fail(failed)
    started.change("spec.suspend", False)
    assert list(suspended_runs(started)) == [failed]
