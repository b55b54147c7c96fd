"""`specbench analyze curve` over a stored run."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.store.folder import FolderStore
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import ONE, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

UID = "0190a000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run at two loads."""
    root, world = tmp_path_factory.mktemp("curves"), SyntheticRun(prompts=8, categories=ONE, concurrency=(1, 2))
    plan = store_results(world, root, UID)
    store = FolderStore(root / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(world).to_json().encode())
    return root


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert exit_code(["analyze", "curve", *words]) == Exit.OK
    return capsys.readouterr().out


def test_all_formats_contain_the_same_values(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = (str(results), "--by", "concurrency")
    text, markdown = output_of(capsys, *where), output_of(capsys, *where, "--output", "markdown")
    table = pd.read_csv(StringIO(output_of(capsys, *where, "--output", "csv")))
    document = json.loads(output_of(capsys, *where, "--output", "json"))
    points = document["curves"][0]["points"]
    assert [each["speedup"]["value"] for each in points] == pytest.approx(table["speedup"].tolist())
    for value in table["speedup"]:
        assert f"{value:.2f} [" in text
        assert f"{value:.2f} [" in markdown


def test_missing_curve_error_lists_the_excluded_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = SyntheticRun(prompts=8, categories=ONE, repeats=1, edits={"spec.baseline": "Skip"})
    plan = store_results(world, tmp_path, UID)
    store = FolderStore(tmp_path / run_root(plan.namespace, plan.name, UID))
    store.put(SUMMARY, run_of_world(world).to_json().encode())
    assert exit_code(["analyze", "curve", str(tmp_path), "--by", "temperature", "--output", "json"]) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert "no curve can be drawn" in printed.err
    assert "ngram on chat at concurrency 1: not compared with a baseline" in printed.err
    assert json.loads(printed.out)["error"]["reason"] == "NothingToDraw"
