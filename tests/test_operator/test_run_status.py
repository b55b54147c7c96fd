"""The status of a run, which stays below 100 kB: PROBLEM, Validated, Complete and Failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import PLAN
from specbench_api.outcome.status_document import ARMS_BYTES, stored_bytes
from specbench_api.plan.expansion import expand, restore
from specbench_api.plan.limits import GROUPS_MAX, POINTS_MAX
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ENGINE_FAULTS, ConditionStatus, ConditionType, GroupState, Phase
from specbench_api.spec.load import Level
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.results import S3
from specbench_api.spec.status import ArmResult, Condition, GroupStatus, Interval, Percentiles, ResultsStatus, RunStatus
from specbench_client.stored_runs.status_builder import status_document
from specbench_operator.cluster.writer import _event_manifest
from specbench_operator.errors import Retry, Stop
from specbench_operator.render.client_jobs import results_uri
from specbench_operator.run import status as run_status
from specbench_operator.run.decide import status_after_error
from specbench_operator.run.status import SHORT_REASON, STATUS_BYTES_MAX, fit_to_size, json_size
from specbench_operator.state.objects import ObjectRef
from specbench_testing.campaign_world import CampaignWorld
from specbench_testing.cluster_world import AWAY, NO_BUCKET, ClusterWorld, finished, launched
from specbench_testing.operator_builders import OLDER_UID, figure, operator_run, summary_of
from specbench_testing.resources import edit
from specbench_testing.run_phases import RUNS

# The print column PROBLEM.


PROBLEMS = {
    "accepted": "",
    "running": "",
    "trustworthy": "",
    "unschedulable": "Unschedulable",
    "S3 away": "S3Away",
    "invalid": "InvalidSpec",
    "retryable error": "ApiFailing",
    "engines failed": "Crashed (none), Crashed (ngram)",
    "untrustworthy": "NeverDrafted",
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_problem_of_a_phase(name: str) -> None:
    assert RUNS[name]()["status"].get("problem", "") == PROBLEMS[name]


# Images that are named by a tag.


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("engine", "moving"),
    [
        ({"kind": "vllm", "version": "0.33.0"}, "vllm/vllm-openai:v0.33.0"),
        ({"kind": "vllm", "image": "registry.example.com/vllm:dev"}, "registry.example.com/vllm:dev"),
        ({"kind": "vllm", "image": "vllm"}, "vllm"),
        ({"kind": "vllm", "image": f"registry.example.com/vllm@{DIGEST}"}, None),
        ({"kind": "vllm", "image": f"registry.example.com/vllm:dev@{DIGEST}"}, None),
    ],
)
def test_an_image_that_may_move_is_named_with_the_remedy(engine: dict[str, Any], moving: str | None) -> None:
    world = launched(operator_run({"spec.engine": engine}))
    assert world.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    message = world.condition(ConditionType.VALIDATED).message
    assert (message == "") == (moving is None)
    if moving:
        assert f"the tag of {moving} may name another image later" in message
        assert "set spec.engine.image to NAME@sha256:…" in message
    assert world.status.problem == ""


# Ready and Stalled.


READY, STALLED = "Ready", "Stalled"
ENDED = {
    "invalid": STALLED,
    "report failed": STALLED,
    "engines failed": STALLED,
    "trustworthy": READY,
    "untrustworthy": READY,
    "finished and suspended": READY,
}
"""The phases of a run that does no more by itself, each with its condition."""
CORRECTABLE = ("invalid", "report failed")
"""Those that it leaves once the cause is corrected."""


def true_ones(conditions: list[dict[str, Any]]) -> list[str]:
    return [row["type"] for row in conditions if row["type"] in (READY, STALLED) and row["status"] == "True"]


@pytest.mark.parametrize("name", [name for name in RUNS if "vocabulary" not in name])
def test_a_run_that_has_ended_is_ready_or_stalled_and_has_a_completion_time(name: str) -> None:
    status = RUNS[name]()["status"]
    assert ("completionTime" in status) == (name in ENDED and name not in CORRECTABLE)
    assert name not in ENDED or true_ones(status["conditions"]) == [ENDED[name]]


def test_a_failed_run_has_the_reason_and_message_of_the_failure() -> None:
    rows = {row["type"]: row for row in RUNS["engines failed"]()["status"]["conditions"]}
    assert rows["Stalled"]["reason"] == "Crashed"
    assert "no CUDA device" in rows["Stalled"]["message"]


def test_a_run_has_ended_only_when_its_gpus_are_released() -> None:
    world = launched()
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3")
    world.reconcile()
    assert world.status_and_reason(ConditionType.STALLED)[0] == "True"
    assert world.status.completion_time is None
    world.settle()
    assert (world.status.completion_time is not None, world.status.problem) == (True, "BadInput (none)")


def in_progress(world: CampaignWorld) -> None:
    world.settle()


def all_succeeded(world: CampaignWorld) -> None:
    world.finish_all()


def one_untrustworthy(world: CampaignWorld) -> None:
    world.settle()
    world.finish(world.planned[0], trustworthy=False)
    world.finish_all()


def one_failed(world: CampaignWorld) -> None:
    world.settle()
    world.fail(world.planned[0])
    world.finish_all()


def suspended(world: CampaignWorld) -> None:
    world.settle()
    world.change("spec.suspend", True)


def refused(world: CampaignWorld) -> None:
    """A step that is rejected is tried again, and shown until then."""
    world.store.refuse["create", world.planned[0]] = Stop("ManifestRefused", "spec.x")
    with pytest.raises(Stop):
        world.reconcile()


def stopped(world: CampaignWorld) -> None:
    world.settle()
    world.fail(world.planned[0])
    world.settle()


def invalid(world: CampaignWorld) -> None:
    world.change("spec.axes[0].values", ["no-such-engine"])


@pytest.mark.parametrize(
    ("edits", "act", "expected"),
    [
        ({}, in_progress, []),
        ({}, suspended, []),
        ({}, refused, [STALLED]),
        ({}, all_succeeded, [READY]),
        ({}, one_untrustworthy, [READY]),
        ({}, one_failed, [READY]),
        ({"spec.schedule": "@yearly"}, all_succeeded, [READY]),
        ({"spec.schedule": "@yearly"}, one_failed, [READY]),
        ({"spec.failurePolicy": "Stop"}, stopped, [STALLED]),
        ({}, invalid, [STALLED]),
    ],
)
def test_a_campaign_whose_round_has_ended_is_ready_or_stalled(
    edits: dict[str, Any], act: Callable[[CampaignWorld], None], expected: list[str]
) -> None:
    world = CampaignWorld(edits)
    act(world)
    assert true_ones(world.status.to_dict()["conditions"]) == expected


def test_a_new_round_of_a_campaign_is_neither_ready_nor_stalled() -> None:
    world = CampaignWorld()
    one_failed(world)
    world.change("spec.rerun", "again")
    assert true_ones(world.status.to_dict()["conditions"]) == []


# Status stays below 100 kB for any plan and any failures, and omitted rows are counted.


LIMIT = 100_000
NOON = "2026-01-02T12:00:00Z"
LONGEST_NODE = "n" * 253
CELL = {
    f"{name}_{which}": figure(1234.56789012345)
    for name in ("ttft_ms", "tpot_ms", "e2e_ms")
    for which in ("p50", "p95", "p99")
} | {
    name: figure(2.3456789012345)
    for name in ("acceptance_length_emitted_pooled", "acceptance_rate", "user_tps", "output_tps")
}


def condition(kind: ConditionType, message: str) -> Condition:
    return Condition(
        type=kind,
        status=ConditionStatus.FALSE,
        reason="R" * 128,
        message=message,
        last_transition_time=NOON,
        observed_generation=2**31,
    )


def group(index: int, state: GroupState, text: str) -> GroupStatus:
    return GroupStatus(
        index=index,
        arm="a" * 32,
        state=state,
        points=POINTS_MAX // GROUPS_MAX,
        measured=POINTS_MAX // GROUPS_MAX - 1,
        attempt=2,
        suspensions=99,
        reason=text[:128],
        message=text[:1024],
    )


def row(arm: int, level: int, text: str) -> ArmResult:
    times = Percentiles(p50=1234.56, p95=1234.56, p99=1234.56)
    ratio = Interval(value=1.23456, low=1.23456, high=1.23456)
    return ArmResult(
        arm=f"{arm}-{'a' * 28}", workload="w" * 32, load=f"{level}", concurrency=level, speedup=ratio,
        speedup_text=text[:64], tpot_speedup=ratio, acceptance_length=1.23456, acceptance_length_verified=1.23456,
        acceptance_rate=0.123456, ttft_ms=times, tpot_ms=times, e2e_ms=times, user_tps=123.456, output_tps=123.456,
        requests=10**6, failed_requests=10**6, output_tokens=10**9,
        findings=[f"Finding{number}" for number in range(32)],
    )  # fmt: skip


def rows(text: str) -> list[ArmResult]:
    """As many rows as status.json may have."""
    one = row(0, 1, text)
    return [one] * ((ARMS_BYTES - 2) // (stored_bytes(one.to_dict()) + 1))


def status_of(states: list[GroupState], text: str, *, ended: bool) -> RunStatus:
    return RunStatus(
        phase=Phase.SUCCEEDED,
        conditions=[condition(kind, text[:4096]) for kind in ConditionType],
        completion_time=NOON if ended else None,
        groups=[group(index, state, text) for index, state in enumerate(states)],
        arms=rows(text) if ended else [],
        best="b" * 128,
        problem="p" * 128,
        engine_nodes=[LONGEST_NODE] * 16,
        results=ResultsStatus(uri="s" * 800, summary="s" * 800, report="s" * 800),
    )


texts = st.sampled_from(["", "x", "<", "\0", "ü", "𝄞"]).map(lambda letter: letter * 4096)
states = st.lists(st.sampled_from(list(GroupState)), max_size=GROUPS_MAX) | st.sampled_from(
    [[state] * GROUPS_MAX for state in GroupState]
)


@pytest.mark.draws
@settings(max_examples=20, deadline=None)
@given(states=states, text=texts, ended=st.booleans())
def test_fit_to_size_keeps_any_status_below_the_limit_and_is_idempotent(
    states: list[GroupState], text: str, ended: bool
) -> None:
    whole = status_of(states, text, ended=ended)
    small = fit_to_size(whole)
    assert json_size(small) <= STATUS_BYTES_MAX
    assert len(json.dumps(small.to_dict(), separators=(",", ":")).encode()) < LIMIT
    assert fit_to_size(small) == small
    assert RunStatus.model_validate(small.to_dict()) == small
    assert small.arms == whole.arms
    assert len(small.groups) + small.groups_omitted == len(whole.groups)
    if not ended:
        known = [(row.index, row.state, row.attempt, row.suspensions, row.ends_run) for row in small.groups]
        assert known == [(row.index, row.state, row.attempt, row.suspensions, row.ends_run) for row in whole.groups]


def test_a_shortened_status_is_written_no_more_often_than_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = launched()
    world.serve(0)
    world.fail_client(Exit.BUG, "ClientFailed", "x" * 1000)
    world.settle()
    world.serve(1)
    world.settle()
    monkeypatch.setattr(run_status, "STATUS_BYTES_MAX", json_size(world.status) - 500)
    world.reconcile(after_s=60)
    assert world.group(0).message == "x" * run_status.SHORT_MESSAGE
    written = world.status
    world.reconcile(after_s=5)
    assert world.status == written, "otherwise each second would cause a write and a reconcile"
    world.reconcile(after_s=60)
    assert world.status.gpu_seconds_held == written.gpu_seconds_held + 65 * 2


def test_a_status_that_fits_is_unchanged() -> None:
    small = status_of([GroupState.DONE, GroupState.FAILED], "what was seen", ended=True)
    assert fit_to_size(small) is small


def test_a_reason_that_decides_about_a_relaunch_is_never_shortened() -> None:
    assert max(map(len, ENGINE_FAULTS)) <= SHORT_REASON
    failed = [
        group(index, GroupState.FAILED, "<" * 4096).model_copy(
            update={"reason": ENGINE_FAULTS[index % len(ENGINE_FAULTS)]}
        )
        for index in range(GROUPS_MAX)
    ]
    whole = status_of([], "<" * 4096, ended=False).model_copy(update={"groups": failed})
    assert [row.reason for row in fit_to_size(whole).groups] == [row.reason for row in failed]


def test_long_messages_of_failed_groups_are_shortened_in_favour_of_the_results() -> None:
    small = fit_to_size(status_of([GroupState.FAILED] * 60, "x" * 4096, ended=True))
    assert len(small.groups) == 60
    assert all(row.reason for row in small.groups)


@pytest.mark.draws
def test_decided_and_error_statuses_are_below_the_limit() -> None:
    dataset = {"source": "jsonl", "uri": "prompts.jsonl"}
    works = [{"name": f"w{row}", "dataset": dataset, "output": {"maxTokens": row + 8}} for row in range(16)]
    load = {"concurrency": list(range(1, 17)), "repeats": 1}
    world = launched(operator_run({"spec.workloads": works, "spec.load": load}))
    world.measure_all()
    summary = summary_of(world.plan, len(world.plan.points))
    rows = [
        summary.cells[1].model_copy(update={"level": Level(concurrency=row + 1), "figures": CELL}) for row in range(512)
    ]
    world.finish_report(summary.model_copy(update={"cells": rows}))
    assert world.status.arms_omitted > 0
    assert json_size(world.status) <= STATUS_BYTES_MAX
    world.run["status"] = status_of([GroupState.WAITING] * GROUPS_MAX, "x" * 4096, ended=False).to_dict()
    assert (
        json_size(status_after_error(world.run, world.status, Retry("Forbidden", "quota"), world.now))
        <= STATUS_BYTES_MAX
    )


LONG = 2**16
HOSTILE_TEXTS = {
    "letters": "x" * LONG,
    "markup": "<&>" * (LONG // 3),
    "escapes": "\x1b]0;a\x07\n" * (LONG // 8),
    "wide": "\U0001f600" * (LONG // 4),
    "secrets": "token=hf_abcdefghijklmnop0123 " * (LONG // 30),
}


def with_text_everywhere(value: Any, text: str) -> Any:
    """The value with this text instead of each text in it, and as an additional key of each mapping."""
    if isinstance(value, dict):
        return {**{key: with_text_everywhere(inner, text) for key, inner in value.items()}, text: text}
    if isinstance(value, list):
        return [with_text_everywhere(inner, text) for inner in value]
    return text if isinstance(value, str) else value


def hostile_runs(text: str) -> Iterator[dict[str, Any]]:
    """Runs with this text in one part of the spec, or in many."""
    paths = (
        "spec.model.name", "spec.engine.args", "spec.engine.env", "spec.engine.image", "spec.drafters[0].name",
        "spec.drafters[0].speculativeConfig", "spec.workloads[0].name", "spec.workloads[0].extraBody",
        "spec.placement.nodeSelector", "spec.placement.queueName", "spec.results.s3.endpoint",
        "spec.results.s3.credentialsSecretRef", "spec.results.s3.prefix", "spec.load.rate", "spec.unknown",
    )  # fmt: skip
    for path in paths:
        for value in (text, [text], {text: text}, [{"name": text, "value": text}] * 20):
            yield operator_run({path: value})
    whole = operator_run()
    yield {**whole, "spec": with_text_everywhere(whole["spec"], text)}


@pytest.mark.draws
@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_a_long_text_in_any_field_leaves_status_and_events_small(name: str) -> None:
    for run in hostile_runs(HOSTILE_TEXTS[name]):
        world = ClusterWorld(run=run)
        decision = world.reconcile()
        sent = json.dumps(decision.status.to_dict()).encode()
        assert len(sent) < LIMIT
        assert RunStatus.model_validate(decision.status.to_dict()) == decision.status, "the API server accepts it"
        assert len(decision.events) < 10
        for event in decision.events:
            manifest = _event_manifest(run, event, world.now)
            assert len(json.dumps(manifest, ensure_ascii=False).encode()) < 8_000


# Stored results are never measured again: those of the run itself, and those of a lost run that it adopts.


def adopting_world(older_plan: Plan, stored: ClusterWorld | None = None) -> ClusterWorld:
    """The run as `specbench recover` recreates it, with what the old run left in S3."""
    run = operator_run({"spec": restore(older_plan, S3(bucket="results")).spec.to_dict()})
    world = ClusterWorld(run)
    world.plan_there = older_plan.to_json()
    if stored:
        world.measured, world.results = set(stored.measured), stored.results
    return world


def older_run() -> dict[str, Any]:
    run = operator_run()
    run["metadata"]["uid"] = OLDER_UID
    return run


@pytest.fixture
def plan() -> Plan:
    return expand(parse_run(older_run()))


@pytest.fixture
def adopting(plan: Plan) -> ClusterWorld:
    return adopting_world(plan)


def test_an_adopting_run_stores_its_results_at_the_old_location(adopting: ClusterWorld, plan: Plan) -> None:
    adopting.reconcile()
    assert adopting.plan == plan
    assert results_uri(parse_run(adopting.run)) == f"s3://results/runs/default/demo/{OLDER_UID}"
    assert adopting.status.results is not None
    assert adopting.status.results.uri.endswith(OLDER_UID)
    assert Plan.from_json(adopting.plan_data[PLAN]).uid == OLDER_UID


def test_an_adopting_run_launches_only_the_missing_groups(adopting: ClusterWorld, plan: Plan) -> None:
    adopting.measured = {point.hash for point in plan.groups[0].points}
    adopting.settle()
    assert adopting.launched == [adopting.engine(1)]
    adopting.measure(1)
    adopting.finish_report()
    assert (adopting.status.phase, adopting.status.progress) == (Phase.SUCCEEDED, "2/2")
    assert adopting.launched == [adopting.engine(1)]


def test_adopting_a_finished_run_restores_its_status_and_launches_nothing(plan: Plan) -> None:
    before = ClusterWorld(older_run())
    finished(before)
    world = adopting_world(plan, before)
    world.settle()
    assert world.launched == []
    assert world.report not in world.jobs
    status, expected = world.status, before.status
    assert (status.phase, status.arms, status.best, status.trust) == (
        expected.phase,
        expected.arms,
        expected.best,
        expected.trust,
    )
    assert (status.points, status.progress) == (expected.points, expected.progress)
    assert world.status_and_reason(ConditionType.TRUSTWORTHY) == ("True", "Trustworthy")


def test_a_point_that_is_measured_again_gets_a_new_report(plan: Plan) -> None:
    """As the message about a damaged point advises, it was removed. The stored summary still counts all points."""
    before = ClusterWorld(older_run())
    finished(before)
    world = adopting_world(plan, before)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    world.measure(1)
    world.settle()
    assert (world.status.phase, world.report in world.jobs) == (Phase.ANALYZING, True)
    world.finish_report()
    assert world.status.phase is Phase.SUCCEEDED


def test_an_adopted_uid_without_results_is_refused_and_creates_nothing(adopting: ClusterWorld, plan: Plan) -> None:
    adopting.plan_there = None
    decision = adopting.reconcile()
    assert (decision.apply, adopting.status.phase) == ((), Phase.INVALID)
    message = adopting.condition(ConditionType.VALIDATED).message
    assert f"spec.results.adopt: there are no results at s3://results/runs/default/demo/{OLDER_UID}" in message


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("spec.load.repeats", 3, "load, groups"),
        ("spec.drafters[0].name", "renamed", "arms, groups"),
        ("spec.workloads[0].name", "renamed", "workloads, groups"),
    ],
)
def test_results_of_another_plan_are_refused_with_the_differing_fields(
    adopting: ClusterWorld, plan: Plan, path: str, value: object, names: str
) -> None:
    edit(adopting.run, path, value)
    decision = adopting.reconcile()
    assert (decision.apply, adopting.status.phase) == ((), Phase.INVALID)
    assert f"have another plan: {names} differ" in adopting.condition(ConditionType.VALIDATED).message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.placement.queueName", "another-clusters"),
        ("spec.placement.tolerations", [{"operator": "Exists"}]),
        ("spec.placement.priorityClassName", "high"),
        ("spec.placement.pinNode", "None"),
        ("spec.model.tokenSecretRef", {"name": "hub", "key": "token"}),
    ],
)
def test_fields_that_are_not_measured_may_differ_from_the_adopted_plan(
    adopting: ClusterWorld, plan: Plan, path: str, value: object
) -> None:
    """Another cluster has other queues; the points have the same hashes and are found."""
    edit(adopting.run, path, value)
    adopting.measured = {point.hash for point in plan.groups[0].points}
    adopting.settle()
    assert adopting.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    assert adopting.launched == [adopting.engine(1)]


def test_other_hardware_is_another_plan(adopting: ClusterWorld, plan: Plan) -> None:
    edit(adopting.run, "spec.placement.nodeSelector", {"gpu": "H200"})
    adopting.reconcile()
    assert adopting.status.phase is Phase.INVALID
    assert "groups" in adopting.condition(ConditionType.VALIDATED).message
    assert "placement" in adopting.condition(ConditionType.VALIDATED).message


@pytest.mark.parametrize(
    ("written", "change", "named"),
    [("plan/v2", "plan/v0", "written by another version"), ('"target": {', '"target": {"flux": 8,', "target.flux")],
)
def test_the_plan_of_another_version_is_refused(
    adopting: ClusterWorld, plan: Plan, written: str, change: str, named: str
) -> None:
    """Before an engine is launched, whose client would refuse it."""
    adopting.plan_there = plan.to_json().replace(written, change)
    adopting.reconcile()
    assert named in adopting.condition(ConditionType.VALIDATED).message


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "image": lambda plan: plan["engine"].update(image="registry.example/miner:1"),
    "command": lambda plan: plan["engine"].update(command=["sh", "-c", "id"]),
    "environment": lambda plan: plan["engine"].update(env=[{"name": "LD_PRELOAD", "value": "/tmp/a.so"}]),
    "model": lambda plan: plan["target"].update(uri="s3://of-others/model"),
    "prompts": lambda plan: plan["workloads"][0]["dataset"].update(uri="s3://of-others/prompts.jsonl", name=None),
    "arguments of a drafter": lambda plan: plan["arms"][1]["drafter"].update(args=["--trust-remote-code"]),
    "load": lambda plan: plan["load"].update(warmupRequests=1_000_000),
    "name of an arm": lambda plan: [
        each.update({key: "../x"}) for key, rows in (("name", "arms"), ("arm", "groups")) for each in plan[rows][:1]
    ],
    "number of a group": lambda plan: plan["groups"][0].update(index=1000),
}
"""Changes of a stored plan that leave the hashes of its points as they are."""


@pytest.mark.parametrize("changed", FORGED)
def test_a_stored_plan_whose_contents_do_not_match_its_hashes_is_refused(
    adopting: ClusterWorld, plan: Plan, changed: str
) -> None:
    """Whoever may write to the bucket would otherwise choose the engine's image, also against the fence."""
    forged = json.loads(plan.to_json())
    FORGED[changed](forged)
    adopting.plan_there = json.dumps(forged)
    decision = adopting.reconcile()
    assert (decision.apply, adopting.status.phase) == ((), Phase.INVALID)
    assert "spec.results.adopt: " in adopting.condition(ConditionType.VALIDATED).message


def test_while_s3_is_unreachable_nothing_is_refused_or_launched(adopting: ClusterWorld, plan: Plan) -> None:
    adopting.trouble = AWAY
    adopting.settle()
    assert adopting.launched == []
    assert adopting.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")


# Results in S3 without adoption.


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld()


def test_a_run_without_status_and_children_is_rebuilt_from_s3(world: ClusterWorld) -> None:
    finished(world)
    fresh = ClusterWorld(measured=world.measured, results=world.results)
    fresh.settle()
    assert fresh.launched == []
    assert fresh.report not in fresh.jobs
    assert fresh.status.phase is Phase.SUCCEEDED
    assert fresh.status.arms == world.status.arms


def test_results_older_than_the_measurements_are_recreated(world: ClusterWorld) -> None:
    world.measured = {point.hash for point in world.plan.points}
    world.results = status_document(summary_of(world.plan, 1), world.plan)
    world.settle()
    assert world.report in world.jobs
    assert world.status.phase is Phase.ANALYZING


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another run": ({"uid": OLDER_UID}, "is of another run"),
    "another plan": ({"plan_sha256": "0" * 64}, "is of another plan"),
    "too many points": ({"points_measured": 1000}, "counts points that the plan does not have"),
    "more invalid points than points": ({"points_invalid": 3}, "counts points that the plan does not have"),
}
"""What is changed in status.json, and why it is refused."""


@pytest.mark.parametrize("name", REFUSED)
def test_results_of_something_else_are_refused_and_made_again(world: ClusterWorld, name: str) -> None:
    """Whoever may write to the bucket may have written them."""
    changes, why = REFUSED[name]
    right = status_document(summary_of(world.plan, 2), world.plan)
    world.measured = {point.hash for point in world.plan.points}
    world.results = right.model_copy(update=changes)
    world.settle()
    assert (world.status.phase, world.report in world.jobs) == (Phase.ANALYZING, True)
    world.jobs[world.report] = replace(world.jobs[world.report], complete=True)
    world.settle()
    assert (world.status.phase, world.status.arms, world.status.points.invalid) == (Phase.FAILED, [], 0)
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "ResultsMissing")
    assert f"status.json in S3 {why}" in world.condition(ConditionType.STALLED).message
    assert world.status_and_reason(ConditionType.TRUSTWORTHY)[0] == "Unknown"
    world.results = right
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("trouble", "expected"), [(AWAY, ("Unknown", "S3Away")), (NO_BUCKET, ("False", "BucketMissing"))]
)
def test_no_engine_is_launched_while_s3_is_unreachable(
    world: ClusterWorld, trouble: object, expected: tuple[str, str]
) -> None:
    world.trouble = trouble  # type: ignore[assignment]
    decision = world.reconcile()
    assert [item["kind"] for item in decision.apply] == ["ConfigMap"]
    assert decision.requeue_after_s == 15
    assert world.status_and_reason(ConditionType.RESULTS_STORED) == expected
    assert world.status_and_reason(ConditionType.RECONCILING)[0] == "True"
    assert world.status.phase is Phase.PENDING
    world.trouble = None
    world.settle()
    assert world.launched == [world.engine()]


def test_an_active_engine_continues_without_s3_and_is_released_after_its_client(
    world: ClusterWorld,
) -> None:
    world.settle()
    world.serve()
    world.trouble = AWAY
    decision = world.reconcile()
    assert (decision.apply, decision.delete, decision.stop) == ((), (), ())
    world.finish_client()
    assert ObjectRef("Job", world.engine(), world.jobs[world.engine()].ref.uid) in world.reconcile().delete
    world.settle()
    assert world.launched == [world.engine()]
    assert world.states()[0] is GroupState.MEASURING
    world.trouble = None
    world.settle()
    assert world.states()[0] is GroupState.DONE
