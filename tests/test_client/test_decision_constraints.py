"""Constraints that rule arms out, and the cost of training a drafter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.outcome.recommendation import Recommendation, RecommendationAnswer
from specbench_api.outcome.summary import ArmEnvironment
from specbench_api.spec.drafter import Method
from specbench_client.analysis.decision.costs import training_cost
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import Constraints, RecommendationRequest, paradigm_of
from specbench_client.cli.decide import prices_from_options
from specbench_client.documents.prices import Prices
from specbench_client.report.text.decision import decision_lines, decision_markdown
from specbench_testing.decision_summaries import Given, plan_of, summary_of

ARMS: list[dict[str, Any]] = [
    {"name": "eagle3", "method": "eagle3", "model": "e"},
    {"name": "draft", "method": "draft_model", "model": "small"},
    {"name": "mtp", "method": "mtp"},
    {"name": "ngram", "method": "ngram"},
]
PLAN = plan_of(drafters=ARMS, placement={"gpus": 1})
CELLS = (
    Given("none"),
    Given("eagle3", tps=200, gain=2.0),
    Given("mtp", tps=180, gain=1.8),
    Given("draft", tps=160, gain=1.6),
    Given("ngram", tps=130, gain=1.3),
)
NO_TRAINING = Constraints(can_train=False)
FREE = Prices.model_validate({"gpuHour": {"*": 2.0}, "trained": {"eagle3": {"paradigm": "training-free"}}})


def decide(
    constraints: Constraints, *cells: Given, prices: Prices | None = None, gb: float | None = None
) -> Recommendation:
    """Recommend under constraints; `gb` is the reported weight size of drafter eagle3."""
    summary = summary_of(*(cells or CELLS))
    if gb is not None:
        fact = Fact.observed(gb * 1e9, "the engine")
        seen = ArmEnvironment(arm="eagle3", launches=["0-a"], facts={FactName.DRAFTER_WEIGHTS_BYTES: fact})
        summary = summary.model_copy(update={"arm_environments": [seen]})
    return recommend(PLAN, summary, RecommendationRequest(constraints=constraints, prices=prices))


@pytest.mark.parametrize(
    ("constraints", "inputs", "arm", "out"),
    [
        (Constraints(), {}, "eagle3", set()),
        (NO_TRAINING, {}, "mtp", {"eagle3"}),
        (NO_TRAINING, {"prices": FREE}, "eagle3", set()),
        (Constraints(spare_memory_gb=0), {}, "ngram", {"eagle3", "mtp", "draft"}),
        (Constraints(spare_memory_gb=1), {"gb": 1.8}, "mtp", {"eagle3"}),
        (Constraints(spare_memory_gb=2), {"gb": 1.8}, "eagle3", set()),
        (Constraints(spare_memory_gb=2), {}, "eagle3", set()),
    ],
)
def test_constraint_rules_arms_out_and_the_best_remaining_arm_is_chosen(
    constraints: Constraints, inputs: dict[str, Any], arm: str, out: set[str]
) -> None:
    found = decide(constraints, **inputs)
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.DRAFTER, arm)
    assert {each.arm for each in choice.at_each_load} == {arm}
    assert set(found.ruled_out) == out
    assert all(name in choice.reason for name in out)
    assert {each.arm for each in found.candidates} == {cell.arm for cell in CELLS}, "candidates still list every arm"


def test_baseline_is_recommended_with_a_reason_when_no_drafter_is_left() -> None:
    found = decide(Constraints(spare_memory_gb=0), Given("none"), Given("eagle3", gain=2.0))
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.NO_DRAFTER, "none")
    assert choice.reason.startswith("no drafter is left; ruled out: eagle3 (needs memory of its own)")
    assert found.sentence.startswith("For throughput, without spare memory: no drafter pays")


def test_arm_with_lossy_verification_is_ruled_out_and_named() -> None:
    fly = {**ARMS[0], "speculativeConfig": {"rejection_sample_method": "fly"}}
    plan = plan_of(drafters=[fly, *ARMS[1:]], engine={"kind": "vllm"}, placement={"gpus": 1})
    found = recommend(plan, summary_of(*CELLS), RecommendationRequest())
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.DRAFTER, "mtp")
    assert found.ruled_out == {"eagle3": "lossy verification: speculativeConfig.rejection_sample_method: fly"}
    assert found.sentence.startswith("For throughput, without eagle3 (lossy verification): use mtp at ")


def test_constraint_without_a_baseline_gives_no_recommendation() -> None:
    found = decide(NO_TRAINING, Given("eagle3", gain=2.0), Given("ngram", gain=1.5))
    assert found.choices[0].answer is RecommendationAnswer.CANNOT_TELL


def test_unknown_drafter_memory_is_reported_and_rules_nothing_out() -> None:
    limits = decide(Constraints(spare_memory_gb=2), gb=1.8).limits
    assert any("It is not known whether draft, mtp fits into the spare memory" in each for each in limits)


@given(st.sampled_from([each for each in Method if each not in (Method.NONE, Method.CUSTOM)]))
def test_every_method_has_a_training_paradigm(method: Method) -> None:
    drafter = PLAN.arm("eagle3").drafter
    assert drafter is not None
    free = {Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD, Method.DRAFT_MODEL}
    expected = "training-free" if method in free else "co-trained" if method is Method.MTP else "post-hoc"
    assert paradigm_of(drafter.model_copy(update={"method": method}), None) == expected


# -- training cost -----------------------------------------------------------------------------------------------------


def trained(**terms: Any) -> Prices:
    return Prices.model_validate({"gpuHour": {"*": 2.5}, "requestsUntilRetrain": 1000, "trained": {"eagle3": terms}})


@pytest.mark.parametrize(
    ("terms", "cost"),
    [({"gpuHours": 24}, 60.0), ({"gpuHours": 24, "gpuHour": 4.0}, 96.0), ({"gpuHours": 0}, 0.0), ({}, 0.0)],
)
def test_training_hours_are_charged_at_the_gpu_hour_price(terms: dict[str, Any], cost: float) -> None:
    assert training_cost("eagle3", trained(**terms)) == cost
    assert training_cost("ngram", trained(**terms)) == 0


def test_training_hours_add_to_the_fixed_cost_and_spread_over_requests() -> None:
    both = trained(gpuHours=24).model_copy(update={"training": {"eagle3": 40.0}})
    without, with_training = (decide(Constraints(), prices=each) for each in (trained(), both))
    costs = [
        next(each for each in found.candidates if each.arm == "eagle3").figures["cost_per_request"].value
        for found in (without, with_training)
    ]
    assert costs[0] is not None
    assert costs[1] == pytest.approx(costs[0] + 100 / 1000)


@pytest.mark.parametrize(
    ("prices", "where"),
    [
        ({"machineHour": 1, "requestsUntilRetrain": 9, "trained": {"eagle3": {"gpuHours": 3}}}, "eagle3.gpuHour"),
        ({"gpuHour": {"*": 1}, "trained": {"nobody": {}}}, "trained.nobody"),
        ({"gpuHour": {"*": 1}, "trained": {"eagle3": {"gpuHours": 3}}}, "requestsUntilRetrain"),
    ],
)
def test_missing_training_price_is_rejected_with_its_field(prices: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidSpec, match=where):
        decide(Constraints(), prices=Prices.model_validate(prices))


def test_upkeep_reports_training_and_its_retraining_trigger() -> None:
    found = decide(Constraints(), prices=trained(gpuHours=24, againWith="target"))
    upkeep = "eagle3: post-hoc, trained in 24 GPU-hours, 60 USD in all, to be trained again with each target"
    assert found.upkeep == [upkeep]
    assert f"upkeep: {upkeep}" in decision_lines(found)
    assert f"- Upkeep: {upkeep}" in decision_markdown(found)


def test_training_hours_flag_overrides_the_file_and_keeps_its_other_fields(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("trained: {eagle3: {gpuHours: 1, againWith: target}}", encoding="utf-8")
    found = prices_from_options(file, {}, [], ["eagle3=24"])
    assert found is not None
    assert (found.trained["eagle3"].gpu_hours, found.trained["eagle3"].again_with) == (24, "target")
    with pytest.raises(InvalidSpec, match="--training-gpu-hours: 'eagle3' is not ARM=HOURS"):
        prices_from_options(None, {}, [], ["eagle3"])
