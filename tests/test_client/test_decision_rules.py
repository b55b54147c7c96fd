"""Rules of thumb compared with measurements: which cells they apply to, and their verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.outcome.recommendation import RuleReading, RuleVerdict
from specbench_api.outcome.summary import ArmEnvironment, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.decision.rules_of_thumb import RULES, RatioRange, read_rules
from specbench_testing.decision_summaries import Given, plan_of, summary_of

PLAN = plan_of()
AGREES, CONTRADICTS, UNCLEAR = RuleVerdict.AGREES, RuleVerdict.CONTRADICTS, RuleVerdict.UNCLEAR
TREE = {"name": "tree", "method": "eagle3", "model": "e", "eagleTopk": 4, "numDraftTokens": 21}
CHAIN = {"name": "eagle3", "method": "eagle3", "model": "e", "numSpeculativeTokens": 3}
DRAFT = {"name": "draft", "method": "draft_model", "model": "small"}


def reading(rule: str, *cells: Given, plan: Plan = PLAN, summary: RunSummary | None = None) -> RuleReading:
    return next(each for each in read_rules(plan, summary or summary_of(*cells)) if each.rule == rule)


@pytest.mark.parametrize(
    ("rule", "cell", "expected"),
    [
        ("acceptance-under-55", Given("ngram", gain=0.9, acceptance=0.4), AGREES),
        ("acceptance-under-55", Given("ngram", gain=1.5, acceptance=0.4), CONTRADICTS),
        ("acceptance-under-55", Given("ngram", gain=1.05, acceptance=0.4), UNCLEAR),
        ("acceptance-55-to-60", Given("ngram", gain=1.0, half=0.02, acceptance=0.57), AGREES),
        ("acceptance-over-65", Given("ngram", gain=1.4, acceptance=0.7), AGREES),
        ("acceptance-over-65", Given("ngram", gain=0.48, acceptance=0.96), CONTRADICTS),
        ("acceptance-60-with-5-drafts", Given("eagle3-long", gain=1.6, acceptance=0.62), CONTRADICTS),
        ("acceptance-60-with-5-drafts", Given("eagle3-long", gain=2.4, acceptance=0.62), AGREES),
        ("concurrency-1-to-10", Given("ngram", 8, gain=2.5), AGREES),
        ("concurrency-10-to-30", Given("ngram", 16, gain=1.5), AGREES),
        ("concurrency-32", Given("ngram", 32, gain=1.3), CONTRADICTS),
        ("concurrency-64", Given("ngram", 64, gain=0.9), AGREES),
        ("concurrency-64", Given("ngram", 64, gain=1.3, repeats=2), UNCLEAR),
    ],
)
def test_rule_is_compared_with_the_speedup_of_each_cell(rule: str, cell: Given, expected: RuleVerdict) -> None:
    found = reading(rule, Given("none", cell.load), cell)
    assert (found.verdict, len(found.cases)) == (expected, 1)
    assert found.cases[0].measured.startswith(f"{cell.gain:.2f}x")


@pytest.mark.parametrize(
    ("rule", "cell"),
    [
        ("acceptance-under-55", Given("ngram", gain=0.9, acceptance=0.55)),
        ("acceptance-under-55", Given("ngram", gain=0.9)),
        ("acceptance-60-with-5-drafts", Given("eagle3", gain=2.4, acceptance=0.9)),
        ("concurrency-32", Given("ngram", 64, gain=1.3)),
        ("concurrency-32", Given("ngram", 40.0, gain=1.3)),
        ("concurrency-1-to-10", Given("ngram", 1, gain=2.5, valid=False)),
        ("temperature-over-1", Given("ngram", gain=2.5)),
    ],
)
def test_rule_does_not_apply_to_cells_outside_its_condition(rule: str, cell: Given) -> None:
    found = reading(rule, Given("none", cell.load), cell)
    assert (found.verdict, found.cases) == (RuleVerdict.NOT_APPLICABLE, [])
    assert found.reason


def test_one_contradiction_is_enough() -> None:
    cells = [Given("ngram", 64, gain=0.8), Given("eagle3", 64, gain=1.2)]
    assert reading("concurrency-64", *cells).verdict is CONTRADICTS


def test_temperature_is_taken_from_the_workload() -> None:
    (workload,) = PLAN.workloads
    sampling = workload.sampling.model_copy(update={"temperature": 1.2})
    hot = [workload.model_copy(update={"sampling": sampling})]
    plan = PLAN.model_copy(update={"workloads": hot})
    assert reading("temperature-over-1", Given("ngram", gain=1.5), plan=plan).verdict is CONTRADICTS


def test_draft_lengths_are_compared_with_each_other() -> None:
    cells = [Given("eagle3", gain=1.4), Given("eagle3-long", gain=1.8)]
    found = reading("draft-length-5-to-7", *cells)
    assert [(case.arm, case.because) for case in found.cases] == [("eagle3-long over eagle3", "7 against 3 drafts")]
    assert found.verdict is AGREES
    assert found.cases[0].measured == "1.29x [1.23, 1.34]"


def test_chains_are_compared_with_trees_at_the_same_batch() -> None:
    plan = plan_of([CHAIN, TREE])
    cells = [Given("tree", 64, gain=0.58), Given("eagle3", 64, gain=1.31), Given("tree", 1, gain=1.85)]
    assert reading("chain-over-tree", *cells, plan=plan).verdict is AGREES
    assert reading("big-tree-at-64", *cells, plan=plan).verdict is AGREES
    assert reading("big-tree-at-64", Given("tree", 64, gain=1.2), plan=plan).verdict is CONTRADICTS


def test_eagle3_is_compared_with_others_only_at_the_same_load() -> None:
    cells = [Given("eagle3", 1, gain=1.4), Given("ngram", 1, gain=1.8), Given("ngram", 8, gain=1.1)]
    found = reading("eagle3-all-round", *cells)
    assert [case.arm for case in found.cases] == ["eagle3 over ngram"]
    assert found.verdict is CONTRADICTS


@pytest.mark.parametrize(("share", "applies"), [(5, False), (20, True), (80, False)])
def test_draft_model_size_is_the_ratio_of_reported_weights(share: int, applies: bool) -> None:
    sizes: dict[str, Any] = {FactName.WEIGHTS_BYTES: 1e9, FactName.DRAFTER_WEIGHTS_BYTES: 1e9 / share}
    seen = ArmEnvironment(
        arm="draft", launches=[], facts={name: Fact.observed(value, "s") for name, value in sizes.items()}
    )
    summary = summary_of(Given("draft", gain=1.5)).model_copy(update={"arm_environments": [seen]})
    found = reading("draft-model-size", plan=plan_of([DRAFT]), summary=summary)
    assert bool(found.cases) == applies


def test_each_rule_has_a_unique_name_a_source_and_one_kind_of_evaluation() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        kinds = [rule.condition is not None, rule.pairs is not None, bool(rule.unmeasured)]
        assert rule.source
        assert kinds.count(True) == 1, rule.name


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0.01, 5), st.floats(0, 1))
def test_ratio_range_verdict_matches_the_interval(low: float, width: float, at: float, half: float) -> None:
    found = RatioRange(low, low + width, "w").verdict(at - half, at + half)
    if found is AGREES:
        assert low <= at <= low + width
    if found is CONTRADICTS:
        assert not low <= at <= low + width
