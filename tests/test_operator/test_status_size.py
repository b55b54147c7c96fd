"""Status stays below 100 kB for any plan and any failures, and omitted rows are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.termination import Exit
from specbench_api.plan.validation import CELLS_MAX, GROUPS_MAX, POINTS_MAX
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase
from specbench_api.spec.load import Level
from specbench_api.spec.status import ArmResult, Condition, GroupStatus, Interval, Percentiles, ResultsStatus, RunStatus
from specbench_operator.cluster.writer import _event_manifest
from specbench_operator.errors import Retry
from specbench_operator.run.decide import status_after_error
from specbench_operator.run.launches.group import ENGINE_FAULTS
from specbench_operator.run.status import size_limit
from specbench_operator.run.status.size_limit import SHORT_REASON, STATUS_BYTES_MAX, clip, fit_to_size, json_size
from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.operator_builders import figure, operator_run, summary_of

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


def status_of(states: list[GroupState], arms: int, levels: int, text: str, *, ended: bool) -> RunStatus:
    return RunStatus(
        phase=Phase.SUCCEEDED,
        conditions=[condition(kind, text[:4096]) for kind in ConditionType],
        completion_time=NOON if ended else None,
        groups=[group(index, state, text) for index, state in enumerate(states)],
        arms=[row(arm, level, text) for arm in range(arms) for level in range(1, levels + 1)],
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
@given(states=states, arms=st.integers(0, 17), levels=st.integers(0, CELLS_MAX // 17), text=texts, ended=st.booleans())
def test_fit_to_size_keeps_any_status_below_the_limit_and_is_idempotent(
    states: list[GroupState], arms: int, levels: int, text: str, ended: bool
) -> None:
    whole = status_of(states, arms, levels, text, ended=ended)
    small = fit_to_size(whole)
    assert json_size(small) <= STATUS_BYTES_MAX
    assert len(json.dumps(small.to_dict(), separators=(",", ":")).encode()) < LIMIT
    assert fit_to_size(small) == small
    assert RunStatus.model_validate(small.to_dict()) == small
    assert len(small.arms) + small.arms_omitted == len(whole.arms)
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
    monkeypatch.setattr(size_limit, "STATUS_BYTES_MAX", json_size(world.status) - 500)
    world.reconcile(after_s=60)
    assert world.group(0).message == "x" * size_limit.SHORT_MESSAGE
    written = world.status
    world.reconcile(after_s=5)
    assert world.status == written, "otherwise each second would cause a write and a reconcile"
    world.reconcile(after_s=60)
    assert world.status.gpu_seconds_held == written.gpu_seconds_held + 65 * 2


def test_a_status_that_fits_is_unchanged() -> None:
    small = status_of([GroupState.DONE, GroupState.FAILED], 2, 3, "what was seen", ended=True)
    assert fit_to_size(small) is small


def test_a_reason_that_decides_about_a_relaunch_is_never_shortened() -> None:
    assert max(map(len, ENGINE_FAULTS)) <= SHORT_REASON
    failed = [
        group(index, GroupState.FAILED, "<" * 4096).model_copy(
            update={"reason": ENGINE_FAULTS[index % len(ENGINE_FAULTS)]}
        )
        for index in range(GROUPS_MAX)
    ]
    whole = status_of([], 0, 0, "<" * 4096, ended=False).model_copy(update={"groups": failed})
    assert [row.reason for row in fit_to_size(whole).groups] == [row.reason for row in failed]


def test_the_kept_rows_are_the_first_loads_of_every_arm() -> None:
    small = fit_to_size(status_of([], 3, 300, "", ended=True))
    levels = [[row.concurrency for row in small.arms if row.arm.startswith(f"{arm}-")] for arm in range(3)]
    assert small.arms_omitted > 0
    for kept in levels:
        assert kept == list(range(1, len(kept) + 1))
        assert abs(len(kept) - len(levels[0])) <= 1


def test_long_messages_of_failed_groups_are_shortened_in_favour_of_the_results() -> None:
    small = fit_to_size(status_of([GroupState.FAILED] * 60, 17, 12, "x" * 4096, ended=True))
    assert json_size(small) - json_size(small.model_copy(update={"arms": []})) > 55_000
    assert all(row.reason for row in small.groups)


@pytest.mark.draws
def test_decided_and_error_statuses_are_below_the_limit() -> None:
    dataset = {"source": "jsonl", "uri": "prompts.jsonl"}
    works = [{"name": f"w{row}", "dataset": dataset, "output": {"maxTokens": row + 8}} for row in range(16)]
    load = {"concurrency": list(range(1, 17)), "repeats": 1}
    world = launched(operator_run({"spec.workloads": works, "spec.load": load}))
    world.measure(0)
    world.measure(1)
    summary = summary_of(world.plan, len(world.plan.points))
    rows = [
        summary.cells[1].model_copy(update={"level": Level(concurrency=row + 1), "figures": CELL}) for row in range(512)
    ]
    world.finish_report(summary.model_copy(update={"cells": rows}))
    world.settle()
    assert world.status.arms_omitted > 0
    assert json_size(world.status) <= STATUS_BYTES_MAX
    world.run["status"] = status_of([GroupState.WAITING] * GROUPS_MAX, 0, 0, "x" * 4096, ended=False).to_dict()
    assert (
        json_size(status_after_error(world.run, world.status, Retry("Forbidden", "quota"), world.now))
        <= STATUS_BYTES_MAX
    )


@pytest.mark.parametrize("letter", ["x", "<", "ü", "𝄞", "\0", '"'])
def test_a_text_is_clipped_by_its_encoded_size(letter: str) -> None:
    text = clip(letter * 500, 128)
    assert 0 < len(json.dumps(text)) - 2 <= 128
    assert clip("short", 128) == "short"


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
