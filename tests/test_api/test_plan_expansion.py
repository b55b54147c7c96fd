"""Expanding a spec into a plan: every point exactly once, in an order that balances drift over the arms."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby, product, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.structural_schema import structural
from specbench_api.errors import InvalidSpec
from specbench_api.plan import expansion
from specbench_api.plan.canonical import differing_fields, extends
from specbench_api.plan.estimate import PlanSize, estimate, rounds_text
from specbench_api.plan.expansion import (
    arms_of,
    expand,
    flaws_of_stored,
    launch_order,
    lay_out,
    restore,
    with_another_round,
    with_requested_round,
    without_added_rounds,
)
from specbench_api.plan.limits import CELLS_MAX, GROUPS_MAX
from specbench_api.plan.plan import Plan, PlanCell
from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.load import ArmOrder, Level
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.results import S3
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.secret_refs import SecretRef
from specbench_api.spec.status import RunStatus
from specbench_testing.resources import Resource, endpoint_edits, resource, run_of

TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "now"}}]}

METHODS = [Method.NGRAM, Method.SUFFIX, Method.MTP]


LEVELS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(dict, concurrency=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)),
    st.builds(dict, rate=st.lists(st.floats(0.01, 1000), min_size=1, max_size=4, unique=True), slots=st.just(64)),
    st.just({"slots": 64, "arrival": {"process": "Trace", "uri": "trace.jsonl"}}),
)


@st.composite
def runs(draw: st.DrawFn) -> SpecBenchRun:
    """Any run that can be planned: 0 to 3 drafters, 1 to 3 workloads, closed and open loops, repeats, both orders."""
    drafters = [{"name": f"d{method}", "method": str(method)} for method in METHODS[: draw(st.integers(0, 3))]]
    spec: Resource = resource()["spec"]
    spec["drafters"] = drafters
    spec["baseline"] = draw(st.sampled_from(["Measure", "Skip"])) if drafters else "Measure"
    spec["workloads"] = [
        {"name": f"w{index}", "dataset": {"source": "jsonl", "uri": f"{index}.jsonl"}}
        for index in range(draw(st.integers(1, 3)))
    ]
    spec["load"] = {
        **draw(LEVELS),
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
    expected = product(
        [arm.name for arm in arms_of(spec)],
        [workload.name for workload in spec.workloads],
        spec.load.levels,
        range(spec.load.repeats),
    )
    assert Counter((p.arm, p.workload, p.level, p.repeat) for p in plan.points) == Counter(expected)
    assert len({level.label for level in spec.load.levels}) == len(spec.load.levels)
    assert len({point.hash for point in plan.points}) == len(plan.points)


@given(runs())
def test_a_group_has_one_arm_and_measures_repeats_and_loads_in_order(run: SpecBenchRun) -> None:
    names = [workload.name for workload in run.spec.workloads]
    plan = expand(run)
    assert [group.index for group in plan.groups] == list(range(len(plan.groups)))
    for group in plan.groups:
        assert {point.arm for point in group.points} == {group.arm}
        order = [(point.repeat, names.index(point.workload), point.level.order) for point in group.points]
        assert order == sorted(order)


@given(runs())
def test_sequential_launches_each_arm_once_and_interleaved_alternates(run: SpecBenchRun) -> None:
    plan = expand(run)
    arms, repeats = [arm.name for arm in plan.arms], run.spec.load.repeats
    if run.spec.load.order == "Sequential":
        assert [group.arm for group in plan.groups] == arms
        return
    assert len(plan.groups) == repeats * len(arms), "repeats that shared a launch would not be independent"
    assert all(len({point.repeat for point in group.points}) == 1 for group in plan.groups)
    for repeat in range(repeats):
        assert arms_by_repeat(plan, repeat) == (arms[::-1] if repeat % 2 else arms)


@pytest.mark.draws
@given(runs())
def test_planning_is_deterministic_and_plans_round_trip_through_json(run: SpecBenchRun) -> None:
    plan = expand(run)
    assert expand(parse_run(run.to_dict())) == plan
    assert Plan.from_json(plan.to_json()) == plan


def test_three_interleaved_repeats_of_three_arms_need_nine_launches() -> None:
    run = run_of({"spec.drafters[1]": {"name": "suffix", "method": "suffix"}})
    assert [group.arm for group in expand(run).groups] == [
        "none", "ngram", "suffix", "suffix", "ngram", "none", "none", "ngram", "suffix",
    ]  # fmt: skip


@pytest.mark.parametrize(("dialect", "launches"), [("vllm", 4), ("sglang", 4), ("tensorrt-llm", 8)])
def test_points_that_are_measured_as_served_begin_with_an_empty_cache(dialect: str, launches: int) -> None:
    """The client empties it where the engine has a route; otherwise each point has a launch of its own."""
    edits = {
        "spec.promptCache": "AsServed",
        "spec.engine": {"kind": "simulator", "dialect": dialect},
        "spec.load": {"concurrency": [1, 8], "repeats": 2},
    }
    plan = expand(run_of(edits))
    assert (len(plan.groups), len(plan.points), plan.empties_cache) == (launches, 8, True)
    assert [group.index for group in plan.groups] == list(range(launches))
    disabled = expand(run_of({**edits, "spec.promptCache": "Disabled"}))
    assert (len(disabled.groups), disabled.empties_cache) == (4, False)
    assert disabled.launches_repeats
    assert not {point.hash for point in plan.points} & {point.hash for point in disabled.points}


def test_the_cache_of_a_running_endpoint_is_as_served_and_never_emptied() -> None:
    plan = expand(run_of(endpoint_edits("b", "none")))
    assert (plan.prompt_cache, plan.empties_cache) == (PromptCache.AS_SERVED, False)
    assert not plan.launches_repeats
    disabled = expand(run_of({**endpoint_edits("b", "none"), "spec.promptCache": "Disabled"}))
    assert disabled.prompt_cache is PromptCache.DISABLED


@pytest.mark.parametrize("order", ["Interleaved", "Sequential"])
def test_repeats_of_a_server_that_is_restarted_have_launches_of_their_own(order: str) -> None:
    """They go on through the prompts: more prompts narrow intervals more than the same ones would."""
    load = {"concurrency": [1, 2], "requests": 5, "repeats": 2, "order": order}
    running = expand(run_of({**endpoint_edits("b", "none"), "spec.load": load}))
    restarted = running.model_copy(update={"restarts": True})
    assert (running.keeps_running, running.launches_repeats, running.repeats_continue) == (True, False, True)
    assert (restarted.keeps_running, restarted.launches_repeats, restarted.repeats_continue) == (False, True, True)
    assert (restarted.alternates, restarted.empties_cache) == (running.alternates, False)
    run = run_of({**endpoint_edits("b", "none"), "spec.load": load})
    assert [flaw.message for flaw in flaws_of_stored(restarted, run)] == ["differs from the run in restarts"]
    assert flaws_of_stored(running, run) == [], "on a cluster nothing restarts them"
    launched = expand(run_of({"spec.load": load}))
    assert (launched.keeps_running, launched.repeats_continue) == (False, False)


def soak(**load: Any) -> dict[str, Any]:
    return {
        "spec.load": {"concurrency": [8], "order": "Soak", "durationSeconds": 300, "repeats": 100, **load},
        "spec.activeDeadlineSeconds": 60_000,
    }


def test_a_soak_test_launches_each_arm_once_and_keeps_its_cache() -> None:
    plan = expand(run_of({**soak(), "spec.promptCache": "AsServed"}))
    assert [(group.arm, len(group.points)) for group in plan.groups] == [("none", 100), ("ngram", 100)]
    assert [point.repeat for point in plan.groups[1].points] == list(range(100))
    assert (plan.soaks, plan.empties_cache, plan.repeats_continue) == (True, False, True)
    assert not plan.launches_repeats
    sequential = expand(run_of({**soak(order="Sequential", repeats=32), "spec.promptCache": "AsServed"}))
    assert not {point.hash for point in plan.points} & {point.hash for point in sequential.points}
    stopping = expand(run_of({**soak(stop="WhenDecayed"), "spec.promptCache": "AsServed"}))
    assert (plan.stop, stopping.stop) == (None, "WhenDecayed")
    assert [point.hash for point in plan.points] == [point.hash for point in stopping.points]
    assert "stop" in differing_fields(plan, stopping), "its results may lack windows"


def test_a_soak_test_of_endpoints_stays_at_each_of_them() -> None:
    """One client measures all windows of an endpoint, so that the load does not stop between them."""
    endpoints = [{"name": name, "url": f"http://{name}:1"} for name in ("eagle3", "none")]
    engine = {"kind": "external", "dialect": "vllm", "endpoints": endpoints}
    plan = lay_out(run_of({**soak(slots=None), "spec.engine": engine, "spec.drafters": []}))
    assert [(group.arm, len(group.points)) for group in plan.groups] == [("none", 100), ("eagle3", 100)]


def test_the_baseline_comes_first_and_can_be_skipped() -> None:
    with_baseline, without = expand(run_of()), expand(run_of({"spec.baseline": "Skip"}))
    assert [(arm.name, arm.is_baseline) for arm in with_baseline.arms] == [("none", True), ("ngram", False)]
    assert [arm.name for arm in without.arms] == ["ngram"]


def test_several_draft_lengths_are_arms_of_their_own() -> None:
    plan = expand(run_of({"spec.drafters": [{"name": "n", "method": "ngram", "tryTokens": [5, 1]}]}))
    assert [arm.name for arm in plan.arms] == ["none", "n-k5", "n-k1"]
    alone = run_of({"spec.drafters": [{"name": "n-k5", "method": "ngram", "numSpeculativeTokens": 5}]})
    assert plan.arms[1] == expand(alone).arms[1], "they are the same arm, with the same points"


def test_every_arm_is_launched_with_slots_for_the_highest_concurrency() -> None:
    plan = expand(run_of({"spec.load.concurrency": [2, 16, 4], "spec.placement": {"gpus": 2}}))
    orders = [launch_order(plan, arm) for arm in plan.arms]
    assert [(order.slots, order.gpus) for order in orders] == [(16, 2), (16, 2)]
    assert expand(run_of({"spec.load": {"concurrency": [2, 16], "slots": 32}})).slots == 32
    assert expand(run_of({"spec.load": {"rate": [2], "slots": 32}})).slots == 32
    assert [order.drafter.name if order.drafter else None for order in orders] == [None, "ngram"]


@pytest.mark.parametrize(
    ("edits", "path", "expected"),
    [
        (
            {"spec.workloads[0].extraBody": {"top_k": 5, "temperature": 1}},
            "spec.workloads[0].extraBody.temperature",
            "is set by specbench itself (set sampling.temperature)",
        ),
        (
            {"spec.workloads[0].extraBody": {"temperature": None, "stream": None}},
            "spec.workloads[0].extraBody.stream",
            "is set by specbench itself (set output.stream)",
        ),
        (
            {"spec.workloads[0].extraBody": {"max_tokens": None, "max_completion_tokens": 7}},
            "spec.workloads[0].extraBody.max_completion_tokens",
            "is set by specbench itself (set output.maxTokens; to rename max_tokens, set it to null, and this to",
        ),
        (
            {"spec.workloads[0].extraBody": {"max_completion_tokens": 256}},
            "spec.workloads[0].extraBody.max_completion_tokens",
            "is set by specbench itself",
        ),
        (
            {"spec.workloads[0].extraBody": {"include_reasoning": False}},
            "spec.workloads[0].extraBody.include_reasoning",
            "withholds the reasoning, so the times of its tokens are unknown (remove it",
        ),
        (
            {"spec.workloads[0].chatTemplate": {"appliedBy": "Client", "kwargs": {"add_generation_prompt": False}}},
            "spec.workloads[0].chatTemplate.kwargs.add_generation_prompt",
            "is set by specbench itself (it is always true",
        ),
        (
            {
                "spec.workloads[0].chatTemplate": {"appliedBy": "Client"},
                "spec.workloads[0].extraBody": {"chat_template_kwargs": {"enable_thinking": False}},
            },
            "spec.workloads[0].extraBody.chat_template_kwargs",
            "has no effect on prompts sent as token ids (set chatTemplate.kwargs)",
        ),
        (
            {
                "spec.workloads[0].answers": {"jsonSchema": {}},
                "spec.workloads[0].extraBody": {"response_format": {"type": "text"}},
            },
            "spec.workloads[0].extraBody.response_format",
            "contradicts workloads[].answers, which sets it",
        ),
        (
            {"spec.workloads[0].answers": TOOLS, "spec.workloads[0].extraBody": {"tool_choice": "none"}},
            "spec.workloads[0].extraBody.tool_choice",
            "prevents the tool calls",
        ),
        (
            {"spec.workloads[0].answers": TOOLS, "spec.workloads[0].chatTemplate": {"appliedBy": "Client"}},
            "spec.workloads[0].chatTemplate.appliedBy",
            "set chatTemplate.appliedBy: Engine",
        ),
        (
            {
                "spec.workloads[0].answers": TOOLS,
                "spec.engine": {"kind": "vllm", "args": ["--enable_auto_tool_choice"]},
            },
            "spec.engine.args",
            "--tool-call-parser is missing, without which the engine returns no tool calls",
        ),
        (
            {
                "spec.workloads[0].answers": {"expected": {"match": "Number"}},
                "spec.workloads[0].output": {"ignoreEos": True},
            },
            "spec.workloads[0].output.ignoreEos",
            "continues answers past the end",
        ),
        (
            {"spec.drafters[1]": {"name": "again", "method": "ngram"}},
            "spec.drafters[1]",
            "'again' differs from 'ngram' only in its name",
        ),
        (
            {
                "spec.drafters": [
                    {"name": "a", "method": "ngram", "tryTokens": [2, 3]},
                    {"name": "b", "method": "ngram", "tryTokens": [3, 4]},
                ]
            },
            "spec.drafters[1]",
            "'b-k3' differs from 'a-k3' only in its name",
        ),
        (
            {
                "spec.drafters": [
                    {"name": "a", "method": "ngram", "tryTokens": [2, 3]},
                    {"name": "a-k3", "method": "ngram", "promptLookupMax": 7},
                ]
            },
            "spec.drafters[1].name",
            "'a-k3' is also an arm of tryTokens",
        ),
        (
            {
                "spec.engine": {"kind": "vllm"},
                "spec.drafters": [
                    {"name": "a", "method": "ngram", "tryTokens": [2, 3]},
                    {"name": "b", "method": "medusa", "model": "acme/heads"},
                ],
            },
            "spec.drafters[1].method",
            "medusa",
        ),
        (
            {"spec.workloads[1]": {"name": "again", "dataset": {"source": "jsonl", "uri": "prompts.jsonl"}}},
            "spec.workloads[1]",
            "'again' differs from 'chat' only in its name",
        ),
        (
            {**endpoint_edits("b", "none"), "spec.engine.endpoints[1].url": "http://engine-b:8001"},
            "spec.engine.endpoints[1]",
            "'none' differs from 'b' only in its name",
        ),
        (
            {**endpoint_edits("b"), "spec.workloads[0].extraBody": {"seed": 1}},
            "spec.workloads[0].extraBody.seed",
            "is set by specbench itself",
        ),
        (
            {"spec.engine": {"kind": "simulator", "args": ["--port=1"]}},
            "spec.engine.args[0]",
            "contradicts a flag that specbench manages",
        ),
    ],
)
def test_problems_beyond_the_schema_are_rejected_in_planning(edits: dict[str, Any], path: str, expected: str) -> None:
    with pytest.raises(InvalidSpec) as rejected:
        expand(run_of(edits))
    assert [problem.path for problem in rejected.value.problems] == [path]
    assert expected in str(rejected.value)


def test_the_order_of_keys_in_a_schema_does_not_count() -> None:
    """The API server does not keep it, so it is not sent either."""
    properties = {"b": {"type": "null"}, "a": {"const": None}}
    one, other = (
        expand(run_of({"spec.workloads[0].answers": {"jsonSchema": {"properties": dict(order)}}}))
        for order in (properties.items(), reversed(properties.items()))
    )
    assert one == other
    assert one.workloads[0].to_dict() == other.workloads[0].to_dict()
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize("field", ["nodeSelector", "client.nodeSelector"])
@pytest.mark.parametrize("key", ["", "not a key!", "a/b/c", "/a", "a/", "A.b/c", "k" * 64, "d" * 254 + "/k"])
def test_an_invalid_label_key_is_rejected_in_planning(field: str, key: str) -> None:
    run = run_of()
    selector: dict[str, Any] = {"nodeSelector": {key: "v"}}
    placement = run.spec.placement.model_validate({"client": selector} if field.startswith("client.") else selector)
    spec = run.spec.model_copy(update={"placement": placement})
    with pytest.raises(InvalidSpec, match=rf"^spec\.placement\.{field}: '.*' is not a label key"):
        expand(run.model_copy(update={"spec": spec}))


def test_a_plan_too_large_for_a_config_map_is_rejected() -> None:
    long = [{**row, "extraBody": {"stop": "x" * 60_000}} for row in workloads(16)]
    with pytest.raises(
        InvalidSpec, match=r"its plan has 9\d{5} bytes, more than the 900000 that fit into a ConfigMap \(split"
    ):
        expand(run_of({"spec.workloads": long, "spec.drafters": []}))
    assert expand(run_of({"spec.workloads": long[:14], "spec.drafters": []})).points


def test_endpoints_take_turns_and_differ_in_nothing_but_their_address() -> None:
    """ABBA: no two passes are joined, because nothing is launched; the endpoint named none is the baseline."""
    endpoints = [{"name": name, "url": f"http://{name}:1"} for name in ("eagle3", "none")]
    engine = {"kind": "external", "dialect": "vllm", "endpoints": endpoints}
    plan = lay_out(run_of({"spec.engine": engine, "spec.drafters": [], "spec.load.repeats": 4}))
    assert [arm.name for arm in plan.arms] == ["none", "eagle3"]
    assert [group.arm for group in plan.groups] == ["none", "eagle3", "eagle3", "none"] * 2
    assert len({point.hash for point in plan.points}) == 8
    renamed = {**engine, "endpoints": [{**endpoints[0], "name": "other"}, endpoints[1]]}
    other = lay_out(run_of({"spec.engine": renamed, "spec.drafters": [], "spec.load.repeats": 4}))
    assert [point.hash for point in plan.points] == [point.hash for point in other.points]
    key = {"spec.engine": {**engine, "apiKeySecretRef": {"name": "key"}}, "spec.drafters": [], "spec.load.repeats": 4}
    assert lay_out(run_of(key)) == plan, "neither the plan nor the hashes contain the Secret"
    assert expand(run_of(key)) == plan


def test_an_endpoint_has_its_own_dialect_or_that_of_the_engine() -> None:
    endpoints = [{"name": "a", "url": "http://a:1", "dialect": "sglang"}, {"name": "b", "url": "http://b:1"}]
    engine = {"kind": "external", "dialect": "vllm", "endpoints": endpoints}
    plan = lay_out(run_of({"spec.engine": engine, "spec.drafters": []}))
    assert [plan.engine_of(arm).dialect for arm in plan.arms] == ["sglang", "vllm"]


def drafters(count: int) -> list[dict[str, Any]]:
    """Returns `count` distinct drafters."""
    return [{"name": f"d{k}", "method": "ngram", "numSpeculativeTokens": k + 1} for k in range(count)]


def workloads(count: int) -> list[dict[str, Any]]:
    """Returns `count` distinct workloads."""
    return [{"name": f"w{k}", "dataset": {"source": "jsonl", "uri": f"{k}.jsonl"}} for k in range(count)]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (soak(concurrency=[1, 8]), "give a single concurrency or rate"),
        (soak(durationSeconds=None, requests=5), "the length of a window as load.durationSeconds"),
        (soak(order="Interleaved", repeats=3, stop="WhenDecayed"), "load.stop ends a soak test early"),
        (soak(order="Interleaved"), "load.repeats above 32 needs load.order: Soak"),
        (soak() | {"spec.activeDeadlineSeconds": 30_000}, "ended after 30000 s, but its windows take 30000 s"),
        (
            soak() | {"spec.workloads[1]": {"name": "b", "dataset": {"source": "jsonl", "uri": "b.jsonl"}}},
            "one load up",
        ),
        *(
            ({"spec.workloads[0].answers": answers}, expected)
            for answers, expected in (
                (
                    {"jsonSchema": {"type": "text"}},
                    r"answers\.jsonSchema: .*not a valid JSON Schema: type: 'text' is not",
                ),
                (
                    {"jsonSchema": {"properties": {"a": {"pattern": "("}}}},
                    r"not a valid JSON Schema: properties\.a\.pattern",
                ),
                (
                    {"jsonSchema": {"$ref": "https://example.com/schema"}},
                    "leads to nothing in this schema: refer to a def",
                ),
                ({"jsonSchema": {"items": {"$ref": "#/$defs/none"}}}, "leads to nothing in this schema"),
                ({"jsonSchema": {"$schema": 3}}, "not a valid JSON Schema"),
                ({"tools": [{"name": "now"}]}, r"answers\.tools: .*\[0\] is no tool: give"),
                (
                    {"tools": [*TOOLS["tools"], *TOOLS["tools"]]},
                    r"\[1\]\.function\.name is 'now': give each tool a name",
                ),
                (
                    {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": 3}}}]},
                    r"\[0\]\.function\.parameters is not a valid JSON Schema: type: 3",
                ),
            )
        ),
        (
            {"spec.engine": {"kind": "external", "endpoints": [{"name": "a", "url": "http://a:1"}]}},
            "a running endpoint has its own",
        ),
        (
            {"spec.workloads": workloads(8), "spec.load": {"concurrency": list(range(1, 17)), "repeats": 17}},
            r"4352 points exceed the maximum of one run \(4096\)",
        ),
        (
            {"spec.drafters": drafters(4), "spec.workloads": workloads(13)}
            | {"spec.load": {"concurrency": list(range(1, 17)), "repeats": 1}},
            r"1040 combinations of arm, workload and load exceed the maximum of one run \(1024\)",
        ),
        (
            {"spec.drafters": drafters(16), "spec.load.repeats": 31},
            r"527 engine launches exceed the maximum of one run \(512\) \(use fewer repeats",
        ),
    ],
)
def test_a_run_that_cannot_be_planned_is_rejected(edits: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSpec, match=expected):
        expand(run_of(edits))


def test_a_run_of_the_maximum_size_fits_its_status() -> None:
    fields = {name: structural(RunStatus)["properties"][name]["maxItems"] for name in ("groups", "arms")}
    assert fields == {"groups": GROUPS_MAX, "arms": CELLS_MAX}
    assert len(expand(run_of({"spec.drafters": drafters(15), "spec.load.repeats": 32})).groups) == GROUPS_MAX


TURNS = {"chat": [1, 1, 2]}


def test_the_estimate_is_none_where_turns_or_durations_are_unknown() -> None:
    plan = expand(run_of({"spec.load": {"concurrency": [1, 2], "repeats": 2}}))
    assert estimate(plan) == PlanSize(4, 8, requests=None, output_tokens_at_most=None, load_seconds=None)
    assert estimate(plan, TURNS) == PlanSize(4, 8, requests=32, output_tokens_at_most=32 * 256, load_seconds=None)


@pytest.mark.parametrize(
    ("load", "requests", "seconds"),
    [
        ({"concurrency": [1], "requests": 4}, 4 * 5, None),
        ({"concurrency": [1], "durationSeconds": 60}, None, 4 * 60),
        ({"rate": [0.5], "slots": 8, "durationSeconds": 60}, 4 * 40, 4 * 60),
        ({"rate": [0.5], "slots": 8, "requests": 6}, 4 * 8, 4 * 12),
        ({"rate": [0.5], "slots": 8}, 4 * 4, 4 * 6),
        ({"arrival": {"process": "Trace", "uri": "t.csv"}, "slots": 8}, None, None),
    ],
)
def test_durations_that_depend_on_the_engine_are_not_estimated(
    load: dict[str, Any], requests: int | None, seconds: float | None
) -> None:
    """Of two arms with two repeats, and three prompts with four turns in total."""
    found = estimate(expand(run_of({"spec.load": {"repeats": 2, **load}})), TURNS)
    assert (found.requests, found.load_seconds) == (requests, seconds)


@pytest.mark.parametrize(
    ("level", "label", "words"),
    [
        (Level(concurrency=8), "8", "concurrency 8"),
        (Level(rate=2.5), "2.5/s", "2.5/s"),
        (Level(rate=100_000), "100000/s", "100000/s"),
        (Level(rate=1234.56789), "1234.56789/s", "1234.56789/s"),
        (Level(), "trace", "the trace's own speed"),
    ],
)
def test_a_level_has_a_label_and_a_phrase_for_messages(level: Level, label: str, words: str) -> None:
    assert (level.label, level.words) == (label, words)


def test_a_level_has_either_concurrency_or_rate() -> None:
    with pytest.raises(ValueError, match="either concurrency or rate"):
        Level(concurrency=1, rate=1)


# Restoring a run from the plan in its results, after its resource was lost.


UID = "7d0f6bd8-1111-4c4b-9d53-000000000001"
BUCKET = S3(bucket="results", prefix="demo", credentials_secret_ref=SecretRef(name="bench-s3"))
EAGLE = {"name": "e", "method": "eagle3", "model": "acme/eagle", "numSpeculativeTokens": 3}
RUNS: dict[str, dict[str, Any]] = {
    "simulator": {},
    "vllm": {"spec.engine": {"kind": "vllm", "version": "0.33.0"}, "spec.drafters[0]": EAGLE},
    "sglang": {"spec.engine": {"kind": "sglang", "version": "0.5.23"}, "spec.drafters[0]": EAGLE},
    "tensorrt-llm": {"spec.engine": {"kind": "tensorrt-llm", "version": "1.2.1"}, "spec.drafters[0]": EAGLE},
    "llama-cpp": {"spec.engine": {"kind": "llama-cpp", "image": "registry.example/llama:1"}},
    "transformers": {"spec.engine": {"kind": "transformers", "image": "registry.example/transformers:1"}},
    "no baseline": {"spec.baseline": "Skip"},
    "open loop": {"spec.load": {"rate": [2.5], "slots": 8, "repeats": 3, "durationSeconds": 60}},
    "an earlier run's results": {"spec.results.adopt": UID},
}


def planned(edits: dict[str, Any]) -> Plan:
    run = resource(edits)
    run["metadata"]["uid"] = UID
    return expand(parse_run(run))


@pytest.mark.parametrize("edits", RUNS.values(), ids=RUNS.keys())
def test_a_restored_run_has_the_same_plan(edits: dict[str, Any]) -> None:
    plan = planned(edits)
    run = restore(plan, BUCKET)
    again = parse_run({**run.to_dict(), "metadata": {"name": plan.name, "namespace": plan.namespace, "uid": "another"}})
    assert expand(again) == plan
    assert (again.spec.results.adopt, again.results_uid) == (UID, UID)
    assert again.spec.results.s3 == BUCKET


ROUNDS = {"spec.load": {"concurrency": [1, 2], "repeats": 3}}


def test_a_restored_run_may_have_the_rounds_that_were_added() -> None:
    plan = planned(ROUNDS)
    cells = {point.cell for point in plan.points}
    for added in range(4):
        assert plan.added_rounds == added
        restored = restore(plan, BUCKET)
        assert restored.spec.retries == max(added, 1)
        assert expand(with_uid(restored)) == without_added_rounds(plan) == planned(ROUNDS)
        plan = with_another_round(plan, cells)


def with_uid(run: SpecBenchRun) -> SpecBenchRun:
    return parse_run({**run.to_dict(), "metadata": {"name": run.metadata.name, "namespace": "default", "uid": UID}})


REQUESTS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["none", "ngram", "other"]),
            st.sampled_from(["chat", "other", "x"]),
            st.sampled_from([Level(concurrency=n) for n in (1, 2, 3)]),
        ),
        max_size=6,
    ),
    max_size=4,
)
"""Rounds as anybody may request them: of arms and loads of the plan, or of others."""


@given(rounds=REQUESTS, retries=st.integers(0, 3), repeats=st.integers(1, 4), order=st.sampled_from(list(ArmOrder)[:2]))
def test_at_most_the_requested_rounds_of_the_plan_and_as_many_as_allowed_are_added(
    rounds: list[list[PlanCell]], retries: int, repeats: int, order: ArmOrder
) -> None:
    first = planned({"spec.load": {"concurrency": [1, 2], "repeats": repeats, "order": order}})
    plan = first
    requested = [
        sorted({cell for cell in cells if cell in {point.cell for point in first.points}}, key=str) for cells in rounds
    ]
    while (grown := with_requested_round(plan, rounds, retries)) is not None:
        assert extends(grown, plan)
        assert grown.groups[: len(plan.groups)] == plan.groups
        added = grown.points[len(plan.points) :]
        arms = {cell[0]: None for cell in sorted(requested[plan.added_rounds], key=lambda cell: cell[0] != "none")}
        launches = [arm for arm, _ in groupby([*arms, *reversed(arms)])]
        assert [arm for arm, _ in groupby(point.arm for point in added)] == launches
        assert Counter(point.cell for point in added) == dict.fromkeys(requested[plan.added_rounds], 2)
        plan = grown
    allowed = min(len(rounds), retries) if order is ArmOrder.INTERLEAVED else 0
    assert plan.added_rounds == len(list(takewhile(bool, requested[:allowed])))
    assert [sorted(cells, key=str) for cells in plan.rounds_added] == requested[: plan.added_rounds]
    assert without_added_rounds(plan) == first
    assert Plan.from_json(plan.to_json()) == plan


def test_no_round_is_added_beyond_the_sizes_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(ROUNDS)
    rounds = [[point.cell for point in plan.points]]
    grown = with_requested_round(plan, rounds, 1)
    assert grown is not None
    sizes = {"POINTS_MAX": len(grown.points), "GROUPS_MAX": len(grown.groups), "REPEATS_MAX": grown.load.repeats}
    for name, size in sizes.items():
        monkeypatch.setattr(expansion, name, size)
        assert with_requested_round(plan, rounds, 1) == grown
        monkeypatch.setattr(expansion, name, size - 1)
        assert with_requested_round(plan, rounds, 1) is None
        monkeypatch.undo()


def test_a_plan_that_this_version_would_not_produce_is_rejected() -> None:
    plan = planned({})
    group = plan.groups[0]
    points = [point.model_copy(update={"hash": "0" * 64}) for point in group.points]
    other = plan.model_copy(update={"groups": [group.model_copy(update={"points": points}), *plan.groups[1:]]})
    with pytest.raises(InvalidSpec, match="would plan the run differently and measure everything again"):
        restore(other, BUCKET)


def test_a_service_is_the_url_of_that_name_in_the_namespace_of_the_run() -> None:
    service = {"name": "a", "serviceRef": {"name": "llama", "port": 8080}}
    edits = {**endpoint_edits("a"), "metadata.namespace": "bench"}
    plan = expand(run_of({**edits, "spec.engine.endpoints[0]": service}))
    by_url = expand(run_of({**edits, "spec.engine.endpoints[0].url": "http://llama.bench.svc:8080"}))
    assert plan == by_url
    assert Plan.from_json(plan.to_json()) == plan


SEARCH = {"spec.drafters": [{"name": "ngram", "method": "ngram", "tryTokens": [1, 3]}], "spec.search": {}}


@given(rounds=REQUESTS, retries=st.integers(0, 3))
def test_a_search_begins_with_one_repeat_and_grows_by_one_round_of_some_arms(
    rounds: list[list[PlanCell]], retries: int
) -> None:
    """Its points are those of the whole matrix, of which it measures a part; retries are of other runs."""
    edits = {**SEARCH, "spec.load": {"concurrency": [1, 2], "repeats": 3}}
    matrix, first = planned({**edits, "spec.search": None}), planned(edits)
    names = {"ngram": "ngram-k1"}
    renamed = [[(names.get(arm, arm), workload, level) for arm, workload, level in cells] for cells in rounds]
    plan = first
    assert [point.hash for point in first.points] == [point.hash for point in matrix.points if point.repeat == 0]
    while (grown := with_requested_round(plan, renamed, retries)) is not None:
        added = grown.points[len(plan.points) :]
        assert {point.repeat for point in added} == {grown.added_rounds}
        order = [arm.name for arm in plan.arms][:: -1 if grown.added_rounds % 2 else 1]
        assert [group.arm for group in grown.groups[len(plan.groups) :]] == [
            arm for arm in order if any(point.arm == arm for point in added)
        ]
        plan = grown
    cells = {point.cell for point in first.points}
    requested = [cells.intersection(each) for each in renamed[:2]]
    assert plan.added_rounds == len(list(takewhile(bool, requested)))
    assert [set(each) for each in plan.rounds_added] == requested[: plan.added_rounds]
    assert {point.hash for point in plan.points} <= {point.hash for point in matrix.points}
    assert without_added_rounds(plan) == first
    assert expand(with_uid(restore(plan, BUCKET))) == first


@pytest.mark.parametrize(
    ("repeats", "launches", "points"),
    [(3, 9 + 5 + 4, 36), (5, 9 + 5 + 4 + 4 + 4, 52)],
)
def test_the_largest_size_of_a_search_is_stated(repeats: int, launches: int, points: int) -> None:
    drafters = [{"name": "a", "method": "ngram", "tryTokens": [1, 2, 3, 4]}]
    drafters += [{"name": "b", "method": "suffix", "tryTokens": [1, 2, 3, 4]}]
    edits = {"spec.drafters": drafters, "spec.search": {}, "spec.load": {"concurrency": [1, 2], "repeats": repeats}}
    found = rounds_text(planned(edits))
    assert [int(each) for each in re.findall(r"\d+", found)] == [repeats, launches, points]
    assert rounds_text(planned({})) == ""
