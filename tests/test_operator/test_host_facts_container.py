"""The probe in an engine's image: its script in a real shell, and the facts from its output."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.spec.conditions import EngineReason, GroupState
from specbench_operator.render.host_facts_container import PROBE_SCRIPT, parse_probe_message
from specbench_operator.run.launches.host_facts import PROBE_SOURCE, probe_facts
from specbench_operator.state.objects import ChildKey, ContainerTerminated, ObjectRef, Pod
from specbench_testing.cluster_world import launched
from specbench_testing.nvidia_smi import HEAD, PAIR
from specbench_testing.operator_builders import NOON, UID

POD = Pod(ObjectRef("Pod", "demo-g0-0-x", "p"), UID, ChildKey("engine", 0, 0), "demo-g0-0", "j", "Running", NOON)
NVIDIA_SMI = f"""#!/bin/sh
case "$*" in
  --query*) for gpu in 0 1; do echo 'NVIDIA H200, 143771, 570.133.20'; done;;
  topo*) cat <<'END'
{PAIR}END
  ;;
  *) echo '{HEAD}';;
esac
"""
PYTHON = "#!/bin/sh\necho a warning\necho 2.9.1+cu128 12.8\n"


def run_script(folder: Path, **programs: str) -> str:
    """Run the script with only these programs and the shell's own; return its output. It always exits with 0."""
    for name, text in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)
    for name in ("head", "grep", "tail", "cat"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    log = folder / "log"
    script = PROBE_SCRIPT.replace("/dev/termination-log", str(log))
    done = subprocess.run(["/bin/sh", "-c", script], env={"PATH": str(folder)}, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    return log.read_text()


def facts_of(message: str) -> dict[FactName, Fact]:
    return probe_facts(replace(POD, probe=ContainerTerminated(0, "Completed", message)))


def test_probe_output_becomes_facts(tmp_path: Path) -> None:
    message = run_script(tmp_path, nvidia_smi=NVIDIA_SMI, python3=PYTHON)
    assert len(message.encode()) < 4096
    assert {name.value: fact.value for name, fact in facts_of(message).items()} == {
        "gpu": "NVIDIA H200",
        "gpu_count": 2,
        "gpu_memory_bytes": 143771 << 20,
        "driver": "570.133.20",
        "driver_cuda": "12.8",
        "interconnect": "NV18",
        "torch": "2.9.1+cu128",
        "cuda": "12.8",
    }


def test_an_image_with_only_a_shell_exits_with_0_and_reports_what_is_missing(tmp_path: Path) -> None:
    facts = facts_of(run_script(tmp_path))
    assert [fact.value for fact in facts.values()] == [None] * 8
    assert "nvidia-smi" in (facts[FactName.GPU].reason or "")
    assert "python3" in (facts[FactName.TORCH].reason or "")


def test_the_output_for_many_gpus_stays_within_the_message_limit(tmp_path: Path) -> None:
    row = "echo 'NVIDIA H200 with a name as long as names of cards may get, 143771, 570.133.20'"
    wide = f"#!/bin/sh\nfor n in $(/usr/bin/seq 200); do {row}; done\n"
    message = run_script(tmp_path, nvidia_smi=wide, python3=wide)
    assert len(message.encode()) < 4096
    assert set(parse_probe_message(message)) == {"gpus", "cuda", "links", "torch"}, (
        "truncation does not hide later sections"
    )


def test_an_unwritable_log_does_not_fail_the_probe(tmp_path: Path) -> None:
    script = PROBE_SCRIPT.replace("/dev/termination-log", str(tmp_path / "missing/log"))
    assert subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=False).returncode == 0


def test_torch_is_read_from_its_version_file_without_an_import(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(3)")
    version = "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"
    (package / "version.py").write_text(version)
    script = PROBE_SCRIPT.replace("/dev/termination-log", str(tmp_path / "log"))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run(["/bin/sh", "-c", script], env=env, check=True)
    facts = facts_of((tmp_path / "log").read_text())
    assert facts[FactName.TORCH] == Fact.observed("2.13.0+cpu", PROBE_SOURCE)
    assert facts[FactName.CUDA] == Fact.observed("none", PROBE_SOURCE)


def test_a_truncated_or_missing_message_leaves_reasons() -> None:
    assert parse_probe_message("") == {}
    assert facts_of("== gpus\nA, 1")[FactName.GPU].value is None
    assert facts_of("")[FactName.TORCH] == Fact.unknown(f"{PROBE_SOURCE} reports none: its output is empty")


def test_without_a_probe_there_are_no_probe_facts() -> None:
    assert probe_facts(POD) == {}


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_an_image_without_a_shell_fails_the_arm_with_a_remedy(reason: str) -> None:
    world = launched()
    ended = ContainerTerminated(128, reason, 'exec: "/bin/sh": no such file or directory')
    world.start_pod(world.engine(), phase="Failed", probe=ended)
    world.settle()
    row = world.group(0)
    assert (row.state, row.reason) == (GroupState.FAILED, EngineReason.CONFIG_ERROR)
    assert "set probeEngines=false" in row.message
