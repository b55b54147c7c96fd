"""Overlap bins: every answer is in one bin per measure, and an arm's speed-up is that of its prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.recommendation import RuleVerdict
from specbench_api.spec.drafter import Method
from specbench_client.analysis.decision.rules_of_thumb import RuleCell
from specbench_client.analysis.what_if.prompt_overlap import (
    BIN_EDGES,
    NO_HIGH_OVERLAP,
    NOT_BOTH_DRAFTERS,
    AnswerOverlaps,
    bin_indexes,
    overlap_bins,
    overlap_rule,
)
from specbench_client.documents.what_if import OverlapBin
from specbench_testing.decision_summaries import figure

SHARES = st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1)), min_size=1, max_size=30)


@given(SHARES)
def test_every_answer_with_an_overlap_is_in_exactly_one_bin(values: list[float]) -> None:
    array = np.array(values)
    found = overlap_bins(
        AnswerOverlaps(["p"] * len(values), {"copied_share": array, "bleu4": np.full(len(values), np.nan)})
    )
    assert {each.by for each in found} <= {"copied_share"}
    answers_per_value = np.sum([each.answers for each in found], axis=0) if found else np.zeros(len(values))
    assert answers_per_value.tolist() == (~np.isnan(array)).astype(int).tolist()
    for each in found:
        assert ((array[each.answers] >= each.low) & (array[each.answers] <= each.high)).all()


@pytest.mark.parametrize(("value", "place"), [(0.0, 0), (0.2, 1), (0.79, 3), (1.0, len(BIN_EDGES) - 2)])
def test_bin_edge_belongs_to_the_bin_above_and_1_to_the_last(value: float, place: int) -> None:
    assert bin_indexes(np.array([value])).tolist() == [place]


def test_overlap_of_a_prompt_is_the_mean_of_its_known_answers() -> None:
    values = np.array([0.2, 0.6, np.nan, np.nan])
    found = AnswerOverlaps(["a", "a", "a", "b"], {"copied_share": values, "bleu4": values})
    assert found.of_prompts("bleu4") == {"a": pytest.approx(0.4)}


# The high-overlap rule is evaluated from measured arms, if both kinds of drafter were measured.

METHODS = {"ngram": Method.NGRAM, "eagle3": Method.EAGLE3, "draft": Method.DRAFT_MODEL}
WHERE = RuleCell("chat", "8")


def high(ngram: float | None, eagle: float | None, low: float = 0.6, by: str = "bleu4") -> OverlapBin:
    speedups = {"ngram": figure(ngram), "eagle3": figure(eagle), "draft": figure(3.0)}
    measured = {name: each for name, each in speedups.items() if each.value is not None}
    return OverlapBin.model_validate({"by": by, "low": low, "high": low + 0.2, "answers": 12, "speedups": measured})


@pytest.mark.parametrize(
    ("bins", "verdict"),
    [
        ([high(2.0, 1.5)], RuleVerdict.AGREES),
        ([high(1.2, 1.5)], RuleVerdict.CONTRADICTS),
        ([high(1.5, 1.5)], RuleVerdict.UNCLEAR),
        ([high(2.0, 1.5), high(1.2, 1.5, low=0.8)], RuleVerdict.CONTRADICTS),
        ([high(1.0, 1.5, low=0.4), high(2.0, 1.5)], RuleVerdict.AGREES),
        ([high(1.0, 1.5, by="copied_share"), high(2.0, 1.5)], RuleVerdict.AGREES),
    ],
)
def test_only_bleu_bins_from_0_6_are_used_for_the_rule(bins: list[OverlapBin], verdict: RuleVerdict) -> None:
    found = overlap_rule(bins, METHODS, WHERE)
    assert found.verdict is verdict
    assert {case.arm for case in found.cases} == {"ngram over eagle3"}
    assert all("12 answers" in case.because for case in found.cases)


@pytest.mark.parametrize(
    ("bins", "reason"),
    [([], NO_HIGH_OVERLAP), ([high(1.0, 1.5, low=0.4)], NO_HIGH_OVERLAP), ([high(2.0, None)], NOT_BOTH_DRAFTERS)],
)
def test_rule_without_cases_reports_what_is_missing(bins: list[OverlapBin], reason: str) -> None:
    found = overlap_rule(bins, METHODS, WHERE)
    assert (found.verdict, found.reason, found.cases) == (RuleVerdict.NOT_APPLICABLE, reason, [])
