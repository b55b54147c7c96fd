"""docs/how-to/prepare-prompts.md: every command parses, and commands on files in examples/ succeed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from specbench_client.cli import exit_code
from specbench_client.cli.dataset import dataset
from specbench_client.dataset.speed_bench_texts import RESOLVERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/prepare-prompts.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ specbench dataset (.+)$", PAGE, re.MULTILINE)


def test_the_page_shows_every_dataset_command() -> None:
    assert {line.split()[0] for line in COMMANDS} == set(dataset.list_commands(click.Context(dataset)))


@pytest.mark.parametrize("line", COMMANDS)
def test_the_arguments_of_every_command_are_valid(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("traffic.jsonl", "documents.jsonl", "prompts.jsonl", "logs.jsonl"):
        (tmp_path / name).touch()
    for name in ("SPEED-Bench", "downloaded"):
        (tmp_path / name).mkdir()
    step, *arguments = shlex.split(line)
    command = dataset.get_command(click.Context(dataset), step)
    assert command is not None
    command.make_context(step, arguments)


@pytest.mark.parametrize("line", [line for line in COMMANDS if "examples/" in line])
def test_commands_on_files_in_examples_succeed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert exit_code(["dataset", *shlex.split(line)]) == 0


def test_the_page_lists_every_source_with_its_pinned_revision() -> None:
    for resolver in RESOLVERS:
        assert f"| {resolver.name} |" in PAGE
        assert resolver.revision is None or resolver.revision[:8] in PAGE
