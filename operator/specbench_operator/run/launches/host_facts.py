"""Facts about where an engine runs: from its pod, its node if the operator may read it, and a probe if one ran.

GPU and driver come from the labels of NVIDIA's GPU feature discovery. Without access to the node, labels of the run's
own nodeSelector are used, because the scheduler guarantees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from specbench_api.outcome.nvidia_smi import cuda_fact, gpu_facts, links_fact
from specbench_api.outcome.provenance import Fact, FactName, HostFacts
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.host_facts_container import OF_CUDA, OF_GPUS, OF_LINKS, OF_TORCH, parse_probe_message
from specbench_operator.state.objects import Node, Pod, UnreadableNode
from specbench_operator.state.timestamps import format_timestamp

PROBE_SOURCE = "the probe in the engine's image"
_TORCH = re.compile(r"(\S+) (None|[\d.]+)\s*")


def probe_facts(pod: Pod) -> dict[FactName, Fact]:
    """The facts that the probe found in the engine's container; empty if no probe ran."""
    if pod.probe is None:
        return {}
    answers = parse_probe_message(pod.probe.message)
    return {
        **gpu_facts(answers.get(OF_GPUS, ""), PROBE_SOURCE),
        FactName.DRIVER_CUDA: cuda_fact(answers.get(OF_CUDA, ""), PROBE_SOURCE),
        FactName.INTERCONNECT: links_fact(answers.get(OF_LINKS, ""), PROBE_SOURCE),
        **_torch(answers.get(OF_TORCH, "")),
    }


def _torch(text: str) -> dict[FactName, Fact]:
    found = _TORCH.fullmatch(text)
    if found is None:
        return dict.fromkeys((FactName.TORCH, FactName.CUDA), Fact.unread(text, PROBE_SOURCE))
    cuda = "none" if found[2] == "None" else found[2]
    return {FactName.TORCH: Fact.observed(found[1], PROBE_SOURCE), FactName.CUDA: Fact.observed(cuda, PROBE_SOURCE)}


MIB = 1 << 20
GPU_MEMORY = "nvidia.com/gpu.memory"
"""Label with the memory of one GPU, in MiB."""
_NVIDIA = "nvidia.com/cuda"
LABELS: Mapping[FactName, tuple[tuple[str, ...], ...]] = {
    FactName.GPU: (("nvidia.com/gpu.product",),),
    FactName.DRIVER: (
        (f"{_NVIDIA}.driver-version.full",),
        (f"{_NVIDIA}.driver.major", f"{_NVIDIA}.driver.minor", f"{_NVIDIA}.driver.rev"),
    ),
    FactName.DRIVER_CUDA: (
        (f"{_NVIDIA}.runtime-version.full",),
        (f"{_NVIDIA}.runtime.major", f"{_NVIDIA}.runtime.minor"),
    ),
}
"""Fact → label names, newest first. Several names in a tuple are the parts of one version number."""
NOT_REPORTED = "neither the pod nor its node reports it"


def collect_host_facts(run: SpecBenchRun, pod: Pod | None, nodes: Sequence[Node | UnreadableNode]) -> HostFacts:
    """The facts about an engine's pod and its node. The same pod and node give the same facts."""
    if pod is None:
        return HostFacts(unknown_reason="the engine's pod was not observed")
    node = next((node for node in nodes if node.name == pod.node), UnreadableNode(pod.node, "the node was not read"))
    facts = {**_of_pod(pod), **_of_gpus(run), **_of_labels(run, node), **_of_node(node)}
    probed = {name: fact for name, fact in probe_facts(pod).items() if fact.value is not None or name not in facts}
    return HostFacts(facts=facts | probed, unknown_reason=NOT_REPORTED)


def _of_pod(pod: Pod) -> dict[FactName, Fact]:
    digest = pod.image_id.rpartition("@")[2]
    values: dict[FactName, tuple[JsonValue, str]] = {
        FactName.NODE: (pod.node, "spec.nodeName"),
        FactName.COMMAND: (list(pod.command), "spec.containers: command and args"),
        FactName.IMAGE: (pod.image, "spec.containers.image"),
        FactName.IMAGE_DIGEST: (digest, "containerStatuses.imageID"),
        FactName.STARTED: (
            format_timestamp(pod.started_at) if pod.started_at else None,
            "containerStatuses.state.running.startedAt",
        ),
    }
    return {name: _fact(value, f"the pod's {path}") for name, (value, path) in values.items()}


def _of_gpus(run: SpecBenchRun) -> dict[FactName, Fact]:
    """The number of GPUs: a running pod has what it requested, and the run declares what a resource claim provides."""
    placement = run.spec.placement
    source = f"the pod's resources: {placement.gpu_resource_name}"
    if placement.claimed_gpus:
        source = f"spec.placement.claimedGpus of the claim {placement.resource_claim_template_name}"
    if placement.nodes > 1:
        source = f"{source}, on {placement.nodes} nodes"
    return {FactName.GPU_COUNT: Fact.observed(placement.engine_devices, source)}


def _of_labels(run: SpecBenchRun, node: Node | UnreadableNode) -> dict[FactName, Fact]:
    labels: Mapping[str, str] = run.spec.placement.node_selector
    source, reason = "the pod's nodeSelector", node.reason if isinstance(node, UnreadableNode) else ""
    if isinstance(node, Node):
        labels, source = node.labels, "the node's label"
    if not run.spec.placement.devices:
        return dict.fromkeys((*LABELS, FactName.GPU_MEMORY_BYTES), Fact.unknown("the pod requests no GPU"))
    facts = {name: _labelled(labels, keys, source, reason) for name, keys in LABELS.items()}
    memory = _labelled(labels, ((GPU_MEMORY,),), source, reason)
    is_number = isinstance(memory.value, str) and memory.value.isdecimal()
    size = Fact.observed(int(str(memory.value)) * MIB, str(memory.source)) if is_number else None
    return {**facts, FactName.GPU_MEMORY_BYTES: size or Fact.unknown(memory.reason or f"{GPU_MEMORY} is not a number")}


def _labelled(labels: Mapping[str, str], spellings: Sequence[tuple[str, ...]], source: str, reason: str) -> Fact:
    for keys in spellings:
        if all(labels.get(key) for key in keys):
            return Fact.observed(".".join(labels[key] for key in keys), f"{source} {' '.join(keys)}")
    return Fact.unknown(reason or f"the node has no label {spellings[0][0]}")


def _of_node(node: Node | UnreadableNode) -> dict[FactName, Fact]:
    if isinstance(node, UnreadableNode):
        names = (FactName.CORES, FactName.MEMORY_BYTES, FactName.KERNEL, FactName.KUBELET)
        return {name: Fact.unknown(node.reason) for name in names}
    values: dict[FactName, tuple[JsonValue, str]] = {
        FactName.CORES: (node.cores, "capacity.cpu"),
        FactName.MEMORY_BYTES: (node.memory_bytes, "capacity.memory"),
        FactName.KERNEL: (node.kernel, "nodeInfo.kernelVersion"),
        FactName.KUBELET: (node.kubelet, "nodeInfo.kubeletVersion"),
    }
    return {name: _fact(value, f"the node's {path}") for name, (value, path) in values.items()}


def _fact(value: JsonValue, source: str) -> Fact:
    return Fact.of(value, source, f"{source} is not set")
