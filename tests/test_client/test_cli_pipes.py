"""`specbench …

head`: a closed pipe ends a command silently, but never a measurement.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.cli.output import ProgressConsole
from specbench_testing.local_results import store_results
from specbench_testing.simulated_groups import UID
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import SyntheticRun

CALL = [sys.executable, "-c", "from specbench_client.cli import main; main()"]


class ClosedPipe(io.StringIO):
    """A pipe without a reader."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def run_with_closed_pipe(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Return the exit code and stderr of a command whose output is not read."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    try:
        done = subprocess.run(
            [*CALL, *arguments], cwd=cwd, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.process
@pytest.mark.parametrize("output", ["text", "json"])
def test_closed_pipe_ends_the_report_silently_with_code_141(output: str, tmp_path: Path) -> None:
    store_results(SyntheticRun(prompts=4, repeats=1), tmp_path / "results", UID)

    assert run_with_closed_pipe("report", "results", "--output", output, cwd=tmp_path) == (141, "")


@pytest.mark.process
def test_errors_and_help_into_a_closed_pipe_give_no_traceback(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run(load={"concurrency": [0]}))

    code, message = run_with_closed_pipe("validate", str(file), "--output", "json", cwd=tmp_path)
    assert (code, "Traceback" in message) == (141, False)
    assert run_with_closed_pipe("--help", cwd=tmp_path) == (141, "")


@pytest.mark.process
@pytest.mark.parametrize("output", ["text", "parquet"])
def test_report_to_a_full_disk_is_not_reported_as_a_bug(output: str, tmp_path: Path) -> None:
    store_results(SyntheticRun(prompts=4, repeats=1), tmp_path / "results", UID)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*CALL, "report", "results", "--output", output], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
    assert done.returncode == Exit.RESULTS_NOT_STORED, done.stderr
    assert done.stderr.startswith("error: OutputFull: ")
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_progress_console_becomes_quiet_on_a_closed_pipe() -> None:
    ticker = ProgressConsole(file=ClosedPipe())

    ticker.print("launch 1/2")
    ticker.print("launch 2/2")

    assert ticker.quiet
