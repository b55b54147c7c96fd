"""The rule of high overlap is judged by what arms measured there, and only where both kinds of arm did."""

from __future__ import annotations

import pytest

from specbench_api.outcome.recommendation import RuleVerdict
from specbench_api.outcome.replay import OverlapBin
from specbench_api.spec.drafter import Method
from specbench_client.analysis.replay.rule import NOT_BOTH, NOTHING_HIGH, Where, overlap_rule
from specbench_testing.decisions import figure

METHODS = {"ngram": Method.NGRAM, "eagle3": Method.EAGLE3, "draft": Method.DRAFT_MODEL}
WHERE = Where("chat", "8")


def high(ngram: float | None, eagle: float | None, low: float = 0.6, by: str = "bleu4") -> OverlapBin:
    speedups = {"ngram": figure(ngram), "eagle3": figure(eagle), "draft": figure(3.0)}
    told = {name: each for name, each in speedups.items() if each.value is not None}
    return OverlapBin.model_validate({"by": by, "low": low, "high": low + 0.2, "answers": 12, "speedups": told})


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
def test_only_ranges_of_bleu_from_0_6_on_judge_it(bins: list[OverlapBin], verdict: RuleVerdict) -> None:
    found = overlap_rule(bins, METHODS, WHERE)
    assert found.verdict is verdict
    assert {case.arm for case in found.cases} == {"ngram over eagle3"}
    assert all("12 answers" in case.because for case in found.cases)


@pytest.mark.parametrize(
    ("bins", "why"), [([], NOTHING_HIGH), ([high(1.0, 1.5, low=0.4)], NOTHING_HIGH), ([high(2.0, None)], NOT_BOTH)]
)
def test_where_nothing_can_be_judged_it_says_what_lacks(bins: list[OverlapBin], why: str) -> None:
    found = overlap_rule(bins, METHODS, WHERE)
    assert (found.verdict, found.reason, found.cases) == (RuleVerdict.NOT_APPLICABLE, why, [])
