"""A category's decoding is predicted from its acceptance where its steps take as long as others', and else not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.layout import run_root
from specbench_api.outcome.prediction import DomainPrediction
from specbench_api.outcome.summary import RunSummary
from specbench_client.analysis.prediction.domains import domains
from specbench_client.cli import exit_code
from specbench_client.drive.conclude import conclude
from specbench_client.report.prediction import DOMAIN_TITLES, domains_sheet
from specbench_client.store.folder import FolderStore
from specbench_testing.kept import keep
from specbench_testing.records import World, run_of_world

WORLD = World(prompts=40, categories=("code", "chat", "news"), concurrency=(1, 2), alpha_spread=0.3)
"""Every step of an arm takes as long as any other: what acceptance predicts is what was measured."""


@cache
def summary() -> RunSummary:
    return run_of_world(WORLD)


def value(figure: Figure | None) -> float:
    assert figure is not None
    assert figure.value is not None
    return figure.value


def test_where_all_steps_take_alike_acceptance_predicts_each_category() -> None:
    found = domains(summary())
    assert {(each.arm, each.load, each.category) for each in found} == {
        ("ngram", load, category) for load in ("1", "2") for category in ("code", "chat", "news")
    }
    for each in found:
        assert value(each.ratio) == pytest.approx(1, abs=0.03)
        assert each.ratio is not None
        assert each.ratio.interval is not None
        assert each.ratio.interval.low < 1 < each.ratio.interval.high


def test_a_category_whose_steps_take_longer_is_not_as_fast_as_its_acceptance_says() -> None:
    plain = summary()
    cell = next(cell for cell in plain.cells if cell.arm == "ngram")
    slow = cell.by_category["code"]["tpot_speedup"]
    slower = slow.model_copy(update={"value": value(slow) / 2, "interval": None})
    edited = cell.model_copy(
        update={"by_category": {**cell.by_category, "code": {**cell.by_category["code"], "tpot_speedup": slower}}}
    )
    found = domains(plain.model_copy(update={"cells": [edited]}))
    ratios = {each.category: value(each.ratio) for each in found}
    assert ratios["code"] == pytest.approx(0.5, abs=0.02)
    assert ratios["chat"] == pytest.approx(1, abs=0.03)


def test_what_is_invalid_or_tells_no_steps_is_left_out() -> None:
    plain = summary()
    invalid = [cell.model_copy(update={"valid": False}) for cell in plain.cells]
    assert domains(plain.model_copy(update={"cells": invalid})) == []
    assert domains(plain.model_copy(update={"crossover": None})) == []
    assert domains(plain, "another workload") == []


def test_the_command_prints_it_beside_the_factors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = keep(WORLD, tmp_path, "a")
    conclude(plan, FolderStore(tmp_path / run_root(plan.namespace, plan.name, plan.uid)))
    assert exit_code(["predict", str(tmp_path), "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["categories"]
    assert len([DomainPrediction.model_validate(each) for each in told]) == 6
    assert exit_code(["predict", str(tmp_path)]) == 0
    assert "Decoding by category" in capsys.readouterr().out
    assert all(len(row) == len(DOMAIN_TITLES) for row in domains_sheet(domains(summary())).rows)
