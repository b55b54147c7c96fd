"""Speed-ups, their one interval, and the verdicts and headlines that follow from them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from known_truth.coverage import paired
from known_truth.experiment import CATEGORIES, Experiment
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_client.analysis.breakdown.breakdown import BreakdownClass, PlacedSteps, StepPlaces, breakdown_by_place
from specbench_client.analysis.estimates.cell_figures import SampleRows, ratio_figures
from specbench_client.analysis.estimates.speedups import (
    E2E_SPEEDUP,
    SPEEDUP,
    TPOT_SPEEDUP,
    end_to_end,
    figures_by_name,
    pair_layout,
    paired_speedup,
)
from specbench_client.analysis.explanation.factors import explain_speedup
from specbench_client.analysis.explanation.traffic_mix import (
    ACCEPTANCE,
    PARTS,
    SPEED,
    MixExponents,
    MixSums,
    project_mix,
)
from specbench_client.analysis.statistics.effects import Effect, figure_effect
from specbench_client.analysis.statistics.row_layout import layout_of
from specbench_client.analysis.summary.cells import EvaluatedCell, with_claims
from specbench_client.analysis.summary.headline import WORDS_MAX, HeadlineFacts, conclusions, headline_of
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.figure import Figure, FigureInterval, Verdict
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.documents.recommendation import LoadChoice, RecommendationAnswer, UnknownCell
from specbench_client.documents.summary import Cell, Claims, RequestCounts, RunSummary, best_speedup_text
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import TextCodes
from specbench_testing.decision_summaries import DRAFTERS, plan_of
from specbench_testing.present import present
from specbench_testing.speedup_experiment import TOKENS, pairs_of
from specbench_testing.synthetic_records import SyntheticRun, run_of_world
from specbench_testing.tables import pairs_of_frame

PLAN = SyntheticRun().plan


def figure(value: float | None, half: float | None = 0.1) -> Figure:
    interval = (
        None if half is None or value is None else FigureInterval(low=value - half, high=value + half, method="m")
    )
    return Figure(value=value, unit="ratio", definition="d", n=20, interval=interval, source="both")


def evaluated_cell(
    arm: str,
    load: int | Level,
    value: float | None,
    half: float | None = 0.1,
    *,
    p: float = 0.0001,
    valid: bool = True,
    repeats: int | None = 3,
    workload: str = "chat",
) -> EvaluatedCell:
    speedup = figure(value, half)
    cell = Cell(
        arm=arm,
        workload=workload,
        level=load if isinstance(load, Level) else Level(concurrency=load),
        arrivals=ArrivalPattern(process="ClosedLoop"),
        points=["p"],
        counts=RequestCounts(),
        figures={},
        speedup=None if arm == "none" else speedup.without_interval(too_few_repeats(repeats or 3)),
        valid=valid,
        compared_repeats=repeats,
    )
    return EvaluatedCell(cell, (), effect_of(speedup, p, repeats or 3), 20)


def effect_of(figure: Figure, p: float, repeats: int = 3) -> Effect | None:
    """The effect of a figure, with an interval that has this p-value if the figure has one."""
    bare = figure_effect(figure.model_copy(update={"interval": None}), repeats)
    if bare is None or figure.interval is None:
        return bare
    error = abs(bare.value) / t_quantile_of(p) if bare.value else 1.0
    return bare.with_errors(error, error, FREEDOM, "m")


FREEDOM = 1000.0


def t_quantile_of(p: float) -> float:
    return float(stats.t.isf(p / 2, FREEDOM))


def choice_at(arm: str | None = None, load: str = "1", tied: Sequence[str] = (), **unknown: str) -> LoadChoice:
    """Return the recommendation at a load; `unknown`: why each arm is unknown there."""
    cells = [UnknownCell(arm=each, workload="chat", load=load, why=why) for each, why in unknown.items()]
    answer = RecommendationAnswer.DRAFTER if arm else RecommendationAnswer.INCONCLUSIVE
    return LoadChoice(answer=answer, arm=arm, tied=list(tied), unknown=cells, reason="", workload="chat", load=load)


def headline(*cells: EvaluatedCell) -> str:
    choices = [
        choice_at(load=each.level.label, **{each.arm: "invalid"})
        for each in (one.cell for one in cells)
        if not each.valid
    ]
    return headline_of(HeadlineFacts(PLAN, with_claims(cells), (), True, False, choices=choices))


HEADLINES: dict[str, tuple[Sequence[EvaluatedCell], str]] = {
    "faster and without a difference": (
        [
            evaluated_cell("none", 1, None),
            evaluated_cell("ngram", 1, 1.42),
            evaluated_cell("ngram", 8, 1.0, 0.03, p=0.7),
        ],
        ("Use ngram at concurrency 1: 1.42x [1.32, 1.52]."),
    ),
    "rates": (
        [evaluated_cell("ngram", Level(rate=0.5), 1.42), evaluated_cell("ngram", Level(rate=2), 1.0, 0.03, p=0.7)],
        ("Use ngram at 0.5/s: 1.42x [1.32, 1.52]."),
    ),
    "trace": (
        [evaluated_cell("ngram", Level(), 1.42)],
        "Use ngram at the trace's own speed: 1.42x [1.32, 1.52].",
    ),
    "slower": (
        [evaluated_cell("ngram", 4, 0.64)],
        "No drafter is shown to be faster: at best ngram, 0.64x [0.54, 0.74] at concurrency 4.",
    ),
    "every conclusion": (
        [
            evaluated_cell("ngram", 1, 1.5),
            evaluated_cell("ngram", 2, 1.4),
            evaluated_cell("ngram", 4, 1.12, p=0.04),
            evaluated_cell("ngram", 8, 1.0, 0.03, p=1.0),
            evaluated_cell("ngram", 64, 1.0, p=1.0),
            evaluated_cell("ngram", 16, 1.3, None),
            evaluated_cell("ngram", 32, 1.4, valid=False),
        ],
        (
            "Use ngram up to concurrency 2: 1.50x [1.40, 1.60] at 1, 1.40x [1.30, 1.50] at 2; ngram is unknown at 32,"
            " 16: measure again."
        ),
    ),
    "too few repeats": (
        [evaluated_cell("ngram", 1, 1.42, repeats=1), evaluated_cell("ngram", 8, 1.02, p=0.7, repeats=1)],
        (
            "Inconclusive: at best ngram, 1.42x at concurrency 1; ngram is unknown at 1, 8 (1 repeat: too few to tell):"
            " measure again."
        ),
    ),
    "too few repeats at one load": (
        [
            evaluated_cell("ngram", 1, 1.5),
            evaluated_cell("ngram", 2, 1.4, repeats=2),
            evaluated_cell("ngram", 4, 9.0, valid=False, repeats=1),
        ],
        ("Use ngram at concurrency 1: 1.50x [1.40, 1.60]; ngram is unknown at 4, 2: measure again."),
    ),
    "a gain at many loads": (
        [evaluated_cell("ngram", load, ratio) for load, ratio in ((1, 1.5), (2, 1.7), (4, 1.6), (8, 1.3), (16, 1.4))],
        "Use ngram up to concurrency 16: 1.30x [1.20, 1.40] to 1.70x [1.60, 1.80].",
    ),
    "an invalid arm": (
        [evaluated_cell("broken", 1, 9.0, valid=False), evaluated_cell("ngram", 1, 1.5)],
        "Use ngram at concurrency 1: 1.50x [1.40, 1.60]; broken is unknown at 1 (invalid): measure again.",
    ),
    "invalid at the lowest load": (
        [
            evaluated_cell("ngram", 1, 9.0, valid=False),
            evaluated_cell("ngram", 2, 1.5),
            evaluated_cell("ngram", 4, 1.4),
        ],
        (
            "Use ngram from concurrency 2 to 4: 1.50x [1.40, 1.60] at 2, 1.40x [1.30, 1.50] at 4;"
            " ngram is unknown at 1 (invalid): measure again."
        ),
    ),
    "a gap of loads": (
        [
            evaluated_cell("ngram", 1, 1.5),
            evaluated_cell("ngram", 2, 1.0, 0.03, p=0.7),
            evaluated_cell("ngram", 4, 1.4),
        ],
        "Use ngram at 2 of 3 loads: 1.50x [1.40, 1.60] at 1, 1.40x [1.30, 1.50] at 4.",
    ),
    "the baseline alone": ([evaluated_cell("none", 1, None)], "Only the baseline was measured."),
    "the best arm at each load": (
        [
            evaluated_cell("eagle3", 1, 2.0),
            evaluated_cell("eagle3", 8, 1.2),
            evaluated_cell("ngram", 1, 1.3),
            evaluated_cell("ngram", 8, 1.9),
        ],
        ("Use eagle3 at concurrency 1: 2.00x [1.90, 2.10], ngram at concurrency 8: 1.90x [1.80, 2.00]."),
    ),
    "several workloads": (
        [
            evaluated_cell("ngram", 1, 1.4, workload="edits"),
            evaluated_cell("ngram", 8, 1.3, workload="edits"),
            evaluated_cell("ngram", 1, 1.0, 0.03, p=0.8, workload="chat"),
            evaluated_cell("ngram", 8, 0.5, workload="chat"),
            evaluated_cell("eagle3", 1, 1.0, 0.03, p=0.8, workload="edits"),
            evaluated_cell("eagle3", 1, 0.5, workload="chat"),
        ],
        (
            "For edits: Use ngram up to concurrency 8: 1.40x [1.30, 1.50] at 1, 1.30x [1.20, 1.40] at"
            " 8. For chat: No drafter is shown to be faster: at best ngram, 1.00x [0.97, 1.03] at"
            " concurrency 1."
        ),
    ),
    "wide": (
        [evaluated_cell("ngram", 1, 1.09, 0.28, p=0.7)],
        "No drafter is shown to be faster: at best ngram, 1.09x [0.81, 1.37] at concurrency 1.",
    ),
}


@pytest.mark.runs
@pytest.mark.parametrize("case", HEADLINES)
def test_headline(case: str) -> None:
    cells, expected = HEADLINES[case]
    assert headline(*cells) == expected


FASTER = evaluated_cell("ngram", 1, 1.5)
DOUBTS = tuple(
    Finding(check=name, severity=severity, message="")
    for name, severity in (("C", Severity.INVALID), ("B", Severity.WARNING), ("A", Severity.INFO))
)
TRANSFORMERS = PLAN.model_copy(update={"engine": PLAN.engine.model_copy(update={"kind": EngineKind.TRANSFORMERS})})


def fault(check: str, arm: str) -> Finding:
    return Finding(check=check, severity=Severity.FAULT, message="", arm=arm, workload="chat", load="8")


EQUAL = with_claims((evaluated_cell("eagle3", 1, 1.5), evaluated_cell("ngram", 1, 1.45)))
LARGER = with_claims((evaluated_cell("eagle3", 1, 1.45), FASTER))
TWO_LOADS = with_claims([
    evaluated_cell(arm, load, value)
    for arm, row in {"eagle3": {1: 1.4, 8: 1.5}, "ngram": {1: 1.8, 8: 1.45}}.items()
    for load, value in row.items()
])  # fmt: skip
TIED = [choice_at("ngram", tied=["eagle3"])]
LOSSY = SyntheticRun(
    drafters=("ngram", "fly"),
    edits={
        "spec.engine": {"kind": "vllm"},
        "spec.drafters[1].speculativeConfig": {"rejection_sample_method": "fly"},
    },
).plan
FASTER_LOSSY = with_claims((evaluated_cell("ngram", 1, 1.4), evaluated_cell("fly", 1, 2.0)))
FACTS: dict[str, tuple[HeadlineFacts, str]] = {
    "findings, invalid ones first": (
        HeadlineFacts(PLAN, with_claims([FASTER]), DOUBTS, False, False),
        "Not trustworthy (C +1): Measured: ngram at concurrency 1: 1.50x [1.40, 1.60].",
    ),
    "simulated": (
        HeadlineFacts(PLAN, with_claims([FASTER]), (), True, True),
        "Simulated, not a measurement: Use ngram at concurrency 1: 1.50x [1.40, 1.60].",
    ),
    "research runtime": (
        HeadlineFacts(TRANSFORMERS, with_claims([FASTER]), (), True, False),
        "On a research runtime: Use ngram at concurrency 1: 1.50x [1.40, 1.60].",
    ),
    "an arm was not measured": (
        HeadlineFacts(
            PLAN, with_claims([FASTER]), (), True, False, choices=[choice_at("ngram", eagle3="not measured")]
        ),
        ("Use ngram at concurrency 1: 1.50x [1.40, 1.60]; eagle3 is unknown at 1 (not measured):"
            " measure again."),
    ),
    "an unknown arm with a clause of its own is not named again": (
        HeadlineFacts(
            PLAN, with_claims([FASTER, evaluated_cell("eagle3", 1, 1.6, repeats=1)]), (), True, False,
            choices=[choice_at("ngram", eagle3="1.60x, 1 repeat: too few to tell")],
        ),
        ("Use ngram at concurrency 1: 1.50x [1.40, 1.60]; eagle3 is unknown at 1 (1 repeat: too"
            " few to tell): measure again."),
    ),
    "only the baseline is valid": (
        HeadlineFacts(
            PLAN, with_claims([evaluated_cell("none", 1, None)]), (), True, False, {"draft": "out of memory"},
            choices=[choice_at(draft="not measured")],
        ),
        "Inconclusive; draft is unknown at 1 (failed): measure again.",
    ),
    "the baseline is invalid": (
        HeadlineFacts(
            PLAN, with_claims([evaluated_cell("none", 1, None), evaluated_cell("ngram", 1, 1.5, valid=False)]),
            (), True, False, choices=[choice_at(none="invalid", ngram="invalid")],
        ),
        "Inconclusive; the baseline, ngram are unknown at 1 (invalid): measure again.",
    ),
    "every arm failed": (
        HeadlineFacts(PLAN, (), (), False, False, dict.fromkeys(("none", "ngram"), "8 of 8 requests failed: no key.")),
        "Not trustworthy: Nothing was measured: none, ngram failed.",
    ),
    "one arm failed": (
        HeadlineFacts(PLAN, with_claims([FASTER]), (), True, False, {"draft": "out of memory"}),
        "Use ngram at concurrency 1: 1.50x [1.40, 1.60].",
    ),
    "recommended among faster arms": (
        HeadlineFacts(plan_of(), EQUAL, (), True, False, choices=TIED),
        ("Use ngram at concurrency 1: 1.45x [1.35, 1.55]."),
    ),
    "an arm at fault is not used": (
        HeadlineFacts(PLAN, EQUAL, [fault("ReuseLost", "eagle3")], True, False),
        ("Use ngram at concurrency 1: 1.45x [1.35, 1.55]; eagle3 (ReuseLost) is ruled out."),
    ),
    "tied with an arm that is as simple": (
        HeadlineFacts(
            plan_of([DRAFTERS[2], {**DRAFTERS[2], "name": "eagle3", "promptLookupMax": 4}]), EQUAL, (), True, False,
            choices=TIED,
        ),
        ("Use ngram at concurrency 1: 1.45x [1.35, 1.55]."),
    ),
    "the largest speed-up needs no reason": (
        HeadlineFacts(PLAN, LARGER, (), True, False, choices=TIED),
        ("Use ngram at concurrency 1: 1.50x [1.40, 1.60]."),
    ),
    "the reason names its load": (
        HeadlineFacts(
            plan_of(), TWO_LOADS, (), True, False,
            choices=[choice_at("ngram"), choice_at("ngram", "8", ["eagle3"])],
        ),
        ("Use ngram up to concurrency 8: 1.80x [1.70, 1.90] at 1, 1.45x [1.35, 1.55] at 8."),
    ),
    "lossy": (
        HeadlineFacts(LOSSY, FASTER_LOSSY, (), True, False),
        ("Use ngram at concurrency 1: 1.40x [1.30, 1.50]; fly (lossy verification) is ruled out."),
    ),
}  # fmt: skip


@pytest.mark.runs
@pytest.mark.parametrize("case", FACTS)
def test_headline_of_facts(case: str) -> None:
    facts, expected = FACTS[case]
    assert headline_of(facts) == expected


@pytest.mark.runs
def test_a_drafter_is_said_not_to_pay_only_if_that_is_shown_at_every_load() -> None:
    cells = with_claims([evaluated_cell("ngram", load, 0.98, 0.01, p=0.8) for load in (1, 8)])
    shown = {"answer": RecommendationAnswer.NO_DRAFTER}
    first, second = choice_at(load="1").model_copy(update=shown), choice_at(load="8")
    for last, words in ((second.model_copy(update=shown), "No drafter pays: "), (second, "No drafter is shown to be ")):
        assert headline_of(HeadlineFacts(PLAN, cells, (), True, False, choices=(first, last))).startswith(words)


@pytest.mark.runs
def test_without_a_baseline_the_fastest_cell_that_is_valid_is_named() -> None:
    plan = SyntheticRun(edits={"spec.baseline": "Skip"}).plan
    cells = [evaluated_cell("ngram", 1, None), evaluated_cell("ngram", 2, None, valid=False)]
    judged = [
        replace(each, cell=each.cell.model_copy(update={"figures": {"output_tps": figure(value)}}))
        for each, value in zip(cells, (100.0, 900.0), strict=True)
    ]
    found = [headline_of(HeadlineFacts(plan, some, (), True, False)) for some in (judged, judged[1:])]
    assert [text.startswith("ngram: 100.0 tokens/s at concurrency 1") for text in found] == [True, False]
    unknown = "ngram is unknown at 2 (invalid): measure again."
    assert found[0].endswith(f"no baseline, so no speed-up; {unknown}")
    assert found[1] == f"No speed-up can be stated without a baseline; {unknown}"
    failed = headline_of(HeadlineFacts(plan, judged, (), True, False, failures={"eagle3": "out of memory"}))
    assert failed.endswith(f"eagle3 failed; {unknown}")


LOADS = (1, 2, 4, 8, 16, 32)
ARM_NAMES = ("none", "ngram", "eagle3", "fly", *(f"arm{index}" for index in range(4)))
STATES = st.sampled_from((0.8, 1.0, 1.4, 2.0, "few", "invalid", None))
REASONS = st.sampled_from(("", "not measured", "its throughput was not measured", "1.50x [0.91, 2.47]"))
CHECKS = st.lists(st.sampled_from(("A", "B", "C")), max_size=3)


@st.composite
def mixtures(draw: st.DrawFn) -> HeadlineFacts:
    """Return facts about valid, invalid, doubtful and missing cells: at most eight arms, six loads, two workloads."""
    cells, choices = list[EvaluatedCell](), list[LoadChoice]()
    for workload in draw(st.sampled_from((("chat",), ("chat", "edits")))):
        for load in LOADS[: draw(st.integers(1, len(LOADS)))]:
            for arm in ARM_NAMES[: draw(st.integers(1, len(ARM_NAMES)))]:
                state = draw(STATES)
                if state is not None:
                    value = state if isinstance(state, float) else 1.3
                    valid, repeats = state != "invalid", 1 if state == "few" else 3
                    cells.append(
                        evaluated_cell(arm, load, value, 0.02, workload=workload, valid=valid, repeats=repeats)
                    )
            why = {arm: reason for arm in draw(st.sets(st.sampled_from(ARM_NAMES))) if (reason := draw(REASONS))}
            unknown = [UnknownCell(arm=arm, workload=workload, load=str(load), why=each) for arm, each in why.items()]
            answer = draw(st.sampled_from(RecommendationAnswer))
            choices.append(
                LoadChoice(
                    answer=answer, arm=draw(st.sampled_from(ARM_NAMES)), unknown=unknown, reason="",
                    workload=workload, load=str(load),
                )
            )  # fmt: skip
    findings = [Finding(check=each, severity=Severity.INVALID, message="") for each in draw(CHECKS)]
    findings += [fault(each, draw(st.sampled_from(ARM_NAMES))) for each in draw(CHECKS)]
    plan, failed = draw(st.sampled_from((PLAN, LOSSY, TRANSFORMERS, BARE))), draw(st.sets(st.sampled_from(ARM_NAMES)))
    failures = dict.fromkeys(sorted(failed), "out of memory")
    return HeadlineFacts(
        plan, with_claims(cells), findings, draw(st.booleans()), draw(st.booleans()), failures, choices
    )


BARE = PLAN.model_copy(update={"arms": [arm for arm in PLAN.arms if not arm.is_baseline]})


@pytest.mark.runs
@settings(max_examples=300, deadline=None)
@given(mixtures())
def test_the_headline_has_at_most_25_words_a_workload_and_no_answer_hides_what_is_unknown(facts: HeadlineFacts) -> None:
    text = headline_of(facts)
    workloads = {each.cell.workload for each in facts.judged}
    sentences = re.split(r" (?=For (?:chat|edits): )", text) if len(workloads) > 1 else [text]
    sentences = (
        [sentences[0] + " " + sentences[1], *sentences[2:]] if len(sentences) > len(workloads) > 0 else sentences
    )
    assert len(sentences) == max(1, len(workloads))
    assert max(len(each.split()) for each in sentences) <= WORDS_MAX == 25
    for workload, sentence in zip(dict.fromkeys(each.cell.workload for each in facts.judged), sentences, strict=False):
        unknown = [each for choice in facts.choices if choice.workload == workload for each in choice.unknown]
        if unknown and facts.plan.has_baseline:
            assert "unknown" in sentence
            assert sentence.endswith(": measure again.")


@pytest.mark.runs
@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([evaluated_cell("ngram", load, 1.0, p=0.8) for load in range(2, 12)], Verdict.UNCLEAR),
        ([], Verdict.FASTER),
        ([evaluated_cell("ngram", 2, 9.0, valid=False)], Verdict.FASTER),
    ],
    ids=["among many", "alone", "beside an invalid one"],
)
def test_a_marginal_result_is_corrected_for_all_valid_comparisons(
    others: list[EvaluatedCell], expected: Verdict
) -> None:
    cells = [evaluated_cell("ngram", 1, 1.12, p=0.03), *others]
    assert conclusions(with_claims(cells))[0][1] is expected


def cell_with_categories(
    load: int,
    categories: Mapping[str, tuple[Figure, float]],
    *,
    valid: bool = True,
    repeats: int = 3,
    speedup: float = 1.0,
    p: float = 0.9,
) -> EvaluatedCell:
    bare = evaluated_cell("ngram", load, speedup, p=p, valid=valid, repeats=repeats)
    by_category = {name: {SPEEDUP: each} for name, (each, _) in categories.items()}
    effects = {name: effect_of(each, p, repeats) for name, (each, p) in categories.items()}
    return replace(bare, cell=bare.cell.model_copy(update={"by_category": by_category}), category_effects=effects)


def claims(*cells: EvaluatedCell) -> list[Claims]:
    return [each.cell.claims for each in with_claims(cells) if each.cell.claims is not None]


@pytest.mark.runs
def test_one_significant_category_among_many_is_unclear() -> None:
    lucky = {"code": (figure(1.12), 0.03), **{f"c{each}": (figure(1.0), 0.8) for each in range(10)}}
    (found,) = claims(cell_with_categories(1, lucky))
    assert found.by_category["code"] is Verdict.UNCLEAR
    assert found.by_category["c0"] is Verdict.INDISTINGUISHABLE
    assert found.category_comparisons == 11
    (alone,) = claims(cell_with_categories(1, {"code": (figure(1.12), 0.03)}))
    assert alone.by_category["code"] is Verdict.FASTER


@pytest.mark.runs
def test_categories_of_all_cells_are_one_family_of_comparisons() -> None:
    one = {"code": (figure(0.8), 0.02), "chat": (figure(1.0), 0.9)}
    assert claims(cell_with_categories(1, one))[0].by_category["code"] is Verdict.SLOWER
    several = claims(*(cell_with_categories(load, one) for load in (1, 2, 4)))
    assert [each.by_category["code"] for each in several] == [Verdict.UNCLEAR] * 3
    assert {each.category_comparisons for each in several} == {6}


@pytest.mark.runs
def test_category_comparisons_do_not_affect_the_cells_claim() -> None:
    many = {f"c{each}": (figure(1.0), 0.8) for each in range(40)}
    (found,) = claims(cell_with_categories(1, many, speedup=1.2, p=0.04))
    assert (found.overall, found.comparisons) == (Verdict.FASTER, 1)


@pytest.mark.runs
@pytest.mark.parametrize(
    ("category", "valid", "repeats", "word"),
    [
        ((figure(1.4), 0.001), False, 3, Verdict.NOT_COMPARABLE),
        ((figure(1.4), 0.001), True, 2, Verdict.TOO_FEW_REPEATS),
        ((figure(1.4, None), 0.001), True, 3, Verdict.NO_INTERVAL),
        ((Figure(unit="ratio", definition="d", n=0, source="both"), 1.0), True, 3, Verdict.NOT_COMPARABLE),
    ],
    ids=["invalid", "few repeats", "few prompts", "not paired"],
)
def test_category_without_a_usable_comparison_makes_no_claim(
    category: tuple[Figure, float], valid: bool, repeats: int, word: Verdict
) -> None:
    (found,) = claims(cell_with_categories(1, {"code": category}, valid=valid, repeats=repeats))
    assert found.by_category["code"] is word


@pytest.mark.runs
def test_invalid_cells_do_not_count_as_comparisons() -> None:
    by_category = {"code": (figure(1.12), 0.03)}
    found = claims(cell_with_categories(1, by_category), cell_with_categories(2, by_category, valid=False, p=0.0001))
    assert (found[0].category_comparisons, found[0].comparisons) == (1, 1)
    assert found[0].by_category["code"] is Verdict.FASTER


def run_with(*cells: EvaluatedCell) -> RunSummary:
    summary = run_of_world(SyntheticRun(prompts=6, repeats=1))
    return summary.model_copy(update={"cells": [each.cell for each in with_claims(cells)]})


@pytest.mark.runs
def test_best_speedup_text_is_corrected_for_multiple_comparisons() -> None:
    lucky = cell_with_categories(1, {}, speedup=1.2, p=0.03)
    others = [cell_with_categories(load, {}, p=0.8) for load in range(2, 12)]
    assert best_speedup_text(run_with(lucky)) == "ngram 1.20x at concurrency 1"
    assert best_speedup_text(run_with(lucky, *others)) == "none faster"


@pytest.mark.runs
@pytest.mark.parametrize("check", ["AnswersWorse", "ReuseLost"])
def test_an_arm_at_fault_at_one_load_is_the_best_at_none(check: str) -> None:
    summary = run_with(*(cell_with_categories(load, {}, speedup=1.2, p=0.001) for load in (1, 8)))
    assert best_speedup_text(summary) != ""
    assert best_speedup_text(summary.model_copy(update={"findings": [fault(check, "ngram")]})) == ""


@pytest.mark.runs
def test_run_has_a_claim_for_each_category() -> None:
    summary = run_of_world(SyntheticRun(prompts=24, repeats=3))
    found = next(cell.claims for cell in summary.cells if cell.claims)
    assert (found.overall, found.comparisons, found.category_comparisons) == (Verdict.FASTER, 1, 2)
    assert found.by_category == {"chat": Verdict.FASTER, "code": Verdict.FASTER}
    assert summary.cells[0].claims is None


def rows_of(prompt: np.ndarray, repeat: np.ndarray, pace: dict[str, np.ndarray], category: list[str]) -> pd.DataFrame:
    columns: dict[str, object] = {"repeat": repeat.astype(float), "prompt_id": [f"p{each}" for each in prompt]}
    columns |= {"turn": 0.0}
    for side, ms in pace.items():
        columns_of_side = {
            "category": category,
            "input_tokens": 100.0,
            "tokens": float(TOKENS),
            "steps": float(TOKENS - 1),
            "intended_ns": 0.0,
            "first_token_ns": ms * 1e6,
            "timing_fault": 0,
        }
        columns_of_side |= {"last_token_ns": ms * 1e6 * TOKENS, "finish_reason": "stop", "output_sha256": "x"}
        columns |= {f"{name}_{side}": value for name, value in columns_of_side.items()}
    return pd.DataFrame(columns)


def two_pairs() -> pd.DataFrame:
    """10 and 40 ms per token on the baseline, 5 and 10 ms on the arm."""
    pace = {"arm": np.array([5.0, 10.0]), "baseline": np.array([10.0, 40.0])}
    return rows_of(np.array([0, 1]), np.array([0, 0]), pace, ["c", "c"])


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        (SPEEDUP, TOKENS, 50 / 15),
        (TPOT_SPEEDUP, TOKENS, 50 / 15),
        (E2E_SPEEDUP, TOKENS, 50 / 15),
        (SPEEDUP, 99, (149 / 15) / (100 / 50)),  # the arm's first answer has 99 tokens in the same time
        (TPOT_SPEEDUP, 99, (50 / 98) / (15 / 147)),
        (E2E_SPEEDUP, 99, 50 / 15),
    ],
)
def test_speedups_are_ratios_of_sums(name: str, tokens: int, expected: float) -> None:
    rows = two_pairs()
    rows.loc[0, "tokens_arm"] = tokens
    found = paired_speedup(name, pairs_of_frame(rows), seed=0)
    assert found.figure.value == pytest.approx(expected)
    assert (found.figure.n, present(found.effect).repeats, found.figure.interval) == (2, 1, None)


def test_pairs_that_are_missing_or_incomplete_are_left_out_and_counted() -> None:
    rows = two_pairs()
    none = paired_speedup(SPEEDUP, pairs_of_frame(rows[:0]), seed=0)
    assert (none.figure.value, none.figure.n, none.effect) == (None, 0, None)
    rows.loc[0, "last_token_ns_arm"] = np.nan
    found = paired_speedup(SPEEDUP, replace(pairs_of_frame(rows), unpaired_later=5), seed=0).figure
    assert (found.value, found.n) == pytest.approx((4, 1))
    assert found.definition.endswith("; 1 pairs, 5 later turns unpaired because earlier replies differ")


# End-to-end figures: closed-form values of speed-ups, requests per hour and cost saved.


PROMPTS = 40


def pairs(arm_ms: list[float], baseline_ms: list[float], repeats: int = 1) -> Pairs:
    prompt = np.tile(np.arange(len(arm_ms)), repeats)
    pace = {"arm": np.tile(arm_ms, repeats) / TOKENS, "baseline": np.tile(baseline_ms, repeats) / TOKENS}
    return pairs_of(prompt, np.repeat(np.arange(repeats), len(arm_ms)), pace)


@pytest.mark.runs
def test_ratio_of_means_differs_from_the_median_of_ratios() -> None:
    found = end_to_end(pairs([100, 100, 1000], [300, 200, 1000]), 4, seed=0)
    assert found.speedup.value == pytest.approx(1500 / 1200)
    assert found.median_speedup.value == pytest.approx(2.0)


@pytest.mark.runs
def test_requests_per_hour_are_streams_over_mean_e2e_latency() -> None:
    found = end_to_end(pairs([100, 100, 1000], [300, 200, 1000]), 4, seed=0)
    assert found.requests_per_hour.value == pytest.approx(4 * 3600 / 0.4)
    assert found.baseline_requests_per_hour.value == pytest.approx(4 * 3600 / 0.5)
    assert found.cost_saved.value == pytest.approx(1 - 0.4 / 0.5)
    assert found.requests_per_hour.unit == "requests/h"


@pytest.mark.runs
def test_bounds_of_cost_saved_follow_from_the_speedup() -> None:
    rng = np.random.default_rng(1)
    baseline = rng.uniform(200, 400, PROMPTS)
    found = end_to_end(pairs(list(baseline / rng.uniform(1.2, 1.6, PROMPTS)), list(baseline), 3), 1, seed=0)
    speedup, cost = found.speedup.interval, found.cost_saved.interval
    assert speedup is not None
    assert cost is not None
    assert (cost.low, cost.high) == pytest.approx((1 - 1 / speedup.low, 1 - 1 / speedup.high))
    assert cost.low < 1 - 1 / 1.4 < cost.high
    assert present(found.median_speedup.interval).low < 1.4 < present(found.median_speedup.interval).high


@pytest.mark.runs
def test_open_loop_has_speedups_but_no_requests_per_hour() -> None:
    found = end_to_end(pairs([100] * 5, [200] * 5), None, seed=0)
    assert found.speedup.value == pytest.approx(2)
    for figure in (found.requests_per_hour, found.baseline_requests_per_hour, found.cost_saved):
        assert (figure.value, figure.interval, figure.n) == (None, None, 0)


@pytest.mark.runs
def test_streams_that_wait_have_no_requests_per_hour_by_the_law_of_little() -> None:
    summary = run_of_world(SyntheticRun(edits={"spec.workloads[0].thinkTime": {"seconds": 2}}))
    (found,) = (cell.end_to_end for cell in summary.cells if cell.end_to_end is not None)
    assert found.speedup.value is not None
    assert {figure.value for figure in (found.requests_per_hour, found.cost_saved)} == {None}


@pytest.mark.parametrize(("alternating", "turns"), [(True, [1, -1, 1]), (False, None)])
def test_only_arms_that_take_turns_have_a_drift_between_turns(alternating: bool, turns: list[float] | None) -> None:
    pace = {"arm": np.ones(3), "baseline": np.ones(3)}
    found = pair_layout(replace(pairs_of(np.zeros(3), np.arange(3), pace), alternating=alternating)).turns
    assert (None if found is None else found.tolist()) == turns


def test_median_of_a_run_that_may_stop_early_is_the_mean_over_repeats() -> None:
    """Ratios 1, 2, 8 and 4, 4, 4: the medians 2 and 4 of the repeats count once each, on the log scale."""
    prompt, repeat = np.tile(np.arange(3), 2), np.repeat(np.arange(2), 3)
    pace = {"baseline": np.array([1.0, 2, 8, 4, 4, 4]) / 100, "arm": np.ones(6) / 100}
    found = end_to_end(replace(pairs_of(prompt, repeat, pace), anytime=True), 1, seed=0).median_speedup
    assert found.value == pytest.approx(2**1.5)


@pytest.mark.parametrize("side", ["arm", "baseline"])
def test_median_is_unknown_if_an_answer_took_no_time(side: str) -> None:
    pace = {"arm": np.array([5.0, 5.0]), "baseline": np.array([10.0, 10.0])}
    pace[side][0] = 0
    found = end_to_end(pairs_of(np.arange(2), np.zeros(2), pace), 1, seed=0).median_speedup
    assert found.value is None


@pytest.mark.runs
def test_no_pairs_give_no_figures() -> None:
    found = end_to_end(pairs([], []), 4, seed=0)
    assert {figure.value for figure in figures_by_name(found).values()} == {None}


@pytest.fixture(scope="module")
def drafted() -> Cell:
    summary = run_of_world(SyntheticRun(prompts=PROMPTS))
    return next(cell for cell in summary.cells if cell.arm == "ngram")


@pytest.mark.runs
def test_cells_and_categories_have_end_to_end_figures_except_the_baseline(drafted: Cell) -> None:
    assert drafted.end_to_end is not None
    assert drafted.end_to_end.speedup.value == pytest.approx(present(drafted.speedup).value), (
        "answers have equal lengths on both sides"
    )
    for figures in drafted.by_category.values():
        assert figures.keys() >= figures_by_name(drafted.end_to_end).keys()
        assert figures["e2e_speedup"].interval is not None
    hours = [figures["requests_per_hour"].value for figures in drafted.by_category.values()]
    assert min(hour for hour in hours if hour) <= present(drafted.end_to_end.requests_per_hour.value)


DESIGNS = [(20, 3), (24, 4), (40, 5)]
MEASURED = dict.fromkeys(CATEGORIES, 0.25)


def pairs_of_values(prompts: int, repeats: int) -> Pairs:
    experiment = Experiment(prompts=prompts, repeats=repeats, run_noise=0.03, length_noise=0.2)
    return paired(*experiment.arms(seed=7))


def bounds_of(figure: Figure) -> tuple[float, float]:
    return present(figure.interval).low, present(figure.interval).high


def assert_same(mine: Figure, other: Figure) -> None:
    assert mine.value == pytest.approx(other.value, rel=1e-12)
    assert bounds_of(mine) == pytest.approx(bounds_of(other), rel=1e-9)


@pytest.mark.parametrize(("prompts", "repeats"), DESIGNS)
def test_prediction_has_the_interval_of_the_speedup(prompts: int, repeats: int) -> None:
    pairs = pairs_of_values(prompts, repeats)
    prediction = present(explain_speedup(pairs, 3, seed=1))
    assert_same(prediction.measured, paired_speedup(SPEEDUP, pairs, 1).figure)
    assert_same(prediction.predicted, paired_speedup(TPOT_SPEEDUP, pairs, 1).figure)


@pytest.mark.parametrize(("prompts", "repeats"), DESIGNS)
def test_measured_mix_has_the_interval_of_the_speedup(prompts: int, repeats: int) -> None:
    pairs = pairs_of_values(prompts, repeats)
    whole, code = project_mix(pairs, MEASURED, seed=1), project_mix(pairs, {"code": 1.0}, seed=1)
    assert whole is not None
    assert code is not None
    inside = pairs.of_category("code")
    for mine, other in ((whole, pairs), (code, inside)):
        reference = paired_speedup(SPEEDUP, other, 1).figure
        assert_same(mine.speedup, reference)


@pytest.mark.parametrize("repeats", [3, 4])
def test_mix_of_nearly_one_category_has_nearly_its_interval(repeats: int) -> None:
    """Five prompts dominate; with the degrees of freedom of all twenty the interval would be a quarter too narrow."""
    pairs = paired(*Experiment(prompts=20, repeats=repeats, run_noise=0.001).arms(seed=11))
    nearly = project_mix(pairs, {"code": 0.997, "chat": 0.001, "math": 0.001, "news": 0.001}, seed=1)
    alone = present(project_mix(pairs, {"code": 1.0}, seed=1))
    assert nearly is not None
    for mine, other in ((nearly.speedup, alone.speedup), (nearly.acceptance_length, alone.acceptance_length)):
        widths = [np.log(high / low) for low, high in (bounds_of(mine), bounds_of(other))]
        assert widths[0] == pytest.approx(widths[1], rel=0.07)


@pytest.mark.parametrize("powers", [SPEED, ACCEPTANCE])
def test_influences_on_a_mix_are_the_derivatives_of_its_log(powers: MixExponents) -> None:
    """The weight of each repeat × prompt is increased slightly, in all its sums."""
    rng, names = np.random.default_rng(2), np.repeat(["a", "b"], 6)
    rows = paired(*Experiment(prompts=12, repeats=2).arms(1)).arm.table(["repeat", "prompt_id"])
    parts = rng.uniform(1, 9, (len(PARTS), len(rows)))
    categories = np.tile(names, 2)
    layout = layout_of(rows.assign(category=TextCodes.of(categories.tolist())))
    matrices = np.array([[layout.matrix(np.where(categories == name, part, 0.0)) for part in parts] for name in "ab"])
    sums = MixSums.of(layout, matrices, {"a": 0.8, "b": 0.2})
    levels, tiny = sums.levels(powers, seed=1), 1e-6
    assert levels is not None
    for place in np.ndindex(levels.influence.shape):
        heavier = sums.matrices.copy()
        heavier[:, :, *place] *= 1 + tiny
        moved = present(MixSums(sums.layout, heavier, sums.weights).levels(powers, seed=1))
        assert (moved.value - levels.value) / tiny == pytest.approx(levels.influence[place], rel=1e-3, abs=1e-7)


class SingleClassSteps(PlacedSteps):
    """Puts all steps of a row into one entry of the same class."""

    def pieces(self) -> Iterator[StepPlaces]:
        everywhere = np.zeros(len(self.rows), dtype=np.intp)
        steps, later = (numbers(self.rows, name).astype(np.intp) for name in ("steps", "tokens"))
        yield StepPlaces(np.arange(len(self.rows)), everywhere, everywhere, everywhere, steps, later - 1)


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_class_with_every_step_has_the_interval_of_the_acceptance_length(repeats: int) -> None:
    rows, _ = Experiment(prompts=20, repeats=repeats, length_noise=0.3).arms(3)
    (only,) = breakdown_by_place(SampleRows(rows, 1), SingleClassSteps(rows), "position", [BreakdownClass(0, "all")], 3)
    reference = ratio_figures(SampleRows(rows, 1), [EMITTED_POOLED])[EMITTED_POOLED.name]
    assert_same(only.figures[EMITTED_POOLED.name], reference)


def figures(document: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every figure of a document that has a value and an interval, with its path."""
    if isinstance(document, dict):
        if document.get("interval") and document.get("value") is not None and "definition" in document:
            yield path, document
        for name, each in document.items():
            yield from figures(each, f"{path}/{name}")
    elif isinstance(document, list):
        for number, each in enumerate(document):
            yield from figures(each, f"{path}/{number}")


@pytest.mark.draws
def test_equal_values_of_a_cell_have_equal_intervals() -> None:
    """Figures of a cell that agree to twelve digits are the same figure, because each value has its own noise."""
    summary = json.loads(run_of_world(SyntheticRun(prompts=24, repeats=3, concurrency=(2,))).to_json())
    twice = 0
    for cell in summary["cells"]:
        equal_values = defaultdict[tuple[str, str], list[tuple[str, tuple[float, float]]]](list)
        for path, figure in figures(cell):
            bounds = figure["interval"]["low"], figure["interval"]["high"]
            if bounds[0] < bounds[1]:
                equal_values[f"{figure['value']:.12g}", figure["unit"]].append((path, bounds))
        for same in equal_values.values():
            twice += len(same) > 1
            assert all(bounds == pytest.approx(same[0][1], rel=1e-9) for _, bounds in same), same
    assert twice > 3, "a speed-up occurs in several places"


ENDPOINTS = [{"name": "none", "url": "http://a:1"}, {"name": "ngram", "url": "http://b:1"}]
RUNNING = {"spec.engine": {"kind": "external", "endpoints": ENDPOINTS}, "spec.drafters": []}


@pytest.mark.draws
@pytest.mark.parametrize(
    ("order", "restarts", "engine", "runs"),
    [
        ("Interleaved", False, {}, "launches"),
        ("Sequential", False, {}, "repeats"),
        ("Interleaved", False, RUNNING, "repeats"),
        ("Interleaved", True, RUNNING, "launches"),
    ],
)
def test_what_differs_between_repeats_is_launches_if_each_repeat_has_its_own(
    order: str, engine: dict[str, Any], runs: str, *, restarts: bool
) -> None:
    load = {"concurrency": [2], "repeats": 3, "order": order}
    world = SyntheticRun(edits={"spec.load": load, **engine}, restarts=restarts, run_noise=0.05)
    (interval,) = (present(cell.speedup.interval) for cell in run_of_world(world).cells if cell.speedup)
    assert interval.runs == runs
