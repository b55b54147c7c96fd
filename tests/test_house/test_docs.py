"""Documents that run: every example is a valid spec, and every specbench command that the README shows works."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from specbench_api.campaign.expand import expand_campaign
from specbench_api.plan.expand import expand
from specbench_api.spec.reading import parse_campaign, read_run, read_yaml
from specbench_client.cli.compare import compare as compare_command
from specbench_client.cli.gate import gate as gate_command
from specbench_testing.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SPECBENCH = str(Path(sys.executable).with_name("specbench"))
SMALLER = {"run": ("--set", "spec.load.repeats=1", "--set", "spec.workloads[0].dataset.count=6")}
"""The same commands, smaller measurements."""
SHOWN = re.findall(r"^\$ (specbench .+?)(?:\s+#.*)?$", README, re.MULTILINE)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_a_valid_run(file: Path) -> None:
    assert expand(read_run(file.read_text(encoding="utf-8"))).points


def test_the_spec_in_the_readme_is_valid() -> None:
    (spec,) = re.findall(r"```yaml\n(apiVersion.+?)```", README, re.DOTALL)
    assert expand(read_run(spec)).points


def test_the_run_with_a_gate_in_its_page_is_valid() -> None:
    page = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"```yaml\n(apiVersion.+?)```", page, re.DOTALL)
    gate = read_run(spec).spec.gate
    assert gate is not None
    assert [each.label for each in gate.asked] == ["speedup", "tpot", "ttft p95"]


def test_every_option_of_the_gates_page_exists() -> None:
    page = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    known = {option for command in (gate_command, compare_command) for each in command.params for option in each.opts}
    assert set(re.findall(r"(--[a-z][a-z-]+)\b", page)) - known <= {"--for", "--timeout", "--body-file"}


def test_the_campaign_on_its_page_is_the_one_that_the_page_speaks_of() -> None:
    page = (ROOT / "docs/campaigns.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"```yaml\n(apiVersion.+?)```", page, re.DOTALL)
    planned = expand_campaign(parse_campaign(read_yaml(spec)))
    assert (len(planned.runs), planned.warnings) == (6, ())
    repeats = [run.run.spec.load.repeats for run in planned.runs if run.cell["temperature"] == 0]
    assert repeats == [5, 5]
    (claim,) = re.findall(r"^\$ pytest (\S+)$", page, re.MULTILINE)
    assert (ROOT / claim).exists()


def test_the_row_that_has_a_campaign_carry_on_changes_no_name() -> None:
    """The page on recovery adds it to the campaign of the page on campaigns."""
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
    return (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")


@pytest.mark.process
def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    port, running = str(free_port()), []
    assert len(SHOWN) >= 6
    try:
        for line in SHOWN:
            words = [SPECBENCH, *line.replace("8000", port).split()[1:], *SMALLER.get(line.split()[1], ())]
            if words[-1] == "&":
                running.append(subprocess.Popen(words[:-1], cwd=tmp_path, stderr=subprocess.DEVNULL))
                until_it_listens(running[-1], int(port))
                continue
            if words[1] == "measure":
                words += ["--duration", "2"] if "--duration" in words else ["--requests", "6"]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
            assert done.returncode in (0, 3), f"{line}\n{done.stderr}"
    finally:
        for process in running:
            process.terminate()
            process.wait(60)


def until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=10):
            return
        time.sleep(0.05)
