"""Predictions by category hold if all steps take equally long, and fail otherwise."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from specbench_api.outcome.crossover import Crossovers
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.layout import run_root
from specbench_api.outcome.prediction import DomainPrediction
from specbench_api.outcome.summary import RunSummary
from specbench_client.analysis.explanation.factors import category_predictions
from specbench_client.cli import exit_code
from specbench_client.report.text.explanation import DOMAIN_TITLES, domains_table
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=40, categories=("code", "chat", "news"), concurrency=(1, 2), alpha_spread=0.3)
"""All steps of an arm take equally long, so acceptance predicts the measured speed-up."""


@cache
def summary() -> RunSummary:
    return run_of_world(WORLD)


def value(figure: Figure | None) -> float:
    assert figure is not None
    assert figure.value is not None
    return figure.value


def test_acceptance_predicts_each_category_with_equal_step_times() -> None:
    found = category_predictions(summary())
    assert {(each.arm, each.load, each.category) for each in found} == {
        ("ngram", load, category) for load in ("1", "2") for category in ("code", "chat", "news")
    }
    for each in found:
        assert value(each.ratio) == pytest.approx(1, abs=0.03)
        assert each.ratio is not None
        assert each.ratio.interval is not None
        assert each.ratio.interval.low < 1 < each.ratio.interval.high


def test_category_with_longer_steps_is_slower_than_predicted() -> None:
    plain = summary()
    cell = next(cell for cell in plain.cells if cell.arm == "ngram")
    slow = cell.by_category["code"]["tpot_speedup"]
    slower = slow.model_copy(update={"value": value(slow) / 2, "interval": None})
    edited = cell.model_copy(
        update={"by_category": {**cell.by_category, "code": {**cell.by_category["code"], "tpot_speedup": slower}}}
    )
    found = category_predictions(plain.model_copy(update={"cells": [edited]}))
    ratios = {each.category: value(each.ratio) for each in found}
    assert ratios["code"] == pytest.approx(0.5, abs=0.02)
    assert ratios["chat"] == pytest.approx(1, abs=0.03)


def test_invalid_cells_and_cells_without_steps_are_left_out() -> None:
    plain = summary()
    invalid = [cell.model_copy(update={"valid": False}) for cell in plain.cells]
    assert category_predictions(plain.model_copy(update={"cells": invalid})) == []
    assert category_predictions(plain.model_copy(update={"crossover": Crossovers()})) == []
    assert category_predictions(plain, "another workload") == []


def test_explain_command_prints_categories_with_the_factors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = store_results(WORLD, tmp_path, "a")
    conclude(plan, FolderStore(tmp_path / run_root(plan.namespace, plan.name, plan.uid)))
    assert exit_code(["analyze", "explain", str(tmp_path), "--output", "json"]) == 0
    categories = json.loads(capsys.readouterr().out)["categories"]
    assert len([DomainPrediction.model_validate(each) for each in categories]) == 6
    assert exit_code(["analyze", "explain", str(tmp_path)]) == 0
    assert "Decoding by category" in capsys.readouterr().out
    assert all(len(row) == len(DOMAIN_TITLES) for row in domains_table(category_predictions(summary())).rows)
