"""Expanding a campaign into runs: combinations, names and warnings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from specbench_api.campaign.expansion import CampaignPlan, expand_campaign
from specbench_api.campaign.matrix import cell_text, short_cell_text, value_text
from specbench_api.plan.expansion import expand
from specbench_api.spec.campaign_status import CELL_TEXT_MAX
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


def cells(edits: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [dict(run.cell) for run in planned(edits).runs]


def test_the_first_axis_varies_slowest_and_an_axis_without_a_name_has_the_last_word_of_its_path() -> None:
    assert cells() == [{"engine": e, "temperature": t} for e in ("vllm", "sglang") for t in (0, 0.7, 1)]


def test_a_row_of_exclude_stands_for_every_combination_that_has_its_values() -> None:
    assert cells({"spec.exclude": [{"engine": "sglang", "temperature": 1.0}, {"temperature": 0.7}]}) == [
        {"engine": "vllm", "temperature": 0},
        {"engine": "vllm", "temperature": 1},
        {"engine": "sglang", "temperature": 0},
    ]


def test_a_row_of_include_that_fits_nothing_is_a_combination_of_its_own_behind_the_others() -> None:
    found = planned({"spec.include": [{"engine": "vllm", "temperature": 1.5}]}).runs
    assert dict(found[-1].cell) == {"engine": "vllm", "temperature": 1.5}
    assert len(found) == 7
    assert found[-1].run.spec.workloads[0].sampling.temperature == 1.5


def test_a_row_of_include_that_names_no_value_of_an_axis_leaves_that_to_the_template() -> None:
    edits = {
        "spec.template.spec.workloads[0].sampling": {"temperature": 0.3},
        "spec.include": [{"engine": "llama-cpp"}],
    }
    assert cells(edits)[-1] == {"engine": "llama-cpp", "temperature": 0.3}


def test_what_include_sets_reaches_the_combinations_that_fit_and_no_other() -> None:
    found = planned({"spec.include": [{"temperature": 0.7, "set": {"load.repeats": 5, "load.requests": 9}}]}).runs
    assert [run.run.spec.load.repeats for run in found] == [3, 5, 3, 3, 5, 3]
    assert [run.run.spec.load.requests for run in found] == [None, 9, None, None, 9, None]


def test_what_include_sets_reaches_the_combination_that_it_adds() -> None:
    found = planned({"spec.include": [{"temperature": 2, "set": {"load.repeats": 5}}]}).runs
    assert [run.run.spec.load.repeats for run in found] == [3] * 6 + [5]


def test_rows_of_include_that_differ_by_what_they_set_alone_are_cells_of_their_own() -> None:
    rows = [{"engine": "vllm", "temperature": 1.5, "set": {"load.repeats": repeats}} for repeats in (4, 5)]
    told = [
        run.resource["metadata"]["annotations"]["specbench.io/cell"] for run in planned({"spec.include": rows}).runs
    ]
    assert len(set(told)) == len(told) == 8
    assert json.loads(told[-1]) == {KIND: "vllm", HEAT: 1.5, "set": {"load.repeats": 5}}


def test_include_may_bring_back_what_exclude_took() -> None:
    edits = {"spec.exclude": [{"temperature": 1}], "spec.include": [{"engine": "vllm", "temperature": 1.0}]}
    assert len(cells(edits)) == 5


def test_without_axes_the_template_is_the_one_run() -> None:
    (run,) = planned({"spec.axes": MISSING}).runs
    assert (dict(run.cell), cell_text(run.cell)) == ({}, "the template")


def test_a_value_may_be_a_whole_list_and_null_takes_a_field_away() -> None:
    axes = [
        {"path": "drafters", "values": [[DRAFTERS[1]], DRAFTERS]},
        {"path": "load.requests", "values": [4, None]},
    ]
    found = planned({"spec.axes": axes, "spec.template.spec.engine.kind": "vllm"}).runs
    assert [(len(run.run.spec.drafters), run.run.spec.load.requests) for run in found] == [
        (1, 4), (1, None), (2, 4), (2, None),
    ]  # fmt: skip
    assert cell_text(found[2].cell) == "drafters=eagle3+ngram requests=4"


def test_a_row_goes_by_its_name_and_a_key_with_dots_in_quotes() -> None:
    axes = [
        {"path": "workloads[name=chat].output.maxTokens", "values": [20, 50]},
        {"name": "gpu", "path": 'placement.nodeSelector["nvidia.com/gpu.product"]', "values": ["H100", "H200"]},
    ]
    found = planned({"spec.axes": axes}).runs
    assert [run.run.spec.workloads[0].output.max_tokens for run in found] == [20, 20, 50, 50]
    assert found[1].run.spec.placement.node_selector == {"nvidia.com/gpu.product": "H200"}


def test_a_whole_object_is_put_in_before_its_fields_whatever_the_order_of_the_axes() -> None:
    load = {"path": "load", "values": [{"concurrency": [4]}, {"concurrency": [8]}]}
    repeats = {"path": "load.repeats", "values": [1, 2]}
    names = [{run.name for run in planned({"spec.axes": axes}).runs} for axes in ([load, repeats], [repeats, load])]
    assert names[0] == names[1]
    assert len(names[0]) == 4


def test_each_run_is_one_that_a_user_could_have_written() -> None:
    for run in planned({"spec.template.metadata": {"labels": {"team": "a"}, "annotations": {"why": "x"}}}).runs:
        read = parse_run(run.resource)
        assert read == run.run
        assert expand(read) == run.plan
        assert run.plan.name == read.metadata.name == run.name


def test_a_run_says_whose_it_is_and_what_its_combination_is() -> None:
    edits = {"metadata.uid": "u-1", "spec.template.metadata": {"labels": {"team": "a"}, "annotations": {"why": "x"}}}
    metadata = planned(edits, number=3).runs[1].resource["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["labels"] == {
        "team": "a",
        "specbench.io/campaign": "nightly",
        "specbench.io/campaign-uid": "u-1",
        "specbench.io/round": "3",
    }
    assert metadata["annotations"]["why"] == "x"
    assert json.loads(metadata["annotations"]["specbench.io/cell"]) == {KIND: "vllm", HEAT: 0.7}


def test_a_cell_is_the_same_text_from_a_file_and_from_the_api_server() -> None:
    """Which keeps 1.0 as 1."""
    written = planned().runs[2].resource["metadata"]["annotations"]
    assert written == {"specbench.io/cell": f'{{"{KIND}":"vllm","{HEAT}":1}}'}


def test_a_cell_stays_the_same_when_its_axes_are_renamed_reordered_or_spelt_otherwise() -> None:
    """By it a run finds the baseline of an earlier round."""
    gpu = {"name": "gpu", "path": 'placement.nodeSelector["gpu"]', "values": ["H100", "H200"]}
    heat = {"path": HEAT, "values": [0, 0.7]}
    told = [
        {run.resource["metadata"]["annotations"]["specbench.io/cell"] for run in planned({"spec.axes": axes}).runs}
        for axes in (
            [gpu, heat],
            [{**heat, "name": "how-hot"}, {**gpu, "name": "card", "path": "placement.nodeSelector.gpu"}],
        )
    ]
    assert len(told[0]) == 4
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("edits", "says"),
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
def test_likely_mistakes_are_warnings(edits: dict[str, Any], says: str) -> None:
    warned = planned(edits)
    assert any(re.search(says, line) for line in warned.warnings)
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
def test_a_value_is_told_in_few_words(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_the_text_of_a_combination_fits_into_a_row_of_status() -> None:
    cell = {f"axis-{number}": "v" * 30 for number in range(8)}
    assert len(short_cell_text(cell)) == CELL_TEXT_MAX < len(cell_text(cell))


def test_every_run_of_a_matrix_may_carry_on_the_newest_results_of_its_own_name() -> None:
    found = planned({"spec.template.spec.results.adopt": "Latest", "metadata.uid": "u-1"}).runs
    assert {run.run.spec.results.adopt for run in found} == {"Latest"}
    assert {run.name for run in found} == {run.name for run in planned().runs}, "it is no part of what is measured"
    assert {run.plan.uid for run in found} == {""}, "whose results those are, S3 says"


def test_runs_of_later_rounds_begin_anew() -> None:
    """A campaign that was lost counts its rounds anew, and old answers lie under the names of its next rounds."""
    latest = {"spec.template.spec.results.adopt": "Latest"}
    later = planned(latest, number=2).runs
    assert {run.run.spec.results.adopt for run in later} == {None}
    assert not [run for run in later if "adopt" in run.resource["spec"]["results"]]
    bucket = planned(latest).runs[0].run.spec.results.s3
    assert all(run.run.spec.results.s3 == bucket for run in later)
