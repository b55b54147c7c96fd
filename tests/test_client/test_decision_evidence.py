"""How often decide recommends a drafter: rarely where none is faster, nearly always where all are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specbench_api.outcome.recommendation import RecommendationAnswer
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import RecommendationRequest
from specbench_client.analysis.statistics.bootstrap import t_bounds
from specbench_testing.decision_summaries import Given, plan_of, summary_of
from specbench_testing.present import present


def drawn(rng: np.random.Generator, truth: float, arm: str, load: int) -> Given:
    """Return the mean of four log gains around the truth, with their t interval."""
    values = rng.normal(math.log(truth), 0.04, 4)
    bounds = present(t_bounds(float(values.mean()), values))
    gain = math.exp(float(values.mean()))
    return Given(arm, load, tps=100.0 * load, gain=gain, half=(bounds.high - bounds.low) / 2, repeats=4)


def recommendations_of(rng: np.random.Generator, truth: float) -> list[RecommendationAnswer]:
    """Return the recommendation at each of three loads for two arms that are `truth` times as fast."""
    arms, loads = ("eagle3", "ngram"), (1, 8, 32)
    cells = [Given("none", load, tps=100.0 * load, repeats=4) for load in loads]
    cells += [drawn(rng, truth, arm, load) for load in loads for arm in arms]
    by_repeats = [each.cell for each in cells]
    with_repeat_intervals = [
        cell
        if cell.speedup is None or cell.speedup.interval is None
        else cell.model_copy(
            update={
                "speedup": cell.speedup.model_copy(
                    update={
                        "interval": cell.speedup.interval.model_copy(
                            update={"method": "t, unit: repeat", "freedom": 3.0}
                        )
                    }
                )
            }
        )
        for cell in by_repeats
    ]
    summary = summary_of(*cells).model_copy(update={"cells": with_repeat_intervals})
    (choice,) = recommend(plan_of(), summary, RecommendationRequest()).choices
    return [each.answer for each in choice.at_each_load]


@pytest.mark.draws
def test_equal_arms_lead_to_a_recommendation_in_at_most_5_percent_of_runs() -> None:
    """A run has six comparisons; without Holm's correction it would be one run in eight."""
    rng = np.random.default_rng(11)
    wrong = sum(RecommendationAnswer.DRAFTER in recommendations_of(rng, 1.0) for _ in range(300))
    assert wrong / 300 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.draws
def test_much_faster_arms_are_recommended_nearly_always() -> None:
    rng = np.random.default_rng(12)
    right = sum(recommendations_of(rng, 1.6) == [RecommendationAnswer.DRAFTER] * 3 for _ in range(200))
    assert right / 200 >= 0.9
