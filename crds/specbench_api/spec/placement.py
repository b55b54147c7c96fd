"""`spec.placement`: the nodes on which the engines and the client run, and their GPUs and other resources."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from specbench_api.api_model import ApiModel, PreserveUnknown, RuledModel, ValidationRule
from specbench_api.spec.model_cache import ModelCache
from specbench_api.spec.patterns import (
    QUALIFIED_NAME,
    LabelValue,
    ObjectName,
    QueueName,
    TaintKey,
)
from specbench_api.spec.pod_template import (
    ClientPodTemplate,
    EngineSecurityContext,
    PodTemplate,
    Quantity,
    ResourceRequirements,
)
from specbench_api.spec.secret_refs import SecretRef

GPUS_MAX = 64
"""Maximum GPUs of one engine pod."""

# Node selection: the same names and values as in a PodSpec.

Terms = Annotated[dict[str, Any], Field(max_length=2), PreserveUnknown()]


class PinNode(StrEnum):
    """Whether later launches go to the node of the run's last ready engine, to compare arms on one machine."""

    PREFER = "Prefer"
    REQUIRE = "Require"
    NONE = "None"


class Affinity(ApiModel):
    """Affinity, as in `spec.affinity` of a pod.

    Each map has the keys `requiredDuringSchedulingIgnoredDuringExecution` and
    `preferredDuringSchedulingIgnoredDuringExecution`, with the contents that Kubernetes defines.
    """

    node_affinity: Terms = {}
    """Selects nodes by their labels. Part of every point's identity, as nodeSelector is."""
    pod_affinity: Terms = {}
    """Selects nodes that run certain other pods."""
    pod_anti_affinity: Terms = {}
    """Avoids nodes that run certain other pods, for example those of other benchmarks."""


NodeLabels = Annotated[dict[str, LabelValue], Field(max_length=32)]
"""Labels by key. Keys are validated in planning: a schema cannot constrain the keys of a map, and the cost of a CEL
rule over keys of unknown length would exceed the API server's limit."""


class TolerationOperator(StrEnum):
    """Values of Kubernetes' tolerations[].operator."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """Values of Kubernetes' tolerations[].effect."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(RuledModel):
    """A toleration, as in a PodSpec."""

    rules: ClassVar = (
        ValidationRule(
            "self.operator == 'Exists' || (has(self.key) && self.key != '')",
            "a toleration with operator Equal needs a key: set it, or use operator: Exists to tolerate every taint",
            lambda toleration: toleration.operator is TolerationOperator.EXISTS or bool(toleration.key),
        ),
        ValidationRule(
            "self.operator == 'Equal' || !has(self.value) || self.value == ''",
            "a toleration with operator Exists takes no value: remove value, or set operator: Equal",
            lambda toleration: toleration.operator is TolerationOperator.EQUAL or not toleration.value,
        ),
        ValidationRule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds is only valid with effect NoExecute: remove it, or set effect: NoExecute",
            lambda toleration: toleration.toleration_seconds is None or toleration.effect is TaintEffect.NO_EXECUTE,
        ),
    )

    key: TaintKey | None = None
    """Key of the taint. Without it: every taint."""
    operator: TolerationOperator = TolerationOperator.EQUAL
    """Exists: any value. Equal: only this value."""
    value: LabelValue | None = None
    """Value of the taint, for operator Equal."""
    effect: TaintEffect | None = None
    """Effect of the taint. Without it: all effects."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """Seconds for which a NoExecute taint is tolerated. Without it: forever."""


class ClientPlacement(ApiModel):
    """Where the client's pods run: those that measure, and those that write the report and evaluate the gate."""

    resources: ResourceRequirements = ResourceRequirements()
    """CPU and memory. With too little the client measures its own delays. What is not set has the operator's default,
    which is 2 CPU cores and 4Gi, both requested and limited. Whole CPU cores allow static CPU management on the
    client's node. The report and the gate use what is set here too."""
    node_selector: NodeLabels = {}
    """Labels that the client's nodes must have: preferably on the engine's network."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations of the client's pods."""
    affinity: Affinity | None = None
    """Affinity of the client's pods. Unless it sets podAffinity or podAntiAffinity, a measuring client prefers nodes
    without an engine of its run, because it would compete with the engine for CPU and memory bandwidth."""
    service_account_name: ObjectName | None = None
    """Service account of the client's pods, for example with a cloud identity for S3."""
    template: ClientPodTemplate | None = None
    """What is added to the client's pods: labels and annotations."""


class Placement(RuledModel):
    """Where the engine and the client run. The client uses no GPU."""

    rules: ClassVar = (
        ValidationRule(
            # `has` is needed: the API server validates the default of placement, {}, before it applies field defaults.
            "!has(self.gpuResourceName) || !self.gpuResourceName.contains('kubernetes.io/')"
            " && !self.gpuResourceName.startsWith('requests.')",
            "gpuResourceName is not an extended resource, since kubernetes.io and requests. are reserved by Kubernetes:"
            " write the device plugin's, such as nvidia.com/gpu",
            lambda placement: (
                "kubernetes.io/" not in placement.gpu_resource_name
                and not placement.gpu_resource_name.startswith("requests.")
            ),
        ),
        ValidationRule(
            "!has(self.queuePriorityClass) || has(self.queueName)",
            "queuePriorityClass has no effect without queueName: set queueName, or use priorityClassName",
            lambda placement: not placement.queue_priority_class or bool(placement.queue_name),
        ),
        ValidationRule(
            "!has(self.queueName) || !has(self.pinNode) || self.pinNode != 'Require'",
            "pinNode: Require cannot be combined with queueName, because a queue may restart an engine on any node: use"
            " Prefer, or remove queueName",
            lambda placement: not placement.queue_name or placement.pin_node is not PinNode.REQUIRE,
        ),
        ValidationRule(
            "!has(self.claimedGpus) || self.claimedGpus == 0 || has(self.resourceClaimTemplateName)",
            "claimedGpus needs resourceClaimTemplateName: set it, or request GPUs from the device plugin with gpus",
            lambda placement: not placement.claimed_gpus or placement.resource_claim_template_name is not None,
        ),
        ValidationRule(
            "!has(self.claimedGpus) || self.claimedGpus == 0 || !has(self.gpus) || self.gpus == 0",
            "set either gpus (from the device plugin) or claimedGpus (from the resource claim), not both: the engine"
            " would hold the GPUs of both",
            lambda placement: not placement.claimed_gpus or not placement.gpus,
        ),
        ValidationRule(
            "!has(self.resourceClaimTemplateName) || (has(self.gpus) && self.gpus > 0)"
            " || (has(self.claimedGpus) && self.claimedGpus > 0)",
            "resourceClaimTemplateName needs the number of GPUs: set claimedGpus to the number that one claim provides,"
            " or set gpus if the claim provides other devices (a network, an IMEX channel)",
            lambda placement: placement.resource_claim_template_name is None or placement.devices > 0,
        ),
    )

    gpus: Annotated[int, Field(ge=0, le=GPUS_MAX)] | None = None
    """Number of accelerators that each engine pod requests, in devices of gpuResourceName; a MIG slice counts as one.
    Without it: the product of the parallel sizes (tensor, pipeline, data) of vllm, sglang and tensorrt-llm, divided by
    `nodes`, unless a claim provides GPUs; 0 for other engines."""
    gpu_resource_name: Annotated[str, Field(min_length=3, max_length=253, pattern=QUALIFIED_NAME)] = "nvidia.com/gpu"
    """Extended resource of the accelerator: nvidia.com/gpu, nvidia.com/mig-1g.10gb, amd.com/gpu, google.com/tpu, …"""
    resource_claim_template_name: ObjectName | None = None
    """ResourceClaimTemplate (resource.k8s.io/v1) in the run's namespace that provides each engine pod's devices.
    Without it: no claim."""
    claimed_gpus: Annotated[int, Field(ge=0, le=GPUS_MAX)] = 0
    """Number of GPUs that one such claim provides. They count like `gpus`, but are not requested from the device
    plugin."""
    nodes: Annotated[int, Field(ge=1, le=16)] = 1
    """Number of nodes of one engine; each has a pod with the GPUs above. More than 1 needs LeaderWorkerSet in the
    cluster and an engine that supports it: vllm, sglang, simulator."""
    node_selector: NodeLabels = {}
    """Labels that the engine's nodes must have: `{nvidia.com/gpu.product: NVIDIA-H100}`."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations of the engine's pods."""
    affinity: Affinity | None = None
    """Affinity of the engine's pods."""
    pin_node: PinNode = PinNode.PREFER
    """Prefer: each launch after the first goes to the node of the previous one if that has room. Require: it waits for
    that node. None: it goes to any node."""
    priority_class_name: ObjectName | None = None
    """Priority class of the engine's pods."""
    queue_name: QueueName | None = None
    """Kueue LocalQueue in the run's namespace that admits each engine, on several nodes as a whole. The client, which
    needs no GPU, is not queued. Without it: no queue."""
    queue_priority_class: QueueName | None = None
    """Kueue WorkloadPriorityClass, which only affects the order in the queue. Without it: the queue uses
    priorityClassName."""
    preemption_budget: Annotated[int, Field(ge=0, le=100)] = 10
    """How often a group's engine is relaunched after its queue, the scheduler or its node took it away."""
    runtime_class_name: ObjectName | None = None
    """Runtime class of the engine's pods. Part of every point's identity, because a sandbox affects performance."""
    engine_service_account_name: ObjectName | None = None
    """Service account of the engine's pods, for example with a cloud identity to download a model."""
    security_context: EngineSecurityContext | None = None
    """User and groups of the engine's pods. Without it: those of the image."""
    image_pull_secrets: Annotated[list[SecretRef], Field(max_length=8)] = []
    """Secrets with which images are pulled."""
    shared_memory: Quantity | None = None
    """Maximum size of /dev/shm, through which the GPUs of one pod communicate: `16Gi`. It counts towards the engine's
    memory. Without it: 32Gi, or less if the engine's memory is less."""
    model_cache: ModelCache | None = None
    """Volume with models from the hub, which one run fills and later ones read. Without it: each launch downloads the
    model again."""
    template: PodTemplate | None = None
    """What is added to the engine's pods, in the form of a PodTemplateSpec: labels, annotations, volumes, variables,
    CPU, memory and extended resources."""
    client: ClientPlacement = ClientPlacement()
    """Nodes, resources, service account and labels of the client's pods."""

    @property
    def devices(self) -> int:
        """Number of GPUs of one engine pod, whether requested or claimed."""
        return (self.gpus or 0) + self.claimed_gpus

    @property
    def engine_devices(self) -> int:
        """Number of GPUs of one engine, over all its nodes."""
        return self.devices * self.nodes
