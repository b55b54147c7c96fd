"""Help texts: every command is listed under a heading, on one line; unknown names get a suggestion."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from specbench_client.cli import HEADINGS, cli, exit_code
from specbench_client.cli.analyze import analyze
from specbench_client.cli.dataset import dataset
from specbench_client.workload.sources.registry import LOADERS

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


@pytest.mark.parametrize(("words", "choices"), [(["measure"], "--arrival [Constant|Poisson|Gamma|Trace]")])
def test_choices_are_shown_as_in_a_resource(words: list[str], choices: str) -> None:
    assert choices in CliRunner().invoke(cli, [*words, "--help"], terminal_width=WIDTH).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reprot"], "No such command 'reprot'. Did you mean 'report'?"),
        (["dataset", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["analyze", "breakdwon"], "No such command 'breakdwon'. Did you mean 'breakdown'?"),
        (["serve-it"], "Commands: validate, plan, run, "),
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
