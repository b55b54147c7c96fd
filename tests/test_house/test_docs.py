"""Executable documentation: examples are valid specs, and specbench commands of README and tutorial succeed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specbench_api.plan.expansion import expand
from specbench_api.spec.run import SpecBenchRun
from specbench_client.cli.options import read_spec_file
from specbench_testing.command_line import specbench_here

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SMALLER = {"run": ("--set", "spec.load.repeats=1", "--set", "spec.workloads[0].dataset.count=6")}
"""Extra arguments per command that make its measurement smaller."""
TUTORIAL = (ROOT / "docs/tutorials/first-answer-on-a-laptop.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^\$ (specbench .+?)(?:\s+#.*)?$", re.MULTILINE)
COMMANDS = [line for line in COMMAND.findall(TUTORIAL) if "llama-cpp" not in line and " demo" not in line]
"""The tutorial's commands except the last ones, which need a model file."""


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_a_valid_run(file: Path) -> None:
    resource = read_spec_file(file)
    assert isinstance(resource, SpecBenchRun)
    assert expand(resource).points


def test_pages_are_named_by_their_titles() -> None:
    """A wheel and a cluster have no files of the repository."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "helm/specbench/README.md"]
    titles = [found.group(1) for page in pages if (found := re.match(r"# (.+)", page.read_text(encoding="utf-8")))]
    files = [file for folder in ("client", "crds", "operator") for file in (ROOT / folder).rglob("*.py")]
    text = " ".join(" ".join(file.read_text(encoding="utf-8") for file in files).split())
    named = re.findall(r'docs, \\?"([^"\\]+)', text)
    assert len(named) > 20
    assert [name for name in named if not any(re.match(rf"{re.escape(name)}([:,]|$)", title) for title in titles)] == []
    resources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "crds").glob("*.yaml"))
    assert re.findall(r"\S+\.md\b", resources) == []


@pytest.mark.process
def test_the_commands_of_the_laptop_tutorial_succeed_in_order(tmp_path: Path) -> None:
    """Uses the tutorial because the README uses vLLM, which cannot run here."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert len(COMMANDS) >= 6
    for line in COMMANDS:
        _, command, *words = line.split()
        done = specbench_here(command, *words, *SMALLER.get(command, ()), cwd=tmp_path)
        assert done.returncode in (0, 3), f"{line}\n{done.stderr}"


@pytest.mark.process
def test_the_plan_command_of_the_readme_prints_the_vllm_command_line() -> None:
    (line,) = [line for line in COMMAND.findall(README) if line.startswith("specbench plan")]
    done = specbench_here(*line.split()[1:], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "vllm serve" in done.stdout
    assert "--speculative-config" in done.stdout
