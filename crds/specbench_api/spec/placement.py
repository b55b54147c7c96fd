"""`spec.placement`: on which nodes, with how many accelerators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from specbench_api.model import ApiModel

Quantity = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


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

    key: Annotated[str, Field(max_length=317)] | None = None
    """Taint key; without it, every taint."""
    operator: TolerationOperator = TolerationOperator.EQUAL
    """Exists or Equal."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Taint value, with Equal."""
    effect: TaintEffect | None = None
    """Which effect; without it, all."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """How long NoExecute is tolerated."""


class Resources(ApiModel):
    """CPU and memory, requested and limited alike, so that the pod is not throttled by its neighbours' luck."""

    cpu: Quantity | None = None
    """CPU cores, as Kubernetes writes them."""
    memory: Quantity | None = None
    """Memory, as Kubernetes writes it."""


class Placement(ApiModel):
    """Where the engine runs. The client runs beside it without GPUs."""

    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """Accelerators an engine pod asks for."""
    gpu_resource_name: Annotated[str, Field(min_length=3, max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")] = (
        "nvidia.com/gpu"
    )
    """Extended resource of the accelerator."""
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] = {}
    """Labels of the nodes of the GPU pool."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = []
    """Tolerations of the engine's pods."""
    priority_class_name: ObjectName | None = None
    """Priority class of the engine's pods."""
    service_account_name: ObjectName | None = None
    """Service account of the client's pods (cloud identity for S3)."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8)] = []
    """Secrets with which images are pulled."""
    engine_resources: Resources = Resources()
    """CPU and memory of the engine."""
    client_resources: Resources = Resources()
    """CPU and memory of the client. A starved client measures itself."""
    client_node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] = {}
    """Labels of the nodes where the client runs; best on the engine's network but not on its cores."""
