"""`specbench run` as a user runs it: real processes, a real folder, exit codes and stored results."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.outcome.exit_codes import Exit
from specbench_api.spec.parsing import parse_campaign
from specbench_client.cli import exit_code, run_execution
from specbench_testing.command_line import specbench_here
from specbench_testing.operator_process import eventually
from specbench_testing.s3 import IgnoringConditions
from specbench_testing.specs import simulated_campaign, simulated_run, write_campaign, write_run
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process

SPECBENCH = str(Path(sys.executable).with_name("specbench"))
FINISHED = (0, 3)


# Wide enough for a run with many findings, as on a slow machine.
specbench = partial(specbench_here, COLUMNS="240")


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in FINISHED, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def records(results: Path) -> pd.DataFrame:
    return pd.concat(pd.read_parquet(part) for part in sorted(results.rglob("points/*/records/*.parquet")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run: its file, its results in `out`, and the printed summary; read-only."""
    folder = tmp_path_factory.mktemp("finished")
    file = write_run(folder, simulated_run())
    command = [SPECBENCH, "run", str(file), "--results", "out", "--output", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    answer(done)
    (folder / "printed.json").write_text(done.stdout)
    return folder


def test_run_prints_one_json_document_and_records_every_turn(finished: Path) -> None:
    summary = json.loads((finished / "printed.json").read_text())
    assert [(cell["arm"], cell["level"]) for cell in summary["cells"]] == [
        ("none", {"concurrency": 2}),
        ("eagle3", {"concurrency": 2}),
    ]
    measured = measured_rows(records(finished / "out"))
    assert len(measured) == 2 * (8 + 2)  # two arms; eight prompts, two of them with a second turn
    assert measured.error_class.isna().all()


def test_hours_follow_from_measured_durations(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def estimate(*settings: str) -> dict[str, Any]:
        options = [word for setting in settings for word in ("--set", setting)]
        results = ["--results", str(finished / "out"), "--output", "json"]
        assert exit_code(["plan", str(finished / "run.yaml"), *results, *options]) == Exit.OK
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["estimate"]
        return found

    done, repeated = estimate(), estimate("spec.load.repeats=3")
    longer = estimate("spec.load.repeats=3", "spec.load.requests=400")
    adapted = estimate("spec.load.repeats=3", "spec.model.adapter={name: sql, model: acme/sql}")
    assert (done["remainingPoints"], done["engineHours"]) == (0, 0)
    assert repeated["pointsByBasis"] == {"Measured": 4}, "two of six are stored"
    assert longer["engineHours"] > repeated["engineHours"] > 0
    assert (adapted["pointsByBasis"], adapted["engineHours"]) == ({"Unknown": 6}, None)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, which a test may change."""
    return shutil.copytree(finished, tmp_path / "copy")


def test_second_run_measures_nothing_and_prints_the_same(copy: Path) -> None:
    arguments = ("run", "run.yaml", "--results", "out", "--output", "json")
    first = json.loads((copy / "printed.json").read_text())
    files = {path: path.stat().st_mtime_ns for path in (copy / "out").rglob("*") if path.is_file()}
    again = specbench(*arguments, cwd=copy)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert answer(again) == first
    assert "nothing was measured: this run was already finished" in again.stderr
    next((copy / "out").rglob("report.html")).unlink()
    assert {**answer(specbench(*arguments, cwd=copy)), "created": ""} == {**first, "created": ""}
    assert list((copy / "out").rglob("report.html"))


def test_slo_added_later_applies_without_measuring_again(copy: Path) -> None:
    arguments = ("run", "run.yaml", "--results", "out", "--output", "json", "--set", "spec.slo.e2eMs=600000")
    again = specbench(*arguments, cwd=copy)
    assert "nothing was measured" in again.stderr
    first, second = json.loads((copy / "printed.json").read_text()), answer(again)
    assert (second["uid"], second["slo"]) == (first["uid"], {"e2eMs": 600_000, "percentile": 95})
    assert [cell["goodput"]["sloAttainment"]["value"] for cell in second["cells"]] == [1, 1]


def test_changed_spec_is_stored_separately(copy: Path) -> None:
    setting = "spec.workloads[0].output.maxTokens=16"
    answer(specbench("run", "run.yaml", "--results", "out", "--output", "json", "--set", setting, cwd=copy))
    assert len(list((copy / "out/runs/local/small").iterdir())) == 2


def test_more_repeats_are_added_to_the_stored_points(copy: Path) -> None:
    before = manifests(copy)
    setting = "spec.load.repeats=2"
    summary = answer(specbench("run", "run.yaml", "--results", "out", "--output", "json", "--set", setting, cwd=copy))
    assert (summary["pointsTotal"], summary["missing"]) == (4, [])
    assert summary["uid"] == json.loads((copy / "printed.json").read_text())["uid"]
    after = manifests(copy)
    assert (len(after), {path: after[path] for path in before}) == (4, before)


def test_a_store_that_cannot_keep_results_is_refused_before_an_engine_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_execution, "open_store", lambda _: IgnoringConditions(tmp_path / "s3"))
    monkeypatch.setattr(run_execution, "execute_locally", None)
    file = write_run(tmp_path, simulated_run())
    assert exit_code(["run", str(file), "--results", "s3://bench"]) == Exit.RESULTS_NOT_STORED
    assert "StoreRefused" in capsys.readouterr().err


def test_unreadable_or_unwritable_report_is_explained(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, to = str(copy / "out"), str(copy / "nowhere/a.csv")
    assert exit_code(["report", out, "--output", "csv", "--to", to]) == Exit.BAD_INPUT
    assert to in capsys.readouterr().err
    for name in ("summary.json", "plan.json"):
        damaged = next((copy / "out").rglob(name))
        damaged.write_text("{")
        assert exit_code(["report", out]) == Exit.RESULTS_NOT_STORED
        assert str(damaged) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "spec.engine.kind=vlllm"], "InvalidSpec"),
        (["--set", "spec.workloads[0].dataset.uri=nowhere.jsonl"], "DatasetMissing"),
        (["--set", "spec.workloads[0].dataset.categories=[cooking]"], "BadInput"),
        (["--set", "spec.engine.args=[--no-such-flag]"], "InvalidSpec"),
        (["--set", "spec.engine.command=[/nowhere/engine]"], "BadInput"),
        (["--retry-invalid", "--new"], "BadInput"),
        (["--retry-invalid"], "NothingToRetry"),
        (["--retry-invalid", "--set", "spec.retries=0"], "BadInput"),
        (["--retry-invalid", "--set", "spec.retries=0", "--retries", "1"], "NothingToRetry"),
        (["--retry-invalid", "--retries", "0"], "BadInput"),
        (["--set", "spec.retries=-1"], "InvalidSpec"),
    ],
)
def test_bad_input_starts_and_stores_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    file, out = write_run(tmp_path, simulated_run()), tmp_path / "out"
    assert exit_code(["run", str(file), "--results", str(out), "--output", "json", *arguments]) == Exit.BAD_INPUT
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["reason"] == reason
    assert "launch" not in printed.err
    assert not out.exists()


# Campaigns: runs in sequence, one table, one exit code, and nothing measured twice.

LOOK_S = 0.02
CRASH = {"path": "drafters[0].args", "name": "drafter", "values": [["--fault=crash-after=3"], ["--acceptance=0.7"]]}


def manifests(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("manifest.json")}


def test_every_run_is_measured_once_and_stored_under_its_own_name(tmp_path: Path) -> None:
    axes = [{"path": "engine.dialect", "values": ["vllm", "sglang"]}]
    file = write_campaign(tmp_path, axes=axes, exclude=[])
    done = specbench("run", file, "--results", "out", "--output", "json", cwd=tmp_path)
    assert done.returncode in (0, 3), done.stderr
    document = json.loads(done.stdout)
    expected_runs = expand_campaign(parse_campaign(simulated_campaign(axes=axes, exclude=[]))).runs
    assert [row["name"] for row in document["runs"]] == [run.name for run in expected_runs]
    assert sorted(path.name for path in (tmp_path / "out/runs/local").iterdir()) == sorted(
        run.name for run in expected_runs
    )
    assert max(row["exit"] for row in document["runs"]) == document["exit"] == done.returncode
    assert [row["summary"]["pointsMeasured"] for row in document["runs"]] == [2, 2]
    assert document["notBegun"] == []
    before = manifests(tmp_path)
    again = specbench("run", file, "--results", "out", cwd=tmp_path)
    assert manifests(tmp_path) == before
    assert "small (simulated, not a measurement): 2 of 2 runs" in again.stdout
    assert "dialect=sglang" in again.stdout
    assert "report.html" in again.stdout
    planned = specbench("plan", file, "--results", "out", cwd=tmp_path)
    assert "4 points (4 measured already)" in planned.stdout


@pytest.mark.parametrize(("policy", "started"), [({}, 2), ({"failurePolicy": "Stop"}, 1)], ids=["Continue", "Stop"])
def test_failed_engine_sets_the_exit_code_and_policy_stop_ends_the_campaign(
    tmp_path: Path, policy: dict[str, str], started: int
) -> None:
    file = write_campaign(tmp_path, axes=[CRASH], exclude=[], **policy)
    done = specbench("run", file, "--results", "out", "--output", "json", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["runs"][0]["exit"] == document["exit"] == 4
    assert (len(document["runs"]), len(document["notBegun"])) == (started, 2 - started)
    assert "eagle3: Crashed" in done.stderr
    summary = document["runs"][0]["summary"]
    assert ([cell["arm"] for cell in summary["cells"]], list(summary["failures"])) == (["none"], ["eagle3"])


def test_interrupted_campaign_continues(tmp_path: Path) -> None:
    slow = {"path": "engine.args", "name": "scale", "values": [["--time-scale=0.05"], ["--time-scale=2.0"]]}
    file = write_campaign(tmp_path, axes=[slow], exclude=[])
    arguments = [SPECBENCH, "run", file, "--results", "out"]

    def await_points(count: int) -> None:
        while len(manifests(tmp_path)) < count:
            assert first.poll() is None, first.stderr.read() if first.stderr else ""
            time.sleep(LOOK_S)

    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        await_points(2)
        first.send_signal(signal.SIGSTOP)  # it must not end before the second process has tried to start
        second = specbench(*arguments[1:], "--output", "json", cwd=tmp_path)
        first.send_signal(signal.SIGCONT)
        assert json.loads(second.stdout)["error"]["reason"] == "AlreadyRunning"
        assert f"process {first.pid} on " in second.stderr
        await_points(3)
        first.send_signal(signal.SIGINT)
        table, printed = first.communicate(timeout=120)
    assert first.returncode == 130, printed
    assert "1 of 2 runs" in table
    assert "not finished" in table
    kept = manifests(tmp_path)
    again = specbench(*arguments[1:], cwd=tmp_path)
    assert again.returncode in (0, 3), again.stderr
    assert len(after := manifests(tmp_path)) == 4
    assert {path: after[path] for path in kept} == kept
    assert not list((tmp_path / "out").rglob(".*.lock"))


def test_running_servers_of_a_file_are_measured_in_turns_and_keep_running(tmp_path: Path) -> None:
    with simulators(tmp_path, "none", "eagle3") as servers:
        endpoints = [{"name": name, "url": url} for name, (url, _) in zip(("none", "b"), servers, strict=True)]
        spec = {
            "engine": {"kind": "external", "dialect": "vllm", "endpoints": endpoints},
            "drafters": [],
            "load": {"concurrency": [2], "repeats": 2, "requests": 6, "warmupRequests": 1},
        }
        file = write_run(tmp_path, simulated_run(**spec))
        plan = answer(specbench("plan", str(file), "--output", "json", cwd=tmp_path))
        assert ([group["arm"] for group in plan["groups"]], plan["commands"]) == (["none", "b", "b", "none"], {})
        summary = answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
        assert [process.poll() for _, process in servers] == [None, None]
    assert [cell["arm"] for cell in summary["cells"]] == ["none", "b"]
    assert summary["cells"][1]["speedup"]["value"] is not None
    (path,) = (tmp_path / "out").rglob("provenance.json")
    launches = json.loads(path.read_text())["launches"].values()
    assert [launch["arm"] for launch in launches] == ["none", "b", "b", "none"]
    reason = "the endpoint was not started by specbench, so its machine is unknown"
    assert {launch["facts"]["node"]["reason"] for launch in launches} == {reason}


def has_text(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


@contextmanager
def simulators(folder: Path, *drafters: str) -> Iterator[list[tuple[str, subprocess.Popen[bytes]]]]:
    """A `specbench simulate` process for each drafter, with its URL."""
    started = []
    with ExitStack() as stack:
        for drafter in drafters:
            port = folder / f"{drafter}.port"
            command = [SPECBENCH, "simulate", "--port", "0", "--port-file", str(port), "--drafter", drafter]
            process = subprocess.Popen([*command, "--time-scale=0.05", "--output-mean=40"], cwd=folder)
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append((port, process))
        for port, _ in started:
            eventually(partial(has_text, port), "no simulator", 60)
        yield [(f"http://127.0.0.1:{int(port.read_text())}", process) for port, process in started]
