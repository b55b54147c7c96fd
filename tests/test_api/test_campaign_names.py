"""The name of a campaign's run is a hash of what it measures; other edits do not change it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.campaign.names import ROUND_NAMES, campaign_in_name, run_hash, run_name
from specbench_api.plan.canonical import RUN_SCHEMA, canonical_run
from specbench_api.plan.names import client_name
from specbench_api.spec.campaign import CAMPAIGN_NAME_MAX
from specbench_api.spec.run import NAME, NAME_MAX
from specbench_testing.campaigns import ENGINE, TEMPERATURE, campaign_of
from specbench_testing.resources import run_of

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
