"""`make demo` with a fake specbench: terminating the demo stops its run."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = """#!/usr/bin/env python3
print('{"target": "target.gguf", "drafter": "drafter.gguf"}')
"""
RUN = """#!/bin/sh
trap 'echo stopped > outcome; exit 130' TERM
echo $$ > pid.part && mv pid.part pid
while :; do read -r _ < hold; done
"""
"""Replaces `specbench`: runs until SIGTERM, then cleans up."""
WITHIN_S = 120.0


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The running demo, after its run has started."""
    (tmp_path / "hack" / "models").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "hack" / "demo", tmp_path / "hack" / "demo")
    (tmp_path / "hack" / "models" / "demo_model").write_text(MODELS)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "bin" / "specbench").write_text(RUN)
    (tmp_path / "bin" / "specbench").chmod(0o755)
    subprocess.run(["mkfifo", tmp_path / "hold"], check=True)
    with subprocess.Popen([tmp_path / "bin" / "python", "hack/demo"], cwd=tmp_path) as process:
        _await(tmp_path / "pid")
        yield process
        process.kill()
    subprocess.run(["kill", "-KILL", (tmp_path / "pid").read_text().strip()], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.process
def test_sigterm_stops_the_run_of_the_demo_and_waits_for_it(demo: subprocess.Popen[bytes], tmp_path: Path) -> None:
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(WITHIN_S) == 130
    assert (tmp_path / "outcome").read_text() == "stopped\n"
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def _await(file: Path) -> None:
    end = time.monotonic() + WITHIN_S
    while not file.exists():
        assert time.monotonic() < end, f"no {file.name}"
        time.sleep(0.02)
