"""The headline is advice that claims no more than the intervals show."""

from __future__ import annotations

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import ArrivalPattern, Cell, RequestCounts, SpeedupConclusion
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_client.analysis.summary.cells import EvaluatedCell, with_claims
from specbench_client.analysis.summary.headline import HeadlineFacts, conclusions, headline_of
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

PLAN = SyntheticRun().plan


def judged(
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


def test_faster_here_and_indistinguishable_there() -> None:
    text = headline(judged("none", 1, None), judged("ngram", 1, 1.42), judged("ngram", 8, 1.02, p=0.7))
    assert text == "Use ngram at concurrency 1: 1.42x [1.32, 1.52]; no measurable difference at concurrency 8."


def test_a_rate_is_named_with_its_unit_each_time() -> None:
    text = headline(judged("ngram", Level(rate=0.5), 1.42), judged("ngram", Level(rate=2), 1.02, p=0.7))
    assert text == "Use ngram at 0.5/s: 1.42x [1.32, 1.52]; no measurable difference at 2/s."
    assert headline(judged("ngram", Level(), 1.42)) == "Use ngram at the trace's own speed: 1.42x [1.32, 1.52]."


def test_a_slower_arm_is_advised_against() -> None:
    assert (
        headline(judged("ngram", 4, 0.64)) == "Do not enable ngram: it is slower, 0.64x [0.54, 0.74] at concurrency 4."
    )


def test_every_conclusion_has_its_words() -> None:
    text = headline(
        judged("ngram", 1, 1.5),
        judged("ngram", 2, 1.4),
        judged("ngram", 4, 1.12, p=0.04),
        judged("ngram", 8, 1.0, p=1.0),
        judged("ngram", 16, 1.3, None),
        judged("ngram", 32, 1.4, valid=False),
    )
    assert text == (
        "Use ngram up to concurrency 2: 1.50x [1.40, 1.60] at 1, 1.40x [1.30, 1.50] at 2;"
        " no measurable difference at concurrency 8;"
        " no clear difference at concurrency 4 once corrected for the number of comparisons;"
        " cannot be judged at concurrency 16: too few prompts for an interval; not comparable at concurrency 32."
    )


def test_too_few_repeats_make_no_claim_however_far_from_1() -> None:
    text = headline(judged("ngram", 1, 1.42, repeats=1), judged("ngram", 8, 1.02, p=0.7, repeats=1))
    assert text == "ngram cannot be judged: 1.42x at concurrency 1, 1.02x at 8 (1 repeat: too few to tell)."
    mixed = headline(
        judged("ngram", 1, 1.5), judged("ngram", 2, 1.4, repeats=2), judged("ngram", 4, 9.0, valid=False, repeats=1)
    )
    assert mixed == (
        "Use ngram at concurrency 1: 1.50x [1.40, 1.60];"
        " cannot be judged: 1.40x at concurrency 2 (2 repeats: too few to tell); not comparable at concurrency 4."
    )


def test_a_run_of_two_repeats_recommends_nothing() -> None:
    summary = run_of_world(SyntheticRun(prompts=24, categories=ONE, repeats=2))
    assert "(2 repeats: too few to tell). Not trustworthy: TooFewRepeats (see findings)." in summary.headline
    assert "faster" not in summary.headline
    assert "Use" not in summary.headline
    lost = run_of_world(
        SyntheticRun(prompts=24, categories=ONE),
        Corruptions(measured=lambda point: (point.arm, point.repeat) != ("none", 1)),
    )
    assert "(2 repeats: too few to tell)" in lost.headline


def test_one_bare_exclusion_among_many_comparisons_is_no_claim() -> None:
    cells = [judged("ngram", 1, 1.12, p=0.03), *(judged("ngram", load, 1.0, p=0.8) for load in range(2, 12))]
    assert conclusions(with_claims(cells))[0][1] is SpeedupConclusion.UNCLEAR
    assert conclusions(with_claims(cells[:1]))[0][1] is SpeedupConclusion.FASTER


def test_invalid_cells_do_not_count_among_the_comparisons() -> None:
    cells = [judged("ngram", 1, 1.12, p=0.03), judged("ngram", 2, 9.0, valid=False)]
    assert [conclusion for _, conclusion in conclusions(with_claims(cells))] == [
        SpeedupConclusion.FASTER,
        SpeedupConclusion.NOT_COMPARABLE,
    ]


def test_the_best_arm_comes_first_and_a_long_list_is_cut() -> None:
    arms = [judged(f"arm{index}", 1, 1.2 + index / 10) for index in range(6)]
    text = headline(*arms)
    assert text.startswith("Use arm5 at concurrency 1: 1.70x [1.60, 1.80]. arm4 is also faster: 1.60x")
    assert text.endswith(" 2 more arms are in the table.")


def test_an_invalid_arm_comes_last_however_fast_it_seems() -> None:
    text = headline(judged("broken", 1, 9.0, valid=False), judged("ngram", 1, 1.5))
    assert text.startswith(
        "Use ngram at concurrency 1: 1.50x [1.40, 1.60]. broken is not comparable with the baseline at concurrency 1."
    )


def test_a_doubt_is_named_the_invalid_first() -> None:
    findings = tuple(
        Finding(check=name, severity=severity, message="")
        for name, severity in (("A", Severity.INFO), ("B", Severity.WARNING), ("C", Severity.INVALID))
    )
    assert headline(judged("ngram", 1, 1.5), findings=findings).endswith(" Not trustworthy: C, B (see findings).")


def test_a_simulation_says_so_first() -> None:
    assert headline(judged("ngram", 1, 1.5), simulated=True).startswith("Simulated, not a measurement: Use ngram")


def test_a_research_runtime_says_so_first() -> None:
    plan = PLAN.model_copy(update={"engine": PLAN.engine.model_copy(update={"kind": EngineKind.TRANSFORMERS})})
    cells = (judged("ngram", 1, 1.5),)
    assert headline_of(HeadlineFacts(plan, with_claims(cells), (), True, False)).startswith(
        "On a research runtime: Use ngram at concurrency 1: 1.50x"
    )


def test_a_baseline_alone_makes_no_claim() -> None:
    assert headline(judged("none", 1, None)) == "Only the baseline was measured."


def test_equal_arms_end_up_indistinguishable() -> None:
    world = SyntheticRun(
        prompts=24, categories=ONE, alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": 10.0}, run_noise=0.02
    )
    assert run_of_world(world, Corruptions()).headline == ("ngram makes no measurable difference at concurrency 1.")


def test_with_several_workloads_the_one_that_gains_is_named() -> None:
    text = headline(
        judged("ngram", 1, 1.4, workload="edits"),
        judged("ngram", 8, 1.3, workload="edits"),
        judged("ngram", 1, 1.0, p=0.8, workload="chat"),
        judged("ngram", 8, 0.5, workload="chat"),
        judged("eagle3", 1, 1.0, p=0.8, workload="edits"),
        judged("eagle3", 1, 0.5, workload="chat"),
    )
    assert text == (
        "Use ngram for edits up to concurrency 8: 1.40x [1.30, 1.50] at 1, 1.30x [1.20, 1.40] at 8;"
        " slower for chat: 0.50x [0.40, 0.60] at concurrency 8; no measurable difference for chat at concurrency 1."
        " Do not enable eagle3 for chat: it is slower, 0.50x [0.40, 0.60] at concurrency 1;"
        " no measurable difference for edits."
    )


def test_the_arm_to_use_is_the_best_one_at_each_load() -> None:
    text = headline(
        judged("eagle3", 1, 2.0), judged("eagle3", 8, 1.2), judged("ngram", 1, 1.3), judged("ngram", 8, 1.9)
    )
    assert text == (
        "Use eagle3 at concurrency 1: 2.00x [1.90, 2.10]; also faster: 1.20x [1.10, 1.30] at concurrency 8."
        " Use ngram at concurrency 8: 1.90x [1.80, 2.00]; also faster: 1.30x [1.20, 1.40] at concurrency 1."
    )


def test_the_cause_of_a_failure_comes_first() -> None:
    cause = "8 of 8 requests failed; the last one: HTTP 401: no key."
    failed = HeadlineFacts(PLAN, (), (), False, False, {"none": cause, "ngram": cause})
    assert headline_of(failed) == ("Failed: 8 of 8 requests failed; the last one: HTTP 401: no key. Not trustworthy.")
    partly = HeadlineFacts(PLAN, with_claims((judged("ngram", 1, 1.5),)), (), True, False, {"draft": "out of memory"})
    assert headline_of(partly) == "draft failed: out of memory. Use ngram at concurrency 1: 1.50x [1.40, 1.60]."


def test_the_recommendation_settles_which_of_two_faster_arms_to_use() -> None:
    cells = with_claims((judged("eagle3", 1, 1.5), judged("ngram", 1, 1.45)))
    facts = HeadlineFacts(PLAN, cells, (), True, False, recommended={("chat", "1"): "ngram"})
    assert headline_of(facts) == (
        "Use ngram at concurrency 1: 1.45x [1.35, 1.55]. eagle3 is also faster: 1.50x [1.40, 1.60] at concurrency 1."
    )
