"""Why a drafter is faster or slower: the factors of a speed-up, and its forecast for another mix of categories."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.exit_codes import Exit
from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.explanation.factors import explain_speedup
from specbench_client.analysis.explanation.traffic_mix import (
    normalized_shares,
    project_mix,
    request_shares,
)
from specbench_client.cli import exit_code
from specbench_client.documents.explanation import Coefficient, MixEstimate, Prediction
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import TextCodes
from specbench_client.report.text.curves import break_even_table
from specbench_client.report.text.explanation import factors_table
from specbench_client.report.text.text_table import DASH
from specbench_testing.local_results import store_results
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun, run_of_world
from specbench_testing.tables import filled, pairs_of_frame
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
            "timing_fault": np.zeros(first.size, dtype=np.int8),
            "late_ms": np.zeros(first.size, dtype=np.float32),
            "category": TextCodes.of([categories[number % len(categories)] for number in range(first.size)]),
            "tokens": np.array([float(each.tokens) for each in answers]),
            "intended_ns": np.zeros(first.size),
            "first_token_ns": first,
            "last_token_ns": first + [each.steps * each.step_ms * MS for each in answers],
            "steps": np.array([float(each.steps) for each in answers]),
        }
    )


def pairs_of_rows(arm: Table, baseline: Table) -> Pairs:
    return Pairs(arm, baseline, len(arm), 0)


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


def test_without_a_declared_draft_length_there_is_no_share_of_the_ideal() -> None:
    pairs = pairs_of([(Side(101, 50, 12.0, 1e-9), Side(101, 100, 10.0, 1e-9))] * 5)
    found = explain_speedup(pairs, 0, 1)
    assert found is not None
    assert found.ideal.value is None
    assert value(found, "acceptance") == pytest.approx(2.0)
    cell = run_of_world(SyntheticRun()).cells[1].model_copy(update={"prediction": found})
    table = factors_table([cell, cell])
    assert table.caption == f"{DASH}: {found.ideal.missing}", "once for all cells"
    assert table.rows[0][7:9] == [DASH, "2.000"]


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


@pytest.mark.parametrize("late", ["arm", "baseline"])
@pytest.mark.parametrize(
    "fault",
    [{"timing_fault": np.array([1, 0, 0, 0, 0], dtype=np.int8)}, {"late_ms": np.array([360.0, 0.0, 250.0, 0.0, 0.0])}],
    ids=lambda fault: next(iter(fault)),
)
def test_factor_of_ttft_is_left_out_where_ttft_is(late: str, fault: dict[str, Any]) -> None:
    sides = {
        name: _rows([side] * 5, ("c",))
        for name, side in (("arm", Side(101, 50, 12.0, 400.0)), ("baseline", Side(101, 100, 10.0, 1000.0)))
    }
    whole = explain(pairs_of_rows(**sides))
    sides[late] = sides[late].assign(**fault)
    without = explain(pairs_of_rows(**sides))
    assert (without.prefill.value, without.prefill.interval, without.prefill.unit) == (None, None, "ratio")
    assert without.prefill.missing
    assert without.model_copy(update={"prefill": whole.prefill}) == whole


def test_tokens_of_the_first_chunk_are_no_acceptance() -> None:
    arm, baseline = (_rows([side] * 5, ("c",)) for side in (Side(101, 40, 12.0, 5.0), Side(101, 100, 10.0, 5.0)))
    prediction = explain(pairs_of_rows(arm.assign(first_tokens=np.full(5, 21.0)), baseline))
    assert value(prediction, "predicted") == pytest.approx(2.0 * 10 / 12)
    assert value(prediction, "acceptance") == pytest.approx(2.0 / 4)
    assert value(prediction, "length") == pytest.approx((101 / 80) / (101 / 100))
    unknown = pairs_of_rows(arm.assign(first_tokens=np.array([np.nan, *[21.0] * 4])), baseline)
    assert explain(unknown).measured.definition.endswith("; 4 pairs")
    assert value(explain(unknown), "predicted") == pytest.approx(2.0 * 10 / 12)


def test_no_prediction_without_steps_and_one_sided_pairs_are_dropped() -> None:
    arm, baseline = (_rows([side] * 4, ("c",)) for side in (Side(50, 20, 12.0, 5.0), Side(50, 49, 10.0, 5.0)))
    assert explain_speedup(pairs_of_rows(filled(arm, steps=np.nan), baseline), 3, 1) is None
    partly = arm.assign(steps=np.array([np.nan, 20, 20, 20]))
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


def test_lengths_are_shown_within_their_bounds() -> None:
    """Hardly a draft is accepted: the interval of the log ratio would begin below one token per step."""
    world = SyntheticRun(prompts=6, alpha={"ngram": 0.0}, alpha_spread=0.05)
    assert " [1.00, " in break_even_table(run_of_world(world)).rows[0][4]


UID = "0190a000-0000-7000-8000-000000000000"
TRUTH = {"code": (40, 10, 400.0, 100.0), "chat": (200, 160, 3000.0, 2500.0)}
"""Category → tokens, steps, and stream time in ms of the baseline and of the arm."""


def pairs_of_mix(
    truth: dict[str, tuple[int, int, float, float]],
    prompts: int = 12,
    noise: float = 0.0,
    seed: int = 1,
    repeats: int = 1,
) -> Pairs:
    return pairs_of_frame(frame_of_pairs(truth, prompts, noise, seed, repeats))


def frame_of_pairs(
    truth: dict[str, tuple[int, int, float, float]],
    prompts: int = 12,
    noise: float = 0.0,
    seed: int = 1,
    repeats: int = 1,
) -> pd.DataFrame:
    """Return pairs with the times of the truth, multiplied by noise with the mean 1, which is equal in every repeat."""
    rng, rows = np.random.default_rng(seed), list[dict[str, object]]()
    for name, (tokens, steps, baseline, arm) in truth.items():
        for number in range(prompts):
            row: dict[str, object] = {"prompt_id": f"{name}-{number}", "turn": 0.0}
            for side, ms in (("baseline", baseline), ("arm", arm)):
                took = ms * 1e6 * (float(rng.gamma(1 / noise**2, noise**2)) if noise else 1.0)
                columns_of_side = {"category": name, "input_tokens": 9.0, "tokens": float(tokens), "intended_ns": 0.0}
                columns_of_side |= {
                    "first_token_ns": took / 10,
                    "last_token_ns": took,
                    "finish_reason": "stop",
                    "output_sha256": "x",
                    "steps": float(steps),
                }
                row |= {f"{column}_{side}": each for column, each in columns_of_side.items()}
            rows += [{**row, "repeat": float(repeat)} for repeat in range(repeats)]
    return pd.DataFrame(rows)


def projected(pairs: Pairs, given: dict[str, float]) -> MixEstimate:
    return present(project_mix(pairs, given, seed=1))


@pytest.mark.parametrize(("column", "broken"), [("last_token_ns", -1e15), ("tokens", 0.0)])
def test_pair_without_duration_or_tokens_is_excluded_from_a_mix(column: str, broken: float) -> None:
    """Such records invalidate their cell, but its figures are still computed and must not become NaN."""
    frame = frame_of_pairs(TRUTH)
    frame.loc[0, f"{column}_arm"] = broken
    estimate = projected(pairs_of_frame(frame), {"code": 0.5, "chat": 0.5})
    assert {each.category: each.speedup for each in estimate.categories} == pytest.approx({"code": 4.0, "chat": 1.2})
    frame[f"{column}_arm"] = broken
    assert project_mix(pairs_of_frame(frame), {"code": 0.5, "chat": 0.5}, seed=1) is None


@pytest.mark.parametrize("code", [0.1, 0.5, 0.9])
def test_mix_speedup_is_the_harmonic_mean_by_baseline_time_share(code: float) -> None:
    estimate = projected(pairs_of_mix(TRUTH), {"code": code, "chat": 1 - code})
    time = {"code": code * 400, "chat": (1 - code) * 3000}
    whole = sum(time.values())
    harmonic = 1 / (time["code"] / whole / 4.0 + time["chat"] / whole / 1.2)
    assert estimate.speedup.value == pytest.approx(harmonic)
    steps, later = code * 10 + (1 - code) * 160, code * 39 + (1 - code) * 199
    assert estimate.acceptance_length.value == pytest.approx(later / steps)
    assert harmonic < code * 4.0 + (1 - code) * 1.2, "the mean weighted by requests overestimates the speed-up"
    assert [round(each.time_share, 9) for each in estimate.categories] == [
        round(time[name] / whole, 9) for name in time
    ]


def explained(results: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[dict[str, Any], str]:
    """Run the command; return its document and what it prints on stderr."""
    assert exit_code(["analyze", "explain", str(results), *options, "--output", "json"]) == Exit.OK
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


def test_token_shares_convert_to_request_shares() -> None:
    pairs = pairs_of_mix(TRUTH)
    given = present(request_shares(normalized_shares({"code": 1, "chat": 1}), pairs))
    assert given == pytest.approx({"code": 5 / 6, "chat": 1 / 6})
    assert [each.tokens_share for each in projected(pairs, given).categories] == pytest.approx([0.5, 0.5])


def test_missing_category_gives_no_prediction_and_missing_steps_no_acceptance_length() -> None:
    pairs = pairs_of_mix(TRUTH)
    assert project_mix(pairs, {"code": 0.5, "poetry": 0.5}, 1) is None
    without_steps = pairs_of_frame(frame_of_pairs(TRUTH).assign(steps_arm=np.nan))
    estimate = projected(without_steps, {"code": 0.5, "chat": 0.5})
    assert estimate.acceptance_length.value is None
    assert estimate.speedup.value is not None
    assert [each.acceptance_length for each in estimate.categories] == [None, None]


@pytest.mark.parametrize("tokens", [0.0, np.nan])
def test_token_shares_do_not_convert_when_tokens_were_not_counted(tokens: float) -> None:
    frame = frame_of_pairs(TRUTH)
    counted = frame["tokens_baseline"].mask(frame["category_baseline"] == "code", tokens)
    uncounted = pairs_of_frame(frame.assign(tokens_baseline=counted))
    assert request_shares({"code": 0.5, "chat": 0.5}, uncounted) is None
    assert request_shares({"code": 0.5, "chat": 0.5}, pairs_of_frame(frame)) is not None


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mix") / "out"
    store_results(SyntheticRun(prompts=12, concurrency=(1, 2), repeats=1), folder, UID)
    assert exit_code(["report", str(folder), "--output", "csv", "--to", str(folder.parent / "table.csv")]) == Exit.OK
    return folder


def test_explain_command_accepts_a_mix_as_shares_or_as_a_prompt_file(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [
        {"id": f"{at}", "prompt": f"word {at}", "category": name} for at, name in enumerate(["code"] * 3 + ["chat"])
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    of_shares, of_file = (explained(results, capsys, "--mix", mix)[0] for mix in ("code=3,chat=1", str(file)))
    assert of_shares == of_file
    assert [each["load"] for each in of_shares["mixes"]] == ["1", "2"]
    assert of_shares["mixes"][0]["categories"][0]["requestsShare"] == pytest.approx(0.75)
    file.write_text('{"id": "a", "prompt": "one"}\n{"id": "b", "prompt": "two", "category": "code"}\n')
    assert exit_code(["analyze", "explain", str(results), "--mix", str(file)]) == Exit.BAD_INPUT
    assert "1 of 2 prompts have no category" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("code=0.5,poetry=0.2,verse=0.3", "poetry, verse of the mix was not measured on workload chat"),
        ("code=0.5,code=0.5", "repeats a category"),
        ("code=-1", "is not CATEGORY=SHARE"),
        ("code=nan", "is not CATEGORY=SHARE"),
        ("code=1e308,chat=1e308", "is not CATEGORY=SHARE"),
        ("", "--mix: is empty"),
        ("code=0", "every share is 0"),
        ("nowhere.jsonl", "No such file"),
    ],
)
def test_impossible_mix_is_rejected_with_a_remedy(
    results: Path, mix: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "explain", str(results), "--mix", mix]) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err


def test_repeated_mix_options_form_one_mix_and_scaling_is_printed(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = explained(results, capsys, "--mix", "code=0.5,chat=0.3")
    assert one == explained(results, capsys, "--mix", "code=0.5", "--mix", "chat=0.3")
    assert "sum to 0.8; they are scaled to: code 62.5%, chat 37.5%" in one[1]
    assert "sum to" not in explained(results, capsys, "--mix", "code=50,chat=50")[1]


def test_explain_without_a_mix_prints_the_factors(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["analyze", "explain", str(results)]) == Exit.OK
    assert "measured = predicted × prefill × length" in capsys.readouterr().out
    assert explained(results, capsys, "--workload", "chat")[0]["cells"][0]["arm"] == "ngram"
    assert exit_code(["analyze", "explain", str(results), "--workload", "other"]) == Exit.BAD_INPUT


@pytest.mark.draws
def test_mix_interval_covers_the_truth_at_its_nominal_rate() -> None:
    """The gain varies by prompt around a mean speed-up of 2x (code) and 1.25x (chat)."""
    means = {"code": (100, 40, 400.0, 200.0), "chat": (100, 40, 3000.0, 2400.0)}
    truth, draws, held = (0.8 * 400 + 0.2 * 3000) / (0.8 * 200 + 0.2 * 2400), 300, 0
    for seed in range(draws):
        pairs = pairs_of_mix(means, prompts=15, noise=20**-0.5, seed=seed, repeats=3)
        bounds = present(projected(pairs, {"code": 0.8, "chat": 0.2}).speedup.interval)
        held += bounds.low <= truth <= bounds.high
    assert 0.91 <= held / draws <= 0.98, held / draws
