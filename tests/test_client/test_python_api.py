"""The Python package `specbench`: stored runs as data frames, and commands as functions."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from copy import copy
from io import StringIO
from pathlib import Path

import click
import pandas as pd
import pytest

import specbench
from specbench_api.outcome.layout import run_root
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.cli.decide import decide as decide_command
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.measure import measure as measure_command
from specbench_client.documents.finding import Finding, Severity
from specbench_client.store.folder import FolderStore
from specbench_client.store.s3 import S3Store
from specbench_client.stored_runs.frames import requests_frame, speedups_frame
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

FINISHED, UNFINISHED = "0190a000-0000-7000-8000-000000000000", "0190b000-0000-7000-8000-000000000000"
PROMPTS = str(Path(__file__).resolve().parents[2] / "examples/prompts.jsonl")
WORLD = SyntheticRun(prompts=12, concurrency=(1, 2), drafters=("ngram", "slow"), step_ms={"slow": 40.0})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, and with a newer one that has no summary and one of its points."""
    folder = tmp_path_factory.mktemp("api") / "out"
    plan = store_results(WORLD, folder, FINISHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specbench_client.report.html.draw_figures", lambda _: {})
        conclude(plan, FolderStore(folder / run_root(plan.namespace, plan.name, FINISHED)))
    store_results(WORLD, folder, UNFINISHED, points=1)
    return folder


@pytest.fixture(scope="module")
def run(results: Path) -> specbench.Run:
    return specbench.read(results / run_root("local", WORLD.plan.name, FINISHED))


def test_importing_the_package_imports_no_library() -> None:
    script = (
        "import sys, specbench; print(*sorted({'pandas', 'numpy', 'pydantic', 'click', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "\n"


def test_every_public_name_is_documented_and_others_are_rejected() -> None:
    assert [name for name in specbench.__all__ if not inspect.getdoc(getattr(specbench, name))] == []
    assert set(specbench.__all__) <= set(dir(specbench))
    with pytest.raises(AttributeError, match="no attribute 'opened': it has Run, "):
        specbench.opened  # noqa: B018


def test_several_runs_need_latest(results: Path) -> None:
    with pytest.raises(specbench.BadInput, match="contains 2 runs: give one of them, or add latest=True"):
        specbench.read(results)
    assert specbench.read(results, latest=True).plan.uid == UNFINISHED
    with pytest.raises(specbench.BadInput, match="no such file or folder"):
        specbench.read(results / "nothing")


def test_speedups_are_those_of_the_summary(run: specbench.Run) -> None:
    expected = {
        (cell.arm, cell.level.label): (cell.speedup.value, cell.speedup.interval and cell.speedup.interval.low)
        for cell in run.summary.cells
        if cell.speedup is not None
    }
    found = run.speedups.set_index(["arm", "load"])[["speedup", "speedup_low"]]
    assert {index: tuple(row) for index, row in zip(found.index, found.to_numpy(), strict=True)} == expected
    assert BASELINE_NAME not in set(run.speedups.arm)


def test_cells_equal_results_csv(run: specbench.Run) -> None:
    stored = pd.read_csv(Path(run.uri) / "results.csv")
    pd.testing.assert_frame_equal(pd.read_csv(StringIO(run.cells.to_csv(index=False))), stored)
    assert "ttft_ms_p95_low" in run.cells


def test_figures_of_cells_follow_from_the_steady_requests(run: specbench.Run) -> None:
    by_cell = run.requests.query("steady").groupby(["arm", "load"])
    cells = run.cells.set_index(["arm", "load"]).sort_index()
    for figure in ("ttft_ms", "tpot_ms", "e2e_ms", "step_ms"):
        median = by_cell[figure].median()
        pd.testing.assert_series_equal(median, cells[f"{figure}_p50"], check_names=False)
    assert by_cell.size().tolist() == cells.steady_requests.tolist()
    assert run.requests.groupby(["arm", "load"]).size().tolist() == cells.requests.tolist()


def test_each_point_is_a_row_with_its_figures(run: specbench.Run) -> None:
    assert list(run.points.point) == [point.hash for point in run.plan.points]
    requests = run.requests.query("steady").groupby(["arm", "load", "repeat"]).tpot_ms.median()
    points = run.points.set_index(["arm", "load", "repeat"]).sort_index()
    pd.testing.assert_series_equal(requests, points.tpot_ms_p50, check_names=False)


def test_requests_have_no_ttft_where_chunks_of_their_point_were_coalesced(run: specbench.Run) -> None:
    late, changed = run.plan.points[0], copy(run)
    summary = run.point_summaries[late.hash]
    found = Finding(check="ChunksCoalesced", severity=Severity.INVALID, message="", arm=late.arm)
    points = {late.hash: summary.model_copy(update={"findings": [found]})}
    changed.__dict__["point_summaries"] = {**run.point_summaries, **points}
    known = requests_frame(changed).groupby(["arm", "load", "repeat"])[["ttft_ms", "e2e_ms"]].count()
    own = (late.arm, late.level.label, late.repeat)
    assert known.ttft_ms[known.ttft_ms == 0].index.tolist() == [own]
    assert (known.e2e_ms > 0).all()


def test_findings_have_their_remedies(run: specbench.Run) -> None:
    assert list(run.findings.check) == [finding.check for finding in run.summary.findings]
    assert run.findings.remedy.notna().all()
    assert run.trustworthy == run.summary.trustworthy


def test_an_unfinished_run_has_its_measured_points_and_is_not_changed(results: Path) -> None:
    def files() -> set[Path]:
        return {file for file in results.rglob("*") if file.is_file()}

    before, run = files(), specbench.read(results, latest=True)
    assert len(run.points) == 1
    assert set(run.requests.arm) == {run.plan.points[0].arm}
    assert "MissingPoints" in set(run.findings.check)
    assert files() == before


def test_a_comparison_without_its_baseline_is_neither_valid_nor_invalid(run: specbench.Run) -> None:
    assert set(run.speedups.valid) == {True}
    without_baseline = Corruptions(measured=lambda point: (point.arm, point.level.label) != (BASELINE_NAME, "2"))
    summary = run_of_world(WORLD, without_baseline)
    found = speedups_frame(summary).set_index("load").valid
    assert found.groupby("load").agg(set).to_dict() == {"1": {True}, "2": {None}}
    invalid = [cell.model_copy(update={"valid": False}) for cell in summary.cells]
    assert set(speedups_frame(summary.model_copy(update={"cells": invalid})).valid) == {False}


def test_a_run_in_s3_has_the_same_results(results: Path, run: specbench.Run, s3_store: S3Store) -> None:
    folder = FolderStore(results)
    for key in folder.keys("runs/"):
        s3_store.put(key, folder.get(key) or b"")
    found = specbench.read(s3_store.uri(run_root("local", run.name, FINISHED)))
    pd.testing.assert_frame_equal(found.speedups, run.speedups)
    pd.testing.assert_frame_equal(found.requests, run.requests)


def test_plots_are_displayed_and_saved(run: specbench.Run, tmp_path: Path) -> None:
    assert run.plot()._repr_png_().startswith(b"\x89PNG")
    run.plot("THROUGHPUT").save(tmp_path / "plot.svg")
    assert "Throughput of the engine" in (tmp_path / "plot.svg").read_text(encoding="utf-8")
    with pytest.raises(specbench.BadInput, match="no plot has this title"):
        run.plot("latency of everything")
    with pytest.raises(specbench.BadInput, match=r"suffix is not \.png or \.svg"):
        run.plot().save(tmp_path / "plot.gif")


def test_decide_has_the_options_of_the_command(run: specbench.Run) -> None:
    decision = specbench.decide(run, objective="latency", slo_tpot_ms=11, slo_percentile="p50", worth=10)
    assert [each.words for each in decision.document.targets] == ["TPOT p50 ≤ 11 ms"]
    assert decision.document.worth == 1.1
    assert len(decision.candidates) == len(run.cells)
    assert decision._repr_markdown_().startswith("# For latency")
    with pytest.raises(specbench.BadInput, match="Invalid value for objective: 'fast' is not one of"):
        specbench.decide(run, objective="fast")
    with pytest.raises(specbench.BadInput, match="output: `specbench decide` has no such option: it has can_train, "):
        specbench.decide(run, output="json")
    with pytest.raises(specbench.BadInput, match="emit: `specbench decide` has no such option"):
        specbench.decide(run, emit=True)


def test_compare_returns_ratios_with_intervals(run: specbench.Run, results: Path) -> None:
    comparison = specbench.compare(run, run)
    assert set(comparison.changes.ratio) == {1.0}
    assert (comparison.changes.ratio_low <= 1).all()
    with pytest.raises(specbench.BadInput, match="Interrupted: "):
        specbench.compare(run, specbench.read(results, latest=True))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency": 0}, "Invalid value for concurrency: '0': give a whole number from 1 to 4096"),
        ({"concurrency": 1, "rate": [2.5]}, r"set exactly one of concurrency \(closed loop\) and rate"),
        ({}, r"no load: give concurrency N \(closed loop\), rate R"),
        ({"percentiles": [50, 51], "concurrency": 1}, r"Invalid value for percentiles: '50,51': give some of mean, 50"),
        ({"concurrency": [1, 8], "burst": 1}, "burst: `specbench measure` has no such option"),
        ({"concurrency": 1, "extra_body": [1]}, r"extra_body: '\[1\]' is not a JSON object"),
        ({"concurrency": 1, "no_stream": "no"}, "no_stream: 'no' is not a choice: give True or False"),
    ],
)
def test_wrong_parameters_of_measure_are_named_as_given(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(specbench.BadInput, match=message):
        specbench.measure("http://127.0.0.1:9", dataset=PROMPTS, model="m", **wrong)


@pytest.mark.parametrize(
    ("function", "command"), [(specbench.measure, measure_command), (specbench.decide, decide_command)]
)
def test_parameters_are_the_options_of_the_command(function: Callable[..., object], command: click.Command) -> None:
    flags = {each.opts[0] for each in command.params if isinstance(each, click.Option)}
    flags -= {"--output", "--latest", "--emit", "--workload"}
    named = {f"--{name.replace('_', '-')}" for name in inspect.signature(function).parameters}
    assert named - {"--run"} == flags


class TestInterruption:
    """`run_until_interrupted` in the main thread, in other threads, and below a running event loop."""

    @staticmethod
    async def until_cancelled(log: list[str], *, signalled: bool) -> str:
        try:
            if signalled:
                os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60 if signalled else 0)
        finally:
            log.append("ended")
        return "result"

    async def test_a_running_event_loop_is_no_obstacle(self) -> None:
        assert run_until_interrupted(self.until_cancelled([], signalled=False)) == "result"

    async def test_keyboard_interrupt_cancels_below_a_running_loop(self) -> None:
        log: list[str] = []
        earlier = signal.signal(signal.SIGINT, signal.default_int_handler)  # a kernel's; pytest's runner has its own
        try:
            with pytest.raises(specbench.Interrupted, match="interrupted"):
                run_until_interrupted(self.until_cancelled(log, signalled=True))
        finally:
            signal.signal(signal.SIGINT, earlier)
        assert log == ["ended"]

    def test_another_thread_installs_no_handler(self) -> None:
        found: list[str] = []
        before = signal.getsignal(signal.SIGTERM)
        thread = threading.Thread(
            target=lambda: found.append(run_until_interrupted(self.until_cancelled([], signalled=False)))
        )
        thread.start()
        thread.join()
        assert found == ["result"]
        assert signal.getsignal(signal.SIGTERM) is before
