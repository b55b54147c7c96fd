"""`specbench analyze curve` over stored results."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from specbench_api.outcome.layout import PLAN, SUMMARY, run_root
from specbench_api.outcome.termination import Exit
from specbench_client.analysis.curves.axes import AXIS_KINDS
from specbench_client.cli import exit_code
from specbench_client.cli.curve import AXES, WHOLE
from specbench_client.documents.curves import Curves
from specbench_client.store.folder import FolderStore
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

UIDS = [f"0190{letter}000-0000-7000-8000-000000000000" for letter in "abc"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs at two temperatures with summaries, and one without."""
    root = tmp_path_factory.mktemp("curves") / "out"
    for uid, heat in zip(UIDS, (0.0, 1.0, 0.5), strict=True):
        world = SyntheticRun(prompts=8, temperature=heat)
        plan = store_results(world, root, uid)
        if uid != UIDS[2]:
            store = FolderStore(root / run_root(plan.namespace, plan.name, uid))
            store.put(SUMMARY, run_of_world(world).to_json().encode())
    return root


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert exit_code(["analyze", "curve", *words]) == Exit.OK
    return capsys.readouterr().out


def test_every_run_below_a_root_is_used_and_runs_without_a_summary_are_listed(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Curves.from_json(output_of(capsys, str(results), "--by", "temperature", "--output", "json"))
    assert [point.place for point in found.curves[0].points] == [0, 1]
    (left_out,) = found.left_out
    assert left_out.what.endswith(UIDS[2])
    assert left_out.reason.startswith("6 of 6 points are measured, and there is no summary yet")


def test_overlapping_roots_and_runs_count_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(results / "runs/local/demo" / UIDS[0])
    alone = Curves.from_json(output_of(capsys, one, "--by", "temperature", "--output", "json"))
    assert [point.place for point in alone.curves[0].points] == [0]
    both = Curves.from_json(output_of(capsys, one, str(results), "--by", "temperature", "--output", "json"))
    assert [point.place for point in both.curves[0].points] == [0, 1]


def test_all_formats_contain_the_same_values(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = (str(results), "--by", "temperature", "--at", "0.5")
    text, markdown = output_of(capsys, *where), output_of(capsys, *where, "--output", "markdown")
    table = pd.read_csv(StringIO(output_of(capsys, *where, "--output", "csv")))
    assert table["basis"].tolist() == ["measured", "measured", "interpolated"]
    for value in table["speedup"]:
        assert f"{value:.2f} [" in text
        assert f"{value:.2f} [" in markdown
    assert "temperature 0.5: interpolated between temperature 0 and temperature 1: speed-up" in text
    assert "left out: " in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("--at", "1.5"),
            "temperature 1.5: no prediction, it is outside the measured range (temperature 0 to temperature 1)",
        ),
        (("--at", "-1"), "not a possible value of temperature"),
        (("--by", "draft-tokens", "--at", "2.5"), "draft-tokens is a whole number: give 2"),
        (("--by", "concurrency", "--at", "0"), "not a possible value of concurrency: give a number above 0"),
        (("--by", "heat"), "'heat' is not one of"),
    ],
)
def test_impossible_axis_values_are_rejected(
    results: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert exit_code(["analyze", "curve", str(results), "--by", "temperature", *words]) == Exit.BAD_INPUT
    assert reason in capsys.readouterr().err


def test_missing_curve_error_lists_the_excluded_runs(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "curve", str(tmp_path), "--by", "temperature"]) == Exit.BAD_INPUT
    assert f"there is no run here (no {PLAN})" in capsys.readouterr().err
    unfinished = str(results / "runs/local/demo" / UIDS[2])
    assert exit_code(["analyze", "curve", unfinished, "--by", "temperature", "--output", "json"]) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert "no curve can be drawn" in printed.err
    assert "`specbench report` shows the findings of each run, and what to do about them" in printed.err
    assert json.loads(printed.out)["error"]["reason"] == "NothingToDraw"


def test_command_has_the_axes_of_the_analysis() -> None:
    """The command lists them itself, so that `--help` does not import the statistics."""
    assert list(AXIS_KINDS) == AXES
    assert set(WHOLE) <= set(AXES)
