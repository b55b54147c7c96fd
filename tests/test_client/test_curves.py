"""Curves over several runs: which cells join a curve, exclusions, and predictions between measured values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.outcome.crossover import CrossoverKind
from specbench_api.outcome.summary import SpeedupConclusion
from specbench_api.plan.plan import Point
from specbench_api.spec.parsing import parse_campaign, read_yaml
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.axes import AXIS_KINDS
from specbench_client.analysis.curves.build import build_curves
from specbench_client.analysis.curves.grouping import CurveCell, identity
from specbench_client.documents.curves import CurveAnswerBasis, Curves
from specbench_client.report.text.curves import curve_notes, curves_csv, curves_markdown, prediction_lines
from specbench_testing.result_pairs import result_of, without_records
from specbench_testing.synthetic_records import UNCORRUPTED, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

PROMPTS = 8


_MADE: dict[str, StoredResult] = {}
"""Runs by the settings of their synthetic engines, cached because most tests use the same few."""


def result(
    uri: str = "results/a", corruptions: Corruptions = UNCORRUPTED, created: str = "", **world: Any
) -> StoredResult:
    """Return a stored run; its root identifies it."""
    settings = {"prompts": PROMPTS, "categories": ("code",), "tokens": (16, 32), **world}
    found = _MADE.get(f"{settings}") if corruptions is UNCORRUPTED else None
    if found is None:
        found = result_of(SyntheticRun(**settings), corruptions)
        if corruptions is UNCORRUPTED:
            _MADE[f"{settings}"] = found
    summary = found.summary.model_copy(update={"created": created or found.summary.created})
    return replace(found, uri=uri, summary=summary)


def curves_over(by: str, *results: StoredResult, at: tuple[float, ...] = ()) -> Curves:
    return build_curves(by, results, [], "2026-01-01T00:00:00Z", at)


@pytest.fixture(scope="module")
def by_temperature() -> list[StoredResult]:
    """Return runs whose acceptance falls with temperature; at 1.5 the arm's steps are too slow to win."""
    hot = {0.0: (0.8, 12.0), 0.5: (0.6, 12.0), 1.0: (0.4, 12.0), 1.5: (0.1, 14.0)}
    return [
        result(f"results/t{heat}", temperature=heat, alpha={"ngram": alpha}, step_ms={"ngram": step_ms})
        for heat, (alpha, step_ms) in hot.items()
    ]


def test_runs_that_differ_only_in_the_axis_form_one_curve(by_temperature: list[StoredResult]) -> None:
    found = curves_over("temperature", *reversed(by_temperature))
    (curve,) = found.curves
    assert [point.place for point in curve.points] == [0, 0.5, 1, 1.5]
    assert curve.title == "ngram on chat at concurrency 1"
    assert "temperature" not in curve.same
    assert (found.left_out, found.comparisons, found.simulated) == ([], 4, False)
    lengths = [point.acceptance_length.value for point in curve.points]
    assert lengths == sorted(lengths, key=lambda value: -(value or 0))


def test_each_point_has_its_runs_own_speedup(by_temperature: list[StoredResult]) -> None:
    for point, run in zip(curves_over("temperature", *by_temperature).curves[0].points, by_temperature, strict=True):
        cell = next(cell for cell in run.summary.cells if cell.arm == "ngram")
        assert cell.speedup == point.speedup
        assert point.runs == [run.uri]
        assert point.acceptance_length.value == pytest.approx(
            cell.figures["acceptance_length_emitted_pooled"].value, rel=1e-9
        )


def test_crossover_is_between_the_right_two_points(by_temperature: list[StoredResult]) -> None:
    found = curves_over("temperature", *by_temperature).curves[0].crossover
    assert found.kind is CrossoverKind.REACHED
    assert found.at.value is not None
    assert 1 < found.at.value < 1.5


def test_predictions_are_interpolated_between_points_and_refused_outside(by_temperature: list[StoredResult]) -> None:
    found = curves_over("temperature", *by_temperature, at=(0.5, 0.6, 2.0))
    measured, between, outside = found.curves[0].predictions
    points = found.curves[0].points
    assert (measured.basis, measured.speedup) == (CurveAnswerBasis.MEASURED, points[1].speedup)
    assert (between.basis, between.between) == (CurveAnswerBasis.INTERPOLATED, [0.5, 1.0])
    assert between.speedup is not None
    assert between.speedup.interval is not None
    ends = [point.speedup.value for point in points[1:3] if point.speedup.value is not None]
    assert between.speedup.value is not None
    assert between.speedup.value == pytest.approx(ends[0] ** 0.8 * ends[1] ** 0.2)
    assert between.speedup.interval.low < between.speedup.value < between.speedup.interval.high
    assert between.acceptance_length is not None
    assert "interpolated" in between.speedup.definition
    assert (outside.basis, outside.speedup, outside.acceptance_length) == (CurveAnswerBasis.REFUSED, None, None)
    assert "outside the measured range (temperature 0 to temperature 1.5)" in outside.message
    assert [line.count("interpolated") for line in prediction_lines(found)] == [0, 1, 0]


def test_different_engine_or_prompts_form_a_separate_curve(
    by_temperature: list[StoredResult],
) -> None:
    other = result("results/other", temperature=0.2, edits={"spec.engine.args": ["--seed=7"]})
    prompts = replace(
        other,
        observed={key: seen.model_copy(update={"dataset_fingerprint": "g"}) for key, seen in other.observed.items()},
    )
    found = curves_over("temperature", *by_temperature, other, prompts)
    assert [len(curve.points) for curve in found.curves] == [4, 1, 1]
    assert found.curves[0].differs == []
    assert [difference.partition(":")[0] for difference in found.curves[1].differs] == ["engine.args"]
    assert sorted(difference.partition(":")[0] for difference in found.curves[2].differs) == ["dataset", "engine.args"]
    assert "another curve: ngram on chat at concurrency 1: dataset: f → g" in curve_notes(found)
    assert found.curves[1].crossover.kind is CrossoverKind.INSUFFICIENT_DATA


def test_newest_of_two_identical_runs_is_used() -> None:
    older, newer = (result(f"results/{day}", created=f"2026-01-0{day}T00:00:00Z") for day in (1, 2))
    for order in ((older, newer), (newer, older)):
        found = curves_over("temperature", *order)
        assert [point.runs for point in found.curves[0].points] == [["results/2"]]
        (left_out,) = found.left_out
        assert left_out.what == "results/1: ngram on chat at concurrency 1"
        assert "measured again by ngram of results/2" in left_out.reason


def test_invalid_cells_and_cells_without_records_are_left_out_with_a_reason() -> None:
    failing = Corruptions(records=lambda point, frame: frame.assign(error_class="x") if point.arm == "ngram" else frame)
    skipped = result("results/skipped", edits={"spec.baseline": "Skip"})
    found = curves_over("temperature", result("results/bad", failing), without_records(result("results/gone")), skipped)
    assert found.curves == []
    reasons = {each.what.partition(":")[0]: each.reason for each in found.left_out}
    assert reasons["results/bad"] == "invalid (RequestsFailed, NoSteadyState)"
    assert reasons["results/gone"] == "its records are gone"
    assert reasons["results/skipped"] == "not compared with a baseline"


def test_draft_lengths_of_several_runs_form_one_curve() -> None:
    def arm(name: str, k: int) -> dict[str, object]:
        return {"name": name, "method": "ngram", "numSpeculativeTokens": k, "promptLookupMax": 4}

    both = result("results/a", drafters=("k3", "k4"), edits={"spec.drafters": [arm("k3", 3), arm("k4", 4)]})
    third = result("results/b", drafters=("x",), edits={"spec.drafters": [arm("x", 8)]})
    found = curves_over("draft-tokens", both, third, at=(6,))
    (curve,) = found.curves
    assert found.left_out == []
    assert [(point.place, point.arm) for point in curve.points] == [(3, "k3"), (4, "k4"), (8, "x")]
    (prediction,) = curve.predictions
    assert prediction.between == [4, 8]
    assert prediction.speedup is not None
    share, ends = np.log(6 / 4) / np.log(2), [point.speedup.value or 0 for point in curve.points[1:]]
    assert prediction.speedup.value == pytest.approx(ends[0] ** (1 - share) * ends[1] ** share), (
        "draft lengths are interpolated on a log scale"
    )


def test_arms_and_loads_of_one_run_are_separate_curves_without_differences() -> None:
    found = curves_over("temperature", result(drafters=("ngram", "suffix"), concurrency=(1, 2)))
    assert sorted(curve.title for curve in found.curves) == [
        f"{arm} on chat at concurrency {load}" for arm in ("ngram", "suffix") for load in (1, 2)
    ]
    assert [curve.differs for curve in found.curves] == [[]] * 4


def test_curve_over_loads_has_the_summarys_crossover() -> None:
    run = result(concurrency=(1, 2, 3), prompts=16)
    (curve,) = curves_over("concurrency", run).curves
    assert run.summary.crossover is not None
    assert curve.crossover == run.summary.crossover.by_load[0].crossover
    assert curve.title == "ngram on chat"


@pytest.mark.parametrize(
    ("by", "seed", "curve_count", "point_count"),
    [
        ("temperature", "temperature", 2 * 2, 7),
        ("draft-tokens", "draft-length", 2 * 4, 6),
        ("output-tokens", "output-length", 2 * 2, 5),
        ("input-tokens", "throughput-isl-entropy", 2 * 3, 5),
        ("concurrency", "batch", 4 * 6, 10),
    ],
)
def test_example_campaigns_give_the_expected_number_of_curves(
    by: str, seed: str, curve_count: int, point_count: int
) -> None:
    """There is one curve for each arm and other varied setting; every run is a point of each curve."""
    file = Path(__file__).resolve().parents[2] / f"examples/seeds/{seed}.yaml"
    runs = expand_campaign(parse_campaign(read_yaml(file.read_text(encoding="utf-8")))).runs
    known = result(prompts=4, repeats=1)
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for plan in (run.plan for run in runs):
        one = replace(known, plan=plan, observed={}, points={}, launches=())
        cells = [
            CurveCell(one, arm, workload, level)
            for arm in plan.arms
            for workload in plan.workloads
            for level in plan.load.levels
            if not arm.is_baseline
        ]
        found.update(
            tuple((name, value) for name, value in identity(cell).items() if name not in AXIS_KINDS[by].free)
            for cell in cells
        )
    assert list(found.values()) == [point_count] * curve_count


def lengthen_every_other_prompt(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    """Make every other prompt long."""
    long = [int(prompt[1:]) % 2 == 1 if prompt.startswith("p") else False for prompt in frame["prompt_id"]]
    return frame.assign(input_tokens=[2000 if each else 130 for each in long])


def test_requests_are_binned_by_measured_length_and_pooled_over_runs() -> None:
    corruptions = Corruptions(records=lengthen_every_other_prompt)
    first = result("results/a", corruptions)
    observed = next(iter(first.observed.values())).model_copy(update={"dataset_fingerprint": "g"})
    second = replace(first, uri="results/b", observed=dict.fromkeys(first.points, observed))
    (curve,) = curves_over("input-tokens", first, second).curves
    assert [(point.label, round(point.place)) for point in curve.points] == [("about 128", 130), ("about 2,048", 2000)]
    assert [point.speedup.n for point in curve.points] == [PROMPTS, PROMPTS], "each bin has half of each run's prompts"
    assert [point.runs for point in curve.points] == [["results/a", "results/b"]] * 2
    assert sum(point.pairs for point in curve.points) == 2 * 3 * PROMPTS
    alone = curves_over("input-tokens", first).curves[0]
    assert [point.speedup.n for point in alone.points] == [PROMPTS // 2] * 2


def test_output_length_bins_use_the_baselines_lengths() -> None:
    (curve,) = curves_over("output-tokens", result(tokens=(20, 200), prompts=24)).curves
    labels = [point.label for point in curve.points]
    assert labels == [f"about {2**power}" for power in (4, 5, 6, 7, 8)][-len(labels) :]
    assert all(low.place < high.place for low, high in pairwise(curve.points))
    assert sum(point.pairs for point in curve.points) == 3 * 24


def test_conclusions_are_corrected_over_every_point_of_every_curve() -> None:
    equal: dict[str, Any] = {
        "alpha": {"ngram": 0.0},
        "alpha_spread": 0.0,
        "step_ms": {"ngram": 10.0},
        "run_noise": 0.02,
    }
    runs = [result(f"results/{heat}", temperature=heat, **equal) for heat in (0.0, 0.5)]
    found = curves_over("temperature", *runs)
    assert [point.conclusion for point in found.curves[0].points] == [SpeedupConclusion.INDISTINGUISHABLE] * 2
    assert found.curves[0].crossover.kind is CrossoverKind.INDISTINGUISHABLE
    few = curves_over("temperature", result(repeats=2))
    assert few.curves[0].points[0].conclusion is SpeedupConclusion.TOO_FEW_REPEATS
    assert few.comparisons == 0


def test_table_shows_no_interval_without_run_variation() -> None:
    found = curves_over("temperature", result(repeats=2), at=(0.0,))
    assert "| 0 | ngram | a | 16 |" in curves_markdown(found)
    row = curves_markdown(found).split("| 16 |")[1].splitlines()[0]
    assert "[" not in row
    assert "too few repeats" in row
    first, predicted = curves_csv(found).splitlines()[1:]
    assert ",,," in first
    assert ",measured," in predicted


@pytest.mark.parametrize("by", AXIS_KINDS)
def test_every_axis_has_its_limit_and_round_trips_through_json(by: str) -> None:
    found = curves_over(by, result(prompts=6, repeats=1))
    assert found.limits[-1] == AXIS_KINDS[by].limit
    assert Curves.from_json(found.to_json()) == found
    assert found.axis == by


def test_simulated_and_measured_runs_never_share_a_curve() -> None:
    simulated = result("results/s", Corruptions(simulated=True), temperature=0.5)
    found = curves_over("temperature", result(), simulated)
    assert len(found.curves) == 2
    assert found.simulated
    assert "Simulated." in curves_markdown(found)
    assert run_of_world(SyntheticRun(prompts=6, repeats=1)).simulated is False
