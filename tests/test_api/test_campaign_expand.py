"""Expanding a campaign into runs: combinations, names and warnings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.campaign.expansion import CampaignPlan, expand_campaign
from specbench_api.campaign.matrix import (
    Combination,
    combination_text,
    combinations,
    key_of,
    short_combination_text,
    value_text,
)
from specbench_api.campaign.names import ROUND_NAMES, campaign_in_name, run_hash, run_name
from specbench_api.errors import InvalidSpec
from specbench_api.plan.canonical import RUN_SCHEMA, canonical_run
from specbench_api.plan.expansion import expand
from specbench_api.plan.names import client_name
from specbench_api.spec.campaign import CAMPAIGN_NAME_MAX
from specbench_api.spec.campaign_limits import COMBINATION_TEXT_MAX
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import NAME, NAME_MAX
from specbench_testing.resources import ENGINE, MISSING, TEMPERATURE, campaign_of, run_of

DRAFTERS = [
    {"name": "eagle3", "method": "eagle3", "model": "acme/draft"},
    {"name": "ngram", "method": "ngram"},
]

KIND, HEAT = "engine.kind", "workloads[0].sampling.temperature"


def planned(edits: dict[str, Any] | None = None, number: int = 1) -> CampaignPlan:
    return expand_campaign(campaign_of(edits), number)


COMBINATIONS = [(engine, heat) for engine in ("vllm", "sglang") for heat in (0, 0.7, 1)]
"""Of the campaign without edits: the first axis varies slowest."""


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({}, COMBINATIONS),
        (
            {"spec.exclude": [{"engine": "sglang", "temperature": 1.0}, {"temperature": 0.7}]},
            [("vllm", 0), ("vllm", 1), ("sglang", 0)],
        ),
        ({"spec.include": [{"engine": "vllm", "temperature": 1.5}]}, [*COMBINATIONS, ("vllm", 1.5)]),
        (
            {
                "spec.template.spec.workloads[0].sampling": {"temperature": 0.3},
                "spec.include": [{"engine": "llama-cpp"}],
            },
            [*COMBINATIONS, ("llama-cpp", 0.3)],
        ),
        (
            {"spec.exclude": [{"temperature": 1}], "spec.include": [{"engine": "vllm", "temperature": 1.0}]},
            [("vllm", 0), ("vllm", 0.7), ("sglang", 0), ("sglang", 0.7), ("vllm", 1)],
        ),
    ],
    ids=["axes", "exclude", "include", "include with the template's value", "include what is excluded"],
)
def test_axes_exclude_and_include_define_the_combinations(
    edits: dict[str, Any], expected: list[tuple[str, float]]
) -> None:
    runs = planned(edits).runs
    assert [dict(run.combination) for run in runs] == [{"engine": e, "temperature": t} for e, t in expected]
    assert [(str(run.run.spec.engine.kind), run.run.spec.workloads[0].sampling.temperature) for run in runs] == expected


@pytest.mark.parametrize(
    ("row", "repeats"),
    [
        ({"temperature": 0.7, "set": {"load.repeats": 5, "load.requests": 9}}, [3, 5, 3, 3, 5, 3]),
        ({"temperature": 2, "set": {"load.repeats": 5}}, [3, 3, 3, 3, 3, 3, 5]),
    ],
)
def test_include_set_applies_to_matching_combinations_and_to_the_one_that_the_row_adds(
    row: dict[str, Any], repeats: list[int]
) -> None:
    assert [run.run.spec.load.repeats for run in planned({"spec.include": [row]}).runs] == repeats


def test_include_rows_that_differ_only_in_set_have_different_cells() -> None:
    rows = [{"engine": "vllm", "temperature": 1.5, "set": {"load.repeats": repeats}} for repeats in (4, 5)]
    annotations = [
        run.resource["metadata"]["annotations"]["specbench.io/combination"]
        for run in planned({"spec.include": rows}).runs
    ]
    assert len(set(annotations)) == len(annotations) == 8
    assert json.loads(annotations[-1]) == {KIND: "vllm", HEAT: 1.5, "set": {"load.repeats": 5}}


def test_a_campaign_without_axes_has_one_run_from_the_template() -> None:
    (run,) = planned({"spec.axes": MISSING}).runs
    assert (dict(run.combination), run.combination_text) == ({}, "the template")


def test_an_axis_value_may_be_a_list_and_null_removes_a_field() -> None:
    axes = [
        {"path": "drafters", "values": [[DRAFTERS[1]], DRAFTERS]},
        {"path": "load.requests", "values": [4, None]},
    ]
    found = planned({"spec.axes": axes, "spec.template.spec.engine.kind": "vllm"}).runs
    assert [(len(run.run.spec.drafters), run.run.spec.load.requests) for run in found] == [
        (1, 4), (1, None), (2, 4), (2, None),
    ]  # fmt: skip
    assert found[2].combination_text == "drafters=eagle3+ngram requests=4"


def test_reasoning_may_be_an_axis_although_its_switch_is_a_field_of_the_engines() -> None:
    path = "workloads[name=chat].extraBody.chat_template_kwargs.enable_thinking"
    runs = planned({"spec.axes": [{"path": path, "values": [True, False]}]}).runs
    assert [run.run.spec.workloads[0].requests_reasoning for run in runs] == [True, False]
    assert len({point.hash for run in runs for point in expand(run.run).points}) == 2 * len(expand(runs[0].run).points)


def test_a_path_may_select_a_row_by_name_and_quote_a_key_with_dots() -> None:
    axes = [
        {"path": "workloads[name=chat].output.maxTokens", "values": [20, 50]},
        {"name": "gpu", "path": 'placement.nodeSelector["nvidia.com/gpu.product"]', "values": ["H100", "H200"]},
    ]
    found = planned({"spec.axes": axes}).runs
    assert [run.run.spec.workloads[0].output.max_tokens for run in found] == [20, 20, 50, 50]
    assert found[1].run.spec.placement.node_selector == {"nvidia.com/gpu.product": "H200"}


def test_an_axis_of_an_object_applies_before_axes_of_its_fields_in_any_order() -> None:
    load = {"path": "load", "values": [{"concurrency": [4]}, {"concurrency": [8]}]}
    repeats = {"path": "load.repeats", "values": [1, 2]}
    names = [{run.name for run in planned({"spec.axes": axes}).runs} for axes in ([load, repeats], [repeats, load])]
    assert names[0] == names[1]
    assert len(names[0]) == 4


def test_each_run_resource_parses_and_expands_to_the_same_plan() -> None:
    for run in planned({"spec.template.metadata": {"labels": {"team": "a"}, "annotations": {"why": "x"}}}).runs:
        read = parse_run(run.resource)
        assert read == run.run
        assert expand(read) == run.plan
        assert run.plan.name == read.metadata.name == run.name


def test_a_run_has_labels_of_its_campaign_and_an_annotation_with_its_cell() -> None:
    edits = {"metadata.uid": "u-1", "spec.template.metadata": {"labels": {"team": "a"}, "annotations": {"why": "x"}}}
    metadata = planned(edits, number=3).runs[2].resource["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["labels"] == {
        "team": "a",
        "specbench.io/campaign": "nightly",
        "specbench.io/campaign-uid": "u-1",
        "specbench.io/round": "3",
    }
    # The temperature is 1.0, which the API server stores as 1.
    assert metadata["annotations"] == {"why": "x", "specbench.io/combination": f'{{"{KIND}":"vllm","{HEAT}":1}}'}


def test_a_cell_is_independent_of_axis_names_order_and_path_spelling() -> None:
    """A run finds its baseline in an earlier round by its combination."""
    gpu = {"name": "gpu", "path": 'placement.nodeSelector["gpu"]', "values": ["H100", "H200"]}
    heat = {"path": HEAT, "values": [0, 0.7]}
    annotations = [
        {
            run.resource["metadata"]["annotations"]["specbench.io/combination"]
            for run in planned({"spec.axes": axes}).runs
        }
        for axes in (
            [gpu, heat],
            [{**heat, "name": "how-hot"}, {**gpu, "name": "card", "path": "placement.nodeSelector.gpu"}],
        )
    ]
    assert len(annotations[0]) == 4
    assert annotations[0] == annotations[1]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec.exclude": [{"engine": "vlm"}]}, r"spec\.exclude\[0\] matches no combination"),
        ({"spec.include": [{"engine": "vllm"}]}, r"spec\.include\[0\] has no effect"),
        (
            {"spec.axes[2]": {"path": "suspend", "values": [False, True]}},
            "engine=vllm temperature=0 suspend=true measures the same as engine=vllm temperature=0 suspend=false",
        ),
    ],
    ids=str,
)
def test_likely_mistakes_are_warnings(edits: dict[str, Any], expected: str) -> None:
    warned = planned(edits)
    assert any(re.search(expected, line) for line in warned.warnings)
    assert len(warned.runs) == 6


def test_combinations_that_measure_the_same_are_one_run() -> None:
    found = planned({"spec.axes": [{**ENGINE, "values": ["vllm", "vllm"]}]})
    assert len(found.runs) == len(found.warnings) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("vllm", "vllm"),
        (0.7, "0.7"),
        (True, "true"),
        (None, "null"),
        ({"name": "eagle3", "method": "eagle3"}, "eagle3"),
        ([{"name": "a"}, {"name": "b"}], "a+b"),
        ([], "[]"),
        ([1, 8], "[1,8]"),
        ("s3://bench-prompts/speed-bench/throughput_16k.parquet", "…mpts/speed-bench/throughput_16k.parquet"),
        (["x" * 60], '["' + "x" * 37 + "…"),
    ],
    ids=str,
)
def test_value_text_shortens_values(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_the_short_text_of_a_combination_fits_the_status_field() -> None:
    combination = {f"axis-{number}": "v" * 30 for number in range(8)}
    assert len(short_combination_text(combination)) == COMBINATION_TEXT_MAX < len(combination_text(combination))


def test_every_run_of_the_first_round_may_adopt_the_latest_results_of_its_name() -> None:
    found = planned({"spec.template.spec.results.adopt": "Latest", "metadata.uid": "u-1"}).runs
    assert {run.run.spec.results.adopt for run in found} == {"Latest"}
    assert {run.name for run in found} == {run.name for run in planned().runs}, "adopt is not part of the measurement"
    assert {run.plan.uid for run in found} == {""}, "the UID of the adopted results comes from S3"


def test_runs_have_the_gpus_that_the_engines_of_their_combinations_need() -> None:
    """A campaign counts the GPU-hours of its runs by this field."""
    sizes = {"path": "engine.tensorParallelSize", "values": [1, 4]}
    runs = planned({"spec.template.spec.engine": {"kind": "vllm"}, "spec.axes": [sizes]}).runs
    assert [run.resource["spec"]["placement"]["gpus"] for run in runs] == [1, 4]


def test_runs_of_later_rounds_adopt_no_results() -> None:
    """A recreated campaign counts rounds from 1 again, so results of old rounds exist under the names of new ones."""
    latest = {"spec.template.spec.results.adopt": "Latest"}
    later = planned(latest, number=2).runs
    assert {run.run.spec.results.adopt for run in later} == {None}
    assert not [run for run in later if "adopt" in run.resource["spec"]["results"]]


# The name of a campaign's run is a hash of what it measures; other edits do not change it.

PINNED = "gda2ljny"
"""A change restarts every campaign of every user: it needs a new RUN_SCHEMA and an entry in the change log."""

Edits = Mapping[str, Any]


def names(edits: Edits | None = None, number: int = 1) -> list[str]:
    return [run.name for run in expand_campaign(campaign_of(edits), number).runs]


def hashed(edits: Edits | None = None) -> str:
    return run_hash(run_of(edits).spec)


def test_the_name_of_a_pinned_run_stays_the_same() -> None:
    edits = {
        "spec.engine": {"kind": "vllm", "version": "0.33.0", "args": ["--a=b"]},
        "spec.drafters[0]": {"name": "n", "method": "ngram", "promptLookupMax": 4},
        "spec.load": {"concurrency": [1, 8], "repeats": 2},
        "spec.placement": {"gpus": 1, "nodeSelector": {"pool": "a"}},
    }
    assert canonical_run(run_of(edits).spec) == {
        "schemaVersion": RUN_SCHEMA,
        "model": {"name": "acme/tiny"},
        "engine": {"kind": "vllm", "version": "0.33.0", "args": ["--a=b"]},
        "drafters": [{"method": "ngram", "promptLookupMax": 4}],
        "workloads": [{"dataset": {"source": "jsonl", "uri": "prompts.jsonl"}}],
        "load": {"concurrency": [1, 8], "repeats": 2},
        "hardware": {"gpus": 1, "nodeSelector": {"pool": "a"}},
    }
    assert run_name("nightly", run_of(edits).spec, 1) == f"nightly-{PINNED}"


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.suspend": True},
        {"spec.activeDeadlineSeconds": 600},
        {"spec.startupDeadlineSeconds": 60},
        {"spec.reportDeadlineSeconds": 60},
        {"spec.retries": 3},
        {"spec.ttlSecondsAfterFinished": 0},
        {"spec.results.s3": {"bucket": "elsewhere", "prefix": "p"}},
        {"spec.placement": {"tolerations": [{"operator": "Exists"}], "priorityClassName": "low"}},
        {"spec.drafters[0].name": "renamed"},
        {"spec.workloads[0].name": "renamed"},
        {"spec.load.repeats": 3},
        {"spec.load.slots": 1},
        {"spec.workloads[0].sampling": {"temperature": -0.0, "topP": 1.0}},
        {"metadata.labels": {"team": "a"}},
        {"spec.workloads[0].chatTemplate": {"appliedBy": "Engine", "kwargs": {}}},
    ],
    ids=str,
)
def test_fields_that_are_not_measured_and_explicit_defaults_do_not_change_the_hash(edits: Edits) -> None:
    assert hashed(edits) == hashed()


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.model.revision": "v2"},
        {"spec.engine.args": ["--x"]},
        {"spec.engine.version": "1"},
        {"spec.engine.equalizeArms": "Disabled"},
        {"spec.drafters": []},
        {"spec.drafters[0].numSpeculativeTokens": 4},
        {"spec.baseline": "Skip"},
        {"spec.workloads[0].dataset.count": 9},
        {"spec.workloads[0].sampling": {"temperature": 0.1}},
        {"spec.workloads[0].extraBody": {"top_k": None}},
        {"spec.load.repeats": 4},
        {"spec.load.order": "Sequential"},
        {"spec.load.slots": 8},
        {"spec.placement": {"gpus": 1}},
        {"spec.placement": {"nodeSelector": {"pool": "b"}}},
        {
            "spec.placement": {
                "template": {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"cpu": "8"}}}]}}
            }
        },
    ],
    ids=str,
)
def test_measured_fields_change_the_hash(edits: Edits) -> None:
    assert hashed(edits) != hashed()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"concurrency": [8, 1]}, {"concurrency": [1, 8], "slots": 8}),
        ({"rate": [2, 1], "slots": 4}, {"rate": [1, 2], "slots": 4, "arrival": {}}),
        ({"rate": [1], "slots": 4}, {"rate": [1], "slots": 4, "arrival": {"process": "Poisson", "seed": 0}}),
    ],
    ids=str,
)
def test_equivalent_loads_have_the_same_hash(one: Edits, other: Edits) -> None:
    assert hashed({"spec.load": one}) == hashed({"spec.load": other})


def test_whole_floats_and_integers_in_extra_body_have_the_same_hash() -> None:
    path = "spec.workloads[0].extraBody"
    assert hashed({path: {"min_p": 1.0, "deep": [2.0]}}) == hashed({path: {"min_p": 1, "deep": [2]}})
    assert hashed({path: {"flag": True}}) != hashed({path: {"flag": 1}})


@pytest.mark.draws
@settings(max_examples=20)
@given(
    axes=st.permutations([ENGINE, TEMPERATURE, {"path": "load.repeats", "values": [2, 3]}]),
    shuffled=st.permutations([0, 0.7, 1.0]),
)
def test_the_order_of_axes_and_values_does_not_change_names(axes: list[Edits], shuffled: list[float]) -> None:
    given_axes = [{**axis, "values": shuffled} if "temperature" in axis["path"] else axis for axis in axes]
    plain = [ENGINE, TEMPERATURE, {"path": "load.repeats", "values": [2, 3]}]
    assert sorted(names({"spec.axes": given_axes})) == sorted(names({"spec.axes": plain}))


def test_added_values_and_combinations_do_not_change_existing_names() -> None:
    before = set(names())
    further = names({"spec.axes[0].values": ["tensorrt-llm", "vllm", "sglang"], "spec.include": [{"temperature": 2}]})
    assert before < set(further)
    assert len(set(further)) == 10


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.axes[0].name": "server", "spec.axes[1].name": "t"},
        {"spec.axes[2]": {"path": "load.repeats", "values": [3]}},
        {"spec.axes[2]": {"path": "load.order", "values": ["Interleaved"]}},
        {"spec.include": [{"engine": "vllm", "set": {"load.repeats": 3}}]},
    ],
)
def test_axis_names_and_values_of_the_template_do_not_change_names(edits: Edits) -> None:
    assert names(edits) == names()


@given(campaign=st.from_regex(r"[a-z]([a-z0-9-]{0,26}[a-z0-9])?", fullmatch=True), number=st.integers(1, 10**6))
def test_run_names_of_every_round_are_valid_and_within_the_length_limit(campaign: str, number: int) -> None:
    assert len(campaign) <= CAMPAIGN_NAME_MAX
    name = run_name(campaign, run_of().spec, number)
    assert len(name) <= NAME_MAX
    assert re.fullmatch(NAME, name)
    assert len(client_name(name, 511, 99)) <= 63
    assert campaign_in_name(name) == campaign


@pytest.mark.draws
def test_later_rounds_append_a_suffix_to_run_names_and_the_first_round_does_not() -> None:
    assert run_name("n", run_of().spec, 1) == f"n-{hashed()}"
    assert names(number=2) == [f"{name}-2" for name in names()]
    suffixes = {run_name("n", run_of().spec, number) for number in range(1, ROUND_NAMES + 1)}
    assert {campaign_in_name(name) for name in suffixes} == {"n"}
    assert len(suffixes) == ROUND_NAMES
    assert run_name("n", run_of().spec, 36) == f"n-{hashed()}-10"


# Exclude and include are set operations on combinations; every accepted campaign can be run.

VALUES: dict[str, list[Any]] = {
    "engine": ["vllm", "sglang", "llama-cpp"],
    "tokens": [8, 16, 32],
    "temperature": [0, 0.7, 1.0],
}
PATHS = {
    "engine": "engine.kind",
    "tokens": "workloads[0].output.maxTokens",
    "temperature": "workloads[0].sampling.temperature",
}
AXES = [{"name": name, "path": PATHS[name], "values": values} for name, values in VALUES.items()]
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}).filter(bool),
    max_size=4,
)
NEW_ROWS = st.lists(
    st.fixed_dictionaries({"temperature": st.sampled_from([0.1, 0.2]), "engine": st.sampled_from(VALUES["engine"])}),
    max_size=3,
)
Row = dict[str, Any]


def remaining_combinations(exclude: list[Row], include: list[Row] | None = None) -> list[tuple[Any, ...]]:
    found, _ = combinations(_campaign(exclude, include or []).spec)
    return [_cell(combination) for combination in found]


def _campaign(exclude: list[Row], include: list[Row]) -> Any:
    return campaign_of({"spec.axes": AXES, "spec.exclude": exclude, "spec.include": include})


def _cell(combination: Combination) -> tuple[Any, ...]:
    return tuple(key_of(combination.values.get(name)) for name in VALUES)


def excluded(exclude: list[Row]) -> set[tuple[Any, ...]]:
    """The excluded combinations by definition: those that have all values of some row."""
    whole = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
    return {
        tuple(key_of(value) for value in combination.values())
        for combination in whole
        for row in exclude
        if all(combination[name] == value for name, value in row.items())
    }


WHOLE = {tuple(key_of(value) for value in values) for values in product(*VALUES.values())}


@given(exclude=ROWS)
def test_exclude_removes_exactly_the_combinations_that_match_a_row(exclude: list[Row]) -> None:
    remaining = WHOLE - excluded(exclude)
    try:
        assert set(remaining_combinations(exclude)) == remaining
    except InvalidSpec:
        assert not remaining


@settings(max_examples=40)
@given(exclude=ROWS, include=NEW_ROWS, further=NEW_ROWS)
def test_include_appends_combinations_and_removes_none(
    exclude: list[Row], include: list[Row], further: list[Row]
) -> None:
    if WHOLE - excluded(exclude):
        fewer, more = remaining_combinations(exclude, include), remaining_combinations(exclude, [*include, *further])
        assert more[: len(fewer)] == fewer
        assert len(fewer) == len(remaining_combinations(exclude)) + len(include)


@settings(max_examples=12)
@given(exclude=ROWS, include=NEW_ROWS, repeats=st.integers(1, 4))
def test_runs_of_a_round_have_distinct_names_and_distinct_measurements(
    exclude: list[Row], include: list[Row], repeats: int
) -> None:
    row = {"engine": "vllm", "set": {"load.repeats": repeats}}
    try:
        plan: CampaignPlan = expand_campaign(_campaign(exclude, [*include, row]))
    except InvalidSpec:
        return
    measured = [canonical_run(run.run.spec) for run in plan.runs]
    assert len({run.name for run in plan.runs}) == len(plan.runs)
    assert len({key_of(each) for each in measured}) == len(plan.runs)
    assert [run.name for run in plan.runs] == [f"nightly-{run_hash(run.run.spec)}" for run in plan.runs]


@pytest.mark.draws
@settings(max_examples=12)
@given(include=NEW_ROWS, order=st.randoms(use_true_random=False))
def test_the_order_of_include_rows_changes_only_the_order_of_runs(include: list[Row], order: Any) -> None:
    rows = [*include, {"engine": "vllm", "set": {"load.repeats": 2}}, {"tokens": 8, "set": {"load.requests": 4}}]
    shuffled = order.sample(rows, len(rows))
    first, second = (expand_campaign(_campaign([], each)).runs for each in (rows, shuffled))
    assert {run.name: run.resource["spec"] for run in first} == {run.name: run.resource["spec"] for run in second}
