"""`specbench run` as a user runs it: real processes, a real folder, exit codes and stored results."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specbench_api.spec.engine import SIMULATED_DIALECTS
from specbench_testing.operator_process import eventually
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import measured_rows

pytestmark = pytest.mark.process

SPECBENCH = str(Path(sys.executable).with_name("specbench"))
FINISHED = (0, 3)
STARTUP_S = 15
"""Startup deadline in seconds, long enough for an engine that starts on a busy machine."""
LOOK_S = 0.02


def specbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SPECBENCH, *arguments], cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in FINISHED, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def records(results: Path) -> pd.DataFrame:
    return pd.concat(pd.read_parquet(part) for part in sorted(results.rglob("records/arm=*/*/*.parquet")))


def test_run_prints_one_json_document_and_records_every_turn(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    summary = answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
    assert [(cell["arm"], cell["level"]) for cell in summary["cells"]] == [
        ("none", {"concurrency": 2}),
        ("eagle3", {"concurrency": 2}),
    ]
    measured = measured_rows(records(tmp_path / "out"))
    assert len(measured) == 2 * (8 + 2)  # two arms; eight prompts, two of them with a second turn
    assert measured.error_class.isna().all()


def test_local_run_records_its_provenance(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
    (path,) = (tmp_path / "out").rglob("provenance.json")
    provenance = json.loads(path.read_text())
    assert [launch["arm"] for launch in provenance["launches"].values()] == ["none", "eagle3"]
    for launch in provenance["launches"].values():
        facts = launch["facts"]
        assert facts["node"] == {"value": platform.node(), "source": "this machine's name"}
        assert "simulate" in facts["command"]["value"]
        assert facts["drafter_at_work"]["value"] == (launch["arm"] == "eagle3")
        assert facts["image_digest"] == {"value": None, "reason": "a process of this machine has no image"}
        assert all(fact["value"] is not None or fact["reason"] for fact in facts.values())
    assert provenance["differences"] == []


@pytest.mark.parametrize("dialect", SIMULATED_DIALECTS)
def test_acceptance_length_equals_the_simulators_truth(dialect: str, tmp_path: Path) -> None:
    truth_file = tmp_path / "truth.jsonl"
    drafter = {
        "name": "eagle3",
        "method": "eagle3",
        "model": "e",
        "args": ["--acceptance=0.7", f"--truth={truth_file}"],
    }
    engine = {"kind": "simulator", "dialect": str(dialect), "args": ["--time-scale=0.05", "--output-mean=40"]}
    file = write_run(tmp_path, simulated_run(drafters=[drafter], engine=engine))
    answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
    truth = pd.read_json(truth_file, lines=True).set_index("request_id")
    measured = records(tmp_path / "out").set_index("request_id")
    seen = measured[measured.accepted_tokens.notna()]
    assert len(seen) >= 10
    expected = truth.loc[seen.index]
    for column in ("output_tokens", "steps", "accepted_tokens"):
        assert seen[column].astype(int).tolist() == expected[column].tolist(), column


def test_second_run_measures_nothing_and_prints_the_same(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    arguments = ("run", str(file), "--results", "out", "--output", "json")
    first = answer(specbench(*arguments, cwd=tmp_path))
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}
    ended = max(json.loads(path.read_text())["endedWall"] for path in files if path.name == "manifest.json")
    again = specbench(*arguments, cwd=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert answer(again) == first
    assert f"nothing was measured: this run was already finished ({ended})" in again.stderr
    assert "analyzing" not in again.stderr
    next((tmp_path / "out").rglob("report.html")).unlink()
    assert {**answer(specbench(*arguments, cwd=tmp_path)), "created": ""} == {**first, "created": ""}
    assert list((tmp_path / "out").rglob("report.html"))


def test_slo_added_later_applies_without_measuring_again(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    arguments = ("run", str(file), "--results", "out", "--output", "json")
    first = answer(specbench(*arguments, cwd=tmp_path))
    again = specbench(*arguments, "--set", "spec.slo.e2eMs=600000", cwd=tmp_path)
    assert "nothing was measured" in again.stderr
    assert "analyzing the records" in again.stderr, "the analysis of large runs reports progress"
    second = answer(again)
    assert (second["uid"], second["slo"]) == (first["uid"], {"e2eMs": 600_000, "percentile": 95})
    assert [cell["goodput"]["sloAttainment"]["value"] for cell in second["cells"]] == [1, 1]


def test_changed_spec_is_stored_separately(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    for tokens in (16, 24):
        setting = f"spec.workloads[0].output.maxTokens={tokens}"
        answer(specbench("run", str(file), "--results", "out", "--output", "json", "--set", setting, cwd=tmp_path))
    assert len(list((tmp_path / "out/runs/local/small").iterdir())) == 2


@pytest.mark.parametrize(
    ("fault", "reason", "startup_s"),
    [("crash-after=3", "Crashed", 600), ("oom=3", "OOMKilled", 600), ("never-ready", "NeverReady", STARTUP_S)],
)
def test_failed_engine_ends_only_its_arm(tmp_path: Path, fault: str, reason: str, startup_s: int) -> None:
    drafter = {"name": "bad", "method": "eagle3", "model": "e", "args": [f"--fault={fault}"]}
    file = write_run(tmp_path, simulated_run(drafters=[drafter], startupDeadlineSeconds=startup_s))
    done = specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert reason in done.stderr
    assert [cell["arm"] for cell in json.loads(done.stdout)["cells"]] == ["none"]


def test_interrupted_run_continues(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run(engine={"kind": "simulator", "args": ["--time-scale=0.3"]}))
    arguments = [SPECBENCH, "run", str(file), "--results", "out", "--output", "json"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not list((tmp_path / "out").rglob("manifest.json")):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(LOOK_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    kept = {path: path.read_bytes() for path in (tmp_path / "out").rglob("manifest.json")}
    assert kept
    answer(specbench(*arguments[1:], cwd=tmp_path))
    assert {path: path.read_bytes() for path in kept} == kept
    assert len(list((tmp_path / "out").rglob("manifest.json"))) == 2


def test_concurrent_run_is_rejected_with_the_owner_of_the_lock(tmp_path: Path) -> None:
    never = {"kind": "simulator", "args": ["--fault=never-ready"]}
    file = write_run(tmp_path, simulated_run(engine=never, startupDeadlineSeconds=60))
    arguments = [SPECBENCH, "run", str(file), "--results", "out", "--output", "json"]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as first:
        while not [lock for lock in (tmp_path / "out").rglob(".*.lock") if lock.read_bytes()]:
            assert first.poll() is None
            time.sleep(LOOK_S)
        second = specbench(*arguments[1:], cwd=tmp_path)
        first.send_signal(signal.SIGTERM)
        assert first.wait(120) == 130
    assert second.returncode == 2, second.stderr
    assert json.loads(second.stdout)["error"]["reason"] == "AlreadyRunning"
    assert f"process {first.pid} on " in second.stderr
    assert not list((tmp_path / "out").rglob("plan.json"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("spec.engine.kind=vlllm", "spec.engine.kind"),
        ("spec.load.concurency=[1]", "did you mean concurrency?"),
        ("spec.workloads[0].dataset.uri=nowhere.jsonl", "nowhere.jsonl"),
        ("spec.workloads[0].dataset.categories=[cooking]", "cooking"),
        ("spec.engine.args=[--drafter=none]", "contradicts"),
        ("spec.engine.args=[--no-such-flag]", "no-such-flag"),
    ],
)
def test_bad_input_is_reported_with_its_field(tmp_path: Path, setting: str, words: str) -> None:
    file = write_run(tmp_path, simulated_run())
    done = specbench("run", str(file), "--results", "out", "--set", setting, cwd=tmp_path)
    assert done.returncode in (2, 4), done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_plan_prints_one_document_with_every_command_line(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    done = specbench("plan", str(file), "--output", "json", cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert plan["estimate"] == {
        "launches": 2,
        "points": 2,
        "clients": 1,
        "requests": 20,
        "outputTokensAtMost": 960,
        "loadSeconds": None,
        "engineHours": None,
        "gpuHours": None,
    }
    assert plan["commands"]["eagle3"][1:3] == ["simulate", "--dialect"]


def test_measured_durations_are_within_the_plans_estimate(tmp_path: Path) -> None:
    """Steps of 20 ms and answers of 48 tokens. Measured points are the basis of the estimate of further ones."""
    spec = simulated_run(load={"concurrency": [2], "repeats": 2, "warmupRequests": 1})
    costs = ["--base-ms=20", "--per-token-ms=0", "--per-kv-ms=0", "--per-draft-ms=0", "--per-prefill-ms=0"]
    spec["spec"]["engine"] = {"kind": "simulator", "args": costs}
    spec["spec"]["workloads"][0]["output"] = {"maxTokens": 48, "ignoreEos": True}
    file = write_run(tmp_path, spec)

    def estimate(*arguments: str) -> tuple[float, float, dict[str, Any]]:
        """The range of all points and their warm-up in seconds, without launches, and the whole estimate."""
        done = specbench("plan", str(file), "--output", "json", *arguments, cwd=tmp_path)
        found: dict[str, Any] = answer(done)["estimate"]
        low, high = (
            3600 * hours - found["remainingLaunches"] * launch
            for hours, launch in zip(found["engineHoursRange"], found["launchSecondsRange"], strict=True)
        )
        return low, high, found

    answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
    manifests = [json.loads(path.read_text()) for path in tmp_path.rglob("manifest.json")]
    took = [
        datetime.fromisoformat(each["endedWall"]) - datetime.fromisoformat(each["startedWall"]) for each in manifests
    ]
    warmup = sum(each.get("loadStartedNs", 0) for each in manifests) / 1e9
    assert estimate("--results", "out")[2]["remainingPoints"] == 0
    file.write_text(file.read_text().replace("repeats: 2", "repeats: 3"))
    low, high, learnt = estimate("--results", "out")
    assert learnt["pointsByBasis"] == {"SimilarPoint": 6}
    assert low < 3 / 2 * (sum(each.total_seconds() for each in took) - warmup) < high
    spec["spec"]["model"]["adapter"] = {"name": "sql", "model": "acme/sql"}
    write_run(tmp_path, spec)
    adapted = estimate("--results", "out", "--assume", "streamTokensPerSecond=48")[2]
    assert "SimilarPoint" not in adapted["pointsByBasis"], "they are of the model without the adapter"


def test_report_shows_a_finished_run_in_every_format(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
    starts = {"json": "{", "markdown": "", "csv": "", "html": "<!doctype html>"}
    for output, start in starts.items():
        done = specbench("report", "out", "--output", output, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(start)
        assert "eagle3" in done.stdout
    assert specbench("report", "out", "--output", "png", "--to", "a.png", cwd=tmp_path).returncode == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_unreadable_or_unwritable_report_is_explained(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run(drafters=[]))
    answer(specbench("run", str(file), "--results", "out", "--output", "json", cwd=tmp_path))
    done = specbench("report", "out", "--output", "csv", "--to", "nowhere/a.csv", cwd=tmp_path)
    assert (done.returncode, "nowhere/a.csv" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    for name in ("summary.json", "plan.json"):
        damaged = next((tmp_path / "out").rglob(name))
        damaged.write_text("{")
        done = specbench("report", "out", cwd=tmp_path)
        assert (done.returncode, str(damaged) in done.stderr, "Traceback" in done.stderr) == (5, True, False)


def test_report_of_an_empty_folder_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    done = specbench("report", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, "contains no run" in done.stderr) == (2, True)


def test_only_a_soak_test_ends_an_arm_early(tmp_path: Path) -> None:
    done = specbench("run", str(write_run(tmp_path, simulated_run())), "--until-sure", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "--until-sure ends a soak test" in done.stderr


@pytest.mark.parametrize(
    "setting", ["spec.workloads[0].dataset.uri=nowhere.jsonl", "spec.engine.command=[/nowhere/engine]"]
)
def test_bad_input_starts_nothing_and_stores_nothing(tmp_path: Path, setting: str) -> None:
    file = write_run(tmp_path, simulated_run())
    done = specbench("run", str(file), "--results", "out", "--set", setting, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "launch" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [(["spec.engine.kind=vlllm"], "InvalidSpec"), (["spec.workloads[0].dataset.uri=nowhere.jsonl"], "DatasetMissing")],
)
def test_json_output_is_one_document_on_failure_too(tmp_path: Path, settings: list[str], reason: str) -> None:
    file = write_run(tmp_path, simulated_run())
    chosen = [word for setting in settings for word in ("--set", setting)]
    done = specbench("run", str(file), "--results", "out", "--output", "json", *chosen, cwd=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["exit"], error["reason"]) == (2, 2, reason)
    assert not (tmp_path / "out").exists()


def test_plan_rejects_unreadable_prompts(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run())
    setting = "spec.workloads[0].dataset.uri=http://x/y"
    done = specbench("plan", str(file), "--set", setting, cwd=tmp_path)
    assert (done.returncode, "http://x/y" in done.stderr) == (2, True)


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
