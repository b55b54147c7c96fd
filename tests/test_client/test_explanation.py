"""Explanations: factors multiply to the measured speed-up, and the test of equal rates keeps its level."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.prediction import Prediction
from specbench_api.outcome.step_cost import Coefficient, StepObservation
from specbench_api.outcome.summary import RunSummary
from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.explanation.constant_acceptance import constant_acceptance, equal_rates, tokens_per_step
from specbench_client.analysis.explanation.factors import explain_speedup, with_occupancy
from specbench_client.analysis.stepcost.model import FittedStepCost
from specbench_client.columns import RaggedColumn, TextCodes
from specbench_client.metrics.pairing import STEPS, JoinedRows, Pairs, pair_requests
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers, steady_rows, tidy
from specbench_client.report.text.curves import break_even_rows
from specbench_client.report.text.explanation import factors_table
from specbench_testing.synthetic_records import SyntheticRun, frame_of, record, run_of_world
from specbench_testing.tables import filled
from specbench_testing.virtual_engine import VirtualEngine, VirtualWorld

pytestmark = pytest.mark.runs

MS = 1e6


@dataclass(frozen=True)
class Side:
    """One answer of one side: tokens, steps, and the times of a step and to the first token in ms."""

    tokens: int
    steps: int
    step_ms: float
    wait_ms: float


def pairs_of(sides: list[tuple[Side, Side]], categories: tuple[str, ...] = ("c",)) -> Pairs:
    """Return one (arm, baseline) pair per prompt."""
    arm, baseline = (_rows([pair[index] for pair in sides], categories) for index in range(2))
    return pairs_of_rows(arm, baseline)


def _rows(answers: list[Side], categories: tuple[str, ...]) -> Table:
    first = np.array([each.wait_ms * MS for each in answers])
    return Table(
        {
            "repeat": np.zeros(first.size),
            "prompt_id": TextCodes.of([f"p{number}" for number in range(first.size)]),
            "turn": np.zeros(first.size),
            "category": TextCodes.of([categories[number % len(categories)] for number in range(first.size)]),
            "tokens": np.array([float(each.tokens) for each in answers]),
            "intended_ns": np.zeros(first.size),
            "first_token_ns": first,
            "last_token_ns": first + [each.steps * each.step_ms * MS for each in answers],
            STEPS: np.array([float(each.steps) for each in answers]),
        }
    )


def pairs_of_rows(arm: Table, baseline: Table) -> Pairs:
    same = np.arange(len(arm), dtype=np.int32)
    return Pairs(JoinedRows(arm, baseline, same, same, np.zeros_like(same), np.zeros(same.size)), same.size, 0)


def explain(pairs: Pairs, drafts: int = 3) -> Prediction:
    prediction = explain_speedup(pairs, drafts, seed=1)
    assert prediction is not None
    return prediction


def value(prediction: Prediction, name: str) -> float:
    figure = getattr(prediction, name).value
    assert figure is not None
    return float(figure)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Side, Side]:
    times = st.floats(0.5, 500)
    tokens, alike = draw(st.integers(2, 400)), draw(st.booleans())
    other = tokens if alike else draw(st.integers(2, 400))
    steps = draw(st.integers(max(1, (tokens - 1) // 4), tokens - 1))
    return Side(tokens, steps, draw(times), draw(times)), Side(other, other - 1, draw(times), draw(times))


@settings(max_examples=20)
@given(st.lists(answers(), min_size=1, max_size=12))
def test_factors_multiply_to_the_measured_speedup(
    sides: list[tuple[Side, Side]],
) -> None:
    pairs = pairs_of(sides)
    prediction, measured = explain(pairs), paired_speedup(SPEEDUP, pairs, 1).figure.value
    assert measured is not None
    assert math.prod(each.value or math.nan for each in prediction.factors) == pytest.approx(measured, rel=1e-9)
    assert value(prediction, "measured") == pytest.approx(measured, rel=1e-9)
    assert value(prediction, "predicted") * value(prediction, "gap") == pytest.approx(measured, rel=1e-9)
    decode = value(prediction, "ideal") * value(prediction, "acceptance") * value(prediction, "step_cost")
    assert decode == pytest.approx(value(prediction, "predicted"), rel=1e-9)


def test_decode_alone_is_predicted_exactly_and_prefill_is_the_gap() -> None:
    prediction = explain(pairs_of([(Side(101, 50, 12.0, 1e-9), Side(101, 100, 10.0, 1e-9))] * 5))
    assert value(prediction, "predicted") == pytest.approx(2.0 * 10 / 12)
    assert value(prediction, "gap") == pytest.approx(1.0)
    prediction = explain(pairs_of([(Side(101, 50, 12.0, 400.0), Side(101, 100, 10.0, 1000.0))] * 5))
    assert value(prediction, "predicted") == pytest.approx(2.0 * 10 / 12)
    assert value(prediction, "prefill") == pytest.approx((600 / 1000) / (1000 / 2000))
    assert value(prediction, "acceptance") == pytest.approx(2.0 / 4)
    assert value(prediction, "step_cost") == pytest.approx(10 / 12)
    assert value(prediction, "length") == pytest.approx(1.0)


def test_amdahls_law_holds_when_both_sides_wait_equally() -> None:
    share, gain = 0.25, 3.0
    baseline = Side(100, 99, 10.0, 990 * share / (1 - share))
    prediction = explain(pairs_of([(Side(100, 33, 10.0, baseline.wait_ms), baseline)] * 3), drafts=2)
    assert value(prediction, "predicted") == pytest.approx(gain)
    assert value(prediction, "measured") == pytest.approx(1 / (share + (1 - share) / gain))


def test_no_prediction_without_steps_and_one_sided_pairs_are_dropped() -> None:
    arm, baseline = (_rows([side] * 4, ("c",)) for side in (Side(50, 20, 12.0, 5.0), Side(50, 49, 10.0, 5.0)))
    without_steps = Table({name: column for name, column in arm.columns.items() if name != STEPS})
    assert explain_speedup(pairs_of_rows(without_steps, baseline), 3, 1) is None
    assert explain_speedup(pairs_of_rows(filled(arm, **{STEPS: np.nan}), baseline), 3, 1) is None
    partly = arm.assign(**{STEPS: np.array([np.nan, 20, 20, 20])})
    assert explain(pairs_of_rows(partly, baseline)).measured.n == 3


def test_occupancy_is_split_from_the_step_cost_and_the_product_is_unchanged() -> None:
    prediction = explain(pairs_of([(Side(101, 50, 12.0, 5.0), Side(101, 100, 10.0, 5.0))] * 4))
    model = FittedStepCost((Coefficient.BASE, Coefficient.VERIFIED), np.array([4.0, 0.1]), np.full(2, np.nan))
    place = {"run": "r", "workload": "w", "load": "l", "requests": 9}
    seen = {**place, "context_tokens": 1.0, "prefill_tokens": 0.0, "step_ms": 1.0}
    arm = StepObservation(arm="e", configured_draft_tokens=3, draft_tokens=3.0, batch=20.0, **seen)
    baseline = StepObservation(arm="none", configured_draft_tokens=0, draft_tokens=0.0, batch=30.0, **seen)
    explained = with_occupancy(prediction, model, arm, baseline)
    assert value(explained, "occupancy") == pytest.approx((4 + 0.1 * 30 * 4) / (4 + 0.1 * 20 * 4))
    assert value(explained, "occupancy") > 1, "a smaller batch makes the arm's steps cheaper"
    assert value(explained, "step_cost") < value(prediction, "step_cost")
    product = math.prod(each.value or math.nan for each in explained.factors)
    assert product == pytest.approx(value(prediction, "measured"), rel=1e-12)
    assert with_occupancy(prediction, None, arm, baseline) == prediction
    assert with_occupancy(prediction, model, None, baseline) == prediction


@pytest.mark.parametrize(
    ("alpha", "drafts", "tokens"), [(0.8, 5, 3.689), (0.6, 5, 2.383), (0.0, 7, 1.0), (1.0, 4, 5.0), (0.5, 1, 1.5)]
)
def test_tokens_per_step_follows_the_constant_acceptance_formula(alpha: float, drafts: int, tokens: float) -> None:
    assert tokens_per_step(alpha, drafts) == pytest.approx(tokens, abs=5e-4)
    assert tokens_per_step(alpha, drafts) == pytest.approx(sum(alpha**power for power in range(drafts + 1)))


def drawn(rng: np.random.Generator, rates: tuple[float, ...], prompts: int, spread: float = 0.0) -> np.ndarray:
    """Return counts of reached positions per prompt; prompt lengths, and with `spread` acceptance, vary."""
    explain = []
    for _ in range(prompts):
        shift = rng.normal(0, spread)
        steps = int(rng.integers(5, 60))
        passed = rng.random((steps, len(rates))) < np.clip(np.array(rates) + shift, 0, 1)
        accepted = np.cumprod(passed, axis=1).sum(axis=1)
        explain.append([(accepted >= position).sum() for position in range(len(rates) + 1)])
    return np.array(explain, dtype=np.float64)


@pytest.mark.draws
def test_equal_rates_test_keeps_its_significance_level() -> None:
    rng, draws = np.random.default_rng(3), 1500
    explain = [equal_rates(drawn(rng, (0.7, 0.7, 0.7, 0.7), 30)) for _ in range(draws)]
    alarms = sum(each is not None and each.p_value < 0.05 for each in explain)
    assert 0.03 < alarms / draws < 0.075


@pytest.mark.draws
def test_equal_rates_test_detects_falling_rates_and_mixed_prompt_difficulty() -> None:
    rng = np.random.default_rng(4)
    falling = [equal_rates(drawn(rng, (0.8, 0.7, 0.6), 60)) for _ in range(50)]
    assert sum(each is not None and each.p_value < 0.05 for each in falling) >= 48
    mixed = [equal_rates(drawn(rng, (0.6, 0.6, 0.6), 100, spread=0.25)) for _ in range(50)]
    assert sum(each is not None and each.p_value < 0.05 for each in mixed) >= 40, (
        "prompts of mixed difficulty violate independence"
    )


def test_repeated_steps_within_a_prompt_do_not_change_the_p_value() -> None:
    reached = drawn(np.random.default_rng(5), (0.7, 0.6, 0.65), 20)
    once, often = equal_rates(reached), equal_rates(reached * 50)
    assert once is not None
    assert often is not None
    assert often.p_value == pytest.approx(once.p_value)


def rows_of(engine: VirtualEngine, drafts: int) -> Table:
    return steady_rows(tidy([engine.records(4, drafts)], "p"))


def test_constant_acceptance_fits_one_rate_and_reports_falling_rates() -> None:
    one = constant_acceptance(rows_of(VirtualEngine(conditional=(0.7,) * 3, requests_per_stream=40), 3), 3)
    falling = constant_acceptance(rows_of(VirtualEngine(conditional=(0.9, 0.6, 0.3), requests_per_stream=40), 3), 3)
    assert one is not None
    assert falling is not None
    assert one.alpha.value == pytest.approx(0.7, abs=0.03)
    assert one.predicted.value == pytest.approx(one.measured.value, rel=0.02)
    assert one.conclusion.startswith("no difference of acceptance by position was found")
    assert falling.conclusion.startswith("acceptance differs by position")
    assert "falls from" in falling.conclusion
    assert falling.measured.value == pytest.approx(1 + 0.9 + 0.54 + 0.162, rel=0.05)


def test_constant_acceptance_counts_drafts_that_were_cut_off_at_the_end_as_accepted() -> None:
    """Every draft is accepted; two tokens of each answer's last step are cut off."""
    counts = {"output_tokens": 7, "steps": 2, "draft_steps": 2, "drafted_tokens": 6, "accepted_tokens": 4}
    lists = {"step_accepted": [3, 1], "step_drafted": [3, 3], "cut_tokens": 2}
    rows = tidy([frame_of([record(prompt_id=str(row), **counts, **lists) for row in range(8)])])
    found = constant_acceptance(rows, 3)
    assert found is not None
    assert (found.alpha.value, found.measured.value, found.predicted.value) == (1.0, 4.0, 4.0)


def test_constant_acceptance_skips_or_reports_unsuitable_data() -> None:
    engine = VirtualEngine(requests_per_stream=20)
    rows = rows_of(engine, 3)
    assert constant_acceptance(rows_of(engine, 0), 0) is None
    varied = rows.assign(drafted_tokens=numbers(rows, "drafted_tokens") * 0.7)
    assert constant_acceptance(varied, 3) is None, "the draft length varied"
    without_drafts = frame_of([record(step_accepted=[2, 1, 0], drafted_tokens=None)] * 8)
    assert constant_acceptance(tidy([without_drafts]), 3) is None, "the draft length may have varied"
    without_step_counts = rows.assign(decided_of_steps=RaggedColumn.of([None] * len(rows), np.float32))
    assert constant_acceptance(without_step_counts, 3) is None
    single = constant_acceptance(rows_of(engine, 1), 1)
    assert single is not None
    assert single.test is None
    assert "was not tested (one position alone)" in single.conclusion
    few = constant_acceptance(rows.at(np.arange(3)), 3)
    assert few is not None
    assert few.test is None
    assert "too few prompts" in few.conclusion


def test_summary_has_step_costs_and_the_factors_of_each_cell() -> None:
    world = VirtualWorld(
        concurrency=(2, 12),
        repeats=1,
        edits={
            "spec.drafters": [
                {"name": f"e{tokens}", "method": "eagle3", "model": "m", "numSpeculativeTokens": tokens}
                for tokens in (1, 3)
            ]
        },
        engine=VirtualEngine(requests_per_stream=5),
    )
    summary = run_of_world(world)
    assert [cost.arms for cost in summary.step_costs] == [["none", "e1", "e3"]]
    assert summary.step_costs[0].coefficients[Coefficient.BASE].value == pytest.approx(4.8, rel=0.15)
    for cell in summary.cells:
        assert (cell.prediction is None) == (cell.arm == "none")
        if cell.prediction:
            product = math.prod(each.value or math.nan for each in cell.prediction.factors)
            assert product == pytest.approx(value(cell.prediction, "measured"), rel=1e-9)
            assert cell.speedup is not None
            assert value(cell.prediction, "measured") == pytest.approx(cell.speedup.value, rel=1e-9)
            assert cell.prediction.occupancy.value == pytest.approx(1, abs=0.05)


def test_run_at_one_load_reports_why_it_has_no_step_cost_model() -> None:
    summary = run_of_world(SyntheticRun(prompts=12, repeats=1))
    (cost,) = summary.step_costs
    assert cost.notes
    assert cost.notes[0].startswith("not fitted: one batch size alone")
    arm = next(cell for cell in summary.cells if cell.arm == "ngram")
    assert arm.prediction is not None
    assert arm.prediction.occupancy.value is None


def test_pairs_of_a_virtual_engine_contain_steps() -> None:
    engine = VirtualEngine(requests_per_stream=6)
    arm, baseline = (tidy([engine.records(2, drafts)], str(drafts)) for drafts in (3, 0))
    assert explain_speedup(pair_requests(arm, baseline, None), 3, 1) is not None


@pytest.mark.parametrize("repeats", [2, 3])
def test_explanations_have_intervals_only_with_enough_repeats(repeats: int) -> None:
    summary = run_of_world(SyntheticRun(prompts=12, repeats=repeats))
    (factors,) = factors_table(summary.cells).rows
    (row,) = break_even_rows(summary)
    for text in (factors[3], row.needed, row.margin):
        assert text.endswith("(2 repeats: too few to tell)" if repeats == 2 else "]"), text


def test_older_summary_without_predictions_is_readable() -> None:
    summary = run_of_world(SyntheticRun(prompts=6, repeats=1))
    document = summary.to_dict()
    del document["stepCosts"]
    for cell in document["cells"]:
        cell.pop("prediction", None)
    old = RunSummary.model_validate(document)
    assert old.step_costs == []
    assert all(cell.prediction is None for cell in old.cells)
