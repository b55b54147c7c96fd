"""docs/research/coverage.md: every requirement from the literature once, with its answer, evidence and count.

`test_pages.py` checks links, options and make targets of every page; this module also checks values, files and tests.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from itertools import pairwise
from pathlib import Path

import click
import pytest

from specbench_client.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/research/coverage.md").read_text(encoding="utf-8")
LINES = 140
ANSWERS = ("yes", "partly", "no")
_GROUP = re.compile(r"^## (1[a-i]) [^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (\d+ \|.*)\|$", re.MULTILINE)
GROUPS = {
    title: [[*map(str.strip, row.split(" | "))] for row in _ROW.findall(text)] for title, text in _GROUP.findall(PAGE)
}
ROWS = [row for rows in GROUPS.values() for row in rows]
COMMANDS = re.findall(r"`((?:specbench|pytest|hack|benchmarks)[ /][^`]+)`", PAGE)
_A_COMMAND = re.compile(r"`(?:specbench |make |pytest |hack/|benchmarks/)")


def test_the_page_lists_every_requirement_once_and_in_order() -> None:
    assert list(GROUPS) == [f"1{letter}" for letter in "abcdefghi"]
    assert [int(row[0]) for row in ROWS] == list(range(1, LINES + 1))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_answer_has_the_required_evidence(row: list[str]) -> None:
    """A yes needs a link and a command; a partly also what is missing; a no what is missing or out of scope."""
    assert len(row) == 5
    _, requirement, answer, where, evidence = row
    assert requirement
    assert answer in ANSWERS
    lacks = "Missing: " in evidence or "Out of scope: " in evidence
    assert lacks == (answer != "yes")
    if answer != "no":
        assert "](" in where
        assert _A_COMMAND.search(evidence.partition("Missing: ")[0])


def test_the_summary_table_matches_the_rows() -> None:
    table = PAGE.partition("|---|---:|---:|---:|---:|\n")[2].partition("<!-- end of count -->")[0]
    rows_by_group = [_counted(title, rows) for title, rows in GROUPS.items()]
    assert table == "".join([*rows_by_group, _counted("all", ROWS)])


def _counted(title: str, rows: list[list[str]]) -> str:
    found = Counter(row[2] for row in rows)
    return f"| {title} | {len(rows)} | " + " | ".join(str(found[answer]) for answer in ANSWERS) + " |\n"


@pytest.mark.parametrize("line", sorted(set(COMMANDS)))
def test_files_and_option_values_in_commands_exist(line: str) -> None:
    program, *words = shlex.split(line)
    named = [word for word in words if word.startswith(("tests/", "examples/"))] + [program] * ("/" in program)
    assert all((ROOT / name).exists() for name in named)
    if program == "specbench":
        assert not _wrong_values(words)


def _wrong_values(words: list[str]) -> list[str]:
    """Values that are not a choice of the preceding option."""
    command = cli.get_command(click.Context(cli), words[0])
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words[1])
    assert command is not None
    choices_of: dict[str, set[str]] = {}
    for each in command.params:
        if isinstance(each.type, click.Choice):
            values = {str(value) for value in each.type.choices}
            choices_of |= dict.fromkeys(each.opts, values)
    return [value for name, value in pairwise(words) if value not in choices_of.get(name, {value})]


def test_wrong_values_detects_an_invalid_choice() -> None:
    assert _wrong_values(["analyze", "breakdown", "results", "--by", "turn", "--by", "colour"]) == ["colour"]
