"""Exclude and include are set operations on combinations; every accepted campaign can be run."""

from __future__ import annotations

from itertools import product
from typing import Any

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


def cells(exclude: list[Row], include: list[Row] | None = None) -> list[tuple[Any, ...]]:
    found, _ = combinations(_campaign(exclude, include or []).spec)
    return [_cell(combination) for combination in found]


def _campaign(exclude: list[Row], include: list[Row]) -> Any:
    return campaign_of({"spec.axes": AXES, "spec.exclude": exclude, "spec.include": include})


def _cell(combination: Combination) -> tuple[Any, ...]:
    return tuple(key_of(combination.values.get(name)) for name in VALUES)


def taken(exclude: list[Row]) -> set[tuple[Any, ...]]:
    """By the definition: every combination for which a row has all its values."""
    whole = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
    return {
        tuple(key_of(value) for value in cell.values())
        for cell in whole
        for row in exclude
        if all(cell[name] == value for name, value in row.items())
    }


WHOLE = {tuple(key_of(value) for value in values) for values in product(*VALUES.values())}


@given(exclude=ROWS)
def test_exclude_takes_what_its_rows_stand_for_and_nothing_else(exclude: list[Row]) -> None:
    left = WHOLE - taken(exclude)
    try:
        assert set(cells(exclude)) == left
    except InvalidSpec:
        assert not left


@settings(max_examples=40)
@given(one=ROWS, other=ROWS)
def test_what_two_lists_of_exclude_leave_is_what_both_leave(one: list[Row], other: list[Row]) -> None:
    if WHOLE - taken(one) - taken(other):
        assert set(cells([*one, *other])) == set(cells(one)) & set(cells(other))


@settings(max_examples=40)
@given(exclude=ROWS, include=NEW_ROWS, further=NEW_ROWS)
def test_include_adds_and_takes_nothing_away(exclude: list[Row], include: list[Row], further: list[Row]) -> None:
    if WHOLE - taken(exclude):
        fewer, more = cells(exclude, include), cells(exclude, [*include, *further])
        assert more[: len(fewer)] == fewer
        assert len(fewer) == len(cells(exclude)) + len(include)


@settings(max_examples=12)
@given(exclude=ROWS, include=NEW_ROWS, repeats=st.integers(1, 4))
def test_no_two_runs_of_a_round_have_one_name_and_each_measures_what_no_other_does(
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


@settings(max_examples=12)
@given(include=NEW_ROWS, order=st.randoms(use_true_random=False))
def test_the_order_of_include_rows_changes_the_order_of_runs_alone(include: list[Row], order: Any) -> None:
    rows = [*include, {"engine": "vllm", "set": {"load.repeats": 2}}, {"tokens": 8, "set": {"load.requests": 4}}]
    shuffled = order.sample(rows, len(rows))
    first, second = (expand_campaign(_campaign([], each)).runs for each in (rows, shuffled))
    assert {run.name: run.resource["spec"] for run in first} == {run.name: run.resource["spec"] for run in second}
