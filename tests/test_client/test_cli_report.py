"""`specbench report` over what lies in a folder: which run is meant, and every record in one table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from specbench_api.outcome.ending import Exit
from specbench_api.outcome.finding import Finding, Severity
from specbench_client.cli import exit_code
from specbench_client.cli.report import POINTS_STAND
from specbench_client.cli.show import show
from specbench_client.report.findings import grouped, measure_again
from specbench_testing.kept import keep
from specbench_testing.records import Lies, World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

EARLIER, LATER = "0190a000-0000-7000-8000-000000000000", "0190b000-0000-7000-8000-000000000000"
WORLD = World(prompts=8, concurrency=(1, 2), repeats=2)


def test_several_runs_are_listed_with_when_how_far_and_what_they_found_the_newest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(WORLD, tmp_path / "out", EARLIER)
    keep(WORLD, tmp_path / "out", LATER, points=1)
    exit_code(["report", str(tmp_path / "out/runs/local/small" / EARLIER), "--output", "json"])
    capsys.readouterr()

    assert exit_code(["report", str(tmp_path / "out")]) == Exit.BAD_INPUT

    told = capsys.readouterr().err
    assert "2 runs lie here; choose one, or the newest by --latest" in told
    rows = [line for line in told.splitlines() if " points  " in line]
    assert [row.split()[0][:10] for row in rows] == ["2024-07-14", "2024-07-11"]
    assert ["1 of 8 points  no answer yet" in rows[0], "8 of 8 points" in rows[1]] == [True, True]


def test_the_latest_run_is_the_one_that_was_made_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for uid in (LATER, EARLIER):
        keep(WORLD, tmp_path / "out", uid, points=1)
    assert exit_code(["report", str(tmp_path / "out"), "--latest", "--output", "json"]) == Exit.OK
    assert f'"uid": "{LATER}"' in capsys.readouterr().out


def test_analysing_again_says_that_points_keep_their_findings_and_leaves_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(WORLD, tmp_path / "out", EARLIER)
    assert exit_code(["report", str(tmp_path / "out"), "--output", "json"]) in (Exit.OK, Exit.UNTRUSTWORTHY)
    assert POINTS_STAND not in capsys.readouterr().err
    points = {file: file.read_bytes() for file in (tmp_path / "out").rglob("points/*/summary.json")}
    assert len(points) == 8
    exit_code(["report", str(tmp_path / "out"), "--recompute", "--output", "json"])
    assert POINTS_STAND in capsys.readouterr().err
    assert {file: file.read_bytes() for file in points} == points


def test_all_records_come_in_one_table_with_arm_workload_load_and_repeat_before_them(tmp_path: Path) -> None:
    plan = keep(WORLD, tmp_path / "out", EARLIER)
    file = tmp_path / "records.parquet"
    assert exit_code(["report", str(tmp_path / "out"), "--output", "parquet", "--to", str(file)]) == Exit.OK
    records = pd.read_parquet(file)
    assert list(records.columns[:5]) == ["arm", "workload", "load", "repeat", "request_id"]
    assert list(records.columns).count("repeat") == 1
    wanted = {(point.arm, point.workload, point.level.label, point.repeat) for point in plan.points}
    assert set(records[["arm", "workload", "load", "repeat"]].itertuples(index=False, name=None)) == wanted
    stored = [pd.read_parquet(part) for part in (tmp_path / "out").rglob("part-*.parquet")]
    assert len(records) == sum(map(len, stored))


def test_the_terminal_tells_of_each_check_what_to_do_and_how_many_more_it_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing = Lies(records=lambda point, frame: frame.assign(error_class="reset") if point.arm == "ngram" else frame)
    summary = run_of_world(WORLD, failing)
    groups = grouped(summary.findings)
    assert any(group.more for group in groups)
    show(WORLD.plan, summary, "text", "results")
    told = " ".join(capsys.readouterr().out.split())
    for group in groups:
        said = f"{group.severity} {group.check}: {group.messages[0]}{group.more} to do {group.remedy}"
        assert " ".join(said.split()) in told
    assert f"again {measure_again(WORLD.plan)}" in told
    assert summary.recommendation is not None
    assert f"decide {' '.join(summary.recommendation.sentence.split())}" in told, "which arm, at which load"


def test_what_only_follows_from_other_findings_comes_behind_them() -> None:
    told = [("BaselineInvalid", "Invalid"), ("ClientSaturated", "Invalid"), ("Chunky", "Doubt")]
    found = [Finding(check=check, severity=Severity(severity), message="m") for check, severity in told]
    assert [group.check for group in grouped(found)] == ["ClientSaturated", "BaselineInvalid", "Chunky"]


def test_a_run_of_which_nothing_is_measured_shows_no_empty_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(WORLD, tmp_path / "out", EARLIER, points=0)
    assert exit_code(["report", str(tmp_path / "out")]) == Exit.OK
    told = capsys.readouterr().out
    assert "nothing was measured" in told
    assert "Speed-up" not in told
