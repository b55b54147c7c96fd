"""Constraints that rule arms out."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.plan.plan import Arm
from specbench_api.spec.drafter import Method
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import Constraints, RecommendationRequest, ruled_out
from specbench_client.documents.recommendation import Recommendation, RecommendationAnswer
from specbench_client.documents.summary import ArmEnvironment
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


def decide(constraints: Constraints, *cells: Given, gb: float | None = None) -> Recommendation:
    """Recommend under constraints; `gb` is the reported weight size of drafter eagle3."""
    summary = summary_of(*(cells or CELLS))
    if gb is not None:
        fact = Fact.observed(gb * 1e9, "the engine")
        seen = ArmEnvironment(arm="eagle3", launches=["0-a"], facts={FactName.DRAFTER_WEIGHTS_BYTES: fact})
        summary = summary.model_copy(update={"arm_environments": [seen]})
    return recommend(PLAN, summary, RecommendationRequest(constraints=constraints))


@pytest.mark.parametrize(
    ("constraints", "inputs", "arm", "out"),
    [
        (Constraints(), {}, "eagle3", set()),
        (NO_TRAINING, {}, "mtp", {"eagle3"}),
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


def test_unknown_drafter_memory_is_reported_and_rules_nothing_out() -> None:
    limits = decide(Constraints(spare_memory_gb=2), gb=1.8).limits
    assert any("It is not known whether draft, mtp fits into the spare memory" in each for each in limits)


@pytest.mark.parametrize("method", [each for each in Method if each not in (Method.NONE, Method.CUSTOM)])
def test_only_post_hoc_drafters_need_training(method: Method) -> None:
    drafter = PLAN.arm("eagle3").drafter
    assert drafter is not None
    arms = [Arm.model_construct(name="arm", drafter=drafter.model_copy(update={"method": method}))]
    found = ruled_out(
        PLAN.model_copy(update={"arms": arms}), summary_of(), RecommendationRequest(constraints=NO_TRAINING)
    )
    without = {Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD, Method.DRAFT_MODEL, Method.MTP}
    assert ("arm" in found) == (method not in without)
