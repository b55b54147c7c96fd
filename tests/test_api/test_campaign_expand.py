"""Expanding a campaign into runs: combinations, names and warnings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from specbench_api.campaign.expansion import CampaignPlan, expand_campaign
from specbench_api.campaign.matrix import combination_text, short_combination_text, value_text
from specbench_api.plan.expansion import expand
from specbench_api.spec.campaign_status import COMBINATION_TEXT_MAX
from specbench_api.spec.parsing import parse_run
from specbench_testing.campaigns import ENGINE, campaign_of
from specbench_testing.resources import MISSING

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


def test_runs_of_later_rounds_adopt_no_results() -> None:
    """A recreated campaign counts rounds from 1 again, so results of old rounds exist under the names of new ones."""
    latest = {"spec.template.spec.results.adopt": "Latest"}
    later = planned(latest, number=2).runs
    assert {run.run.spec.results.adopt for run in later} == {None}
    assert not [run for run in later if "adopt" in run.resource["spec"]["results"]]
