"""Where an engine runs, in facts: from its pod, from its node where that may be read, from a probe where one ran.

Labels of NVIDIA's GPU feature discovery tell the GPU and its driver. Where the run itself asked for a label, the
scheduler has vouched for it, also where the node may not be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact, Whereabouts
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.reconcile.launches.probed import probed
from specbench_operator.state.nodes import Node, NodeUnread
from specbench_operator.state.pods import Pod

MIB = 1 << 20
GPU_MEMORY = "nvidia.com/gpu.memory"
"""In MiB."""
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
"""Fact → its labels, newest spelling first; several are the parts of one version."""
UNSEEN = "neither the pod nor its node tells it"


def whereabouts(run: SpecBenchRun, pod: Pod | None, nodes: Sequence[Node | NodeUnread]) -> Whereabouts:
    """What is seen of the place of an engine's pod. The same pod and node give the same facts."""
    if pod is None:
        return Whereabouts(unseen="the engine's pod was not seen")
    node = next((node for node in nodes if node.name == pod.node), NodeUnread(pod.node, "the node was not looked at"))
    facts = {**_of_pod(pod), **_of_gpus(run), **_of_labels(run, node), **_of_node(node)}
    seen = {name: fact for name, fact in probed(pod).items() if fact.value is not None or name not in facts}
    return Whereabouts(facts=facts | seen, unseen=UNSEEN)


def _of_pod(pod: Pod) -> dict[FactName, Fact]:
    digest = pod.image_id.rpartition("@")[2]
    told: dict[FactName, tuple[JsonValue, str]] = {
        FactName.NODE: (pod.node, "spec.nodeName"),
        FactName.COMMAND: (list(pod.command), "spec.containers: command and args"),
        FactName.IMAGE: (pod.image, "spec.containers.image"),
        FactName.IMAGE_DIGEST: (digest, "containerStatuses.imageID"),
        FactName.STARTED: (_text(pod.started_at), "containerStatuses.state.running.startedAt"),
    }
    return {name: _fact(value, f"the pod's {path}") for name, (value, path) in told.items()}


def _of_gpus(run: SpecBenchRun) -> dict[FactName, Fact]:
    """Those of the container: what a pod that runs has asked for, it has. What a claim gives, the run has declared."""
    placement = run.spec.placement
    source = f"the pod's resources: {placement.gpu_resource_name}"
    if placement.claimed_gpus:
        source = f"spec.placement.claimedGpus of the claim {placement.resource_claim_template_name}"
    if placement.nodes > 1:
        source = f"{source}, on {placement.nodes} nodes"
    return {FactName.GPU_COUNT: Fact.seen(placement.engine_devices, source)}


def _of_labels(run: SpecBenchRun, node: Node | NodeUnread) -> dict[FactName, Fact]:
    labels: Mapping[str, str] = run.spec.placement.node_selector
    source, reason = "the pod's nodeSelector", node.reason if isinstance(node, NodeUnread) else ""
    if isinstance(node, Node):
        labels, source = node.labels, "the node's label"
    if not run.spec.placement.devices:
        return dict.fromkeys((*LABELS, FactName.GPU_MEMORY_BYTES), Fact.unseen("the pod asked for no GPU"))
    facts = {name: _labelled(labels, keys, source, reason) for name, keys in LABELS.items()}
    memory = _labelled(labels, ((GPU_MEMORY,),), source, reason)
    is_number = isinstance(memory.value, str) and memory.value.isdecimal()
    size = Fact.seen(int(str(memory.value)) * MIB, str(memory.source)) if is_number else None
    return {**facts, FactName.GPU_MEMORY_BYTES: size or Fact.unseen(memory.reason or f"{GPU_MEMORY} is no number")}


def _labelled(labels: Mapping[str, str], spellings: Sequence[tuple[str, ...]], source: str, reason: str) -> Fact:
    for keys in spellings:
        if all(labels.get(key) for key in keys):
            return Fact.seen(".".join(labels[key] for key in keys), f"{source} {' '.join(keys)}")
    return Fact.unseen(reason or f"the node has no label {spellings[0][0]}")


def _of_node(node: Node | NodeUnread) -> dict[FactName, Fact]:
    if isinstance(node, NodeUnread):
        names = (FactName.CORES, FactName.MEMORY_BYTES, FactName.KERNEL, FactName.KUBELET)
        return {name: Fact.unseen(node.reason) for name in names}
    told: dict[FactName, tuple[JsonValue, str]] = {
        FactName.CORES: (node.cores, "capacity.cpu"),
        FactName.MEMORY_BYTES: (node.memory_bytes, "capacity.memory"),
        FactName.KERNEL: (node.kernel, "nodeInfo.kernelVersion"),
        FactName.KUBELET: (node.kubelet, "nodeInfo.kubeletVersion"),
    }
    return {name: _fact(value, f"the node's {path}") for name, (value, path) in told.items()}


def _fact(value: JsonValue, source: str) -> Fact:
    return Fact.of(value, source, f"{source} is not set")


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
