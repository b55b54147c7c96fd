"""Facts about where an engine runs, from its pod, its node and its probe, or why they are unknown."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.provenance import HOST_FACTS_VARIABLE, Fact, FactName, HostFacts
from specbench_api.spec.conditions import EngineReason, GroupState
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.engine_pod import PROBE_SCRIPT, parse_probe_message
from specbench_operator.run.launches.host_facts import PROBE_SOURCE, collect_host_facts, probe_facts
from specbench_operator.state.objects import ChildKey, ContainerTerminated, Node, ObjectRef, Pod, UnreadableNode
from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.nvidia_smi import HEAD, PAIR
from specbench_testing.operator_builders import NOON, UID, operator_run

DIGEST = "sha256:0123"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.memory": "143771",
    "nvidia.com/cuda.driver-version.full": "570.133.20",
    "nvidia.com/cuda.runtime-version.full": "12.8",
}
OLDER_LABELS = {
    "nvidia.com/cuda.driver.major": "550",
    "nvidia.com/cuda.driver.minor": "54",
    "nvidia.com/cuda.driver.rev": "15",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "4",
}
POD = Pod(
    ObjectRef("Pod", "demo-g0-0-x", "p"), UID, ChildKey("engine", 0, 0), "demo-g0-0", "j", "Running", NOON,
    node="gpu-1", command=("serve", "--port", "1"), image="acme/engine:1",
    image_id=f"acme/engine@{DIGEST}", started_at=NOON,
)  # fmt: skip


def node(labels: Mapping[str, str]) -> Node:
    return Node("gpu-1", labels, "6.8.0", "v1.34.1", 96, 1 << 40)


def environment(*nodes: Node | UnreadableNode, pod: Pod | None = POD, **placement: Any) -> HostFacts:
    run = parse_run(operator_run({"spec.placement": {"gpus": 2, **placement}}))
    return collect_host_facts(run, pod, nodes)


def values(facts: HostFacts) -> dict[str, Any]:
    return {name.value: fact.value for name, fact in facts.facts.items() if fact.value is not None}


def test_pod_and_node_provide_the_environment() -> None:
    assert values(environment(node(LABELS))) == {
        "node": "gpu-1",
        "command": ["serve", "--port", "1"],
        "image": "acme/engine:1",
        "image_digest": DIGEST,
        "started": "2026-01-02T12:00:00Z",
        "gpu_count": 2,
        "gpu": "NVIDIA-H200",
        "gpu_memory_bytes": 143771 << 20,
        "driver": "570.133.20",
        "driver_cuda": "12.8",
        "cores": 96,
        "memory_bytes": 1 << 40,
        "kernel": "6.8.0",
        "kubelet": "v1.34.1",
    }


def test_reads_the_labels_of_older_gpu_feature_discovery() -> None:
    facts = environment(node(OLDER_LABELS)).facts
    assert (facts[FactName.DRIVER].value, facts[FactName.DRIVER_CUDA].value) == ("550.54.15", "12.4")


def test_a_missing_or_invalid_gpu_label_is_the_reason_for_an_unknown_fact() -> None:
    facts = environment(node({"nvidia.com/gpu.memory": "much"})).facts
    assert facts[FactName.GPU] == Fact.unknown("the node has no label nvidia.com/gpu.product")
    assert facts[FactName.GPU_MEMORY_BYTES] == Fact.unknown("nvidia.com/gpu.memory is not a number")


def test_an_unreadable_node_leaves_reasons_and_the_gpu_of_the_node_selector() -> None:
    unread = UnreadableNode("gpu-1", "the operator may not read the node")
    selector = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    facts = environment(unread, nodeSelector=selector).facts
    assert facts[FactName.GPU] == Fact.observed("NVIDIA-H200", "the pod's nodeSelector nvidia.com/gpu.product")
    for name in (FactName.DRIVER, FactName.CORES, FactName.KERNEL):
        assert facts[name] == Fact.unknown("the operator may not read the node")
    assert facts[FactName.NODE].value == "gpu-1"


def test_a_pod_without_gpus_has_no_gpu_facts() -> None:
    facts = environment(node(LABELS), gpus=0).facts
    assert facts[FactName.GPU_COUNT].value == 0
    for name in (FactName.GPU, FactName.GPU_MEMORY_BYTES, FactName.DRIVER):
        assert facts[name] == Fact.unknown("the pod requests no GPU")


def test_facts_of_another_node_are_not_used() -> None:
    other = Node("gpu-2", LABELS)
    assert environment(other).facts[FactName.GPU] == Fact.unknown("the node was not read")


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [(f"docker-pullable://acme/engine@{DIGEST}", DIGEST), (DIGEST, DIGEST), (f"reg:5000/a/b@{DIGEST}", DIGEST)],
)
def test_the_image_digest_is_parsed_with_any_runtime_prefix(image_id: str, digest: str) -> None:
    pod = Pod(POD.ref, UID, POD.key, POD.job, POD.job_uid, "Running", NOON, node="gpu-1", image_id=image_id)
    facts = environment(pod=pod)
    assert facts.value(FactName.IMAGE_DIGEST) == digest
    assert facts.facts[FactName.STARTED].reason == "the pod's containerStatuses.state.running.startedAt is not set"


def test_an_engine_without_a_pod_has_no_facts() -> None:
    assert environment(pod=None) == HostFacts(unknown_reason="the engine's pod was not observed")


def test_probe_output_overrides_node_labels_only_where_it_has_values() -> None:
    probe_output = "== gpus\nNVIDIA H200 NVL, 1, 571.1\n== cuda\n== links\n== torch\n2.9.1 12.8\n"
    facts = environment(node(LABELS), pod=replace(POD, probe=ContainerTerminated(0, "Completed", probe_output))).facts
    assert (facts[FactName.GPU].value, facts[FactName.TORCH].value) == ("NVIDIA H200 NVL", "2.9.1")
    assert facts[FactName.DRIVER_CUDA].value == "12.8", "from the node's label"
    assert facts[FactName.INTERCONNECT].reason == "the probe in the engine's image reports none: its output is empty"
    blind = environment(node(LABELS), pod=replace(POD, probe=ContainerTerminated(0, "Completed", ""))).facts
    assert blind[FactName.GPU].value == "NVIDIA-H200"


# -- passed to the client ----------------------------------------------------------------------------------------------


def test_variable_references_are_passed_on_unexpanded() -> None:
    """Kubernetes would expand $(HOME) to the client's own value."""
    pod = replace(POD, command=("serve", "--home=$(HOME)", "$$"))
    line = environment(node(LABELS), pod=pod).to_line()
    assert "$" not in line
    assert HostFacts.from_json(line).value(FactName.COMMAND) == ["serve", "--home=$(HOME)", "$$"]


def host_facts_of(manifest: Mapping[str, Any]) -> HostFacts:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    (line,) = [row["value"] for row in container["env"] if row["name"] == HOST_FACTS_VARIABLE]
    return HostFacts.from_json(line)


def test_the_client_gets_the_engine_environment_and_a_replacement_gets_the_same() -> None:
    world = ClusterWorld(nodes=[node(LABELS)])
    world.reconcile()
    fields = {"node": "gpu-1", "image_id": DIGEST, "started_at": NOON}
    world.start_pod(world.engine(), ready=True, **fields)
    (client,) = world.reconcile().apply
    assert host_facts_of(client).value(FactName.IMAGE_DIGEST) == DIGEST
    assert host_facts_of(client).value(FactName.GPU) == "NVIDIA-H200"
    assert world.reconcile().apply == (), "an existing client is not applied again"
    world.lose_job(world.client())
    assert world.reconcile().apply == (client,)


# The probe in an engine's image: its script in a real shell, and the facts from its output.


BARE_POD = Pod(ObjectRef("Pod", "demo-g0-0-x", "p"), UID, ChildKey("engine", 0, 0), "demo-g0-0", "j", "Running", NOON)
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
    return probe_facts(replace(BARE_POD, probe=ContainerTerminated(0, "Completed", message)))


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


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_an_image_without_a_shell_fails_the_arm_with_a_remedy(reason: str) -> None:
    world = launched()
    ended = ContainerTerminated(128, reason, 'exec: "/bin/sh": no such file or directory')
    world.start_pod(world.engine(), phase="Failed", probe=ended)
    world.settle()
    row = world.group(0)
    assert (row.state, row.reason) == (GroupState.FAILED, EngineReason.CONFIG_ERROR)
    assert "set probeEngines=false" in row.message
