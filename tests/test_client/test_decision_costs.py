"""Costs: identities that hold for any prices, and errors for missing prices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.plan.plan import Plan
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import Prices, RecommendationRequest
from specbench_client.documents.recommendation import (
    Candidate,
    Objective,
    Recommendation,
    RecommendationAnswer,
    SloTarget,
)
from specbench_client.documents.summary import ArmEnvironment, RunSummary
from specbench_testing.decision_summaries import TOKENS, Given, plan_of, summary_of
from specbench_testing.present import present

ON_GPUS = plan_of(placement={"gpus": 4})
DRAFTER = {"name": "eagle3", "method": "eagle3", "model": "e"}
WITHOUT_GPUS = plan_of(drafters=[DRAFTER])
PRICE = Prices(gpu_hour={"*": 2.5})
CELLS = (Given("none", tps=100), Given("eagle3", tps=160, gain=1.6))


def decide(*cells: Given, prices: Prices = PRICE, **options: Any) -> Recommendation:
    return recommend(ON_GPUS, summary_of(*cells), RecommendationRequest(Objective.COST, prices=prices, **options))


def candidate_of(found: Recommendation, arm: str) -> Candidate:
    return next(each for each in found.candidates if each.arm == arm)


def value(candidate: Candidate, name: str) -> float:
    figure = candidate.figures[name]
    return present(figure.value)


def test_cost_is_the_price_of_an_hour_over_its_requests() -> None:
    """By hand.

    4 GPUs at 2.50 cost 10 an hour; 100 tokens/s are 3,600 requests of 100 tokens an hour, or 0.36M tokens.
    """
    found = decide(*CELLS)
    base = candidate_of(found, "none")
    assert value(base, "requests_per_hour") == pytest.approx(3600)
    assert value(base, "cost_per_request") == pytest.approx(10 / 3600)
    assert value(base, "cost_per_million_output_tokens") == pytest.approx(10 / 0.36)
    assert value(candidate_of(found, "eagle3"), "cost_saved") == pytest.approx(1 - 1 / 1.6)
    assert (found.choices[0].answer, found.choices[0].arm) == (RecommendationAnswer.DRAFTER, "eagle3")
    assert found.prices == "2.5 USD a GPU-hour x 4 GPUs"
    assert base.figures["cost_per_request"].unit == "USD"


def test_cost_interval_is_the_inverted_throughput_interval() -> None:
    rate = candidate_of(decide(*CELLS), "none").figures["cost_per_request"]
    assert rate.interval is not None
    assert rate.interval.low < present(rate.value) < rate.interval.high
    assert rate.interval.high == pytest.approx(10 / (3600 * 0.97), rel=0.001)


HOURS = st.floats(0.01, 1000)
TPS = st.floats(1, 1e5)


@settings(max_examples=40)
@given(HOURS, TPS, st.floats(0.3, 4))
def test_cost_identities_hold_for_any_prices(hour: float, tps: float, gain: float) -> None:
    prices = Prices(machine_hour=hour)
    found = decide(Given("none", tps=tps), Given("eagle3", tps=tps * gain, gain=gain), prices=prices)
    base, arm = candidate_of(found, "none"), candidate_of(found, "eagle3")
    for each in (base, arm):
        assert value(each, "cost_per_request") * value(each, "requests_per_hour") == pytest.approx(hour)
        per_million = value(each, "cost_per_million_output_tokens")
        assert per_million == pytest.approx(value(each, "cost_per_request") / TOKENS * 1e6)
    assert arm.gain is not None
    assert arm.gain.value is not None
    assert arm.gain.value == pytest.approx(value(base, "cost_per_request") / value(arm, "cost_per_request"))
    assert value(arm, "cost_saved") == pytest.approx(1 - 1 / arm.gain.value)
    assert arm.gain.value == pytest.approx(gain), "at equal prices the cost ratio is the speed-up"


def test_cost_is_compared_only_if_both_arms_meet_the_targets() -> None:
    target = SloTarget(metric="tpot_ms", limit_ms=30)
    slow = Given("none", tps=100, tpot=40)
    found = decide(slow, Given("eagle3", tps=160, gain=1.6, tpot=20), targets=(target,))
    arm = candidate_of(found, "eagle3")
    assert arm.gain is None
    assert "cost_saved" not in arm.figures
    assert found.choices[0].arm == "eagle3", "only eagle3 meets the target"


def test_arms_with_different_best_loads_are_compared_at_their_own_costs() -> None:
    """Each arm is taken at its best load within the targets; the cost is a third."""
    cells = [Given("none", 8, tps=300, tpot=20), Given("none", 32, tps=700, tpot=50)]
    cells += [Given("eagle3", load, tps=tps, gain=1.5, tpot=20) for load, tps in ((8, 450), (32, 900))]
    (choice,) = decide(*cells, targets=(SloTarget(metric="tpot_ms", limit_ms=30),)).choices
    assert (choice.arm, choice.load, choice.baseline_load) == ("eagle3", "32", "8")
    assert present(choice.gain).value == pytest.approx(3)


def with_gpus(count: float, source: str = "s") -> RunSummary:
    """Return the summary of a run whose engines reported so many GPUs."""
    facts = {FactName.GPU: Fact.observed("NVIDIA H100", "s"), FactName.GPU_COUNT: Fact.observed(count, source)}
    seen = [ArmEnvironment(arm=arm, launches=["0-a"], facts=facts) for arm in ("none", "eagle3")]
    return summary_of(*CELLS).model_copy(update={"arm_environments": seen})


def prices_of(prices: Prices, plan: Plan = ON_GPUS, summary: RunSummary | None = None) -> str:
    return recommend(plan, summary or summary_of(*CELLS), RecommendationRequest(prices=prices)).prices


@pytest.mark.parametrize(
    ("prices", "plan", "summary", "expected"),
    [
        (PRICE, ON_GPUS, None, "2.5 USD a GPU-hour x 4 GPUs"),
        (PRICE.model_copy(update={"gpus": 8}), WITHOUT_GPUS, None, "2.5 USD a GPU-hour x 8 GPUs"),
        (
            Prices(gpu_hour={"NVIDIA H100": 3.0, "*": 1.0}),
            WITHOUT_GPUS,
            with_gpus(2),
            "3 USD a GPU-hour x 2 GPU NVIDIA H100",
        ),
    ],
    ids=["plan", "given", "observed"],
)
def test_price_of_an_hour(prices: Prices, plan: Plan, summary: RunSummary | None, expected: str) -> None:
    assert prices_of(prices, plan, summary) == expected


@pytest.mark.parametrize(
    ("prices", "plan", "summary", "message"),
    [
        (Prices(), ON_GPUS, None, "prices.gpuHour: has no price for a GPU"),
        (PRICE, WITHOUT_GPUS, None, "it is not known how many GPUs"),
        # Their median of 1.5 must not be rounded to 1.
        (PRICE, WITHOUT_GPUS, with_gpus(1.5, "the median of 2 launches"), "it is not known how many GPUs"),
        (
            Prices(gpu_hour={"NVIDIA A100": 1.0}),
            WITHOUT_GPUS,
            with_gpus(2),
            "has no price for NVIDIA H100 .*'NVIDIA H100'",
        ),
    ],
    ids=["no price", "no count", "two counts", "another GPU"],
)
def test_unknown_price_is_rejected(prices: Prices, plan: Plan, summary: RunSummary | None, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        prices_of(prices, plan, summary)


def test_cost_has_no_default_price_and_none_near_zero() -> None:
    with pytest.raises(InvalidSpec, match="there are no defaults"):
        recommend(ON_GPUS, summary_of(*CELLS), RecommendationRequest(Objective.COST))
    with pytest.raises(ValidationError, match="greater than or equal to"):
        Prices(machine_hour=1e-320)
