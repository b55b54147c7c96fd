"""Explanations: factors multiply to the measured speed-up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.explanation.factors import explain_speedup
from specbench_client.columns import TextCodes
from specbench_client.documents.explanation import Coefficient, Prediction
from specbench_client.metrics.pairing import STEPS, JoinedRows, Pairs
from specbench_client.metrics.rows import Table
from specbench_client.report.text.curves import break_even_table
from specbench_client.report.text.explanation import factors_table
from specbench_testing.synthetic_records import SyntheticRun, run_of_world
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


def factors_of(prediction: Prediction) -> float:
    """Return the product of the factors."""
    return math.prod(value(prediction, name) for name in ("ideal", "acceptance", "step_cost", "prefill", "length"))


@settings(max_examples=20)
@given(st.lists(answers(), min_size=1, max_size=12))
def test_factors_multiply_to_the_measured_speedup(
    sides: list[tuple[Side, Side]],
) -> None:
    pairs = pairs_of(sides)
    prediction, measured = explain(pairs), paired_speedup(SPEEDUP, pairs, 1).figure.value
    assert measured is not None
    assert factors_of(prediction) == pytest.approx(measured, rel=1e-9)
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


def test_no_prediction_without_steps_and_one_sided_pairs_are_dropped() -> None:
    arm, baseline = (_rows([side] * 4, ("c",)) for side in (Side(50, 20, 12.0, 5.0), Side(50, 49, 10.0, 5.0)))
    without_steps = Table({name: column for name, column in arm.columns.items() if name != STEPS})
    assert explain_speedup(pairs_of_rows(without_steps, baseline), 3, 1) is None
    assert explain_speedup(pairs_of_rows(filled(arm, **{STEPS: np.nan}), baseline), 3, 1) is None
    partly = arm.assign(**{STEPS: np.array([np.nan, 20, 20, 20])})
    assert explain(pairs_of_rows(partly, baseline)).measured.n == 3


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
            assert factors_of(cell.prediction) == pytest.approx(value(cell.prediction, "measured"), rel=1e-9)
            assert cell.speedup is not None
            assert value(cell.prediction, "measured") == pytest.approx(cell.speedup.value, rel=1e-9)


@pytest.mark.parametrize("repeats", [2, 3])
def test_explanations_have_intervals_only_with_enough_repeats(repeats: int) -> None:
    summary = run_of_world(SyntheticRun(prompts=12, repeats=repeats))
    (factors,) = factors_table(summary.cells).rows
    (row,) = break_even_table(summary).rows
    for text in (factors[3], row[3], row[5]):
        assert text.endswith("(2 repeats: too few to tell)" if repeats == 2 else "]"), text
