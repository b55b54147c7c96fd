"""`specbench curve` over what lies in a folder."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from specbench_api.outcome.curves import Curves
from specbench_api.outcome.ending import Exit
from specbench_api.outcome.layout import PLAN, SUMMARY, run_root
from specbench_client.analysis.curves.against import AGAINST
from specbench_client.cli import exit_code
from specbench_client.cli.curve import AXES, WHOLE
from specbench_client.store.folder import FolderStore
from specbench_testing.kept import keep
from specbench_testing.records import World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

UIDS = [f"0190{letter}000-0000-7000-8000-000000000000" for letter in "abc"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs at two temperatures, each with its answer, and one that has none yet."""
    root = tmp_path_factory.mktemp("curves") / "out"
    for uid, heat in zip(UIDS, (0.0, 1.0, 0.5), strict=True):
        world = World(prompts=8, temperature=heat)
        plan = keep(world, root, uid)
        if uid != UIDS[2]:
            store = FolderStore(root / run_root(plan.namespace, plan.name, uid))
            store.put(SUMMARY, run_of_world(world).to_json().encode())
    return root


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert exit_code(["curve", *words]) == Exit.OK
    return capsys.readouterr().out


def test_every_run_below_a_root_is_taken_and_those_without_an_answer_are_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Curves.from_json(said(capsys, str(results), "--by", "temperature", "--output", "json"))
    assert [point.place for point in found.curves[0].points] == [0, 1]
    (left_out,) = found.left_out
    assert left_out.what.endswith(UIDS[2])
    assert left_out.reason.startswith("this run has no answer yet")


def test_roots_and_runs_may_be_mixed_and_count_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(results / "runs/local/demo" / UIDS[0])
    alone = Curves.from_json(said(capsys, one, "--by", "temperature", "--output", "json"))
    assert [point.place for point in alone.curves[0].points] == [0]
    both = Curves.from_json(said(capsys, one, str(results), "--by", "temperature", "--output", "json"))
    assert [point.place for point in both.curves[0].points] == [0, 1]


def test_people_programs_and_spreadsheets_are_told_the_same(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = (str(results), "--by", "temperature", "--at", "0.5")
    text, markdown = said(capsys, *where), said(capsys, *where, "--output", "markdown")
    table = pd.read_csv(StringIO(said(capsys, *where, "--output", "csv")))
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
            "temperature 1.5: refused, it lies outside of what was measured (temperature 0 to temperature 1)",
        ),
        (("--at", "-1"), "there is no such temperature"),
        (("--by", "draft-tokens", "--at", "2.5"), "draft-tokens is counted in whole numbers: give 2"),
        (("--by", "concurrency", "--at", "0"), "there is no such concurrency: give a number above 0"),
        (("--by", "heat"), "'heat' is not one of"),
    ],
)
def test_what_no_curve_can_say_is_refused(
    results: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert exit_code(["curve", str(results), "--by", "temperature", *words]) == Exit.BAD_INPUT
    assert reason in capsys.readouterr().err


def test_nothing_to_draw_says_what_was_left_out(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["curve", str(tmp_path), "--by", "temperature"]) == Exit.BAD_INPUT
    assert f"no run lies here (no {PLAN})" in capsys.readouterr().err
    unfinished = str(results / "runs/local/demo" / UIDS[2])
    assert exit_code(["curve", unfinished, "--by", "temperature", "--output", "json"]) == Exit.BAD_INPUT
    told = capsys.readouterr()
    assert "there is nothing to draw" in told.err
    assert "`specbench report` tells of each run what its checks found, and what to do about it" in told.err
    assert json.loads(told.out)["error"]["reason"] == "NothingToDraw"


def test_the_command_knows_the_axes_of_the_analysis() -> None:
    """It names them itself, so that `--help` waits for no statistics."""
    assert list(AGAINST) == AXES
    assert set(WHOLE) <= set(AXES)
