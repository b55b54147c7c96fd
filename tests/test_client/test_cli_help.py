"""What the program says of itself: every command under a heading, on one line, and the nearest to a wrong name."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from specbench_client.cli import HEADINGS, cli, exit_code
from specbench_client.cli.dataset import dataset
from specbench_client.cli.elsewhere import OURS
from specbench_client.cli.measure import measure
from specbench_client.workload.sources.table import LOADERS

NAMES = [name for commands in HEADINGS.values() for name in commands]
WIDTH = 80
"""Of a terminal; what click indents an entry by and puts between its columns comes on top."""


def test_the_commands_stand_under_headings_by_what_people_do() -> None:
    lines = CliRunner().invoke(cli, ["--help"], terminal_width=WIDTH).output.splitlines()
    assert [line for line in lines if line.endswith(":") and not line.startswith(" ")][1:] == [
        "Plan and check:", "Measure:", "Read results:", "Decide:", "Watch:", "Datasets:", "Cluster:",
    ]  # fmt: skip
    shown = lines[lines.index("Plan and check:") :]
    assert [line.split()[0] for line in shown if line.startswith("  ")] == NAMES, "an entry takes one line"
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_there_and_teaches_by_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert f"  specbench {name}" in (command.help or "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reprot"], "No such command 'reprot'. Did you mean 'report'?"),
        (["dataset", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["serve-it"], "There are validate, plan, run, "),
    ],
)
def test_a_wrong_name_is_told_the_nearest(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("--num-prompts", "--requests"), ("--request-rate", "--rate"), ("--base-url", "--endpoint")],
)
def test_a_flag_of_another_load_generator_is_told_ours(
    theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["measure", theirs, "4"]) == 2
    assert f"No such option '{theirs}': here it is '{ours}'." in " ".join(capsys.readouterr().err.split())


def test_every_flag_that_others_are_told_is_one_of_measure_and_theirs_is_not() -> None:
    known = {flag for option in measure.params for flag in option.opts}
    assert set(OURS.values()) <= known
    assert not set(OURS) & known


def test_dataset_list_names_every_source() -> None:
    lines = CliRunner().invoke(dataset, ["list"]).output.splitlines()
    named = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert [name for name in named if name] == [str(source) for source in LOADERS]


@pytest.mark.parametrize("name", NAMES)
def test_no_option_tells_a_bound_that_it_does_not_have(name: str) -> None:
    assert "None" not in CliRunner().invoke(cli, [name, "--help"]).output
