"""Output on terminals without colour, without Unicode, and with few columns."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specbench_client.cli.output import PIPED_WIDTH, ResultConsole, result_console
from specbench_client.report.text.text_table import TextTable

CALL = [sys.executable, "-c", "from specbench_client.cli import main; main()"]
ESCAPES = re.compile("\x1b\\[[0-9;]*m")
TABLE = TextTable(
    "Speed × load…",
    ["Arm", "Speed-up [95 %]", "AL", "TTFT ms\np50/p99", "tok/s", "Findings"],
    [
        ["none", "baseline", "–", "12/20", "1,234.5", ""],
        ["eagle3", "1.83 [1.76, 1.90]", "2.50", "12/20", "2,345.6", "≥ 1"],
    ],
    words=["Arm", "Findings"],
)


def console(width: int) -> tuple[ResultConsole, io.BytesIO]:
    """Return a console of this width, and the buffer it writes to."""
    shown = io.BytesIO()
    file = io.TextIOWrapper(shown, encoding="utf-8", write_through=True)
    return ResultConsole(file=file, width=width, force_terminal=True, highlight=False, markup=False), shown


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


def test_narrow_terminal_drops_numeric_columns_from_the_right() -> None:
    terminal, shown = console(54)
    terminal.print_table(TABLE)
    text = shown.getvalue().decode()
    assert "1.83 [1.76, 1.90]" in text
    assert "Findings" in text
    assert "2,345.6" not in text
    assert "Not shown in 54 columns: tok/s, TTFT ms p50/p99." in " ".join(text.split())
    assert max(map(len, ESCAPES.sub("", text).splitlines())) <= 54


def test_text_columns_are_never_dropped() -> None:
    terminal, shown = console(20)
    terminal.print_table(TextTable("", ["A", "B"], [["x" * 50, "y" * 50]], words=["A", "B"]))
    text = ESCAPES.sub("", shown.getvalue().decode())
    assert (text.count("x"), text.count("y")) == (50, 50)


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
