"""A run's gate: its baseline is found, a Job evaluates it, GatePassed is set, and nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench_api.campaign.names import ANNOTATION_CELL
from specbench_api.outcome.gate_report import GATE_VARIABLE, GateRequest
from specbench_api.outcome.termination import Exit, Termination
from specbench_api.plan.names import gate_name
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GateReason, Phase
from specbench_operator.reconcile.decide import decide_run
from specbench_operator.state.run import EarlierRun, RunDecision
from specbench_testing.cluster_world import AWAY, ClusterWorld, finished
from specbench_testing.gate_reports import EARLIER, GATE, digest_of, gate_report
from specbench_testing.operator_builders import UID, operator_run

GATED = ConditionType.GATE_PASSED
MAIN = EarlierRun("main", "main-uid", "2026-01-01T00:00:00Z", "Succeeded", EARLIER, "")


def world_of(gate: dict[str, Any] | None = None, **world: Any) -> ClusterWorld:
    """A run with a gate that has just ended."""
    run = operator_run({"spec.gate": gate or GATE})
    run["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    ended = finished(ClusterWorld(run, **world))
    ended.settle()  # its end is one look, its gate the next
    return ended


def job_of(world: ClusterWorld) -> str:
    return gate_name("demo", digest_of(world.run["spec"]["gate"]))


def gate_jobs(world: ClusterWorld) -> list[str]:
    return [name for name, job in world.jobs.items() if job.key.role == "gate"]


def evaluate(world: ClusterWorld, reason: GateReason = GateReason.PASSED) -> None:
    """The gate's Job writes gate.json and ends well."""
    world.gate = gate_report(reason, world.run["spec"]["gate"])
    name = job_of(world)
    world.jobs[name] = replace(world.jobs[name], complete=True)
    world.settle()


def test_a_run_without_a_gate_says_nothing_of_one() -> None:
    world = finished(ClusterWorld())
    assert GATED not in {row.type for row in world.status.conditions}
    assert gate_jobs(world) == []


def test_before_the_run_is_finished_its_gate_is_awaited_and_costs_nothing() -> None:
    world = ClusterWorld(operator_run({"spec.gate": GATE}), earlier=(MAIN,))
    world.settle()
    assert world.said(GATED) == ("Unknown", "NotYet")
    world.measure(0)
    world.measure(1)
    assert (world.said(GATED), gate_jobs(world)) == (("Unknown", "NotYet"), [])


def test_a_finished_run_has_its_gate_evaluated_against_the_earlier_runs_results() -> None:
    world = world_of(earlier=(MAIN,))
    assert gate_jobs(world) == [job_of(world)]
    assert world.said(GATED) == ("Unknown", "Evaluating")
    assert world.said(ConditionType.READY) == ("True", "Finished")
    decision = decide_run(world.observed(), world.settings, world.now)
    assert not decision.at_rest


def test_the_job_is_told_the_gate_and_where_its_baseline_lies() -> None:
    world = ClusterWorld(operator_run({"spec.gate": {**GATE, "confidence": 0.9}}), earlier=(MAIN,))
    for group in (0, 1):
        world.settle()
        world.measure(group)
    world.finish_report()
    world.look()
    (manifest,) = world.look().apply
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    (told,) = [each["value"] for each in container["env"] if each["name"] == GATE_VARIABLE]
    asked = GateRequest.from_json(told)
    assert (asked.baseline, asked.gate.confidence) == (EARLIER, 0.9)
    assert container["args"] == ["gate", "--results", f"s3://results/runs/default/demo/{UID}"]


@pytest.mark.parametrize("reason", list(GateReason))
def test_what_it_found_is_told_and_ready_stays_true(reason: GateReason) -> None:
    world = world_of(earlier=(MAIN,))
    evaluate(world, reason)
    passed = reason is GateReason.PASSED
    assert world.said(GATED) == ("True" if passed else "False", str(reason))
    assert "3 of 3 tests are fine" in world.condition(GATED).message
    assert world.said(ConditionType.READY) == ("True", "Finished")
    assert world.said(ConditionType.STALLED)[0] == "False"
    assert world.status.gate is not None
    assert (world.status.gate.passed, world.status.gate.baseline) == (passed, EARLIER)
    assert [event.reason for event in world.events if "Gate" in event.reason] == [
        "GatePassed" if passed else "GateNotPassed"
    ]


def test_what_was_evaluated_stays_when_the_baseline_and_the_answer_are_gone() -> None:
    world = world_of(earlier=(MAIN,))
    evaluate(world)
    world.earlier, world.gate = (), None
    decision = world.settle()
    assert world.said(GATED) == ("True", "Passed")
    assert decision.at_rest
    world.pass_time(90_000)
    world.settle()
    assert (world.said(GATED), world.jobs) == (("True", "Passed"), {})


def test_an_answer_that_lies_in_s3_is_found_again_without_another_job() -> None:
    world = world_of(earlier=(MAIN,))
    evaluate(world)
    world.run["status"].pop("gate")
    world.lose_job(job_of(world))
    world.settle()
    assert (world.said(GATED), gate_jobs(world)) == (("True", "Passed"), [])


def test_another_gate_is_another_question_and_its_job_replaces_the_last() -> None:
    world = world_of(earlier=(MAIN,))
    first = job_of(world)
    world.run["spec"]["gate"] = {**GATE, "confidence": 0.9}
    deciding = decide_run(world.observed(), world.settings, world.now)
    assert ([ref.name for ref in deciding.delete], deciding.apply) == ([first], ()), "never two that write gate.json"
    world.settle()
    assert gate_jobs(world) == [job_of(world)] != [first]
    evaluate(world, GateReason.REGRESSED)
    assert world.said(GATED) == ("False", "Regressed")
    world.run["spec"]["gate"] = GATE
    world.settle()
    assert world.said(GATED) == ("Unknown", "Evaluating"), "the answer in S3 is of the other gate"


def test_a_gate_that_is_taken_away_leaves_no_trace() -> None:
    world = world_of(earlier=(MAIN,))
    evaluate(world)
    del world.run["spec"]["gate"]
    world.settle()
    assert (world.status.gate, gate_jobs(world)) == (None, [])
    assert GATED not in {row.type for row in world.status.conditions}


def test_a_gate_may_come_when_all_is_measured_and_the_children_are_gone() -> None:
    world = finished(ClusterWorld(earlier=(MAIN,)))
    world.pass_time(90_000)
    world.settle()
    world.run["spec"]["gate"] = GATE
    world.settle()
    assert list(world.jobs) == [job_of(world)], "it outlives the time at which children go"
    evaluate(world)
    assert (world.said(GATED), world.jobs) == (("True", "Passed"), {})


@pytest.mark.parametrize(
    ("earlier", "reason", "said"),
    [
        ((), "BaselineMissing", "there is no SpecBenchRun 'main'"),
        ((replace(MAIN, phase="Running"),), "BaselineNotFinished", "'main' is not finished: Running"),
        ((replace(MAIN, phase=""),), "BaselineNotFinished", "no phase yet"),
        ((replace(MAIN, phase="Failed"),), "BaselineFailed", "'main' has no results: Failed"),
        ((replace(MAIN, phase="Invalid"),), "BaselineFailed", "has no results: Invalid"),
    ],
)
def test_a_baseline_that_is_not_there_is_named_and_looked_for_again(
    earlier: tuple[EarlierRun, ...], reason: str, said: str
) -> None:
    world = world_of(earlier=earlier)
    assert world.said(GATED) == ("Unknown", reason)
    assert said in world.condition(GATED).message
    decision = world.look()
    assert (decision.requeue_after_s, decision.apply) == (30.0, ())
    assert decision.awaits == {"main"}, "its end is heard of"
    world.earlier = (MAIN,)
    world.settle()
    assert gate_jobs(world) == [job_of(world)]


def test_a_baseline_that_stays_away_is_looked_for_ever_more_rarely() -> None:
    """And the relist, which comes twice a minute, passes the run over."""
    world = world_of(earlier=())
    waits = []
    for _ in range(12):
        decision = world.look()
        assert decision.at_rest
        assert decision.requeue_after_s is not None
        waits.append(decision.requeue_after_s)
        world.pass_time(decision.requeue_after_s)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (30.0, 900.0)
    assert waits.count(900.0) < 6


def test_an_s3_that_is_away_is_asked_again_at_the_usual_pace() -> None:
    world = world_of(earlier=())
    world.trouble = AWAY
    decision = world.look()
    assert (decision.requeue_after_s, decision.at_rest, decision.awaits) == (30.0, False, frozenset())


def test_a_run_is_no_baseline_of_its_own() -> None:
    world = world_of({"baselineRef": {"run": "demo"}}, earlier=(replace(MAIN, name="demo"),))
    assert world.said(GATED) == ("Unknown", "BaselineMissing")
    assert "is the name of this run" in world.condition(GATED).message


def test_a_uri_is_taken_as_it_is() -> None:
    world = world_of({"baselineRef": {"uri": "s3://results/else"}})
    assert (gate_jobs(world), world.said(GATED)) == ([job_of(world)], ("Unknown", "Evaluating"))
    world.lose_job(job_of(world))
    assert "s3://results/else" in json.dumps(world.look().apply)


CELL = '{"engine":"simulator"}'


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", CELL), ("b", "2026-01-01T09:00:00Z", "Succeeded", CELL)], "b"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", CELL), ("b", "2026-01-01T09:00:00Z", "Failed", CELL)], "a"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", CELL), ("b", "2026-01-01T09:00:00Z", "Succeeded", "else")], "a"),
        ([("a", "2026-01-01T00:00:00Z", "Succeeded", CELL), ("b", "2026-01-03T00:00:00Z", "Succeeded", CELL)], "a"),
        ([("b", "2026-01-01T09:00:00Z", "Running", CELL)], "BaselineNotFinished"),
        ([("b", "2026-01-03T00:00:00Z", "Succeeded", CELL)], "BaselineMissing"),
        ([], "BaselineMissing"),
    ],
    ids=["newest", "not the failed", "same cell", "not a later one", "at work", "only later ones", "none"],
)
def test_of_a_campaign_the_newest_finished_earlier_run_of_the_same_cell_is_meant(
    rows: list[tuple[str, str, str, str]], expected: str
) -> None:
    earlier = tuple(
        EarlierRun(name, f"{name}-uid", created, phase, f"s3://results/{name}", cell)
        for name, created, phase, cell in rows
    )
    run = operator_run({"spec.gate": {"baselineRef": {"campaign": "nightly"}}})
    run["metadata"] |= {"creationTimestamp": "2026-01-02T00:00:00Z", "annotations": {ANNOTATION_CELL: CELL}}
    world = ClusterWorld(run, earlier=earlier)
    for group in (0, 1):
        world.settle()
        world.measure(group)
    world.finish_report()
    world.look()
    decision = world.look()
    if expected.startswith("Baseline"):
        assert world.said(GATED) == ("Unknown", expected)
    else:
        assert f"s3://results/{expected}" in json.dumps(decision.apply)


def test_a_run_of_no_campaign_has_no_cell() -> None:
    world = world_of({"baselineRef": {"campaign": "nightly"}}, earlier=(replace(MAIN, cell=CELL),))
    assert world.said(GATED) == ("Unknown", "BaselineMissing")
    assert ANNOTATION_CELL in world.condition(GATED).message


def test_a_gate_that_cannot_be_evaluated_says_why_and_its_job_is_not_made_again_by_itself() -> None:
    world = world_of(earlier=(MAIN,))
    name = job_of(world)
    world.start_pod(name)
    said = Termination(code=Exit.BAD_INPUT, reason="BaselineMissing", message="no run lies here").to_message()
    world.crash(name, int(Exit.BAD_INPUT), message=said)
    world.settle()
    assert world.said(GATED) == ("Unknown", "BaselineMissing")
    assert "no run lies here" in world.condition(GATED).message
    assert f"delete Job {name}" in world.condition(GATED).message
    world.pass_time(90_000)
    world.settle()
    assert gate_jobs(world) == [name], "it stays as the record, and no second one is made"
    world.lose_job(name)
    world.settle()
    assert world.said(GATED) == ("Unknown", "Evaluating")


def test_a_job_that_ended_well_without_an_answer_is_said() -> None:
    world = world_of(earlier=(MAIN,))
    name = job_of(world)
    world.jobs[name] = replace(world.jobs[name], complete=True)
    world.settle()
    assert world.said(GATED) == ("Unknown", "ResultsMissing")


def test_a_gate_waits_for_an_s3_that_is_away() -> None:
    world = world_of()
    world.trouble = AWAY
    world.earlier = (MAIN,)
    decision = world.look()
    assert world.said(GATED) == ("Unknown", "S3Away")
    assert (decision.requeue_after_s, decision.apply) == (30.0, ())
    world.trouble = None
    world.settle()
    assert gate_jobs(world) == [job_of(world)]


def test_a_run_that_failed_has_not_passed() -> None:
    world = ClusterWorld(operator_run({"spec.gate": GATE}), earlier=(MAIN,))
    world.settle()
    for group in (0, 1):
        world.start_pod(world.engine(group))
        world.crash(world.engine(group), 1, message="no CUDA device")
        world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.said(GATED) == ("False", "RunFailed")
    assert gate_jobs(world) == []


def test_an_invalid_run_has_a_gate_that_waits() -> None:
    edits = {"spec.gate": GATE, "spec.engine.kind": "llama-cpp"}
    edits["spec.drafters[0]"] = {"name": "e", "method": "eagle", "model": "m"}
    world = ClusterWorld(operator_run(edits))
    world.settle()
    assert world.said(GATED) == ("Unknown", "NotYet")


def test_the_generation_of_a_changed_gate_is_the_one_that_is_spoken_of() -> None:
    world = world_of(earlier=(MAIN,))
    world.run["metadata"]["generation"] = 2
    world.run["spec"]["gate"] = {**GATE, "onInconclusive": "Pass"}
    world.settle()
    assert {row.observed_generation for row in world.status.conditions} == {2}


FATES = ("main appears", "main ends", "main gone", "evaluated", "job lost", "job fails", "other gate", "first gate",
         "no gate", "s3 away", "s3 back", "hours", "status lost")  # fmt: skip


def befall(world: ClusterWorld, fate: str) -> None:
    jobs = gate_jobs(world)
    gates = {"other gate": {**GATE, "confidence": 0.9}, "first gate": GATE}
    if fate.startswith("main"):
        phase = {"main appears": "Running", "main ends": "Succeeded"}.get(fate)
        world.earlier = (replace(MAIN, phase=phase),) if phase else ()
    elif fate in gates:
        world.run["spec"]["gate"] = gates[fate]
    elif fate == "no gate":
        world.run["spec"].pop("gate", None)
    elif fate in ("s3 away", "s3 back"):
        world.trouble = AWAY if fate == "s3 away" else None
    elif fate == "hours":
        world.pass_time(50_000)
    elif fate == "status lost" and world.status.gate:
        world.run["status"].pop("gate")
    elif jobs:
        befall_job(world, fate, jobs[-1])


def befall_job(world: ClusterWorld, fate: str, name: str) -> None:
    if fate == "evaluated" and "gate" in world.run["spec"] and name == job_of(world):
        world.gate = gate_report(GateReason.PASSED, world.run["spec"]["gate"])
        world.jobs[name] = replace(world.jobs[name], complete=True)
    elif fate == "job lost":
        world.lose_job(name)
    elif fate == "job fails" and not world.jobs[name].ended:
        world.start_pod(name)
        world.crash(name, 1)


def check(world: ClusterWorld, decision: RunDecision) -> None:
    rows = {row.type: row for row in decision.status.conditions}
    assert rows[ConditionType.READY].status is ConditionStatus.TRUE, "whatever befalls a gate, the run is finished"
    assert (GATED in rows) == ("gate" in world.run["spec"])
    assert decision.status.completion_time == world.status.completion_time
    assert len(decision.apply) <= 1
    at_work = [name for name in gate_jobs(world) if not world.jobs[name].ended]
    assert len(at_work) + len(decision.apply) <= 1, "two would write one gate.json"
    if GATED in rows and rows[GATED].status is not ConditionStatus.UNKNOWN:
        assert decision.status.gate is not None
        assert decision.status.gate.gate_digest == digest_of(world.run["spec"]["gate"])


@pytest.mark.draws
@given(st.lists(st.sampled_from(FATES), max_size=20))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_befalls_a_gate_the_run_stays_finished_and_the_gate_is_told_in_the_end(fates: list[str]) -> None:
    world = world_of(earlier=())
    for fate in [*fates, "s3 back", "first gate", "main ends"]:
        befall(world, fate)
        decision = decide_run(world.observed(), world.settings, world.now)
        assert decision == decide_run(world.observed(), world.settings, world.now)
        check(world, decision)
        world.follow(decision)
    for _ in range(4):
        failed = [name for name in gate_jobs(world) if world.jobs[name].failure]
        befall(world, "job lost" if failed else "evaluated")
        world.settle()
    assert world.said(GATED) == ("True", "Passed")
