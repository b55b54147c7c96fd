"""Recommendations: the choice at each load, its constraints, and its costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import Method
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import Prices, RecommendationRequest, ruled_out, why_none_drafts
from specbench_client.analysis.statistics.bootstrap import t_bounds
from specbench_client.analysis.statistics.effects import figure_effect
from specbench_client.analysis.summary.cells import EvaluatedCell, with_claims
from specbench_client.analysis.summary.headline import WORDS_MAX, HeadlineFacts, headline_of
from specbench_client.documents.figure import FigureInterval, Verdict
from specbench_client.documents.finding import Severity
from specbench_client.documents.recommendation import (
    ArmChoice,
    Attainment,
    Candidate,
    Objective,
    Recommendation,
    RecommendationAnswer,
    SloTarget,
)
from specbench_client.documents.summary import ArmEnvironment, Cell, RunSummary
from specbench_client.report.text.decision import choices_table, decision_report
from specbench_testing.decision_summaries import BOOTSTRAP, DRAFTERS, TOKENS, Given, figure, plan_of, summary_of
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

PLAN = plan_of()
BASE = Given("none")
BROKEN = Given("eagle3", gain=2.0, valid=False)
ARMS = ("eagle3", "eagle3-long", "ngram")


def plan_with(cells: Sequence[Given]) -> Plan:
    """Return the plan of a run of the arms of these cells, at all loads."""
    arms = {each.arm for each in cells}
    return plan_of([each for each in DRAFTERS if each["name"] in arms])


def decide(*cells: Given, request: RecommendationRequest | None = None, **options: Any) -> Recommendation:
    return recommend(plan_with(cells), summary_of(*cells, **options), request or RecommendationRequest())


def without_baseline(plan: Plan) -> Plan:
    groups = [group for group in plan.groups if group.arm != "none"]
    return plan.model_copy(update={"arms": plan.arms[1:], "groups": groups})


def unknown_in(choice: ArmChoice) -> list[tuple[str, str, str]]:
    return [(each.arm, each.load, each.why) for each in choice.unknown]


def answer(*cells: Given, request: RecommendationRequest | None = None) -> tuple[RecommendationAnswer, str | None]:
    (choice,) = decide(*cells, request=request).choices
    return choice.answer, choice.arm


def judged_of(summary: RunSummary) -> list[EvaluatedCell]:
    """The cells with their claims."""
    return with_claims(
        [
            EvaluatedCell(each, (), figure_effect(each.speedup, 3) if each.speedup else None, 40)
            for each in summary.cells
        ]
    )


def tpot(limit_ms: float) -> RecommendationRequest:
    return RecommendationRequest(targets=(SloTarget(metric="tpot_ms", limit_ms=limit_ms),))


@pytest.mark.runs
def test_clearly_faster_drafter_is_recommended_with_its_gain() -> None:
    found = decide(BASE, Given("eagle3", tps=150, gain=1.5), Given("ngram", tps=90, gain=0.9))
    assert (found.choices[0].answer, found.choices[0].arm) == (RecommendationAnswer.DRAFTER, "eagle3")
    assert found.sentence == "For throughput: use eagle3 at concurrency 1, 1.50x [1.46, 1.55] the baseline's throughput"
    assert [each.conclusion for each in found.candidates] == [None, Verdict.BETTER, Verdict.WORSE]


@pytest.mark.runs
def test_throughput_of_streams_that_wait_is_not_that_of_faster_answers() -> None:
    """Users who wait twice as long as an answer takes: with answers of half the time, a fifth more requests."""
    (choice,) = decide(BASE, Given("eagle3", tps=120, gain=2.0, waits=True)).choices
    assert present(choice.gain).value == pytest.approx(1.2)


TABLE: list[tuple[str, Sequence[Given], tuple[RecommendationAnswer, str | None]]] = [
    (
        "simpler of two equally fast",
        [Given("eagle3", gain=1.51), Given("ngram", gain=1.5)],
        (RecommendationAnswer.DRAFTER, "ngram"),
    ),
    (
        "shorter of two",
        [Given("eagle3-long", gain=1.52), Given("eagle3", gain=1.5)],
        (RecommendationAnswer.DRAFTER, "eagle3"),
    ),
    (
        "faster of two that differ",
        [Given("eagle3", gain=1.7), Given("ngram", gain=1.5)],
        (RecommendationAnswer.DRAFTER, "eagle3"),
    ),
    ("all slower", [Given("eagle3", gain=0.8), Given("ngram", gain=0.9)], (RecommendationAnswer.NO_DRAFTER, "none")),
    ("shown equally fast", [Given("ngram", gain=1.0, half=0.02)], (RecommendationAnswer.NO_DRAFTER, "none")),
    ("not shown equally fast", [Given("ngram", gain=1.0, half=0.3)], (RecommendationAnswer.INCONCLUSIVE, None)),
    ("not shown faster", [Given("ngram", gain=1.2, half=0.3)], (RecommendationAnswer.INCONCLUSIVE, None)),
    (
        "slightly faster, and significant",
        [Given("ngram", gain=1.02, half=0.01)],
        (RecommendationAnswer.DRAFTER, "ngram"),
    ),
    ("too few repeats", [Given("ngram", gain=2.0, repeats=2)], (RecommendationAnswer.INCONCLUSIVE, None)),
    ("no interval", [Given("ngram", gain=2.0, half=None)], (RecommendationAnswer.INCONCLUSIVE, None)),
    ("fast but invalid", [Given("ngram", gain=9.0, valid=False)], (RecommendationAnswer.INCONCLUSIVE, None)),
    ("one slower, one invalid", [Given("ngram", gain=0.8), BROKEN], (RecommendationAnswer.INCONCLUSIVE, None)),
    ("one faster, one invalid", [Given("ngram", gain=1.4), BROKEN], (RecommendationAnswer.DRAFTER, "ngram")),
    ("baseline only", [], (RecommendationAnswer.INCONCLUSIVE, None)),
    (
        "invalid at the best load",
        [
            *(Given("none", load, tps=tps) for load, tps in ((1, 50), (32, 700))),
            Given("ngram", 1, tps=45, gain=0.9),
            Given("ngram", 32, tps=1400, gain=2.0, valid=False),
        ],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "no baseline at the best load",
        [Given("none", 1, tps=50), Given("ngram", 1, tps=45, gain=0.9), Given("ngram", 32, tps=700)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
]


@pytest.mark.runs
@pytest.mark.parametrize(("cells", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_case_has_its_recommendation(
    cells: Sequence[Given], expected: tuple[RecommendationAnswer, str | None]
) -> None:
    assert answer(*([] if any(each.arm == "none" for each in cells) else [BASE]), *cells) == expected


@pytest.mark.runs
def test_without_a_baseline_or_a_measurement_nothing_is_recommended() -> None:
    cells = Given("ngram"), Given("eagle3", tps=200)
    recommendation = recommend(without_baseline(plan_with(cells)), summary_of(*cells), RecommendationRequest())
    (choice,) = recommendation.choices
    assert [each.title.partition(" ")[0] for each in decision_report(recommendation).topics] == ["Evidence", "Limits"]
    assert (choice.answer, choice.arm) == (RecommendationAnswer.INCONCLUSIVE, None)
    assert "this run has no baseline" in choice.reason
    assert decide().choices == []
    assert decide().sentence == "For throughput: nothing was measured"


@pytest.mark.runs
def test_findings_of_an_arm_are_its_doubts_or_exclude_it() -> None:
    findings = {
        "ChunksCoalesced": Severity.WARNING,
        "GreedyDivergence": Severity.INFO,
        "AnswersWorse": Severity.FAULT,
    }
    (_, candidate) = decide(BASE, Given("ngram", gain=2.0, findings=findings)).candidates
    assert candidate.doubts == ["ChunksCoalesced", "AnswersWorse"]
    (_, candidate) = decide(BASE, Given("ngram", gain=2.0, valid=False, findings=findings)).candidates
    assert candidate.excluded == "invalid (AnswersWorse)"


@pytest.mark.runs
@pytest.mark.parametrize("load", [1, 8], ids=["at the load of the fault", "at another load"])
@pytest.mark.parametrize(
    "beside", [[], [Given("eagle3", gain=1.5), Given("eagle3", 8, gain=1.5)]], ids=["alone", "tied"]
)
def test_an_arm_at_fault_is_recommended_at_no_load(beside: list[Given], load: int) -> None:
    fault = {"ReuseLost": Severity.FAULT}
    mine = [Given("ngram", each, gain=1.5, findings=fault if each == load else {}) for each in (1, 8)]
    found = decide(BASE, Given("none", 8), *mine, *beside)
    (choice,) = found.choices
    expected = (RecommendationAnswer.DRAFTER, "eagle3") if beside else (RecommendationAnswer.INCONCLUSIVE, None)
    assert (choice.answer, choice.arm, choice.tied) == (*expected, [])
    assert [(each.answer, each.arm, each.tied) for each in choice.at_each_load] == [(*expected, [])] * 2
    assert found.ruled_out == {"ngram": "at fault: ReuseLost"}
    assert "without ngram (at fault: ReuseLost)" in found.sentence
    assert {each.excluded for each in found.candidates if each.arm == "ngram"} == {"at fault: ReuseLost"}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("gain", "expected"),
    [(1.5, (RecommendationAnswer.DRAFTER, "ngram")), (1.0, (RecommendationAnswer.INCONCLUSIVE, None))],
)
def test_a_baseline_at_fault_is_not_recommended(gain: float, expected: tuple[RecommendationAnswer, str | None]) -> None:
    baseline = Given("none", findings={"AcceptanceDecayed": Severity.FAULT})
    (choice,) = decide(baseline, Given("ngram", gain=gain)).choices
    assert (choice.answer, choice.arm) == expected
    assert unknown_in(choice) == [("none", "1", "at fault: AcceptanceDecayed")]


@pytest.mark.runs
def test_of_equally_simple_arms_none_is_called_simpler() -> None:
    twin = {**DRAFTERS[2], "name": "ngram-b", "promptLookupMax": 4}
    plan = plan_of([*DRAFTERS, twin])
    summary = summary_of(BASE, Given("ngram", gain=1.5), Given("ngram-b", gain=1.51))
    (choice,) = recommend(plan, summary, RecommendationRequest()).choices
    assert (choice.arm, choice.tied, "simpler" in choice.reason) == ("ngram", ["ngram-b"], False)
    (choice,) = decide(BASE, Given("ngram", gain=1.5), Given("eagle3", gain=1.51)).choices
    assert (choice.arm, choice.tied, "simpler" in choice.reason) == ("ngram", ["eagle3"], True)


@pytest.mark.runs
def test_all_invalid_cells_give_no_recommendation_with_a_reason() -> None:
    """Only findings that invalidate are reasons: a cell has warnings and notes too."""
    findings = {
        "ClientSaturated": Severity.INVALID,
        "ChunksCoalesced": Severity.WARNING,
        "GreedyDivergence": Severity.INFO,
    }
    found = decide(*(Given(arm, gain=2.0, valid=False, findings=findings) for arm in ("none", "ngram")))
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.INCONCLUSIVE, None)
    assert unknown_in(choice) == [(arm, "1", "invalid (ClientSaturated)") for arm in ("none", "ngram")]
    assert found.sentence == (
        "For throughput: inconclusive: no arm could be judged;"
        " the baseline, ngram are unknown at 1, invalid (ClientSaturated): measure again (the run is not trustworthy)"
    )
    assert (
        "The run is not trustworthy (ClientSaturated, ChunksCoalesced), and neither is this recommendation: the run's"
        " report shows what to do." in found.limits
    )


@pytest.mark.runs
@pytest.mark.parametrize("load", [8, 1], ids=["paired", "another load"])
def test_gain_over_too_few_repeats_has_no_interval(load: int) -> None:
    """As in the report's tables: it would not cover the variation between runs."""
    cells = [Given("none", 8), Given("none", 1, tps=90), Given("ngram", load, tps=200, gain=2.0, repeats=2)]
    recommendation = decide(*cells)
    (choice,) = recommendation.choices
    where = {8: "2.00x)", 1: "2.00x at concurrency 1 against the baseline at concurrency 8)"}
    assert f"ngram has too few repeats to tell ({where[load]}" in choice.reason
    assert "[" not in choice.reason + recommendation.sentence
    assert not any(each.gain.interval for each in recommendation.candidates if each.gain)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("gain", "half", "words"),
    [
        (1.2, 0.3, ", excludes a gain above 62%; about "),
        (1.45, 0.4, "], about "),
        (1.02, 0.4, "; more requests in each repeat, "),  # more repeats than a run may have
        (1.2, 0.9, "(1.20x [0.49, 2.95]); keep"),  # too wide for a forecast
    ],
)
def test_what_would_decide_follows_what_is_excluded_if_anything_is(gain: float, half: float, words: str) -> None:
    (choice,) = decide(BASE, Given("eagle3", gain=gain, half=half)).choices
    assert words in choice.reason


@pytest.mark.runs
@pytest.mark.parametrize(
    ("gain", "half", "worth", "forecast"),
    [
        (1.0, 0.03, 1.05, ""),  # already shown not to be worth it
        (1.0005, 0.02, 1.001, "more requests in each repeat"),  # 0.05 % from either bound
        (1.0, 0.03, 1.02, "about 7 repeats"),  # 3 (0.03 / log 1.02)^2 = 6.9
        (1.0, 0.03, 1.0, "more requests in each repeat"),  # no number of repeats separates equal arms from 1
        (1.2, 0.19, 1.3, "about 4 repeats"),  # 3 (0.19 / log 1.2)^2 = 3.3 to show the gain
    ],
)
def test_repeats_that_would_decide_depend_on_the_gain_worth_having(
    gain: float, half: float, worth: float, forecast: str
) -> None:
    (choice,) = decide(BASE, Given("eagle3", gain=gain, half=half), request=RecommendationRequest(worth=worth)).choices
    assert (choice.answer is RecommendationAnswer.NO_DRAFTER) == (forecast == "")
    assert "".join(re.findall(r"about \d+ repeats|more requests in each repeat", choice.reason)) == forecast


def test_forecast_follows_the_nearer_bound_of_an_interval_and_is_never_reached_already() -> None:
    gain = figure(1.05).model_copy(update={"interval": FigureInterval(low=0.99, high=1.4, method=BOOTSTRAP)})
    cells = [BASE.cell, Given("eagle3").cell.model_copy(update={"speedup": gain})]
    (choice,) = recommend(PLAN, summary_of().model_copy(update={"cells": cells}), RecommendationRequest()).choices
    assert "about 5 repeats" in choice.reason  # 3 (log(1.05 / 0.99) / log 1.05)^2 = 4.4


@pytest.mark.runs
@pytest.mark.parametrize(
    ("share", "runs", "words"),
    [
        (0.64, "launches", "repeats would decide: 0.16 of the ± 0.20 are differences between launches"),
        (0.64, "repeats", "repeats would decide: 0.16 of the ± 0.20 are differences between repeats"),
        (0.36, "launches", "more prompts would decide: only 0.12 of the ± 0.20 are differences between launches"),
        (None, None, "repeats, or more prompts, would decide"),
    ],
)
def test_what_would_decide_is_more_of_what_varies_most(
    share: float | None, runs: Literal["launches", "repeats"] | None, words: str
) -> None:
    interval = FigureInterval(low=0.95, high=1.35, method=BOOTSTRAP, runs_share=share, runs=runs)
    gain = figure(1.05).model_copy(update={"interval": interval})
    cells = [BASE.cell, Given("eagle3").cell.model_copy(update={"speedup": gain})]
    (choice,) = recommend(PLAN, summary_of().model_copy(update={"cells": cells}), RecommendationRequest()).choices
    assert words in choice.reason


def test_the_answer_over_all_loads_is_not_listed_again_as_that_of_one() -> None:
    found = decide(*(Given(arm, load, gain=gain) for arm, gain in (("none", None), ("ngram", 1.5)) for load in (1, 8)))
    assert sorted(row[0] for row in choices_table(found).rows) in (["1", "8 (best)"], ["1 (best)", "8"])
    unclear = [Given("none", 8, tps=800), Given("ngram", 8, tps=800, gain=1.03, half=0.2)]
    assert [row[0] for row in choices_table(decide(BASE, Given("ngram", gain=1.5), *unclear)).rows] == [
        "all loads",
        "1",
    ]


def test_indistinguishable_arms_are_named() -> None:
    (choice,) = decide(BASE, Given("eagle3", gain=1.51), Given("ngram", gain=1.5)).choices
    assert choice.tied == ["eagle3"]
    assert "indistinguishable from eagle3" in choice.reason


@pytest.mark.runs
def test_one_marginal_result_among_many_comparisons_is_no_recommendation() -> None:
    others = [each for load in range(2, 14) for each in (Given("none", load), Given("ngram", load, gain=1.0))]
    bare = Given("ngram", 1, gain=1.032)
    assert answer(BASE, bare)[0] is RecommendationAnswer.DRAFTER
    many = decide(BASE, bare, *others)
    assert many.choices[0].at_each_load[0].answer is RecommendationAnswer.INCONCLUSIVE
    assert (
        next(each for each in many.candidates if each.gain and each.gain.value == 1.032).conclusion is Verdict.UNCLEAR
    )


@pytest.mark.runs
def test_candidate_conclusions_match_the_verdict() -> None:
    summary = run_of_world(SyntheticRun(prompts=12, drafters=("ngram", "slow"), step_ms={"slow": 40.0}))
    conclusions = {(each.arm, each.load): each.conclusion for each in present(summary.recommendation).candidates}
    assert [conclusions["ngram", "1"], conclusions["slow", "1"]] == [Verdict.BETTER, Verdict.WORSE]
    assert "Use ngram at concurrency 1: " in summary.headline
    assert present(summary.recommendation).choices[0].arm == "ngram"


# Unknown cells: measured at all, they may turn out to be the best of their load.


def drafted(load: int, **states: float | str | None) -> list[Given]:
    """Return the cells of one load; of each arm its gain, `invalid`, or None if nothing was measured."""
    late = {"ClientSaturated": Severity.INVALID}
    cells = {arm: Given(arm, load, gain=state) for arm, state in states.items() if isinstance(state, float)}
    cells |= {
        arm: Given(arm, load, gain=1.63, valid=False, findings=late)
        for arm, state in states.items()
        if state == "invalid"
    }
    return [cells[arm] for arm in states if arm in cells]


EAGLE3_AT_1 = "eagle3 is unknown at 1, invalid (ClientSaturated): measure again"


@pytest.mark.runs
def test_a_drafter_is_recommended_with_the_arm_that_may_be_better() -> None:
    found = decide(*drafted(1, none=1.0, ngram=1.61, eagle3="invalid"))
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.DRAFTER, "ngram")
    assert unknown_in(choice) == [("eagle3", "1", "invalid (ClientSaturated)")]
    assert f"use ngram at concurrency 1, 1.61x [1.56, 1.66] the baseline's throughput; {EAGLE3_AT_1}" in found.sentence


@pytest.mark.runs
def test_no_arm_is_said_to_miss_the_targets_while_one_is_unknown() -> None:
    """The reported case: eagle3 meets 3.6 ms by value, and its client was late."""
    cells = [replace(each, tpot=4.0) for each in drafted(1, none=1.0, ngram=1.61)]
    late = replace(drafted(1, eagle3="invalid")[0], tpot=3.5)
    assert [decide(*cells, request=tpot(3.6)).choices[0].answer] == [RecommendationAnswer.NOTHING_MEETS]
    found = decide(*cells, late, request=tpot(3.6))
    assert found.choices[0].answer is RecommendationAnswer.INCONCLUSIVE
    assert EAGLE3_AT_1 in found.sentence
    assert "no measured arm" not in found.sentence


@pytest.mark.runs
@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Given("eagle3", gain=1.63, repeats=2), "1.63x, 2 repeats: too few to tell"),
        (Given("eagle3", gain=1.63, half=None), "1.63x"),
        (Given("eagle3", gain=1.5, half=0.5), "1.50x [0.91, 2.47]"),
        (Given("eagle3", gain=1.1, half=0.02), None),
        (Given("eagle3", gain=0.9, half=0.02), None),
        (Given("eagle3", gain=None, tps=None), "its throughput was not measured"),
        (Given("eagle3", gain=None), "not compared with the baseline"),
    ],
    ids=["too few repeats", "no interval", "wide", "shown to gain less", "slower", "no figure", "no pairs"],
)
def test_an_arm_that_is_not_shown_to_gain_less_than_the_recommended_one_is_unknown(
    other: Given, why: str | None
) -> None:
    (choice,) = decide(BASE, Given("ngram", gain=1.4), other).choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.DRAFTER, "ngram")
    assert unknown_in(choice) == ([] if why is None else [("eagle3", "1", why)])


@pytest.mark.runs
def test_a_planned_arm_without_a_point_is_a_candidate_where_another_arm_was_measured() -> None:
    """An engine that failed at every load has no cell; nothing is known about a load that no arm was measured at."""
    plan = plan_of([DRAFTERS[0], DRAFTERS[2]])
    found = recommend(plan, summary_of(*drafted(1, none=1.0, ngram=0.8)), RecommendationRequest())
    assert [(each.arm, each.load, each.excluded) for each in found.candidates][2:] == [("eagle3", "1", "not measured")]
    assert found.choices[0].answer is RecommendationAnswer.INCONCLUSIVE
    assert unknown_in(found.choices[0]) == [("eagle3", "1", "not measured")]


@pytest.mark.runs
def test_the_baseline_is_unknown_at_a_load_without_it() -> None:
    cells = [*drafted(1, ngram=1.5), *(replace(each, tps=700) for each in drafted(8, none=1.0, ngram=0.8))]
    (choice,) = decide(*cells).choices
    assert (choice.answer, unknown_in(choice)) == (RecommendationAnswer.NO_DRAFTER, [("none", "1", "not measured")])


@pytest.mark.runs
def test_what_is_unknown_at_another_load_that_the_sentence_recommends_is_stated() -> None:
    cells = [*drafted(1, none=1.0, ngram=1.61), Given("eagle3", gain=1.63, repeats=2)]
    cells += [replace(each, tps=900.0 * (each.gain or 1)) for each in drafted(8, none=1.0, ngram=0.8, eagle3=0.9)]
    found = decide(*cells)
    assert found.choices[0].answer is RecommendationAnswer.NO_DRAFTER
    why = "eagle3 is unknown at 1 (1.63x, 2 repeats: too few to tell): measure again"
    assert found.sentence.endswith(f"(but ngram pays at 1); {why}")


STATES = st.sampled_from((0.7, 1.0, 1.3, 1.6, "invalid", None))
"""Of a drafter: its gain, with an interval of 3 %; invalid; not measured."""
LOADS = (1, 8)
LABELS = ("1", "8")
TABLES = st.fixed_dictionaries(
    {(arm, load): STATES for arm in ("eagle3", "ngram") for load in LOADS}
    | {("none", load): st.sampled_from((1.0, "invalid", None)) for load in LOADS}
)
MS = st.fixed_dictionaries(
    {(arm, load): st.sampled_from((20.0, 40.0)) for arm in ("none", *ARMS[::2]) for load in LOADS}
)
REMEASURED = st.lists(st.sampled_from((0.7, 1.0, 1.3, 1.6)), min_size=6, max_size=6)
BOTH = plan_of([DRAFTERS[0], DRAFTERS[2]])


def table_of(states: Mapping[tuple[str, int], float | str | None], ms: Mapping[tuple[str, int], float]) -> RunSummary:
    """Return the summary of a table of cells; throughput is 100 a stream times the gain."""
    found = []
    for (arm, load), state in states.items():
        for each in drafted(load, **{arm: state}):
            gain = each.gain if states["none", load] == 1.0 else None
            found.append(replace(each, gain=gain, tps=100.0 * load * (each.gain or 1), tpot=ms[arm, load]))
    return summary_of(*found)


@pytest.mark.runs
@settings(max_examples=300, deadline=None)
@given(TABLES, REMEASURED, MS, st.booleans())
def test_what_is_measured_again_changes_an_answer_only_where_it_was_said_to_be_unknown(
    states: dict[tuple[str, int], float | str | None],
    again: list[float],
    ms: dict[tuple[str, int], float],
    limited: bool,
) -> None:
    """All mixtures of valid, invalid and missing cells: no arm is recommended instead of one that may be better.

    The table is measured again without gaps. If that changes an answer, the better arm was among the unknown ones.
    """
    request = tpot(30) if limited else RecommendationRequest()
    whole = {
        place: state if isinstance(state, float) else 1.0 if place[0] == "none" else gain
        for (place, state), gain in zip(states.items(), again, strict=True)
    }
    first, second = (recommend(BOTH, table_of(each, ms), request).choices for each in (states, whole))
    measured = {str(load) for (_, load), state in states.items() if state is not None}
    later = {each.load: each for each in second[0].at_each_load}
    rows: list[tuple[ArmChoice, ArmChoice, set[str]]] = [
        (each, later[each.load], {each.load}) for choice in first for each in choice.at_each_load
    ]
    rows += [(choice, second[0], measured) for choice in first if len(measured) == len(LOADS)]
    for before, after, loads in rows:
        if RecommendationAnswer.INCONCLUSIVE in (before.answer, after.answer):
            continue
        unknown = {(each.arm, each.load) for each in before.unknown}
        assert after.arm in {before.arm, *before.tied, *(arm for arm, _ in unknown)}
        if before.answer is not RecommendationAnswer.DRAFTER:
            assert unknown <= {("none", load) for load in LABELS if before.arm == "none"}
        gaps = {(arm, str(load)) for (arm, load), state in states.items() if not isinstance(state, float)}
        assert {gap for gap in gaps if gap[1] in loads} <= unknown


@pytest.mark.runs
@settings(max_examples=100, deadline=None)
@given(TABLES)
@example(
    {**dict.fromkeys([("none", 1), ("none", 8)], 1.0), **dict.fromkeys([("ngram", 1), ("eagle3", 8)], 1.3)}
    | {("eagle3", 1): "invalid", ("ngram", 8): None}
)
def test_headline_and_sentence_name_every_cell_that_is_unknown(
    states: dict[tuple[str, int], float | str | None],
) -> None:
    summary = table_of(states, dict.fromkeys(states, 20.0))
    found = recommend(BOTH, summary, RecommendationRequest())
    choices = [each for choice in found.choices for each in choice.at_each_load]
    text = headline_of(HeadlineFacts(BOTH, judged_of(summary), (), True, False, choices=choices))
    measured = {load for (_, load), state in states.items() if state is not None}
    for (arm, load), state in states.items():
        if load in measured and not isinstance(state, float):
            name = "[Tt]he baseline" if arm == "none" else arm
            clause = rf"{name}\b[^.;]* (is|are) unknown at ([0-9, ]*, )?{load}\b"
            assert re.search(clause, text)
            assert re.search(clause, found.sentence)
    if "up to concurrency 8" in text:
        arm = present(re.search(r"Use (\w+) up to", text))[1]
        assert {states[arm, load] for load in LOADS} <= {1.3, 1.6}


# Targets


@pytest.mark.runs
def test_largest_load_that_meets_the_targets_is_chosen() -> None:
    cells = [
        *(Given("none", load, tps=tps, tpot=ms) for load, tps, ms in ((1, 50, 20), (8, 300, 28), (32, 700, 50))),
        *(
            Given("eagle3", load, tps=tps, tpot=ms, gain=gain)
            for load, tps, ms, gain in ((1, 100, 10, 2.0), (8, 500, 16, 1.7), (32, 900, 33, 1.3))
        ),
    ]
    found = decide(*cells, request=tpot(35))
    (choice,) = found.choices
    assert (choice.arm, choice.load, choice.baseline_load) == ("eagle3", "32", "8")
    assert present(choice.gain).value == pytest.approx(900 / 300)
    assert "not paired" in present(choice.gain).definition
    assert [(each.arm, each.load, each.missed_at) for each in choice.sustained] == [
        ("none", "8", "32"),
        ("eagle3", "32", None),
    ]
    assert choice.sustained[0].reason == "TPOT p95 ≤ 35 ms: 50 ms"
    assert "with TPOT p95 ≤ 35 ms" in found.sentence
    assert "3.00x [2.88, 3.13] the baseline's throughput at concurrency 8" in found.sentence


@pytest.mark.runs
def test_target_without_a_measured_figure_is_not_met() -> None:
    request = RecommendationRequest(targets=(SloTarget(metric="ttft_ms", limit_ms=100),))
    found = decide(BASE, Given("eagle3", gain=1.5), request=request)
    assert {each.attainment for each in found.candidates} == {Attainment.UNKNOWN}
    assert found.choices[0].answer is RecommendationAnswer.INCONCLUSIVE


@pytest.mark.runs
def test_target_at_a_percentile_of_too_few_requests_is_not_known() -> None:
    """It is within its target by value, but as an extreme value of six requests."""
    world = SyntheticRun(prompts=6, repeats=1)
    summary = run_of_world(world)
    for percentile, attained in (("p50", Attainment.MET_BY_VALUE), ("p95", Attainment.UNKNOWN)):
        target = SloTarget.model_validate({"metric": "tpot_ms", "percentile": percentile, "limit_ms": 1e6})
        found = recommend(world.plan, summary, RecommendationRequest(targets=(target,)))
        assert {each.attainment for each in found.candidates} <= {attained, Attainment.MET}
        assert ("TPOT p95: p95 needs at least 20 requests" in found.choices[0].why) == (percentile == "p95")


@pytest.mark.runs
@pytest.mark.parametrize(
    ("ms", "half", "expected"),
    [
        (20.0, 0.02, Attainment.MET),
        (29.9, 0.02, Attainment.MET_BY_VALUE),
        (20.0, None, Attainment.MET_BY_VALUE),
        (30.2, 0.02, Attainment.MISSED_BY_VALUE),
        (40.0, None, Attainment.MISSED_BY_VALUE),
        (40.0, 0.02, Attainment.MISSED),
    ],
)
def test_target_attainment_depends_on_the_interval(ms: float, half: float | None, expected: Attainment) -> None:
    found = decide(Given("none", tpot=ms, tpot_half=half), request=tpot(30))
    assert found.candidates[0].attainment is expected
    (row,) = found.choices[0].sustained
    assert (row.load is not None, row.shown is not None) == (expected.within, expected is Attainment.MET)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("half", "why"),
    [
        (None, "TPOT p95 has no interval"),
        (0.6, "the interval of TPOT p95 includes 30 ms"),
    ],
)
def test_target_that_is_met_by_value_is_explained(half: float | None, why: str) -> None:
    cells = Given("none", tpot=20, tpot_half=half), Given("eagle3", tpot=20, tpot_half=half, gain=1.5)
    (choice,) = decide(*cells, request=tpot(30)).choices
    assert choice.arm == "eagle3"
    assert choice.reason.endswith(f"; it meets the targets by value, but this is not shown: {why}")


# Several loads


@pytest.mark.runs
@pytest.mark.parametrize("half", [None, 0.02], ids=["by value", "shown"])
def test_an_arm_is_not_ruled_out_by_a_load_at_which_it_misses_the_targets_by_value_only(half: float | None) -> None:
    cells = [Given("none", load, tps=tps, tpot=20) for load, tps in ((1, 50), (8, 100))]
    cells += [
        Given("ngram", 1, tps=60, gain=1.2, tpot=10),
        Given("ngram", 8, tps=150, gain=1.5, tpot=40, tpot_half=half),
    ]
    (choice,) = decide(*cells, request=tpot(30)).choices
    assert choice.answer is (RecommendationAnswer.INCONCLUSIVE if half is None else RecommendationAnswer.NO_DRAFTER)
    why = "misses the targets by value only: TPOT p95 has no interval"
    assert unknown_in(choice) == ([("ngram", "8", why)] if half is None else [])


@pytest.mark.runs
def test_each_load_has_its_own_recommendation() -> None:
    gains = ((1, 100, 2.0), (32, 650, 0.93))
    cells = [*(Given("none", load, tps=tps) for load, tps in ((1, 50), (32, 700)))]
    cells += [Given("ngram", load, tps=tps, gain=gain) for load, tps, gain in gains]
    found = decide(*cells)
    assert found.sentence == "For throughput: no drafter pays; use the baseline at concurrency 32 (but ngram pays at 1)"
    (choice,) = found.choices
    assert (choice.answer, choice.arm, choice.load) == (RecommendationAnswer.NO_DRAFTER, "none", "32")
    assert [(each.load, each.arm) for each in choice.at_each_load] == [("1", "ngram"), ("32", "none")]
    (alone,) = decide(*cells, request=RecommendationRequest(load="1")).choices
    assert (alone.arm, [each.load for each in alone.at_each_load]) == ("ngram", ["1"])


@pytest.mark.runs
def test_each_workload_has_its_own_recommendation() -> None:
    cells = [
        Given(arm, gain=gain, workload=workload)
        for workload, gain in (("a", 1.5), ("b", 0.8))
        for arm in ("none", "ngram")
    ]
    two = [PLAN.workloads[0].model_copy(update={"name": name}) for name in ("a", "b")]
    found = recommend(PLAN.model_copy(update={"workloads": two}), summary_of(*cells), RecommendationRequest())
    assert [(each.workload, each.arm) for each in found.choices] == [("a", "ngram"), ("b", "none")]
    assert "on a: use ngram at concurrency 1" in found.sentence
    assert "on b: no drafter pays" in found.sentence


@pytest.mark.runs
def test_open_loop_recommends_a_drafter_for_latency_but_not_for_throughput() -> None:
    cells = [Given("none", 2.0, tps=200), Given("ngram", 2.0, tps=200.5, gain=1.6)]
    assert answer(*cells)[0] is RecommendationAnswer.NO_DRAFTER
    assert answer(*cells, request=RecommendationRequest(Objective.LATENCY)) == (RecommendationAnswer.DRAFTER, "ngram")


@pytest.mark.runs
def test_unmeasured_load_is_rejected_with_the_measured_ones() -> None:
    with pytest.raises(InvalidSpec, match="'4' was not measured \\(measured: 1\\)"):
        decide(BASE, request=RecommendationRequest(load="4"))


CELLS = st.builds(
    Given,
    arm=st.sampled_from(ARMS),
    load=st.sampled_from((1, 8, 32)),
    tps=st.floats(10, 1000),
    gain=st.floats(0.3, 3.0),
    half=st.one_of(st.none(), st.floats(0.001, 0.5)),
    tpot=st.floats(5, 60),
    valid=st.booleans(),
    repeats=st.integers(1, 4),
)
OBJECTIVES = st.sampled_from((Objective.THROUGHPUT, Objective.LATENCY))


@pytest.mark.runs
@settings(max_examples=60, deadline=None)
@given(
    st.lists(CELLS, max_size=9, unique_by=lambda each: (each.arm, each.load)),
    st.lists(st.tuples(st.floats(10, 1000), st.floats(5, 60), st.booleans()), min_size=3, max_size=3),
    OBJECTIVES,
    st.one_of(st.none(), st.floats(5, 60)),
)
def test_recommended_arms_are_valid_within_targets_and_not_slower(
    drafted: list[Given], base: list[tuple[float, float, bool]], objective: Objective, limit: float | None
) -> None:
    """Holds at each load and over all loads: a recommended arm is valid, meets the targets, and can reach 1x."""
    loads = (1, 8, 32)
    cells = [Given("none", load, tps=tps, tpot=ms, valid=ok) for load, (tps, ms, ok) in zip(loads, base, strict=True)]
    targets = (SloTarget(metric="tpot_ms", limit_ms=limit),) if limit else ()
    found = decide(*cells, *drafted, request=RecommendationRequest(objective, targets))
    by_place = {(each.arm, each.load): each for each in found.candidates}
    for choice in found.choices:
        picks = [(each.arm, each.load, each.answer) for each in choice.at_each_load]
        for arm, load, recommended in [*picks, (choice.arm, choice.load, choice.answer)]:
            assert (arm is None) == (
                recommended in (RecommendationAnswer.INCONCLUSIVE, RecommendationAnswer.NOTHING_MEETS)
            )
            if arm is None or load is None:
                continue
            picked = by_place[arm, load]
            assert not picked.excluded
            assert picked.attainment.within
        for each in choice.at_each_load:
            gain = by_place[each.arm, each.load].gain if each.arm else None
            if each.answer is RecommendationAnswer.DRAFTER and gain is not None and gain.interval is not None:
                assert gain.interval.high >= 1
        if (
            choice.answer is RecommendationAnswer.DRAFTER
            and choice.gain is not None
            and choice.gain.interval is not None
        ):
            assert choice.gain.interval.high >= 1


WITHIN_30_MS: list[tuple[str, Sequence[Given], tuple[RecommendationAnswer, str | None]]] = [
    (
        "only one meets them",
        [Given("none", tpot=40), Given("eagle3", tpot=20, gain=2.0)],
        (RecommendationAnswer.DRAFTER, "eagle3"),
    ),
    (
        "only one meets them, and its gain is unclear",
        [Given("none", tpot=40), Given("eagle3", tpot=20, gain=1.2, half=0.3)],
        (RecommendationAnswer.DRAFTER, "eagle3"),
    ),
    (
        "the baseline's miss is not significant",
        [Given("none", tpot=30.2), Given("eagle3", tpot=20, gain=1.2, half=0.3)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "the only one that meets them is slower",
        [Given("none", tpot=40), Given("eagle3", tpot=20, gain=0.7)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "none meets them",
        [Given("none", tpot=40), Given("eagle3", tpot=35, gain=1.5)],
        (RecommendationAnswer.NOTHING_MEETS, None),
    ),
    (
        "the only drafter misses them by value, and is slower",
        [Given("none", tpot=20), Given("eagle3", tpot=30.2, gain=0.7)],
        (RecommendationAnswer.NO_DRAFTER, "none"),
    ),
    (
        "the only drafter misses them by value, and is faster",
        [Given("none", tpot=20), Given("eagle3", tpot=30.2, gain=1.7)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "an arm misses them by value where it is not best",
        [
            *(Given("none", load, tps=100 * load, tpot=20) for load in (1, 8)),
            Given("eagle3", 1, tps=150, tpot=30.2, gain=1.5),
            Given("eagle3", 8, tps=1000, tpot=40, gain=1.25),
        ],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "none is shown to meet or to miss them",
        [Given("none", tpot=30.2), Given("eagle3", tpot=30.2, gain=0.7)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "an invalid load might meet them",
        [
            *(Given(arm, 1, tps=50, tpot=20, valid=False) for arm in ("none", "eagle3")),
            *(Given(arm, 8, tps=500, tpot=40, gain=1.5) for arm in ("none", "eagle3")),
        ],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "an invalid arm might meet them",
        [Given("none", tpot=40), Given("eagle3", tpot=20, valid=False)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "a load that was not measured might meet them",
        [*(Given("none", load, tpot=40) for load in (1, 8)), Given("eagle3", 8, tpot=40, gain=1.5)],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
    (
        "the baseline misses them, and is invalid where it might meet them",
        [
            Given("none", 1, tps=50, tpot=20, valid=False),
            Given("none", 8, tps=500, tpot=40),
            *(Given("eagle3", load, tps=100 * load, tpot=20, gain=1.2, half=0.3) for load in (1, 8)),
        ],
        (RecommendationAnswer.INCONCLUSIVE, None),
    ),
]


@pytest.mark.runs
@pytest.mark.parametrize(("cells", "expected"), [row[1:] for row in WITHIN_30_MS], ids=[row[0] for row in WITHIN_30_MS])
def test_targets_limit_the_choice(cells: Sequence[Given], expected: tuple[RecommendationAnswer, str | None]) -> None:
    assert answer(*cells, request=tpot(30)) == expected


def endpoints_of(drafting: Mapping[str, bool | None]) -> tuple[Plan, list[ArmEnvironment]]:
    """A plan of running servers, and whether each reports a drafter."""
    servers = [{"name": name, "url": f"http://{name}:1"} for name in drafting]
    plan = plan_of([], engine={"kind": "external", "endpoints": servers})
    facts = {
        name: Fact.unknown("not reported") if each is None else Fact.observed(value=each, source="/metrics")
        for name, each in drafting.items()
    }
    return plan, [
        ArmEnvironment(arm=name, launches=["a"], facts={FactName.DRAFTER_AT_WORK: fact}) for name, fact in facts.items()
    ]


@pytest.mark.runs
@pytest.mark.parametrize(
    ("drafting", "expected", "none_drafts"),
    [
        ({"none": False, "ngram": False}, (RecommendationAnswer.INCONCLUSIVE, None), "no arm drafts"),
        ({"none": True, "ngram": False}, (RecommendationAnswer.INCONCLUSIVE, None), "the baseline drafts, and no"),
        ({"none": False, "ngram": True}, (RecommendationAnswer.NO_DRAFTER, "none"), ""),
        ({"none": False, "ngram": None}, (RecommendationAnswer.NO_DRAFTER, "none"), ""),
        ({"none": False, "ngram": False, "eagle3": True}, (RecommendationAnswer.NO_DRAFTER, "none"), ""),
    ],
)
def test_nothing_follows_about_drafters_where_no_arm_drafts(
    drafting: dict[str, bool | None], expected: tuple[RecommendationAnswer, str | None], none_drafts: str
) -> None:
    plan, seen = endpoints_of(drafting)
    cells = [Given(arm, gain=None if arm == "none" else 0.99) for arm in drafting]
    summary = summary_of(*cells).model_copy(update={"arm_environments": seen})
    (choice,) = recommend(plan, summary, RecommendationRequest()).choices
    assert (choice.answer, choice.arm) == expected
    assert [(each.answer, each.arm) for each in choice.at_each_load] == [expected]
    assert why_none_drafts(plan, summary).startswith(none_drafts)
    assert bool(why_none_drafts(plan, summary)) == bool(none_drafts)
    facts = HeadlineFacts(plan, judged_of(summary), [], True, False, none_drafts=why_none_drafts(plan, summary))
    assert headline_of(facts).lower().startswith(none_drafts or "no drafter is shown")
    drafted = summary.cells[1].model_copy(update={"figures": {"acceptance_length_emitted_pooled": figure(1.5)}})
    assert why_none_drafts(plan, summary.model_copy(update={"cells": [summary.cells[0], drafted]})) == ""


@pytest.mark.runs
@pytest.mark.parametrize(
    ("objective", "values", "expected"),
    [
        (Objective.THROUGHPUT, {"eagle3": (1, 100, 2.0), "ngram": (8, 600, 1.2)}, ("ngram", "8")),
        (Objective.THROUGHPUT, {"eagle3": (1, 600, 1.2), "ngram": (8, 100, 2.0)}, ("eagle3", "1")),
        (Objective.LATENCY, {"eagle3": (1, 10, 1.2), "ngram": (8, 20, 2.0)}, ("eagle3", "1")),
        (Objective.THROUGHPUT, {"eagle3": (8, 600, 2.0), "ngram": (8, 600, 1.2)}, ("eagle3", "8")),
    ],
)
def test_arms_at_different_loads_are_ranked_by_the_objective_if_the_baseline_misses_the_targets(
    objective: Objective, values: dict[str, tuple[int, float, float]], expected: tuple[str, str]
) -> None:
    """Their gains are over the baseline at different loads. At the same load, the gains decide."""
    cells = [Given("none", load, tps=90.0 * load, tpot=90) for load in (1, 8)]
    for arm, (best, value, gain) in values.items():
        is_latency = objective is Objective.LATENCY
        met = Given(arm, best, gain=gain, tps=100.0 if is_latency else value, tpot=value if is_latency else 20.0)
        cells += [met, Given(arm, 9 - best, gain=gain, tpot=90)]
    (choice,) = decide(*cells, request=replace(tpot(30), objective=objective)).choices
    assert (choice.answer, choice.arm, choice.load) == (RecommendationAnswer.DRAFTER, *expected)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("tpot_8", "limit_ms", "begin"),
    [
        (20.0, 30, "With the latency targets: use eagle3 at concurrency 8: "),
        (40.0, 30, "With the latency targets: use eagle3 at concurrency 1: "),
        (40.0, 10, "With the latency targets: nothing meets the targets."),
    ],
)
def test_the_headline_of_a_run_with_targets_is_the_recommendation_within_them(
    tpot_8: float, limit_ms: float, begin: str
) -> None:
    cells = [Given("none", load, tps=100 * load, tpot=25 + load) for load in (1, 8)]
    cells += [Given("eagle3", 1, tps=150, gain=1.5), Given("eagle3", 8, tps=1200, gain=1.5, tpot=tpot_8)]
    plan, summary = plan_with(cells), summary_of(*cells)
    found = recommend(plan, summary, tpot(limit_ms))
    choices = [each for choice in found.choices for each in choice.at_each_load]
    facts = HeadlineFacts(plan, judged_of(summary), (), True, False, choices=choices, within_targets=found.choices)
    assert headline_of(facts).startswith(begin)
    assert len(headline_of(facts).split()) <= WORDS_MAX


@pytest.mark.runs
def test_a_drafter_that_alone_meets_the_targets_at_a_large_load_is_not_beaten_by_a_gain_at_a_small_one() -> None:
    """Its gain is not clear, but the baseline is shown to miss the targets at every load."""
    cells = [Given("none", load, tps=90.0 * load, tpot=90) for load in (1, 8)]
    cells += [Given("eagle3", 1, tps=150, gain=1.5), Given("eagle3", 8, tps=800, gain=1.1, tpot=90)]
    cells += [Given("ngram", 1, tps=90, gain=1.0, tpot=90), Given("ngram", 8, tps=900, gain=1.2, half=0.3)]
    (choice,) = decide(*cells, request=tpot(30)).choices
    assert (choice.arm, choice.load) == ("ngram", "8")


@pytest.mark.runs
def test_a_load_that_could_not_be_judged_is_named_with_its_reason_and_a_remedy() -> None:
    invalid = Given("none", 1, valid=False, findings={"ClientSaturated": Severity.INVALID})
    (choice,) = decide(invalid, Given("none", 8, tps=500, tpot=40), request=tpot(30)).choices
    assert choice.why == (
        "no arm is known to meet the targets; the baseline is unknown at 1, invalid (ClientSaturated): measure again"
    )


INVALID_AT_8 = {"ChunksCoalesced": Severity.WARNING, "ClientSaturated": Severity.INVALID}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("cells", "load", "sustained", "missed_at", "reason"),
    [
        (
            [Given("none", at, tpot=ms) for at, ms in ((1, 20), (8, 40), (32, 20))],
            None,
            "1",
            "8",
            "TPOT p95 ≤ 30 ms: 40",
        ),
        (
            [Given("none", at, tpot=ms) for at, ms in ((1, 20), (8, 25), (32, 40))],
            "8",
            "8",
            "32",
            "TPOT p95 ≤ 30 ms: 40",
        ),
        (
            [Given("none", 1), Given("none", 8, valid=False, findings=INVALID_AT_8), Given("none", 32)],
            None,
            "1",
            None,
            "unknown from 8 on: invalid (ClientSaturated)",
        ),
    ],
    ids=["a load above a missed one does not count", "all loads count where one is requested", "unknown from invalid"],
)
def test_sustained_load(
    cells: list[Given], load: str | None, sustained: str, missed_at: str | None, reason: str
) -> None:
    (choice,) = decide(*cells, request=RecommendationRequest(targets=tpot(30).targets, load=load)).choices
    (row,) = choice.sustained
    assert (row.load, row.missed_at) == (sustained, missed_at)
    assert (row.reason or "").startswith(reason)
    assert load is None or [each.load for each in choice.at_each_load] == [load]


# How often decide recommends a drafter: rarely where none is faster, nearly always where all are.


CONSTRAINTS_ARMS: list[dict[str, Any]] = [
    {"name": "eagle3", "method": "eagle3", "model": "e"},
    {"name": "draft", "method": "draft_model", "model": "small"},
    {"name": "mtp", "method": "mtp"},
    {"name": "ngram", "method": "ngram"},
]
CONSTRAINTS_PLAN = plan_of(drafters=CONSTRAINTS_ARMS, placement={"gpus": 1})
CONSTRAINTS_CELLS = (
    Given("none"),
    Given("eagle3", tps=200, gain=2.0),
    Given("mtp", tps=180, gain=1.8),
    Given("draft", tps=160, gain=1.6),
    Given("ngram", tps=130, gain=1.3),
)


def decide_of_constraints(constraints: dict[str, Any], *cells: Given, gb: float | None = None) -> Recommendation:
    """Recommend under constraints; `gb` is the reported weight size of drafter eagle3."""
    cells = cells or CONSTRAINTS_CELLS
    summary = summary_of(*cells)
    arms = [each for each in CONSTRAINTS_ARMS if each["name"] in {cell.arm for cell in cells}]
    if gb is not None:
        fact = Fact.observed(gb * 1e9, "the engine")
        seen = ArmEnvironment(arm="eagle3", launches=["0-a"], facts={FactName.DRAFTER_WEIGHTS_BYTES: fact})
        summary = summary.model_copy(update={"arm_environments": [seen]})
    return recommend(plan_of(drafters=arms, placement={"gpus": 1}), summary, RecommendationRequest(**constraints))


@pytest.mark.parametrize(
    ("constraints", "inputs", "arm", "out"),
    [
        ({}, {}, "eagle3", set()),
        ({"can_train": False}, {}, "mtp", {"eagle3"}),
        ({"spare_memory_gb": 0}, {}, "ngram", {"eagle3", "mtp", "draft"}),
        ({"spare_memory_gb": 1}, {"gb": 1.8}, "mtp", {"eagle3"}),
        ({"spare_memory_gb": 2}, {"gb": 1.8}, "eagle3", set()),
        ({"spare_memory_gb": 2}, {}, "eagle3", set()),
    ],
)
def test_constraint_rules_arms_out_and_the_best_remaining_arm_is_chosen(
    constraints: dict[str, Any], inputs: dict[str, Any], arm: str, out: set[str]
) -> None:
    found = decide_of_constraints(constraints, **inputs)
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.DRAFTER, arm)
    assert {each.arm for each in choice.at_each_load} == {arm}
    assert set(found.ruled_out) == out
    assert all(name in choice.reason for name in out)
    assert {each.arm for each in found.candidates} == {cell.arm for cell in CONSTRAINTS_CELLS}, (
        "candidates still list every arm"
    )


def test_baseline_is_recommended_with_a_reason_when_no_drafter_is_left() -> None:
    found = decide_of_constraints({"spare_memory_gb": 0}, Given("none"), Given("eagle3", gain=2.0))
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.NO_DRAFTER, "none")
    assert choice.reason.startswith("no drafter is left; ruled out: eagle3 (needs memory of its own)")
    assert found.sentence.startswith("For throughput, without spare memory: no drafter pays")


def test_arm_with_lossy_verification_is_ruled_out_and_named() -> None:
    fly = {**CONSTRAINTS_ARMS[0], "speculativeConfig": {"rejection_sample_method": "fly"}}
    plan = plan_of(drafters=[fly, *CONSTRAINTS_ARMS[1:]], engine={"kind": "vllm"}, placement={"gpus": 1})
    found = recommend(plan, summary_of(*CONSTRAINTS_CELLS), RecommendationRequest())
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.DRAFTER, "mtp")
    assert found.ruled_out == {"eagle3": "lossy verification: speculativeConfig.rejection_sample_method: fly"}
    assert found.sentence.startswith("For throughput, without eagle3 (lossy verification): use mtp at ")


def test_unknown_drafter_memory_is_reported_and_rules_nothing_out() -> None:
    limits = decide_of_constraints({"spare_memory_gb": 2}, gb=1.8).limits
    assert any("It is not known whether draft, mtp fits into the spare memory" in each for each in limits)


@pytest.mark.parametrize("method", [each for each in Method if each not in (Method.NONE, Method.CUSTOM)])
def test_only_post_hoc_drafters_need_training(method: Method) -> None:
    drafter = CONSTRAINTS_PLAN.arm("eagle3").drafter
    assert drafter is not None
    arms = [Arm.model_construct(name="arm", drafter=drafter.model_copy(update={"method": method}))]
    found = ruled_out(
        CONSTRAINTS_PLAN.model_copy(update={"arms": arms}), summary_of(), RecommendationRequest(can_train=False), {}
    )
    without = {Method.NGRAM, Method.SUFFIX, Method.LOOKAHEAD, Method.DRAFT_MODEL, Method.MTP}
    assert ("arm" in found) == (method not in without)


ON_GPUS = plan_of(placement={"gpus": 4})
DRAFTER = {"name": "eagle3", "method": "eagle3", "model": "e"}
WITHOUT_GPUS = plan_of(drafters=[DRAFTER])
PRICE = Prices(gpu_hour={"*": 2.5})
COSTS_CELLS = (Given("none", tps=100), Given("eagle3", tps=160, gain=1.6))


def decide_of_costs(*cells: Given, prices: Prices = PRICE, **options: Any) -> Recommendation:
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
    found = decide_of_costs(*COSTS_CELLS)
    base = candidate_of(found, "none")
    assert value(base, "requests_per_hour") == pytest.approx(3600)
    assert value(base, "cost_per_request") == pytest.approx(10 / 3600)
    assert value(base, "cost_per_million_output_tokens") == pytest.approx(10 / 0.36)
    assert value(candidate_of(found, "eagle3"), "cost_saved") == pytest.approx(1 - 1 / 1.6)
    assert (found.choices[0].answer, found.choices[0].arm) == (RecommendationAnswer.DRAFTER, "eagle3")
    assert found.prices == "2.5 USD per GPU-hour x 4 GPUs"
    assert base.figures["cost_per_request"].unit == "USD"


def test_cost_interval_is_the_inverted_throughput_interval() -> None:
    rate = candidate_of(decide_of_costs(*COSTS_CELLS), "none").figures["cost_per_request"]
    assert rate.interval is not None
    assert rate.interval.low < present(rate.value) < rate.interval.high
    assert rate.interval.high == pytest.approx(10 / (3600 * 0.97), rel=0.001)


HOURS = st.floats(0.01, 1000)
TPS = st.floats(1, 1e5)


@settings(max_examples=40)
@given(HOURS, TPS, st.floats(0.3, 4))
def test_cost_identities_hold_for_any_prices(hour: float, tps: float, gain: float) -> None:
    prices = Prices(machine_hour=hour)
    found = decide_of_costs(Given("none", tps=tps), Given("eagle3", tps=tps * gain, gain=gain), prices=prices)
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
    found = decide_of_costs(slow, Given("eagle3", tps=160, gain=1.6, tpot=20), targets=(target,))
    arm = candidate_of(found, "eagle3")
    assert arm.gain is None
    assert "cost_saved" not in arm.figures
    assert found.choices[0].arm == "eagle3", "only eagle3 meets the target"


def test_arms_with_different_best_loads_are_compared_at_their_own_costs() -> None:
    """Each arm is taken at its best load within the targets; the cost is a third."""
    cells = [Given("none", 8, tps=300, tpot=20), Given("none", 32, tps=700, tpot=50)]
    cells += [Given("eagle3", load, tps=tps, gain=1.5, tpot=20) for load, tps in ((8, 450), (32, 900))]
    (choice,) = decide_of_costs(*cells, targets=(SloTarget(metric="tpot_ms", limit_ms=30),)).choices
    assert (choice.arm, choice.load, choice.baseline_load) == ("eagle3", "32", "8")
    assert present(choice.gain).value == pytest.approx(3)


def with_gpus(count: float, source: str = "s") -> RunSummary:
    """Return the summary of a run whose engines reported so many GPUs."""
    facts = {FactName.GPU: Fact.observed("NVIDIA H100", "s"), FactName.GPU_COUNT: Fact.observed(count, source)}
    seen = [ArmEnvironment(arm=arm, launches=["0-a"], facts=facts) for arm in ("none", "eagle3")]
    return summary_of(*COSTS_CELLS).model_copy(update={"arm_environments": seen})


def test_each_arm_costs_the_price_of_its_own_hour() -> None:
    """By hand: 1.6 times the throughput on twice the GPUs costs 1.25 times as much per token."""
    seen = [with_gpus(count).arm_environments[at] for at, count in enumerate((1, 2))]
    summary = summary_of(*COSTS_CELLS).model_copy(update={"arm_environments": seen})
    found = recommend(WITHOUT_GPUS, summary, RecommendationRequest(Objective.COST, prices=PRICE))
    assert present(present(candidate_of(found, "eagle3").gain).value) == pytest.approx(1.6 / 2)
    assert value(candidate_of(found, "eagle3"), "cost_saved") == pytest.approx(1 - 2 / 1.6)


def prices_of(prices: Prices, plan: Plan = ON_GPUS, summary: RunSummary | None = None) -> str:
    return recommend(plan, summary or summary_of(*COSTS_CELLS), RecommendationRequest(prices=prices)).prices


@pytest.mark.parametrize(
    ("prices", "plan", "summary", "expected"),
    [
        (PRICE, ON_GPUS, None, "2.5 USD per GPU-hour x 4 GPUs"),
        (PRICE.model_copy(update={"gpus": 1}), WITHOUT_GPUS, None, "2.5 USD per GPU-hour x 1 GPU"),
        (PRICE.model_copy(update={"gpus": 8}), WITHOUT_GPUS, None, "2.5 USD per GPU-hour x 8 GPUs"),
        (
            Prices(gpu_hour={"NVIDIA H100": 3.0, "*": 1.0}),
            WITHOUT_GPUS,
            with_gpus(2),
            "3 USD per GPU-hour x 2 NVIDIA H100",
        ),
    ],
    ids=["plan", "given one", "given", "observed"],
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
        recommend(ON_GPUS, summary_of(*COSTS_CELLS), RecommendationRequest(Objective.COST))
    with pytest.raises(ValidationError, match="greater than or equal to"):
        Prices(machine_hour=1e-320)


def drawn(rng: np.random.Generator, arm: str, load: int) -> Cell:
    """The mean of four log gains around none, with their t interval over repeats."""
    values = rng.normal(0.0, 0.04, 4)
    bounds = present(t_bounds(float(values.mean()), values))
    gain, half = math.exp(float(values.mean())), (bounds.high - bounds.low) / 2
    cell = Given(arm, load, tps=100.0 * load, gain=gain, half=half, repeats=4).cell
    speedup = present(cell.speedup)
    interval = present(speedup.interval).model_copy(update={"method": "t, unit: repeat", "freedom": 3.0})
    return cell.model_copy(update={"speedup": speedup.model_copy(update={"interval": interval})})


@pytest.mark.draws
def test_equal_arms_lead_to_a_recommendation_in_at_most_5_percent_of_runs() -> None:
    """A run has six comparisons; without Holm's correction it would be one run in eight."""
    rng, loads, wrong = np.random.default_rng(11), (1, 8, 32), 0
    summary = summary_of(*(Given("none", load, tps=100.0 * load, repeats=4) for load in loads))
    for _ in range(300):
        cells = [drawn(rng, arm, load) for load in loads for arm in ("eagle3", "ngram")]
        (choice,) = recommend(
            PLAN, summary.model_copy(update={"cells": [*summary.cells, *cells]}), RecommendationRequest()
        ).choices
        wrong += any(each.answer is RecommendationAnswer.DRAFTER for each in choice.at_each_load)
    assert wrong / 300 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 300)
