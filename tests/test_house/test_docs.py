"""Executable documentation: examples are valid specs, and specbench commands of README and tutorial succeed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_campaign, read_run, read_yaml
from specbench_client.cli.compare import compare as compare_command
from specbench_client.cli.gate import gate as gate_command

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SPECBENCH = str(Path(sys.executable).with_name("specbench"))
SMALLER = {"run": ("--set", "spec.load.repeats=1", "--set", "spec.workloads[0].dataset.count=6")}
"""Extra arguments per command that make its measurement smaller."""
TUTORIAL = (ROOT / "docs/tutorials/first-answer-on-a-laptop.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^\$ (specbench .+?)(?:\s+#.*)?$", re.MULTILINE)
COMMANDS = [line for line in COMMAND.findall(TUTORIAL) if "llama-cpp" not in line]
"""The tutorial's commands except the last, which needs a model file; `make demo` runs the same example."""


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_a_valid_run(file: Path) -> None:
    assert expand(read_run(file.read_text(encoding="utf-8"))).points


def test_the_spec_in_the_readme_is_valid() -> None:
    (spec,) = re.findall(r"```yaml\n(apiVersion.+?)```", README, re.DOTALL)
    assert expand(read_run(spec)).points


def test_the_run_on_the_gate_page_is_valid() -> None:
    page = (ROOT / "docs/how-to/compare-and-gate.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"```yaml\n(apiVersion.+?)```", page, re.DOTALL)
    gate = read_run(spec).spec.gate
    assert gate is not None
    assert [each.label for each in gate.effective_tolerances] == ["speedup", "tpot", "ttft p95"]


def test_every_option_on_the_gate_page_exists() -> None:
    page = (ROOT / "docs/how-to/compare-and-gate.md").read_text(encoding="utf-8")
    options = {option for command in (gate_command, compare_command) for each in command.params for option in each.opts}
    assert set(re.findall(r"(--[a-z][a-z-]+)\b", page)) - options <= {"--for", "--timeout", "--body-file"}


def test_the_campaign_on_its_page_has_the_described_runs() -> None:
    page = (ROOT / "docs/how-to/campaigns.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"```yaml\n(apiVersion.+?)```", page, re.DOTALL)
    planned = expand_campaign(parse_campaign(read_yaml(spec)))
    assert (len(planned.runs), planned.warnings) == (6, ())
    repeats = [run.run.spec.load.repeats for run in planned.runs if run.cell["temperature"] == 0]
    assert repeats == [5, 5]
    (claim,) = re.findall(r"^\$ pytest (\S+)$", page, re.MULTILINE)
    assert (ROOT / claim).exists()


def test_the_include_row_that_adopts_results_does_not_change_run_names() -> None:
    """docs/how-to/recovery.md adds the row to the campaign of docs/how-to/campaigns.md."""
    (block,) = re.findall(r"```yaml\n( +include:.+?)```", page_of("recovery"), re.DOTALL)
    (row,) = yaml.safe_load(block)["include"]
    (text,) = re.findall(r"```yaml\n(apiVersion.+?)```", page_of("campaigns"), re.DOTALL)
    campaign = read_yaml(text)
    before = expand_campaign(parse_campaign(campaign)).runs
    campaign["spec"]["include"].append(row)
    after = expand_campaign(parse_campaign(campaign)).runs
    assert [run.name for run in after] == [run.name for run in before]
    adopting = [run.cell for run in after if run.run.spec.results.adopt == row["set"]["results.adopt"]]
    assert adopting == [{"engine": "vllm", "temperature": 0}]


def page_of(name: str) -> str:
    return (ROOT / f"docs/how-to/{name}.md").read_text(encoding="utf-8")


@pytest.mark.process
def test_the_commands_of_the_laptop_tutorial_succeed_in_order(tmp_path: Path) -> None:
    """Uses the tutorial because the README uses vLLM, which cannot run here."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert len(COMMANDS) >= 6
    for line in COMMANDS:
        words = [SPECBENCH, *line.split()[1:], *SMALLER.get(line.split()[1], ())]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode in (0, 3), f"{line}\n{done.stderr}"


@pytest.mark.process
def test_the_plan_command_of_the_readme_prints_the_vllm_command_line() -> None:
    (line,) = [line for line in COMMAND.findall(README) if line.startswith("specbench plan")]
    done = subprocess.run([SPECBENCH, *line.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "vllm serve" in done.stdout
    assert "--speculative-config" in done.stdout
