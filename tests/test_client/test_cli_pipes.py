"""`specbench … | head`: a reader that goes away ends the program quietly, and a measurement not at all."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specbench_api.outcome.ending import Exit
from specbench_client.cli.consoles import Page, Ticker
from specbench_testing.driving import UID
from specbench_testing.kept import keep
from specbench_testing.records import World
from specbench_testing.specs import simulated_run, write_run

CALL = [sys.executable, "-c", "from specbench_client.cli import main; main()"]


class Unread(io.StringIO):
    """A pipe that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def unread(*arguments: str, cwd: Path) -> tuple[int, str]:
    """The exit code and stderr of a command whose output nobody reads."""
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
@pytest.mark.parametrize("output", ["text", "json", "csv"])
def test_a_report_that_nobody_reads_ends_as_of_sigpipe_and_says_nothing(output: str, tmp_path: Path) -> None:
    keep(World(prompts=4, repeats=1), tmp_path / "results", UID)

    assert unread("report", "results", "--output", output, cwd=tmp_path) == (141, "")


@pytest.mark.process
def test_neither_an_error_as_a_document_nor_help_is_a_traceback(tmp_path: Path) -> None:
    file = write_run(tmp_path, simulated_run(load={"concurrency": [0]}))

    code, said = unread("validate", str(file), "--output", "json", cwd=tmp_path)
    assert (code, "Traceback" in said) == (141, False)
    assert unread("--help", cwd=tmp_path) == (141, "")


@pytest.mark.process
@pytest.mark.parametrize("output", ["text", "json", "csv", "parquet"])
def test_a_report_to_a_full_disk_says_so_and_is_no_bug_of_ours(output: str, tmp_path: Path) -> None:
    keep(World(prompts=4, repeats=1), tmp_path / "results", UID)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*CALL, "report", "results", "--output", output], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
    assert done.returncode == Exit.NOT_DURABLE, done.stderr
    assert done.stderr.startswith("error: OutputFull: ")
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_shown_of_a_measurement_is_shown_no_more_and_nothing_else_happens() -> None:
    ticker = Ticker(file=Unread())

    ticker.print("launch 1/2")
    ticker.print("launch 2/2")

    assert ticker.quiet


def test_a_page_leaves_it_to_the_program() -> None:
    with pytest.raises(BrokenPipeError):
        Page(file=Unread()).print("answer")
