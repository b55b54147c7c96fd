"""`spec.placement.template`: what users may add to the engine's pods, in the form of a PodTemplateSpec.

The fields are a closed list: those that a benchmark needs and that give a pod no more rights than Pod Security level
`baseline` allows, except for the capability IPC_LOCK. The operator sets everything else, and its fields always win.
plan/template_conflicts.py reports conflicts with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from specbench_api.api_model import ApiModel, IntOrString, KeyedBy, RuledModel, ValidationRule
from specbench_api.spec.engine import VariableName
from specbench_api.spec.patterns import (
    DNS_LABEL,
    LEADS_OUT,
    LabelValue,
    ObjectName,
    SecretKey,
    SubPath,
    leads_out,
)

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
Quantity = Annotated[str, Field(min_length=1, max_length=32, pattern=QUANTITY)]
CORE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""Resources of every node; all others are extended resources."""
Amounts = Annotated[dict[str, Annotated[Quantity, IntOrString()]], Field(max_length=16)]
"""Amounts by resource name. The names are validated in planning."""


class ResourceRequirements(ApiModel):
    """Resources of a container, as in `resources` of a container in a PodSpec.

    If a resource has a limit and no request, Kubernetes requests the limit.
    """

    requests: Amounts = {}
    """Amounts that are reserved: `{cpu: "8", memory: 64Gi}`."""
    limits: Amounts = {}
    """Maximum amounts: `{cpu: "8", memory: 64Gi, rdma/hca: 1}`."""


class KeyReference(ApiModel):
    """A key of a Secret or ConfigMap in the run's namespace."""

    name: ObjectName
    """Name of the object."""
    key: SecretKey
    """Key of the object."""


class PodField(StrEnum):
    """Fields of a pod that a variable may contain."""

    NAME = "metadata.name"
    NAMESPACE = "metadata.namespace"
    UID = "metadata.uid"
    NODE_NAME = "spec.nodeName"
    HOST_IP = "status.hostIP"
    POD_IP = "status.podIP"
    POD_IPS = "status.podIPs"


class FieldReference(ApiModel):
    """A field of the pod."""

    field_path: PodField
    """Path of the field: `status.podIP`."""


class VariableSource(RuledModel):
    """Where the value of a variable comes from: exactly one of the fields."""

    rules: ClassVar = (
        ValidationRule(
            "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
            "set exactly one of valueFrom.secretKeyRef, valueFrom.configMapKeyRef and valueFrom.fieldRef",
            lambda source: (
                sum(each is not None for each in (source.secret_key_ref, source.config_map_key_ref, source.field_ref))
                == 1
            ),
        ),
    )

    secret_key_ref: KeyReference | None = None
    """Key of a Secret. The Secret needs the label `specbench.io/use: engine`, and whoever applies the run needs the
    right to get it."""
    config_map_key_ref: KeyReference | None = None
    """Key of a ConfigMap."""
    field_ref: FieldReference | None = None
    """Field of the pod."""


class ReferencedVariable(ApiModel):
    """One environment variable whose value is in the cluster. `spec.engine.env` has those with a plain value."""

    name: VariableName
    """Name of the variable: `NCCL_TOPO_FILE`."""
    value_from: VariableSource
    """Where its value comes from."""

    @model_validator(mode="before")
    @classmethod
    def _reject_plain_value(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "value" in data:
            raise ValueError("value is not supported here: set plain values in spec.engine.env")
        return data


class MountPoint(RuledModel):
    """Where a volume of the template is mounted, as in `volumeMounts` of a container."""

    rules: ClassVar = (
        ValidationRule(
            f"!self.mountPath.matches('{LEADS_OUT}')",
            "mountPath contains ..: write the folder itself",
            lambda mount: not leads_out(mount.mount_path),
        ),
        ValidationRule(
            f"!has(self.subPath) || !self.subPath.matches('{LEADS_OUT}')",
            "subPath leaves the volume through ..: write a folder inside it",
            lambda mount: not leads_out(mount.sub_path),
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """Name of the volume in `spec.volumes` of the template."""
    mount_path: Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^:]+$")]
    """Folder in the container: `/etc/nccl`."""
    sub_path: SubPath | None = None
    """File or folder of the volume. Without it: the whole volume."""
    read_only: bool = False
    """true: the container cannot write to it. Only an emptyDir is writable."""


class ConfigMapVolume(ApiModel):
    """A volume with a file for each key of a ConfigMap."""

    name: ObjectName
    """Name of the ConfigMap."""


class SecretVolume(ApiModel):
    """A volume with a file for each key of a Secret."""

    secret_name: ObjectName
    """Name of the Secret. It needs the label `specbench.io/use: engine`, and whoever applies the run needs the right to
    get it."""


class ClaimVolume(RuledModel):
    """A PersistentVolumeClaim, which is always mounted read-only."""

    rules: ClassVar = (
        ValidationRule(
            "!has(self.readOnly) || self.readOnly",
            "persistentVolumeClaim.readOnly: claims of the template are mounted read-only: remove the field, use an"
            " emptyDir, or use placement.modelCache to store models",
            lambda claim: claim.read_only,
        ),
    )

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim."""
    read_only: bool = True
    """Must be true."""


class Medium(StrEnum):
    """Where an emptyDir is stored."""

    NODE = ""
    MEMORY = "Memory"


class EmptyDirVolume(ApiModel):
    """A volume that exists as long as the pod."""

    medium: Medium = Medium.NODE
    """Memory: in memory, which counts towards the engine's memory. Empty: on the node's disk."""
    size_limit: Annotated[Quantity, IntOrString()]
    """Maximum size: `16Gi`. It is required, because a full disk affects other pods of the node."""


class Volume(RuledModel):
    """A volume of the engine's pods: a name, and exactly one source."""

    rules: ClassVar = (
        ValidationRule(
            "[has(self.configMap), has(self.secret), has(self.persistentVolumeClaim), has(self.emptyDir)]"
            ".filter(x, x).size() == 1",
            "set exactly one of configMap, secret, persistentVolumeClaim and emptyDir",
            lambda volume: (
                sum(
                    each is not None
                    for each in (volume.config_map, volume.secret, volume.persistent_volume_claim, volume.empty_dir)
                )
                == 1
            ),
        ),
    )
    remedies: ClassVar = {
        "hostPath": "not supported: use a persistentVolumeClaim bound to a local PersistentVolume",
    }

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """Name, to which volumeMounts refer."""
    config_map: ConfigMapVolume | None = None
    """Files from a ConfigMap."""
    secret: SecretVolume | None = None
    """Files from a Secret."""
    persistent_volume_claim: ClaimVolume | None = None
    """Data of a claim."""
    empty_dir: EmptyDirVolume | None = None
    """An empty folder."""


class Capability(StrEnum):
    """Linux capabilities that an engine may get."""

    IPC_LOCK = "IPC_LOCK"


class Capabilities(ApiModel):
    """Linux capabilities of the engine's container. All others are dropped."""

    add: Annotated[list[Capability], Field(max_length=1)] = []
    """IPC_LOCK: the engine may lock memory, which RDMA needs if the node limits it. Only namespaces with the Pod
    Security level `privileged` accept such a pod, and it has an effect only if the engine runs as root."""


class ContainerSecurityContext(ApiModel):
    """Security context of the engine's container."""

    remedies: ClassVar = {
        "privileged": "not supported: request devices as resources, such as rdma/hca, or add the capability IPC_LOCK",
        **{
            name: f"set placement.securityContext.{name}"
            for name in ("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup")
        },
    }

    capabilities: Capabilities = Capabilities()
    """Capabilities of the container."""


ONE_CONTAINER = "only the container engine is supported; sidecars are not"


class EngineContainer(ApiModel):
    """What is added to the engine's container."""

    remedies: ClassVar = {
        "name": ONE_CONTAINER,
        **{name: f"set engine.{name}" for name in ("image", "command", "args")},
    }

    name: Literal["engine"]
    """Name of the container, which is always `engine`."""
    env: Annotated[list[ReferencedVariable], Field(max_length=16), KeyedBy("name")] = []
    """Variables whose values are in Secrets, ConfigMaps or the pod."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and extended resources. GPUs are set by `placement.gpus`. Without it: neither CPU nor memory is
    requested or limited, because they depend on the model."""
    volume_mounts: Annotated[list[MountPoint], Field(max_length=16), KeyedBy("mount_path")] = []
    """Where volumes of the template are mounted."""
    security_context: ContainerSecurityContext = ContainerSecurityContext()
    """Capabilities."""


class PodTemplateMetadata(ApiModel):
    """Labels and annotations of pods. Keys are validated in planning."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=16)] = {}
    """Labels: `{sidecar.istio.io/inject: "false"}`. Keys of Kubernetes and of specbench are refused."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=16)] = {}
    """Annotations: `{k8s.v1.cni.cncf.io/networks: rdma-net}`. Keys of Kubernetes and of specbench are refused."""


SECRETS_MAX = 8
"""Maximum number of Secrets that one template names: the admission policy checks the requester's right to each."""


class EnginePodSpec(RuledModel):
    """What is added to the PodSpec of the engine's pods."""

    rules: ClassVar = (
        ValidationRule(
            "(has(self.volumes) ? self.volumes.filter(v, has(v.secret)).size() : 0) + (has(self.containers) ?"
            " self.containers.map(c, has(c.env) ? c.env.filter(e, has(e.valueFrom.secretKeyRef)).size() : 0).sum() : 0)"
            f" <= {SECRETS_MAX}",
            f"the template names a Secret more than {SECRETS_MAX} times in volumes and env: mount one Secret with"
            " several keys as a volume",
            lambda pod: (
                sum(volume.secret is not None for volume in pod.volumes)
                + sum(row.value_from.secret_key_ref is not None for each in pod.containers for row in each.env)
                <= SECRETS_MAX
            ),
        ),
    )
    remedies: ClassVar = {
        "containers": ONE_CONTAINER,
        "initContainers": ONE_CONTAINER,
        "hostNetwork": "not supported: add a network with an annotation such as k8s.v1.cni.cncf.io/networks",
        "serviceAccountName": "set placement.engineServiceAccountName",
        **{
            name: f"set placement.{name}"
            for name in (
                "nodeSelector",
                "tolerations",
                "affinity",
                "priorityClassName",
                "runtimeClassName",
                "securityContext",
                "imagePullSecrets",
            )
        },
    }

    volumes: Annotated[list[Volume], Field(max_length=16), KeyedBy("name")] = []
    """Volumes: ConfigMaps, Secrets, claims (read-only) and empty folders."""
    containers: Annotated[list[EngineContainer], Field(max_length=1), KeyedBy("name")] = []
    """The container `engine`. Other containers are not supported."""


class ClientPodTemplate(ApiModel):
    """What is added to the client's pods, in the form of a PodTemplateSpec.

    It is part of every point's identity, because a sidecar affects what is measured.
    """

    metadata: PodTemplateMetadata = PodTemplateMetadata()
    """Labels and annotations."""


class PodTemplate(ApiModel):
    """What is added to the engine's pods, in the form of a PodTemplateSpec.

    All of it is part of every point's identity, because a network, a sidecar or a resource affects what is measured.
    """

    metadata: PodTemplateMetadata = PodTemplateMetadata()
    """Labels and annotations."""
    spec: EnginePodSpec = EnginePodSpec()
    """Volumes and the engine's container."""

    @property
    def engine(self) -> EngineContainer:
        """What is added to the engine's container."""
        return self.spec.containers[0] if self.spec.containers else EngineContainer(name="engine")


# `placement.securityContext`, which is a field of its own.

UserId = Annotated[int, Field(ge=0, le=2**31 - 1)]


class EngineSecurityContext(RuledModel):
    """The user and groups of the engine's pods, as in `spec.securityContext` of a pod.

    Everything else of their security context is fixed: no capabilities except those of `template`, no privilege
    escalation, and the seccomp profile RuntimeDefault.
    """

    rules: ClassVar = (
        ValidationRule(
            "!has(self.runAsNonRoot) || !self.runAsNonRoot || !has(self.runAsUser) || self.runAsUser != 0",
            "securityContext.runAsUser 0 is root, which runAsNonRoot excludes: set another user, or remove"
            " runAsNonRoot",
            lambda context: not context.run_as_non_root or context.run_as_user != 0,
        ),
    )

    run_as_user: UserId | None = None
    """User ID. Without it: the image's user. The how-to about restricted namespaces lists the users that each engine's
    image supports."""
    run_as_group: UserId | None = None
    """Primary group ID. Without it: the image's group."""
    run_as_non_root: bool | None = None
    """true: the pod does not start as root. Pod Security level `restricted` requires it. Without it: true only for
    specbench's own image (kind simulator)."""
    fs_group: UserId | None = None
    """Group ID that owns the pod's volumes, so that another user than root can write to a model cache."""
