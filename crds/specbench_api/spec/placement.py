"""`spec.placement`: on which nodes, with how many accelerators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from specbench_api.model import ApiModel, Rule, refuse_broken
from specbench_api.spec.kubernetes import QUALIFIED_NAME, LabelValue, ObjectName, QueueName, TaintKey

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
    )

    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """Accelerators an engine pod asks for."""
    gpu_resource_name: Annotated[str, Field(min_length=3, max_length=253, pattern=QUALIFIED_NAME)] = "nvidia.com/gpu"
    """Extended resource of the accelerator."""
    node_selector: NodeLabels = {}
    """Labels of the nodes of the GPU pool."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations of the engine's pods."""
    priority_class_name: ObjectName | None = None
    """Priority class of the engine's pods."""
    queue_name: QueueName | None = None
    """Kueue's LocalQueue, in the run's namespace, that admits each engine. The client, without a GPU, is not queued."""
    queue_priority_class: QueueName | None = None
    """Kueue's WorkloadPriorityClass, which orders the queue alone. Without it, the queue goes by priorityClassName."""
    preemption_budget: Annotated[int, Field(ge=0, le=100)] = 10
    """So often a group's engine may be taken away by its queue, the scheduler or its node, and is launched again."""
    service_account_name: ObjectName | None = None
    """Service account of the client's pods (cloud identity for S3)."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8)] = []
    """Secrets with which images are pulled."""
    engine_resources: Resources = Resources()
    """CPU and memory of the engine."""
    client_resources: Resources = Resources()
    """CPU and memory of the client. A starved client measures itself."""
    client_node_selector: NodeLabels = {}
    """Labels of the nodes where the client runs; best on the engine's network but not on its cores."""

    @model_validator(mode="after")
    def _coherent(self) -> Placement:
        name = self.gpu_resource_name
        extended = "kubernetes.io/" not in name and not name.startswith("requests.")
        refuse_broken(self.rules, (extended, not self.queue_priority_class or bool(self.queue_name)))
        return self
