"""A run's gate: its baseline is found, a Job evaluates it, GatePassed is set, and nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.campaign.names import ANNOTATION_COMBINATION
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.expansion import expand
from specbench_api.plan.names import gate_name
from specbench_api.spec.conditions import ConditionType, GateReason, Phase
from specbench_api.spec.gate import GATE_VARIABLE, GateRequest
from specbench_api.spec.parsing import parse_run
from specbench_operator.run.decide import decide_run
from specbench_operator.state.run import NamespaceRun
from specbench_testing.cluster_world import AWAY, ClusterWorld, finished, launched
from specbench_testing.gate_reports import EARLIER, GATE, digest_of, gate_status
from specbench_testing.operator_builders import OLDER_UID, UID, operator_run

GATED = ConditionType.GATE_PASSED
MAIN = NamespaceRun("main", "main-uid", "2026-01-01T00:00:00Z", "Succeeded", EARLIER, "")


def world_of(gate: dict[str, Any] | None = None, **world: Any) -> ClusterWorld:
    """A run with a gate that has just finished."""
    run = operator_run({"spec.gate": gate or GATE})
    run["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    ended = finished(ClusterWorld(run, **world))
    ended.settle()  # the first reconcile ends the run, the next one starts its gate
    return ended


@pytest.fixture
def world() -> ClusterWorld:
    return world_of(earlier=(MAIN,))


def job_of(world: ClusterWorld) -> str:
    return gate_name("demo", digest_of(world.run["spec"]["gate"]))


def gate_jobs(world: ClusterWorld) -> list[str]:
    return [name for name, job in world.jobs.items() if job.key.role == "gate"]


def evaluate(world: ClusterWorld, reason: GateReason = GateReason.PASSED) -> None:
    """The gate's Job writes gate.json and completes."""
    world.gate = gate_status(reason, world.run["spec"]["gate"])
    name = job_of(world)
    world.jobs[name] = replace(world.jobs[name], complete=True)
    world.settle()


def test_a_run_without_a_gate_has_no_gate_condition() -> None:
    world = finished(ClusterWorld())
    assert GATED not in {row.type for row in world.status.conditions}
    assert gate_jobs(world) == []


def test_before_the_run_is_finished_the_gate_is_pending_and_has_no_job() -> None:
    world = launched(operator_run({"spec.gate": GATE}), earlier=(MAIN,))
    assert world.status_and_reason(GATED) == ("Unknown", "NotYet")
    world.measure_all()
    assert (world.status_and_reason(GATED), gate_jobs(world)) == (("Unknown", "NotYet"), [])


def test_a_finished_run_has_its_gate_evaluated(world: ClusterWorld) -> None:
    assert gate_jobs(world) == [job_of(world)]
    assert world.status_and_reason(GATED) == ("Unknown", "Evaluating")
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    decision = decide_run(world.observed(), world.settings, world.now)
    assert not decision.at_rest


def test_a_gate_on_a_dead_node_is_evaluated_again_elsewhere(world: ClusterWorld) -> None:
    world.start_pod(job_of(world), node="gone", deleted_at=world.now)
    first = world.jobs[job_of(world)]
    world.reconcile(after_s=world.settings.gone_after_s - 1)
    assert world.jobs[job_of(world)] == first
    world.settle(after_s=1)
    assert world.jobs[job_of(world)].ref.uid != first.ref.uid


def test_the_gate_job_receives_the_gate_and_the_baseline_location() -> None:
    world = ClusterWorld(operator_run({"spec.gate": {**GATE, "confidence": 0.9}}), earlier=(MAIN,))
    world.measure_all()
    world.store_results()
    world.reconcile()
    (manifest,) = world.reconcile().apply
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    (text,) = [each["value"] for each in container["env"] if each["name"] == GATE_VARIABLE]
    request = GateRequest.from_json(text)
    assert (request.baseline, request.gate.confidence) == (EARLIER, 0.9)
    assert container["args"] == ["gate", "--results", f"s3://results/runs/default/demo/{UID}"]


@pytest.mark.parametrize("reason", list(GateReason))
def test_the_gate_result_is_reported_and_ready_stays_true(world: ClusterWorld, reason: GateReason) -> None:
    evaluate(world, reason)
    passed = reason is GateReason.PASSED
    assert world.status_and_reason(GATED) == ("True" if passed else "False", str(reason))
    assert "3 of 3 tests are fine" in world.condition(GATED).message
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    assert world.status_and_reason(ConditionType.STALLED)[0] == "False"
    assert world.status.gate is not None
    assert (world.status.gate.passed, world.status.gate.baseline) == (passed, EARLIER)
    assert [event.reason for event in world.events if "Gate" in event.reason] == [
        "GatePassed" if passed else "GateNotPassed"
    ]


def test_the_gate_result_is_kept_without_baseline_and_gate_json(world: ClusterWorld) -> None:
    evaluate(world)
    world.earlier, world.gate = (), None
    decision = world.settle()
    assert world.status_and_reason(GATED) == ("True", "Passed")
    assert decision.at_rest
    world.settle(after_s=90_000)
    assert (world.status_and_reason(GATED), world.jobs) == (("True", "Passed"), {})


def test_a_stored_gate_result_is_reused_without_another_job(world: ClusterWorld) -> None:
    evaluate(world)
    world.run["status"].pop("gate")
    world.lose_job(job_of(world))
    world.settle()
    assert (world.status_and_reason(GATED), gate_jobs(world)) == (("True", "Passed"), [])


def test_a_gate_result_of_adopted_results_that_were_extended_is_not_reused() -> None:
    """It is about what was stored before this run measured the missing points."""
    run = operator_run({"spec.gate": GATE, "spec.results.adopt": OLDER_UID})
    older = operator_run()
    older["metadata"]["uid"] = OLDER_UID
    world = ClusterWorld(run, earlier=(MAIN,), gate=gate_status(GateReason.PASSED, GATE))
    world.plan_there = expand(parse_run(older)).to_json()
    finished(world)
    world.settle()
    assert (world.status_and_reason(GATED), gate_jobs(world)) == (("Unknown", "Evaluating"), [job_of(world)])
    evaluate(world, GateReason.REGRESSED)
    assert world.status_and_reason(GATED) == ("False", "Regressed")


def test_a_changed_gate_replaces_its_job_and_is_evaluated_again(world: ClusterWorld) -> None:
    first = job_of(world)
    world.run["spec"]["gate"] = {**GATE, "confidence": 0.9}
    deciding = decide_run(world.observed(), world.settings, world.now)
    assert ([ref.name for ref in deciding.delete], deciding.apply) == ([first], ()), "only one Job writes gate.json"
    world.settle()
    assert gate_jobs(world) == [job_of(world)] != [first]
    evaluate(world, GateReason.REGRESSED)
    assert world.status_and_reason(GATED) == ("False", "Regressed")
    world.run["spec"]["gate"] = GATE
    world.settle()
    assert world.status_and_reason(GATED) == ("Unknown", "Evaluating"), "the result in S3 belongs to the other gate"


def test_a_removed_gate_leaves_no_condition_status_or_job(world: ClusterWorld) -> None:
    evaluate(world)
    del world.run["spec"]["gate"]
    world.settle()
    assert (world.status.gate, gate_jobs(world)) == (None, [])
    assert GATED not in {row.type for row in world.status.conditions}


def test_a_gate_can_be_added_after_the_children_are_deleted() -> None:
    world = finished(ClusterWorld(earlier=(MAIN,)))
    world.settle(after_s=90_000)
    world.run["spec"]["gate"] = GATE
    world.settle()
    assert list(world.jobs) == [job_of(world)], "the gate Job exists after the TTL of the children"
    evaluate(world)
    assert (world.status_and_reason(GATED), world.jobs) == (("True", "Passed"), {})


@pytest.mark.parametrize(
    ("earlier", "reason", "message"),
    [
        ((), "BaselineMissing", "there is no SpecBenchRun 'main'"),
        ((replace(MAIN, phase="Running"),), "BaselineNotFinished", "'main' is not finished: Running"),
        ((replace(MAIN, phase=""),), "BaselineNotFinished", "no phase yet"),
        ((replace(MAIN, phase="Failed"),), "BaselineFailed", "'main' has no results: Failed"),
        ((replace(MAIN, phase="Invalid"),), "BaselineFailed", "has no results: Invalid"),
    ],
)
def test_a_missing_baseline_is_reported_and_searched_again(
    earlier: tuple[NamespaceRun, ...], reason: str, message: str
) -> None:
    world = world_of(earlier=earlier)
    assert world.status_and_reason(GATED) == ("Unknown", reason)
    assert message in world.condition(GATED).message
    decision = world.reconcile()
    assert (decision.requeue_after_s, decision.apply) == (30.0, ())
    assert decision.awaits == {"main"}, "the end of the baseline run wakes this run"
    world.earlier = (MAIN,)
    world.settle()
    assert gate_jobs(world) == [job_of(world)]


def test_a_missing_baseline_is_searched_at_growing_intervals() -> None:
    """The relist, which runs twice a minute, skips the run."""
    world = world_of(earlier=())
    waits = []
    for _ in range(12):
        decision = world.reconcile()
        assert decision.at_rest
        assert decision.requeue_after_s is not None
        waits.append(decision.requeue_after_s)
        world.pass_time(decision.requeue_after_s)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (30.0, 900.0)
    assert waits.count(900.0) < 6


def test_a_run_cannot_be_its_own_baseline() -> None:
    world = world_of({"baselineRef": {"run": "demo"}}, earlier=(replace(MAIN, name="demo"),))
    assert world.status_and_reason(GATED) == ("Unknown", "BaselineMissing")
    assert "is the name of this run" in world.condition(GATED).message


def test_a_baseline_uri_is_used_unchanged() -> None:
    world = world_of({"baselineRef": {"uri": "s3://results/else"}})
    assert (gate_jobs(world), world.status_and_reason(GATED)) == ([job_of(world)], ("Unknown", "Evaluating"))
    world.lose_job(job_of(world))
    assert "s3://results/else" in json.dumps(world.reconcile().apply)


SAME = '{"engine":"simulator"}'


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", SAME), ("b", "2026-01-01T09:00:00Z", "Succeeded", SAME)], "b"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", SAME), ("b", "2026-01-01T09:00:00Z", "Failed", SAME)], "a"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", SAME), ("b", "2026-01-01T09:00:00Z", "Succeeded", "else")], "a"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", SAME), ("b", "2026-01-03T00:00:00Z", "Succeeded", SAME)], "a"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", SAME), ("b", "2026-01-02T00:00:00Z", "Succeeded", SAME)], "b"),
        ([("a", "2026-01-02T00:00:00Z", "Succeeded", SAME), ("b", "2026-01-02T00:00:01Z", "Succeeded", SAME)], "a"),
        ([("b", "2026-01-01T09:00:00Z", "Running", SAME)], "BaselineNotFinished"),
        ([("b", "2026-01-03T00:00:00Z", "Succeeded", SAME)], "BaselineMissing"),
        ([], "BaselineMissing"),
    ],
    ids=[
        "newest",
        "skip failed",
        "same combination",
        "skip later",
        "same second",
        "a second later",
        "running",
        "only later",
        "none",
    ],
)
def test_a_campaign_baseline_is_its_newest_earlier_finished_run_of_the_same_cell(
    rows: list[tuple[str, str, str, str]], expected: str
) -> None:
    earlier = tuple(
        NamespaceRun(name, f"{name}-uid", created, phase, f"s3://results/{name}", combination)
        for name, created, phase, combination in rows
    )
    run = operator_run({"spec.gate": {"baselineRef": {"campaign": "nightly"}}})
    run["metadata"] |= {"creationTimestamp": "2026-01-02T00:00:00Z", "annotations": {ANNOTATION_COMBINATION: SAME}}
    world = ClusterWorld(run, earlier=earlier)
    world.measure_all()
    world.store_results()
    world.reconcile()
    decision = world.reconcile()
    if expected.startswith("Baseline"):
        assert world.status_and_reason(GATED) == ("Unknown", expected)
    else:
        assert f"s3://results/{expected}" in json.dumps(decision.apply)


def test_a_run_without_a_campaign_has_no_cell() -> None:
    world = world_of({"baselineRef": {"campaign": "nightly"}}, earlier=(replace(MAIN, combination=SAME),))
    assert world.status_and_reason(GATED) == ("Unknown", "BaselineMissing")
    assert ANNOTATION_COMBINATION in world.condition(GATED).message


def test_a_failed_gate_job_is_reported_and_not_recreated(world: ClusterWorld) -> None:
    name = job_of(world)
    world.start_pod(name)
    termination = Termination(code=Exit.BAD_INPUT, reason="BaselineMissing", message="no run lies here").to_message()
    world.crash(name, int(Exit.BAD_INPUT), message=termination)
    world.settle()
    assert world.status_and_reason(GATED) == ("Unknown", "BaselineMissing")
    assert "no run lies here" in world.condition(GATED).message
    assert f"delete Job {name}" in world.condition(GATED).message
    world.settle(after_s=90_000)
    assert gate_jobs(world) == [name], "the Job is kept as the record, without a second one"
    world.lose_job(name)
    world.settle()
    assert world.status_and_reason(GATED) == ("Unknown", "Evaluating")


def test_a_completed_gate_job_without_a_result_is_reported(world: ClusterWorld) -> None:
    name = job_of(world)
    world.jobs[name] = replace(world.jobs[name], complete=True)
    world.settle()
    assert world.status_and_reason(GATED) == ("Unknown", "ResultsMissing")


def test_a_gate_waits_for_an_unreachable_s3() -> None:
    world = world_of()
    world.trouble = AWAY
    world.earlier = (MAIN,)
    decision = world.reconcile()
    assert world.status_and_reason(GATED) == ("Unknown", "S3Away")
    assert (decision.requeue_after_s, decision.apply) == (30.0, ())
    world.trouble = None
    world.settle()
    assert gate_jobs(world) == [job_of(world)]


def test_a_failed_run_does_not_pass_its_gate() -> None:
    world = launched(operator_run({"spec.gate": GATE}), earlier=(MAIN,))
    for group in (0, 1):
        world.fail_engine(1, group=group, message="no CUDA device")
    assert world.status.phase is Phase.FAILED
    assert world.status_and_reason(GATED) == ("False", "RunFailed")
    assert gate_jobs(world) == []


def test_the_gate_of_an_invalid_run_is_pending() -> None:
    edits = {"spec.gate": GATE, "spec.engine.kind": "llama-cpp"}
    edits["spec.drafters[0]"] = {"name": "e", "method": "eagle", "model": "m"}
    world = launched(operator_run(edits))
    assert world.status_and_reason(GATED) == ("Unknown", "NotYet")
