"""Exclude and include are set operations on combinations; every accepted campaign can be run."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.campaign.expansion import CampaignPlan, expand_campaign
from specbench_api.campaign.matrix import Combination, combinations, key_of
from specbench_api.campaign.names import run_hash
from specbench_api.errors import InvalidSpec
from specbench_api.plan.canonical import canonical_run
from specbench_testing.campaigns import campaign_of

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
