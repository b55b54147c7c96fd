"""A figure has the same interval wherever it is reported: in a cell, a prediction, a mix, or a breakdown."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from known_truth.coverage import paired
from known_truth.experiment import CATEGORIES, Experiment
from specbench_client.analysis.breakdown.breakdown import BreakdownClass, PlacedSteps, StepPlaces, breakdown_by_place
from specbench_client.analysis.estimates.figures import SampleRows, ratio_figures
from specbench_client.analysis.estimates.speedups import SPEEDUP, TPOT_SPEEDUP, paired_speedup
from specbench_client.analysis.explanation.factors import explain_speedup
from specbench_client.analysis.explanation.traffic_mix import (
    ACCEPTANCE,
    PARTS,
    SPEED,
    MixExponents,
    MixSums,
    project_mix,
)
from specbench_client.analysis.statistics.row_layout import layout_of
from specbench_client.columns import TextCodes
from specbench_client.documents.figure import Figure
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.tidy_frame import numbers
from specbench_testing.present import present

DESIGNS = [(20, 1), (20, 3), (24, 4), (40, 5)]
MEASURED = dict.fromkeys(CATEGORIES, 0.25)


def pairs_of(prompts: int, repeats: int) -> Pairs:
    experiment = Experiment(prompts=prompts, repeats=repeats, run_noise=0.03, length_noise=0.2)
    return paired(*experiment.arms(seed=7))


def bounds_of(figure: Figure) -> tuple[float, float]:
    return present(figure.interval).low, present(figure.interval).high


def assert_same(mine: Figure, other: Figure) -> None:
    assert mine.value == pytest.approx(other.value, rel=1e-12)
    assert bounds_of(mine) == pytest.approx(bounds_of(other), rel=1e-9)


@pytest.mark.parametrize(("prompts", "repeats"), DESIGNS)
def test_prediction_has_the_interval_of_the_speedup(prompts: int, repeats: int) -> None:
    pairs = pairs_of(prompts, repeats)
    prediction = present(explain_speedup(pairs, 3, seed=1))
    assert_same(prediction.measured, paired_speedup(SPEEDUP, pairs, 1).figure)
    assert_same(prediction.predicted, paired_speedup(TPOT_SPEEDUP, pairs, 1).figure)


@pytest.mark.parametrize(("prompts", "repeats"), DESIGNS)
def test_measured_mix_has_the_interval_of_the_speedup(prompts: int, repeats: int) -> None:
    pairs = pairs_of(prompts, repeats)
    whole, code = project_mix(pairs, MEASURED, seed=1), project_mix(pairs, {"code": 1.0}, seed=1)
    assert whole is not None
    assert code is not None
    inside = pairs.of_category("code")
    for mine, other in ((whole, pairs), (code, inside)):
        reference = paired_speedup(SPEEDUP, other, 1).figure
        assert_same(mine.speedup, reference)


@pytest.mark.parametrize("repeats", [1, 3, 4])
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
    rows = paired(*Experiment(prompts=12, repeats=2).arms(1)).rows.table(["repeat", "prompt_id"])
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
