"""The headline gives advice that the intervals support."""

from __future__ import annotations

import pytest

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import ArrivalPattern, Cell, RequestCounts, SpeedupConclusion
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_client.analysis.summary.cells import EvaluatedCell, with_claims
from specbench_client.analysis.summary.headline import HeadlineFacts, conclusions, headline_of
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

PLAN = SyntheticRun().plan


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
    interval = (
        None if half is None or value is None else FigureInterval(low=value - half, high=value + half, method="m")
    )
    figure = Figure(value=value, unit="ratio", definition="d", n=20, interval=interval, source="both")
    cell = Cell(
        arm=arm,
        workload=workload,
        level=load if isinstance(load, Level) else Level(concurrency=load),
        arrivals=ArrivalPattern(process="ClosedLoop"),
        points=[],
        counts=RequestCounts(),
        figures={},
        speedup=None if arm == "none" else figure,
        valid=valid,
        compared_repeats=repeats,
    )
    return EvaluatedCell(cell, (), None if interval is None else p, 20)


def headline(*cells: EvaluatedCell, findings: tuple[Finding, ...] = (), simulated: bool = False) -> str:
    trustworthy = all(finding.severity is Severity.INFO for finding in findings)
    return headline_of(HeadlineFacts(PLAN, with_claims(cells), findings, trustworthy, simulated))


def test_headline_separates_faster_and_indistinguishable_loads() -> None:
    text = headline(
        evaluated_cell("none", 1, None), evaluated_cell("ngram", 1, 1.42), evaluated_cell("ngram", 8, 1.0, 0.03, p=0.7)
    )
    assert text == "Use ngram at concurrency 1: 1.42x [1.32, 1.52]; it makes no measurable difference at concurrency 8."


def test_rate_is_shown_with_its_unit() -> None:
    text = headline(
        evaluated_cell("ngram", Level(rate=0.5), 1.42), evaluated_cell("ngram", Level(rate=2), 1.0, 0.03, p=0.7)
    )
    assert text == "Use ngram at 0.5/s: 1.42x [1.32, 1.52]; it makes no measurable difference at 2/s."
    assert headline(evaluated_cell("ngram", Level(), 1.42)) == "Use ngram at the trace's own speed: 1.42x [1.32, 1.52]."


def test_slower_arm_is_advised_against() -> None:
    assert (
        headline(evaluated_cell("ngram", 4, 0.64))
        == "Do not enable ngram: it is slower, 0.64x [0.54, 0.74] at concurrency 4."
    )


def test_every_conclusion_has_its_text() -> None:
    text = headline(
        evaluated_cell("ngram", 1, 1.5),
        evaluated_cell("ngram", 2, 1.4),
        evaluated_cell("ngram", 4, 1.12, p=0.04),
        evaluated_cell("ngram", 8, 1.0, 0.03, p=1.0),
        evaluated_cell("ngram", 64, 1.0, p=1.0),
        evaluated_cell("ngram", 16, 1.3, None),
        evaluated_cell("ngram", 32, 1.4, valid=False),
    )
    assert text == (
        "Use ngram up to concurrency 2: 1.50x [1.40, 1.60] at 1, 1.40x [1.30, 1.50] at 2;"
        " it makes no measurable difference at concurrency 8;"
        " it is inconclusive: 1.00x [0.90, 1.10] at concurrency 64;"
        " it makes no clear difference at concurrency 4 once corrected for the number of comparisons;"
        " it cannot be judged at concurrency 16: too few prompts for an interval;"
        " it is not comparable with the baseline at concurrency 32."
    )


def test_too_few_repeats_make_no_claim_at_any_speedup() -> None:
    text = headline(evaluated_cell("ngram", 1, 1.42, repeats=1), evaluated_cell("ngram", 8, 1.02, p=0.7, repeats=1))
    assert text == "ngram cannot be judged: 1.42x at concurrency 1, 1.02x at 8 (1 repeat: too few to tell)."
    mixed = headline(
        evaluated_cell("ngram", 1, 1.5),
        evaluated_cell("ngram", 2, 1.4, repeats=2),
        evaluated_cell("ngram", 4, 9.0, valid=False, repeats=1),
    )
    assert mixed == (
        "Use ngram at concurrency 1: 1.50x [1.40, 1.60];"
        " it cannot be judged: 1.40x at concurrency 2 (2 repeats: too few to tell);"
        " it is not comparable with the baseline at concurrency 4."
    )


def test_run_of_two_repeats_recommends_nothing() -> None:
    summary = run_of_world(SyntheticRun(prompts=24, categories=ONE, repeats=2))
    assert "(2 repeats: too few to tell). Not trustworthy: TooFewRepeats (see findings)." in summary.headline
    assert "faster" not in summary.headline
    assert "Use" not in summary.headline
    lost = run_of_world(
        SyntheticRun(prompts=24, categories=ONE),
        Corruptions(measured=lambda point: (point.arm, point.repeat) != ("none", 1)),
    )
    assert "(2 repeats: too few to tell)" in lost.headline


def test_one_marginal_result_among_many_comparisons_is_unclear() -> None:
    cells = [
        evaluated_cell("ngram", 1, 1.12, p=0.03),
        *(evaluated_cell("ngram", load, 1.0, p=0.8) for load in range(2, 12)),
    ]
    assert conclusions(with_claims(cells))[0][1] is SpeedupConclusion.UNCLEAR
    assert conclusions(with_claims(cells[:1]))[0][1] is SpeedupConclusion.FASTER


def test_invalid_cells_do_not_count_as_comparisons() -> None:
    cells = [evaluated_cell("ngram", 1, 1.12, p=0.03), evaluated_cell("ngram", 2, 9.0, valid=False)]
    assert [conclusion for _, conclusion in conclusions(with_claims(cells))] == [
        SpeedupConclusion.FASTER,
        SpeedupConclusion.NOT_COMPARABLE,
    ]


def test_best_arm_comes_first_and_a_long_list_is_truncated() -> None:
    arms = [evaluated_cell(f"arm{index}", 1, 1.2 + index / 10) for index in range(6)]
    text = headline(*arms)
    assert text.startswith("Use arm5 at concurrency 1: 1.70x [1.60, 1.80]. arm4 is faster than the baseline: 1.60x")
    assert text.endswith(" 2 more arms are in the table.")


def test_invalid_arm_comes_last() -> None:
    text = headline(evaluated_cell("broken", 1, 9.0, valid=False), evaluated_cell("ngram", 1, 1.5))
    assert text.startswith(
        "Use ngram at concurrency 1: 1.50x [1.40, 1.60]. broken is not comparable with the baseline at concurrency 1."
    )


def test_findings_are_listed_with_invalid_ones_first() -> None:
    findings = tuple(
        Finding(check=name, severity=severity, message="")
        for name, severity in (("A", Severity.INFO), ("B", Severity.WARNING), ("C", Severity.INVALID))
    )
    assert headline(evaluated_cell("ngram", 1, 1.5), findings=findings).endswith(
        " Not trustworthy: C, B (see findings)."
    )


def test_simulated_result_is_marked_first() -> None:
    assert headline(evaluated_cell("ngram", 1, 1.5), simulated=True).startswith(
        "Simulated, not a measurement: Use ngram"
    )


def test_research_runtime_is_marked_first() -> None:
    plan = PLAN.model_copy(update={"engine": PLAN.engine.model_copy(update={"kind": EngineKind.TRANSFORMERS})})
    cells = (evaluated_cell("ngram", 1, 1.5),)
    assert headline_of(HeadlineFacts(plan, with_claims(cells), (), True, False)).startswith(
        "On a research runtime: Use ngram at concurrency 1: 1.50x"
    )


def test_baseline_alone_makes_no_claim() -> None:
    assert headline(evaluated_cell("none", 1, None)) == "Only the baseline was measured."


def test_equal_arms_are_indistinguishable() -> None:
    world = SyntheticRun(
        prompts=24, categories=ONE, alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": 10.0}, run_noise=0.002
    )
    assert run_of_world(world, Corruptions()).headline == "ngram makes no measurable difference at concurrency 1."


def test_workload_that_gains_is_named_among_several() -> None:
    text = headline(
        evaluated_cell("ngram", 1, 1.4, workload="edits"),
        evaluated_cell("ngram", 8, 1.3, workload="edits"),
        evaluated_cell("ngram", 1, 1.0, 0.03, p=0.8, workload="chat"),
        evaluated_cell("ngram", 8, 0.5, workload="chat"),
        evaluated_cell("eagle3", 1, 1.0, 0.03, p=0.8, workload="edits"),
        evaluated_cell("eagle3", 1, 0.5, workload="chat"),
    )
    assert text == (
        "Use ngram for edits up to concurrency 8: 1.40x [1.30, 1.50] at 1, 1.30x [1.20, 1.40] at 8;"
        " it is slower than the baseline for chat: 0.50x [0.40, 0.60] at concurrency 8;"
        " it makes no measurable difference for chat at concurrency 1."
        " Do not enable eagle3 for chat: it is slower, 0.50x [0.40, 0.60] at concurrency 1;"
        " it makes no measurable difference for edits."
    )


def test_best_arm_is_recommended_at_each_load() -> None:
    text = headline(
        evaluated_cell("eagle3", 1, 2.0),
        evaluated_cell("eagle3", 8, 1.2),
        evaluated_cell("ngram", 1, 1.3),
        evaluated_cell("ngram", 8, 1.9),
    )
    assert text == (
        "Use eagle3 at concurrency 1: 2.00x [1.90, 2.10];"
        " it is faster than the baseline: 1.20x [1.10, 1.30] at concurrency 8."
        " Use ngram at concurrency 8: 1.90x [1.80, 2.00];"
        " it is faster than the baseline: 1.30x [1.20, 1.40] at concurrency 1."
    )


def test_cause_of_a_failure_comes_first() -> None:
    cause = "8 of 8 requests failed; the last one: HTTP 401: no key."
    failed = HeadlineFacts(PLAN, (), (), False, False, {"none": cause, "ngram": cause})
    assert headline_of(failed) == ("Failed: 8 of 8 requests failed; the last one: HTTP 401: no key. Not trustworthy.")
    partly = HeadlineFacts(
        PLAN, with_claims((evaluated_cell("ngram", 1, 1.5),)), (), True, False, {"draft": "out of memory"}
    )
    assert headline_of(partly) == "draft failed: out of memory. Use ngram at concurrency 1: 1.50x [1.40, 1.60]."


def test_recommendation_selects_among_faster_arms() -> None:
    cells = with_claims((evaluated_cell("eagle3", 1, 1.5), evaluated_cell("ngram", 1, 1.45)))
    facts = HeadlineFacts(
        PLAN, cells, (), True, False, recommended={("chat", "1"): "ngram"}, tied={("chat", "1"): ["eagle3"]}
    )
    assert headline_of(facts) == (
        "Use ngram at concurrency 1: 1.45x [1.35, 1.55], indistinguishable from eagle3 and simpler to run."
        " eagle3 is faster than the baseline: 1.50x [1.40, 1.60] at concurrency 1."
    )


def test_lossy_arm_is_never_the_arm_to_use() -> None:
    options = {"rejection_sample_method": "fly"}
    edits = {"spec.engine": {"kind": "vllm"}, "spec.drafters[1].speculativeConfig": options}
    plan = SyntheticRun(drafters=("ngram", "fly"), edits=edits).plan
    cells = with_claims((evaluated_cell("ngram", 1, 1.4), evaluated_cell("fly", 1, 2.0)))
    assert headline_of(HeadlineFacts(plan, cells, (), True, False)) == (
        "Use ngram at concurrency 1: 1.40x [1.30, 1.50]. fly is faster than the baseline: 2.00x [1.90, 2.10] at"
        " concurrency 1. Its verification is lossy (speculativeConfig.rejection_sample_method: fly), so fly is not"
        " recommended."
    )


def test_recommended_arm_with_the_largest_speedup_needs_no_reason() -> None:
    cells = with_claims((evaluated_cell("eagle3", 1, 1.45), evaluated_cell("ngram", 1, 1.5)))
    facts = HeadlineFacts(
        PLAN, cells, (), True, False, recommended={("chat", "1"): "ngram"}, tied={("chat", "1"): ["eagle3"]}
    )
    assert headline_of(facts).startswith("Use ngram at concurrency 1: 1.50x [1.40, 1.60]. eagle3")


def test_reason_names_the_loads_it_is_about() -> None:
    arms = {"eagle3": {1: 1.4, 8: 1.5}, "ngram": {1: 1.8, 8: 1.45}}
    cells = with_claims([evaluated_cell(arm, load, value) for arm, row in arms.items() for load, value in row.items()])
    places = [("chat", "1"), ("chat", "8")]
    facts = HeadlineFacts(
        PLAN, cells, (), True, False, dict.fromkeys((), ""), dict.fromkeys(places, "ngram"), {places[1]: ["eagle3"]}
    )
    assert headline_of(facts).startswith(
        "Use ngram up to concurrency 8: 1.80x [1.70, 1.90] at 1, 1.45x [1.35, 1.55] at 8,"
        " indistinguishable from eagle3 at 8 and simpler to run."
    )


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (1.0, 0.04, "ngram makes no measurable difference at concurrency 1."),
        (1.0, 0.06, "ngram is inconclusive: 1.00x [0.94, 1.06] at concurrency 1."),
        (1.09, 0.28, "ngram is inconclusive: 1.09x [0.81, 1.37] at concurrency 1."),
    ],
    ids=["within 5 %", "beyond 5 %", "wide"],
)
def test_no_measurable_difference_needs_an_interval_without_a_relevant_one(
    value: float, half: float, text: str
) -> None:
    assert headline(evaluated_cell("ngram", 1, value, half, p=0.7)) == text
