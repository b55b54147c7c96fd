"""`spec.placement`: on which nodes, with how many accelerators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Rule, refuse_broken
from specbench_api.spec.affinity import Affinity, PinNode, TopologySpread
from specbench_api.spec.kubernetes import (
    LEADS_OUT,
    QUALIFIED_NAME,
    LabelValue,
    ObjectName,
    QueueName,
    SubPath,
    TaintKey,
    leads_out,
)

Quantity = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
NodeLabels = Annotated[dict[str, LabelValue], Field(max_length=32)]
"""By key. What a key may be is told in planning: no schema sees the keys of a map, and a CEL rule would not know their
length and be refused for its cost."""


class TolerationOperator(StrEnum):
    """As Kubernetes has them."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """As Kubernetes has them."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A toleration of the engine's pods, as in a PodSpec."""

    rules: ClassVar = (
        Rule(
            "self.operator == 'Exists' || (has(self.key) && self.key != '')",
            "operator Equal needs a key: give one, or set operator: Exists to tolerate every taint",
        ),
        Rule(
            "self.operator == 'Equal' || !has(self.value) || self.value == ''",
            "operator Exists looks at no value: remove value, or set operator: Equal",
        ),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds goes with effect NoExecute alone",
        ),
    )

    key: TaintKey | None = None
    """Taint key; without it, every taint."""
    operator: TolerationOperator = TolerationOperator.EQUAL
    """Exists or Equal."""
    value: LabelValue | None = None
    """Taint value, with Equal."""
    effect: TaintEffect | None = None
    """Which effect; without it, all."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """How long NoExecute is tolerated."""

    @model_validator(mode="after")
    def _coherent(self) -> Toleration:
        exists = self.operator is TolerationOperator.EXISTS
        holds = (
            exists or bool(self.key),
            not exists or not self.value,
            self.toleration_seconds is None or self.effect is TaintEffect.NO_EXECUTE,
        )
        refuse_broken(self.rules, holds)
        return self


class Resources(ApiModel):
    """CPU and memory, requested and limited alike, so that the pod is not throttled by its neighbours' luck."""

    cpu: Quantity | None = None
    """CPU cores, as Kubernetes writes them."""
    memory: Quantity | None = None
    """Memory, as Kubernetes writes it."""


class ModelCache(ApiModel):
    """A volume on which engines keep what they fetch from the hub, so that a model is fetched once and not a launch."""

    rules: ClassVar = (
        Rule(
            f"!has(self.subPath) || !self.subPath.matches('{LEADS_OUT}')",
            "modelCache.subPath leads out of the volume by ..: give the folder inside it",
        ),
    )

    claim_name: ObjectName
    """Name of a PersistentVolumeClaim of the run's namespace, which engines write to."""
    sub_path: SubPath | None = None
    """Folder of the volume; without it, all of it."""

    @model_validator(mode="after")
    def _inside(self) -> ModelCache:
        refuse_broken(self.rules, (not leads_out(self.sub_path),))
        return self


class Placement(ApiModel):
    """Where the engine runs. The client runs beside it without GPUs."""

    rules: ClassVar = (
        Rule(
            # The API server judges the default of placement, {}, before it fills in the fields' own.
            "!has(self.gpuResourceName) || !self.gpuResourceName.contains('kubernetes.io/')"
            " && !self.gpuResourceName.startsWith('requests.')",
            "gpuResourceName is no extended resource: kubernetes.io and requests. are Kubernetes' own;"
            " give the device plugin's, such as nvidia.com/gpu",
        ),
        Rule(
            "!has(self.queuePriorityClass) || has(self.queueName)",
            "queuePriorityClass orders a queue: give queueName too, or use priorityClassName",
        ),
        Rule(
            "!has(self.queueName) || !has(self.nodes) || self.nodes == 1",
            "queueName queues an engine's Job, and an engine on several nodes is a LeaderWorkerSet: leave queueName"
            " out, or set nodes: 1",
        ),
        Rule(
            "!has(self.queueName) || !has(self.pinNode) || self.pinNode != 'Require'",
            "a queue may start an engine over on any node, so pinNode: Require cannot be kept: use Prefer, or leave"
            " queueName out",
        ),
        Rule(
            "!has(self.claimedGpus) || self.claimedGpus == 0 || has(self.resourceClaimTemplateName)",
            "claimedGpus are those of a resource claim: give resourceClaimTemplateName, or ask the device plugin by"
            " gpus",
        ),
        Rule(
            "!has(self.claimedGpus) || self.claimedGpus == 0 || self.gpus == 0",
            "gpus are asked of the device plugin and claimedGpus come by the claim: give one of them, or an engine"
            " would hold both",
        ),
        Rule(
            "!has(self.resourceClaimTemplateName) || self.gpus > 0 || (has(self.claimedGpus) && self.claimedGpus > 0)",
            "a claim does not say how many GPUs it gives: set claimedGpus to that number; where it gives other devices"
            " (a network, an IMEX channel), ask for the GPUs by gpus",
        ),
    )

    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """Accelerators an engine pod asks for, in devices of gpuResourceName: a MIG slice counts as one."""
    gpu_resource_name: Annotated[str, Field(min_length=3, max_length=253, pattern=QUALIFIED_NAME)] = "nvidia.com/gpu"
    """Extended resource of the accelerator: nvidia.com/gpu, nvidia.com/mig-1g.10gb, amd.com/gpu, google.com/tpu, …"""
    resource_claim_template_name: ObjectName | None = None
    """ResourceClaimTemplate (resource.k8s.io/v1) of the run's namespace, by which each engine pod is given devices."""
    claimed_gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """How many GPUs one such claim gives. They count as `gpus` do, and are asked of no device plugin."""
    nodes: Annotated[int, Field(ge=1, le=16)] = 1
    """Nodes over which one engine spreads, each with a pod of its own that holds the GPUs above. More than 1 needs
    LeaderWorkerSet in the cluster, and an engine that can: vllm, sglang, simulator."""
    node_selector: NodeLabels = {}
    """Labels of the nodes of the GPU pool."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations of the engine's pods."""
    affinity: Affinity | None = None
    """Affinity of the engine's pods."""
    topology_spread_constraints: Annotated[list[TopologySpread], Field(max_length=8)] = []
    """Topology spread constraints of the engine's pods."""
    pin_node: PinNode = PinNode.PREFER
    """Prefer: each launch after the first goes to the node of the one before, where that has room. Require: it waits
    for that node. None: to any node."""
    priority_class_name: ObjectName | None = None
    """Priority class of the engine's pods."""
    queue_name: QueueName | None = None
    """Kueue's LocalQueue, in the run's namespace, that admits each engine. The client, without a GPU, is not queued."""
    queue_priority_class: QueueName | None = None
    """Kueue's WorkloadPriorityClass, which orders the queue alone. Without it, the queue goes by priorityClassName."""
    preemption_budget: Annotated[int, Field(ge=0, le=100)] = 10
    """So often a group's engine may be taken away by its queue, the scheduler or its node, and is launched again."""
    runtime_class_name: ObjectName | None = None
    """Runtime class of the engine's pods. A sandbox costs time, so it is part of every point's identity."""
    scheduler_name: ObjectName | None = None
    """Scheduler of the engine's pods; without it, the cluster's default one."""
    service_account_name: ObjectName | None = None
    """Service account of the client's pods (cloud identity for S3)."""
    engine_service_account_name: ObjectName | None = None
    """Service account of the engine's pods (cloud identity to fetch a model)."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8)] = []
    """Secrets with which images are pulled."""
    engine_resources: Resources = Resources()
    """CPU and memory of the engine."""
    shared_memory: Quantity | None = None
    """Most that /dev/shm may hold, over which GPUs of one pod talk. It counts as the engine's memory. Without it, as
    much as the engine's memory."""
    model_cache: ModelCache | None = None
    """Where engines keep what they fetch from the hub (HF_HOME); without it, each launch fetches anew."""
    client_resources: Resources = Resources()
    """CPU and memory of the client. A starved client measures itself."""
    client_node_selector: NodeLabels = {}
    """Labels of the nodes where the client runs; best on the engine's network but not on its cores."""

    @property
    def devices(self) -> int:
        """GPUs that one engine pod holds, by whichever way it was given them."""
        return self.gpus + self.claimed_gpus

    @property
    def engine_devices(self) -> int:
        """GPUs of one engine, over all its nodes."""
        return self.devices * self.nodes

    @model_validator(mode="after")
    def _coherent(self) -> Placement:
        name, claim = self.gpu_resource_name, self.resource_claim_template_name
        holds = (
            "kubernetes.io/" not in name and not name.startswith("requests."),
            not self.queue_priority_class or bool(self.queue_name),
            not self.queue_name or self.nodes == 1,
            not self.queue_name or self.pin_node is not PinNode.REQUIRE,
            not self.claimed_gpus or claim is not None,
            not self.claimed_gpus or not self.gpus,
            claim is None or bool(self.devices),
        )
        refuse_broken(self.rules, holds)
        return self
