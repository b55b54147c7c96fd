"""What commands print: on terminals and pipes with few columns or characters, to closed pipes, and to files."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_api.outcome.termination import Exit
from specbench_client.cli.output import PIPED_WIDTH, ProgressConsole, ResultConsole, result_console, write_output_file
from specbench_client.errors import BadInput
from specbench_client.report.text.text_table import TextTable
from specbench_testing.local_results import store_results
from specbench_testing.simulated_groups import UID
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import SyntheticRun

CALL = [sys.executable, "-c", "from specbench_client.cli import main; main()"]
TABLE = TextTable(
    "Speed × load…",
    ["Arm", "Speed-up [95 %]", "AL", "TTFT ms\np50/p99", "tok/s", "Findings"],
    [
        ["none", "baseline", "–", "12/20", "1,234.5", ""],
        ["eagle3", "1.83 [1.76, 1.90]", "2.50", "12/20", "2,345.6", "≥ 1"],
    ],
    words=["Arm", "Findings"],
)


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["dataset", "list"], ["--help"], ["analyze", "oracle", "--help"]])
def test_ascii_stdout_gets_no_traceback(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C"}
    done = subprocess.run([*CALL, *arguments], capture_output=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.process
def test_json_on_an_ascii_stdout_loses_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    arguments = ["validate", "größe-𝄞.yaml", "--output", "json"]
    (tmp_path / arguments[1]).write_text("[")
    done = subprocess.run(
        [*CALL, *arguments], capture_output=True, cwd=tmp_path, env=environment, timeout=120, check=False
    )
    assert done.returncode == 2
    assert done.stdout.isascii()
    assert "größe-𝄞.yaml" in json.loads(done.stdout)["error"]["messages"][0]


def test_pipe_is_as_wide_as_columns_requests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "54")
    made = result_console()
    made.print_table(TABLE)
    table = capsys.readouterr().out
    assert max(map(len, table.splitlines())) <= 54
    assert "Not shown in 54 columns: tok/s, TTFT ms p50/p99." in " ".join(table.split())
    made.print_line("word " * 40)
    assert len(capsys.readouterr().out.splitlines()) == 1, "sentences are not wrapped"


@pytest.mark.parametrize("columns", ["", "0", "wide"])
def test_pipe_without_usable_columns_has_its_own_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert result_console().width == PIPED_WIDTH


def test_pipe_gets_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    shown = io.StringIO()
    ResultConsole(file=shown, width=60, highlight=False, markup=False).print_table(TABLE)
    assert "tok/s" in shown.getvalue()


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


SIZE_LIMIT = 1000


@contextmanager
def limited_file_size() -> Iterator[None]:
    """Limit every file to SIZE_LIMIT bytes, as on a full disk.

    Keep the block short: the limit applies to pytest's own files too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("before", [None, b"of last night"])
def test_full_disk_keeps_the_old_content_and_leaves_no_partial_file(tmp_path: Path, before: bytes | None) -> None:
    file = tmp_path / "report.html"
    if before is not None:
        file.write_bytes(before)
    with pytest.raises(BadInput) as caught, limited_file_size():
        write_output_file("--to", file, b"x" * (SIZE_LIMIT + 1))
    assert str(caught.value) == f"--to {file}: File too large: make room, or give a file elsewhere"
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == (
        {} if before is None else {file.name: before}
    )


def test_replaced_file_keeps_its_mode_and_a_new_one_has_the_default_mode(tmp_path: Path) -> None:
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_bytes(b"old")
    kept.chmod(0o640)
    (tmp_path / "usual").touch()
    for file in (kept, new):
        write_output_file("--to", file, b"data")
        assert file.read_bytes() == b"data"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_links_and_devices_are_written_in_place(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_output_file("--to", link, b"data")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"data")
    write_output_file("--to", Path("/dev/null"), b"data")
    assert Path("/dev/null").is_char_device()


def test_file_that_cannot_be_replaced_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This occurs for a single file mounted into a container."""
    file = tmp_path / "mounted"
    file.write_bytes(b"old")

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write_output_file("--to", file, b"data")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("mounted", b"data")]


def test_missing_folder_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory: give a file in a folder that exists"):
        write_output_file("--to", tmp_path / "none/x.html", b"")
