"""A spec becomes a plan: every point exactly once, in an order that weighs drift on all arms alike."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.crdgen.structural import structural
from specbench_api.errors import InvalidSpec
from specbench_api.plan.estimate import Estimate, estimate
from specbench_api.plan.expand import CELLS_MAX, GROUPS_MAX, arms_of, expand, launch_order
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import Method
from specbench_api.spec.reading import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import RunStatus
from specbench_testing.resources import Resource, resource, run_of

METHODS = [Method.NGRAM, Method.SUFFIX, Method.MTP]


@st.composite
def runs(draw: st.DrawFn) -> SpecBenchRun:
    """Any run that can be planned: 0 to 3 drafters, 1 to 3 workloads, some loads and repeats, both orders."""
    drafters = [{"name": f"d{method}", "method": str(method)} for method in METHODS[: draw(st.integers(0, 3))]]
    spec: Resource = resource()["spec"]
    spec["drafters"] = drafters
    spec["baseline"] = draw(st.sampled_from(["Measure", "Skip"])) if drafters else "Measure"
    spec["workloads"] = [
        {"name": f"w{index}", "dataset": {"source": "jsonl", "uri": f"{index}.jsonl"}}
        for index in range(draw(st.integers(1, 3)))
    ]
    spec["load"] = {
        "concurrency": draw(st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)),
        "repeats": draw(st.integers(1, 6)),
        "order": draw(st.sampled_from(["Sequential", "Interleaved"])),
    }
    return parse_run({**resource(), "spec": spec})


def arms_by_repeat(plan: Plan, repeat: int) -> list[str]:
    """The arms in the order in which they are visited in one repeat."""
    return list(dict.fromkeys(point.arm for point in plan.points if point.repeat == repeat))


@given(runs())
def test_every_point_is_planned_exactly_once(run: SpecBenchRun) -> None:
    spec, plan = run.spec, expand(run)
    wanted = product(
        [arm.name for arm in arms_of(spec)],
        [workload.name for workload in spec.workloads],
        spec.load.concurrency,
        range(spec.load.repeats),
    )
    assert Counter((p.arm, p.workload, p.concurrency, p.repeat) for p in plan.points) == Counter(wanted)
    assert len({point.hash for point in plan.points}) == len(plan.points)


@given(runs())
def test_a_group_is_one_arm_and_no_two_neighbours_are_the_same(run: SpecBenchRun) -> None:
    plan = expand(run)
    assert [group.index for group in plan.groups] == list(range(len(plan.groups)))
    assert all({point.arm for point in group.points} == {group.arm} for group in plan.groups)
    assert all(before.arm != after.arm for before, after in pairwise(plan.groups))


@given(runs())
def test_a_launch_goes_through_its_repeats_and_loads_upwards(run: SpecBenchRun) -> None:
    names = [workload.name for workload in run.spec.workloads]
    for group in expand(run).groups:
        walked = [(point.repeat, names.index(point.workload), point.concurrency) for point in group.points]
        assert walked == sorted(walked)


@given(runs())
def test_sequential_launches_each_arm_once_and_interleaved_turns_back_at_each_repeat(run: SpecBenchRun) -> None:
    plan = expand(run)
    arms, repeats = [arm.name for arm in plan.arms], run.spec.load.repeats
    if run.spec.load.order == "Sequential" or len(arms) == 1:
        assert [group.arm for group in plan.groups] == arms
        return
    assert len(plan.groups) == repeats * (len(arms) - 1) + 1
    for repeat in range(repeats):
        assert arms_by_repeat(plan, repeat) == (arms[::-1] if repeat % 2 else arms)


@given(runs())
def test_planning_is_a_function_of_the_spec(run: SpecBenchRun) -> None:
    plan = expand(run)
    assert expand(parse_run(run.to_dict())) == plan
    assert Plan.from_json(plan.to_json()) == plan


def test_three_repeats_of_three_arms_are_seven_launches() -> None:
    run = run_of({"spec.drafters[1]": {"name": "suffix", "method": "suffix"}})
    assert [group.arm for group in expand(run).groups] == [
        "none", "ngram", "suffix", "ngram", "none", "ngram", "suffix",
    ]  # fmt: skip


def test_the_baseline_comes_first_and_may_be_left_out() -> None:
    with_baseline, without = expand(run_of()), expand(run_of({"spec.baseline": "Skip"}))
    assert [(arm.name, arm.is_baseline) for arm in with_baseline.arms] == [("none", True), ("ngram", False)]
    assert [arm.name for arm in without.arms] == ["ngram"]


def test_every_arm_is_started_for_the_highest_concurrency() -> None:
    plan = expand(run_of({"spec.load.concurrency": [2, 16, 4], "spec.placement": {"gpus": 2}}))
    orders = [launch_order(plan, arm) for arm in plan.arms]
    assert [(order.slots, order.gpus) for order in orders] == [(16, 2), (16, 2)]
    assert [order.drafter.name if order.drafter else None for order in orders] == [None, "ngram"]


def test_the_plan_finds_its_arms_and_workloads_by_name() -> None:
    plan = expand(run_of())
    assert plan.arm("none").drafter is None
    assert plan.workload("chat").dataset.uri == "prompts.jsonl"


@pytest.mark.parametrize(
    ("edits", "path", "says"),
    [
        (
            {"spec.drafters[1]": {"name": "again", "method": "ngram"}},
            "spec.drafters[again]",
            "is the same as 'ngram' but for its name",
        ),
        (
            {"spec.workloads[1]": {"name": "again", "dataset": {"source": "jsonl", "uri": "prompts.jsonl"}}},
            "spec.workloads[again]",
            "is the same as 'chat' but for its name",
        ),
        (
            {"spec.engine": {"kind": "simulator", "args": ["--port=1"]}},
            "spec.engine.args[0]",
            "contradicts a flag that specbench manages",
        ),
    ],
)
def test_what_no_schema_can_tell_is_refused_before_anything_is_created(
    edits: dict[str, Any], path: str, says: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        expand(run_of(edits))
    assert [problem.path for problem in refused.value.problems] == [path]
    assert says in str(refused.value)


def drafters(count: int) -> list[dict[str, Any]]:
    """So many drafters that differ."""
    return [{"name": f"d{k}", "method": "ngram", "numSpeculativeTokens": k + 1} for k in range(count)]


def workloads(count: int) -> list[dict[str, Any]]:
    """So many workloads that differ."""
    return [{"name": f"w{k}", "dataset": {"source": "jsonl", "uri": f"{k}.jsonl"}} for k in range(count)]


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        (
            {"spec.workloads": workloads(8), "spec.load": {"concurrency": list(range(1, 17)), "repeats": 17}},
            "4352 points are more than one run may hold (4096)",
        ),
        (
            {"spec.drafters": drafters(4), "spec.workloads": workloads(13)}
            | {"spec.load": {"concurrency": list(range(1, 17)), "repeats": 1}},
            "1040 combinations of arm, workload and concurrency are more than one run may hold (1024)",
        ),
        (
            {"spec.drafters": drafters(16), "spec.load.repeats": 32},
            "513 engine launches are more than one run may hold (512) (fewer repeats, or load.order: Sequential)",
        ),
    ],
)
def test_a_run_larger_than_its_status_can_hold_is_refused_with_the_count(edits: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        expand(run_of(edits))
    assert says in str(refused.value)


def test_a_run_of_the_largest_size_fits_what_status_may_list() -> None:
    fields = {name: structural(RunStatus)["properties"][name]["maxItems"] for name in ("groups", "arms")}
    assert fields == {"groups": GROUPS_MAX, "arms": CELLS_MAX}
    assert len(expand(run_of({"spec.drafters": drafters(16), "spec.load.repeats": 31})).groups) == 31 * 16 + 1


def test_the_estimate_counts_only_what_is_known() -> None:
    plan = expand(run_of({"spec.load": {"concurrency": [1, 2], "repeats": 2}}))
    assert estimate(plan) == Estimate(launches=3, points=8, requests=None, output_tokens_at_most=None)
    assert estimate(plan, {"chat": 10}) == Estimate(3, 8, requests=80, output_tokens_at_most=80 * 256)
