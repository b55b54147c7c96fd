"""`specbench run` with a campaign: runs in sequence, one table, one exit code, and nothing measured twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.spec.parsing import parse_campaign
from specbench_testing.specs import simulated_campaign, write_campaign

pytestmark = pytest.mark.process

LOOK_S = 0.02
SPECBENCH = str(Path(sys.executable).with_name("specbench"))
CRASH = {"path": "drafters[0].args", "name": "drafter", "values": [["--fault=crash-after=3"], ["--acceptance=0.7"]]}


def specbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Wide enough for a run with many findings, as on a slow machine.
    environment = {**os.environ, "COLUMNS": "240"}
    return subprocess.run(
        [SPECBENCH, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


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
    assert [cell["arm"] for cell in document["runs"][0]["summary"]["cells"]] == ["none"]


def test_invalid_inputs_are_rejected_before_anything_starts(tmp_path: Path) -> None:
    uris = {"path": "workloads[0].dataset.uri", "values": ["prompts.jsonl", "gone.jsonl"]}
    done = specbench("run", write_campaign(tmp_path, axes=[uris], exclude=[]), "--results", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "gone.jsonl" in done.stderr
    assert "run 1/" not in done.stderr
    assert not (tmp_path / "out").exists()


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
