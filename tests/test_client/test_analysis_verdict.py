"""The verdict is a sentence that claims no more than the intervals hold."""

from __future__ import annotations

from specbench_api.outcome.claims import Standing
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import Cell, Counts
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_client.analysis.summary.cell import Judged
from specbench_client.analysis.summary.claims import with_claims
from specbench_client.analysis.summary.verdict import Verdict, standings, verdict_of
from specbench_testing.records import ONE, Lies, World, run_of_world

PLAN = World().plan


def judged(
    arm: str,
    load: int | Level,
    value: float | None,
    half: float | None = 0.1,
    *,
    p: float = 0.0001,
    valid: bool = True,
    repeats: int | None = 3,
) -> Judged:
    interval = (
        None if half is None or value is None else FigureInterval(low=value - half, high=value + half, method="m")
    )
    figure = Figure(value=value, unit="ratio", definition="d", n=20, interval=interval, source="both")
    cell = Cell(
        arm=arm,
        workload="chat",
        level=load if isinstance(load, Level) else Level(concurrency=load),
        points=[],
        counts=Counts(),
        figures={},
        speedup=None if arm == "none" else figure,
        valid=valid,
        compared_repeats=repeats,
    )
    return Judged(cell, (), None if interval is None else p, 20)


def said(*cells: Judged, findings: tuple[Finding, ...] = (), simulated: bool = False) -> str:
    trustworthy = all(finding.severity is Severity.NOTE for finding in findings)
    return verdict_of(Verdict(PLAN, with_claims(cells), findings, trustworthy, simulated))


def test_faster_here_and_indistinguishable_there() -> None:
    text = said(judged("none", 1, None), judged("ngram", 1, 1.42), judged("ngram", 8, 1.02, p=0.7))
    assert text == (
        "ngram is 1.42x [1.32, 1.52] faster at concurrency 1 and indistinguishable from the baseline at 8; trustworthy"
    )


def test_a_rate_is_told_with_its_unit_each_time() -> None:
    text = said(judged("ngram", Level(rate=0.5), 1.42), judged("ngram", Level(rate=2), 1.02, p=0.7))
    assert (
        text
        == "ngram is 1.42x [1.32, 1.52] faster at 0.5/s and indistinguishable from the baseline at 2/s; trustworthy"
    )
    assert said(judged("ngram", Level(), 1.42)).startswith(
        "ngram is 1.42x [1.32, 1.52] faster at the trace's own speed;"
    )


def test_slower_is_said_as_plainly() -> None:
    assert said(judged("ngram", 4, 0.64)) == "ngram is 0.64x [0.54, 0.74] (slower) at concurrency 4; trustworthy"


def test_every_standing_has_its_words() -> None:
    text = said(
        judged("ngram", 1, 1.5),
        judged("ngram", 2, 1.4),
        judged("ngram", 4, 1.12, p=0.04),
        judged("ngram", 8, 1.0, p=1.0),
        judged("ngram", 16, 1.3, None),
        judged("ngram", 32, 1.4, valid=False),
    )
    assert text == (
        "ngram is 1.50x [1.40, 1.60] faster at concurrency 1, 1.40x [1.30, 1.50] at 2,"
        " indistinguishable from the baseline at 8, not clearly different among so many comparisons at 4,"
        " compared without an interval at 16 and not comparable at 32; trustworthy"
    )


def test_too_few_repeats_make_no_claim_however_far_from_1() -> None:
    text = said(judged("ngram", 1, 1.42, repeats=1), judged("ngram", 8, 1.02, p=0.7, repeats=1))
    assert text == "ngram is 1.42x at concurrency 1, 1.02x at 8 (1 repeat: too few to tell); trustworthy"
    mixed = said(
        judged("ngram", 1, 1.5), judged("ngram", 2, 1.4, repeats=2), judged("ngram", 4, 9.0, valid=False, repeats=1)
    )
    assert mixed == (
        "ngram is 1.50x [1.40, 1.60] faster at concurrency 1, 1.40x at 2 (2 repeats: too few to tell)"
        " and not comparable at 4; trustworthy"
    )


def test_a_run_of_two_repeats_says_neither_faster_nor_slower() -> None:
    summary = run_of_world(World(prompts=24, categories=ONE, repeats=2))
    assert "(2 repeats: too few to tell); not trustworthy (TooFewRepeats)" in summary.verdict
    assert "faster" not in summary.verdict
    lost = run_of_world(
        World(prompts=24, categories=ONE), Lies(measured=lambda point: (point.arm, point.repeat) != ("none", 1))
    )
    assert "(2 repeats: too few to tell)" in lost.verdict


def test_one_bare_exclusion_among_many_comparisons_is_no_claim() -> None:
    cells = [judged("ngram", 1, 1.12, p=0.03), *(judged("ngram", load, 1.0, p=0.8) for load in range(2, 12))]
    assert standings(with_claims(cells))[0][1] is Standing.UNCLEAR
    assert standings(with_claims(cells[:1]))[0][1] is Standing.FASTER


def test_invalid_cells_do_not_count_among_the_comparisons() -> None:
    cells = [judged("ngram", 1, 1.12, p=0.03), judged("ngram", 2, 9.0, valid=False)]
    assert [standing for _, standing in standings(with_claims(cells))] == [Standing.FASTER, Standing.NOT_COMPARABLE]


def test_the_best_arm_comes_first_and_a_crowd_is_cut() -> None:
    arms = [judged(f"arm{index}", 1, 1.2 + index / 10) for index in range(6)]
    text = said(*arms)
    assert text.startswith("arm5 is 1.70x")
    assert text.endswith("; 2 more in the table; trustworthy")


def test_an_invalid_arm_comes_last_however_fast_it_seems() -> None:
    text = said(judged("broken", 1, 9.0, valid=False), judged("ngram", 1, 1.5))
    assert text.startswith("ngram is 1.50x [1.40, 1.60] faster at concurrency 1; broken is not comparable")


def test_a_doubt_is_named_the_invalid_first() -> None:
    findings = tuple(
        Finding(check=name, severity=severity, message="")
        for name, severity in (("A", Severity.NOTE), ("B", Severity.DOUBT), ("C", Severity.INVALID))
    )
    assert said(judged("ngram", 1, 1.5), findings=findings).endswith("; not trustworthy (C, B)")


def test_a_simulation_says_so_first() -> None:
    assert said(judged("ngram", 1, 1.5), simulated=True).startswith("simulated, not a measurement: ")


def test_a_research_runtime_says_so_first() -> None:
    plan = PLAN.model_copy(update={"engine": PLAN.engine.model_copy(update={"kind": EngineKind.TRANSFORMERS})})
    cells = (judged("ngram", 1, 1.5),)
    assert verdict_of(Verdict(plan, with_claims(cells), (), True, False)).startswith(
        "on a research runtime: ngram is 1.50x"
    )


def test_a_baseline_alone_makes_no_claim() -> None:
    assert said(judged("none", 1, None)) == "only the baseline was measured; trustworthy"


def test_equal_arms_end_up_indistinguishable() -> None:
    world = World(
        prompts=24, categories=ONE, alpha={"ngram": 0.0}, alpha_spread=0.0, step_ms={"ngram": 10.0}, run_noise=0.02
    )
    assert run_of_world(world, Lies()).verdict == (
        "ngram is indistinguishable from the baseline at concurrency 1; trustworthy"
    )
