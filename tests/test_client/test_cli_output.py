"""What the commands print: results, interruptions and help."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import click
import pytest
from click.testing import CliRunner

from specbench_api.outcome.exit_codes import Exit
from specbench_client import optional_dependencies
from specbench_client.cli import HEADINGS, cli, exit_code
from specbench_client.cli.analyze import analyze
from specbench_client.cli.dataset import dataset
from specbench_client.cli.interruption import run_until_interrupted
from specbench_client.cli.output import PIPED_WIDTH, ProgressConsole, ResultConsole, result_console, write_output_file
from specbench_client.cli.streams import echo
from specbench_client.errors import BadInput, Interrupted
from specbench_client.optional_dependencies import install_hint
from specbench_client.report.text.text_table import TextTable
from specbench_client.workload.sources.registry import LOADERS
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
def test_closed_pipe_ends_the_report_silently_with_code_141(tmp_path: Path) -> None:
    store_results(SyntheticRun(prompts=4, repeats=1), tmp_path / "results", UID)

    assert run_with_closed_pipe("report", "results", cwd=tmp_path) == (141, "")


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


INTERRUPTED_TWICE = """
import os, signal, sys, threading
from specbench_client import cli

def interrupt(*_, kill=os.kill, process=os.getpid(), number=int(sys.argv[2]), **__):
    kill(process, number)

class Destroyed:
    __del__ = interrupt

def report_twice(text, *, err, echo=cli.echo):
    echo(text, err=err)
    if moment == "message":
        interrupt()

moment = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job that a shell runs in the background
cli.cli.main, cli.echo = interrupt, report_twice
leave = sys.exit

def interrupt_and_hang():
    interrupt()
    threading.Event().wait()

def leave_with_a_hanging_thread(code):
    threading.Thread(target=interrupt_and_hang).start()
    leave(code)

if moment == "hanging thread":
    sys.exit = leave_with_a_hanging_thread
if moment == "destruction of modules":
    destroyed = Destroyed()
cli.main()
"""
"""A command that gets one signal while it runs, and one more while it ends."""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["message", "hanging thread", "destruction of modules"])
def test_a_second_signal_ends_the_command_with_the_same_exit_code(moment: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", INTERRUPTED_TWICE, moment, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.INTERRUPTED, "", "Interrupted\n")


@pytest.mark.parametrize("arguments", [["report", "out"], ["simulate"], ["decide", "out", "--output", "json"]])
def test_a_command_that_stores_nothing_is_interrupted_without_advice(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "invoke", interrupted)
    assert exit_code(arguments) == Exit.INTERRUPTED
    captured = capsys.readouterr()
    assert captured.err.strip() == "Interrupted"
    if "json" in arguments:
        assert json.loads(captured.out)["error"] == {"exit": 130, "reason": "Interrupted", "messages": ["interrupted"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_signal_finds_the_default_handler_while_earlier_handlers_are_restored(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default handler would end the process without a message and with another exit code."""
    set_handlers: list[object] = []
    original: Callable[..., Any] = signal.signal

    def recorded(which: int, handler: Any) -> Any:
        set_handlers.append(handler)
        return original(which, handler)

    async def interrupted() -> None:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    earlier = original(signal.SIGTERM, signal.default_int_handler)
    monkeypatch.setattr(signal, "signal", recorded)
    try:
        with pytest.raises(Interrupted):
            run_until_interrupted(interrupted())
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        original(signal.SIGTERM, earlier)
    assert set_handlers
    assert signal.SIG_DFL not in set_handlers


NAMES = [name for commands in HEADINGS.values() for name in commands]
ANALYSES = analyze.list_commands(click.Context(analyze))
COMMANDS = [[name] for name in NAMES] + [["analyze", name] for name in ANALYSES]
WIDTH = 80
"""Width of a terminal in columns; click adds its indentation and column gap."""


def test_commands_are_listed_under_headings() -> None:
    lines = CliRunner().invoke(cli, ["--help"], terminal_width=WIDTH).output.splitlines()
    assert [line for line in lines if line.endswith(":") and not line.startswith(" ")][1:] == [
        "Plan and check:",
        "Measure:",
        "Read results:",
        "Prepare and recover:",
    ]
    shown = lines[lines.index("Plan and check:") :]
    assert [line.split()[0] for line in shown if line.startswith("  ")] == NAMES, "an entry takes one line"
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_exists_and_has_an_example(words: list[str]) -> None:
    group = cli if len(words) == 1 else analyze
    command = group.get_command(click.Context(group), words[-1])
    assert command is not None
    assert command.name == words[-1]
    assert f"  specbench {' '.join(words)}" in (command.help or "")


def test_every_analysis_is_listed_on_one_line() -> None:
    lines = CliRunner().invoke(cli, ["analyze", "--help"], terminal_width=WIDTH).output.splitlines()
    shown = lines[lines.index("Acceptance:") :]
    assert [line.split()[0] for line in shown if line.startswith("  ")] == ANALYSES
    assert len(set(ANALYSES)) == len(ANALYSES)


@pytest.mark.parametrize("choices", ["--arrival [constant|poisson|gamma|trace]", "--prompt-cache [disabled|as-served]"])
def test_choices_are_shown_as_in_errors(choices: str) -> None:
    assert choices in CliRunner().invoke(cli, ["measure", "--help"], terminal_width=WIDTH).output


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *((off, "disabled") for off in ("off", "No", "none", "false", "disable")),
        *((on, "as-served") for on in ("on", "yes", "True", "enabled")),
        ("xyz", ""),
    ],
)
def test_a_wrong_choice_names_the_one_that_is_meant(given: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["measure", "--endpoint", "http://h:1", "-c", "1", "--prompt-cache", given]) == Exit.BAD_INPUT
    assert re.findall("Did you mean '(.*)'", capsys.readouterr().err) == [meant] * bool(meant)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reprot"], "'reprot': did you mean report?"),
        (["dataset", "lst"], "'lst': did you mean list?"),
        (["analyze", "breakdwon"], "'breakdwon': did you mean breakdown?"),
        (["serve-it"], "validate, plan, run, "),
    ],
)
def test_unknown_command_suggests_the_closest_one(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(arguments) == 2
    assert message in capsys.readouterr().err


def test_dataset_list_contains_every_source() -> None:
    lines = CliRunner().invoke(dataset, ["list"]).output.splitlines()
    named = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert [name for name in named if name] == [str(source) for source in LOADERS]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_help_text_shows_a_missing_bound(words: list[str]) -> None:
    assert "None" not in CliRunner().invoke(cli, [*words, "--help"]).output


@pytest.mark.parametrize("spelling", [["-o", "JSON"], ["-oJson"], ["--output=JSON"], ["--output", "Json"]])
def test_errors_are_json_however_the_format_is_spelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spelling: list[str]
) -> None:
    assert exit_code(["report", str(tmp_path), *spelling]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "BadInput"


WHEEL = "/tmp/specbench 1.whl"


@pytest.mark.parametrize(
    ("files", "start"),
    [
        (["CACHEDIR.TAG"], "uvx --from"),
        (["envs/CACHEDIR.TAG", "envs/x/pipx_metadata.json"], "pipx run --spec"),
        (["envs/x/pipx_metadata.json"], ""),
        (["envs/CACHEDIR.TAG"], ""),
        (["envs/x/CACHEDIR.TAG"], ""),
    ],
    ids=["uvx", "pipx run", "pipx install", "tox", "uv venv"],
)
@pytest.mark.parametrize(
    ("url", "wheel"),
    [(f"file://{quote(WHEEL)}", WHEEL), ("https://a.eu/b.whl",) * 2, ("file:///clone", "WHEEL")],
    ids=["wheel", "URL", "clone"],
)
@pytest.mark.parametrize("extra", ["", "[llama-cpp]"])
def test_commands_and_hints_are_as_the_program_was_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    files: list[str],
    start: str,
    url: str,
    wheel: str,
    extra: str,
) -> None:
    environment = tmp_path / "envs" / "x"
    environment.mkdir(parents=True)
    for file in files:
        (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(environment))
    origin = SimpleNamespace(read_text={"direct_url.json": json.dumps({"url": url})}.get)
    monkeypatch.setattr(optional_dependencies, "distribution", {"specbench": origin}.__getitem__)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: extra and name == "xllamacpp")
    echo("run `specbench report results`; specbench launches `specbench-client`")
    result_console().print_line("Next: `specbench decide results`")
    command = f"{start} {shlex.quote(wheel + extra)} specbench" if start else "specbench"
    assert capsys.readouterr().out.splitlines() == [
        f"run `{command} report results`; specbench launches `specbench-client`",
        f"Next: `{command} decide results`",
    ]
    exit_code(["report", "--no-such-flag"])
    assert f"\nTry '{command} report --help' for help.\n" in capsys.readouterr().err
    other = shlex.quote(f"{wheel}[tokenizers]")
    assert install_hint("tokenizers").startswith(f"{start} {other} specbench" if start else f"pip install {other} (in")
