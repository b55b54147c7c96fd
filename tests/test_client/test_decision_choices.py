"""Recommendations for cells with a known right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import RecommendationRequest
from specbench_client.documents.figure import Verdict
from specbench_client.documents.finding import Severity
from specbench_client.documents.recommendation import (
    Attainment,
    Objective,
    Recommendation,
    RecommendationAnswer,
    SloTarget,
)
from specbench_testing.decision_summaries import Given, plan_of, summary_of
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

PLAN = plan_of()
BASE = Given("none")
BROKEN = Given("eagle3", gain=2.0, valid=False)


def decide(*cells: Given, request: RecommendationRequest | None = None, **options: Any) -> Recommendation:
    return recommend(PLAN, summary_of(*cells, **options), request or RecommendationRequest())


def answer(*cells: Given, request: RecommendationRequest | None = None) -> tuple[RecommendationAnswer, str | None]:
    (choice,) = decide(*cells, request=request).choices
    return choice.answer, choice.arm


def tpot(limit_ms: float) -> RecommendationRequest:
    return RecommendationRequest(targets=(SloTarget(metric="tpot_ms", limit_ms=limit_ms),))


def test_clearly_faster_drafter_is_recommended_with_its_gain() -> None:
    found = decide(BASE, Given("eagle3", tps=150, gain=1.5), Given("ngram", tps=90, gain=0.9))
    assert (found.choices[0].answer, found.choices[0].arm) == (RecommendationAnswer.DRAFTER, "eagle3")
    assert found.sentence == "For throughput: use eagle3 at concurrency 1, 1.50x [1.46, 1.55] the baseline's throughput"
    assert [each.conclusion for each in found.candidates] == [None, Verdict.BETTER, Verdict.WORSE]


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
    ("not shown equally fast", [Given("ngram", gain=1.0, half=0.3)], (RecommendationAnswer.CANNOT_TELL, None)),
    ("not shown faster", [Given("ngram", gain=1.2, half=0.3)], (RecommendationAnswer.CANNOT_TELL, None)),
    (
        "slightly faster, and significant",
        [Given("ngram", gain=1.02, half=0.01)],
        (RecommendationAnswer.DRAFTER, "ngram"),
    ),
    ("too few repeats", [Given("ngram", gain=2.0, repeats=2)], (RecommendationAnswer.CANNOT_TELL, None)),
    ("no interval", [Given("ngram", gain=2.0, half=None)], (RecommendationAnswer.CANNOT_TELL, None)),
    ("fast but invalid", [Given("ngram", gain=9.0, valid=False)], (RecommendationAnswer.CANNOT_TELL, None)),
    ("one slower, one invalid", [Given("ngram", gain=0.8), BROKEN], (RecommendationAnswer.CANNOT_TELL, None)),
    ("one faster, one invalid", [Given("ngram", gain=1.4), BROKEN], (RecommendationAnswer.DRAFTER, "ngram")),
    ("baseline only", [], (RecommendationAnswer.CANNOT_TELL, None)),
    (
        "invalid at the best load",
        [
            *(Given("none", load, tps=tps) for load, tps in ((1, 50), (32, 700))),
            Given("ngram", 1, tps=45, gain=0.9),
            Given("ngram", 32, tps=1400, gain=2.0, valid=False),
        ],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
    (
        "no baseline at the best load",
        [Given("none", 1, tps=50), Given("ngram", 1, tps=45, gain=0.9), Given("ngram", 32, tps=700)],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
]


@pytest.mark.parametrize(("cells", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_case_has_its_recommendation(
    cells: Sequence[Given], expected: tuple[RecommendationAnswer, str | None]
) -> None:
    assert answer(*([] if any(each.arm == "none" for each in cells) else [BASE]), *cells) == expected


def test_without_a_baseline_or_a_measurement_nothing_is_recommended() -> None:
    (choice,) = decide(Given("ngram"), Given("eagle3", tps=200)).choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.CANNOT_TELL, None)
    assert "the baseline was not measured" in choice.reason
    assert decide().choices == []
    assert decide().sentence == "For throughput: nothing was measured"


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


def test_all_invalid_cells_give_no_recommendation_with_a_reason() -> None:
    """Only findings that invalidate are reasons: a cell has warnings and notes too."""
    findings = {
        "ChunksCoalesced": Severity.WARNING,
        "ClientSaturated": Severity.INVALID,
        "GreedyDivergence": Severity.INFO,
    }
    found = decide(*(Given(arm, gain=2.0, valid=False, findings=findings) for arm in ("none", "ngram")))
    (choice,) = found.choices
    assert (choice.answer, choice.arm) == (RecommendationAnswer.CANNOT_TELL, None)
    assert choice.reason.startswith("the baseline, ngram cannot be chosen: invalid (ClientSaturated)"), (
        "the baseline is not called `none`"
    )
    assert found.sentence.endswith("(the run is not trustworthy)")
    assert (
        "The run is not trustworthy (ClientSaturated, ChunksCoalesced), and neither is this recommendation."
        in found.limits
    )


@pytest.mark.parametrize("load", [8, 1], ids=["paired", "another load"])
def test_gain_over_too_few_repeats_has_no_interval(load: int) -> None:
    """As in the report's tables: it would not cover the variation between runs."""
    cells = [Given("none", 8), Given("none", 1, tps=90), Given("ngram", load, tps=200, gain=2.0, repeats=2)]
    recommendation = decide(*cells)
    (choice,) = recommendation.choices
    assert "ngram has too few repeats to tell (2.00x" in choice.reason
    assert "[" not in choice.reason + recommendation.sentence
    assert not any(each.gain.interval for each in recommendation.candidates if each.gain)


def test_indistinguishable_arms_are_named() -> None:
    (choice,) = decide(BASE, Given("eagle3", gain=1.51), Given("ngram", gain=1.5)).choices
    assert choice.tied == ["eagle3"]
    assert "indistinguishable from eagle3" in choice.reason


def test_one_marginal_result_among_many_comparisons_is_no_recommendation() -> None:
    others = [each for load in range(2, 14) for each in (Given("none", load), Given("ngram", load, gain=1.0))]
    bare = Given("ngram", 1, gain=1.032)
    assert answer(BASE, bare)[0] is RecommendationAnswer.DRAFTER
    many = decide(BASE, bare, *others)
    assert many.choices[0].at_each_load[0].answer is RecommendationAnswer.CANNOT_TELL
    assert (
        next(each for each in many.candidates if each.gain and each.gain.value == 1.032).conclusion is Verdict.UNCLEAR
    )


def test_candidate_conclusions_match_the_verdict() -> None:
    summary = run_of_world(SyntheticRun(prompts=12, drafters=("ngram", "slow"), step_ms={"slow": 40.0}))
    conclusions = {(each.arm, each.load): each.conclusion for each in present(summary.recommendation).candidates}
    assert [conclusions["ngram", "1"], conclusions["slow", "1"]] == [Verdict.BETTER, Verdict.WORSE]
    assert "Use ngram at concurrency 1: " in summary.headline
    assert present(summary.recommendation).choices[0].arm == "ngram"


# Targets


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


def test_target_without_a_measured_figure_is_not_met() -> None:
    request = RecommendationRequest(targets=(SloTarget(metric="ttft_ms", limit_ms=100),))
    found = decide(BASE, Given("eagle3", gain=1.5), request=request)
    assert {each.attainment for each in found.candidates} == {Attainment.UNKNOWN}
    assert found.choices[0].answer is RecommendationAnswer.CANNOT_TELL


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


@pytest.mark.parametrize(
    ("half", "why"),
    [
        (None, "TPOT p95 has no interval, which needs at least 72 prompts"),
        (0.6, "the interval of TPOT p95 includes 30 ms"),
    ],
)
def test_target_that_is_met_by_value_is_explained(half: float | None, why: str) -> None:
    cells = Given("none", tpot=20, tpot_half=half), Given("eagle3", tpot=20, tpot_half=half, gain=1.5)
    (choice,) = decide(*cells, request=tpot(30)).choices
    assert choice.arm == "eagle3"
    assert choice.reason.endswith(f"; it meets the targets by value, but this is not shown: {why}")


# Several loads


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


def test_open_loop_recommends_a_drafter_for_latency_but_not_for_throughput() -> None:
    cells = [Given("none", 2.0, tps=200), Given("ngram", 2.0, tps=200.5, gain=1.6)]
    assert answer(*cells)[0] is RecommendationAnswer.NO_DRAFTER
    assert answer(*cells, request=RecommendationRequest(Objective.LATENCY)) == (RecommendationAnswer.DRAFTER, "ngram")


def test_unmeasured_load_is_rejected_with_the_measured_ones() -> None:
    with pytest.raises(InvalidSpec, match="'4' was not measured \\(measured: 1\\)"):
        decide(BASE, request=RecommendationRequest(load="4"))


ARMS = ("eagle3", "eagle3-long", "ngram")
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
                recommended in (RecommendationAnswer.CANNOT_TELL, RecommendationAnswer.NOTHING_MEETS)
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
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
    (
        "the only one that meets them is slower",
        [Given("none", tpot=40), Given("eagle3", tpot=20, gain=0.7)],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
    (
        "none meets them",
        [Given("none", tpot=40), Given("eagle3", tpot=35, gain=1.5)],
        (RecommendationAnswer.NOTHING_MEETS, None),
    ),
    (
        "an invalid load might meet them",
        [
            *(Given(arm, 1, tps=50, tpot=20, valid=False) for arm in ("none", "eagle3")),
            *(Given(arm, 8, tps=500, tpot=40, gain=1.5) for arm in ("none", "eagle3")),
        ],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
    (
        "an invalid arm might meet them",
        [Given("none", tpot=40), Given("eagle3", tpot=20, valid=False)],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
    (
        "a load that was not measured might meet them",
        [*(Given("none", load, tpot=40) for load in (1, 8)), Given("eagle3", 8, tpot=40, gain=1.5)],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
    (
        "the baseline misses them, and is invalid where it might meet them",
        [
            Given("none", 1, tps=50, tpot=20, valid=False),
            Given("none", 8, tps=500, tpot=40),
            *(Given("eagle3", load, tps=100 * load, tpot=20, gain=1.2, half=0.3) for load in (1, 8)),
        ],
        (RecommendationAnswer.CANNOT_TELL, None),
    ),
]


@pytest.mark.parametrize(("cells", "expected"), [row[1:] for row in WITHIN_30_MS], ids=[row[0] for row in WITHIN_30_MS])
def test_targets_limit_the_choice(cells: Sequence[Given], expected: tuple[RecommendationAnswer, str | None]) -> None:
    assert answer(*cells, request=tpot(30)) == expected


def test_a_load_that_could_not_be_judged_is_named_with_its_reason_and_a_remedy() -> None:
    invalid = Given("none", 1, valid=False, findings={"ClientSaturated": Severity.INVALID})
    (choice,) = decide(invalid, Given("none", 8, tps=500, tpot=40), request=tpot(30)).choices
    assert choice.reason == (
        "the baseline is shown to miss the targets, and could not be judged at 1 (invalid (ClientSaturated));"
        " correct what the findings report, and measure again"
    )


INVALID_AT_8 = {"ChunksCoalesced": Severity.WARNING, "ClientSaturated": Severity.INVALID}


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
