"""hack/gpu-check as a whole, with small shapes on this machine's CPU and a stand-in for nvidia-smi."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
SAMPLER = """\
#!/bin/sh
case "$*" in
*-lms*) ;;
*) exit 9 ;;
esac
echo "timestamp, uuid, memory.used [MiB]"
while :; do
  date -u '+%Y/%m/%d %H:%M:%S.%3N, GPU-0, 4321 MiB'
  sleep 0.2
done
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which nvidia-smi reports one GPU's memory."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SAMPLER)
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def command(out: Path, engine_python: str, *more: str) -> list[str]:
    options = ["--cpu", "--out", str(out), "--engine-python", engine_python, *more]
    return [sys.executable, str(ROOT / "hack" / "gpu-check"), *options]


def test_the_whole_check_measures_every_drafter_and_writes_the_page(
    engine_python: str, environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        command(out, engine_python, "--budget", "3000", "--llama-cpp", "prebuilt"),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    evidence = json.loads((out / "evidence.json").read_text())
    assert {step["name"]: step["status"] for step in evidence["steps"]} == dict.fromkeys(
        ("main", "streams", "large", "float32", "llama-cpp"), "Done"
    )
    results = {step["name"]: step["result"] for step in evidence["steps"]}
    for result in results.values():
        assert len(set(result["points"].split(" of "))) == 1, "every planned point was measured"
        for row in result["cells"]:
            assert row["failed"] == 0
        for arm in result["arms"]:
            # Without drafts the client has no count, and llama.cpp's counter is 0.
            client, engine = (
                {name: count or None for name, count in arm[side].items()} for side in ("client", "engine")
            )
            assert client == engine
            assert arm["client"]["output"] > 0
            assert arm["peak_mib"] == 4321
    arms = {row["arm"]: row for row in results["main"]["cells"]}
    assert set(arms) == {"none", "ngram", "truncated", "medusa"}
    assert 0 < arms["truncated"]["acceptance_rate"] < 1, "by construction, some drafts are accepted and some rejected"
    assert {row["load"] for row in results["streams"]["cells"]} == {"1", "8", "64"}
    assert {row["differing_answers"] for row in results["float32"]["cells"] if row["arm"] != "none"} == {0}
    assert "# Trial of the GPU check on a CPU" in (out / "gpu-evidence.md").read_text()
    with tarfile.open(out / "results.tar.gz") as archive:
        assert sum(name.endswith("summary.json") for name in archive.getnames()) > len(results)
    # What a machine sends back: few files, none in folders.
    assert {file.name for file in out.iterdir()} == {
        "evidence.json", "gpu-evidence.md", "log.txt", "gpu.csv", "report.html", "results.tar.gz",
    }  # fmt: skip


def test_a_check_that_is_terminated_leaves_valid_files(
    engine_python: str, environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        command(out, engine_python, "--steps", "main"), env=environment, stderr=subprocess.PIPE, text=True
    ) as check:
        assert check.stderr is not None
        for line in check.stderr:
            if "parameters, agreement" in line:  # the models are made, and the measurement begins
                break
        check.send_signal(signal.SIGTERM)
        check.communicate()
    assert check.returncode == 1
    (step,) = json.loads((out / "evidence.json").read_text())["steps"]
    assert step["status"] == "CutOff"
    assert "State: cut off: the points that had finished count." in (out / "gpu-evidence.md").read_text()


def test_without_a_gpu_it_ends_before_anything_is_measured(engine_python: str, tmp_path: Path) -> None:
    given = command(tmp_path / "out", engine_python)
    given.remove("--cpu")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "torch finds no GPU" in done.stderr
