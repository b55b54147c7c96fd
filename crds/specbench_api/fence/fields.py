"""The fields of a run's spec that the fence limits, and the allow-list of each.

The only list of them: the operator and `specbench validate` check a run with it, and hack/generate makes the admission
policy of the chart from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench_api.launch import llama_cpp, sglang, tensorrt_llm, vllm
from specbench_api.spec.pod_template import CORE_RESOURCES


@dataclass(frozen=True)
class FencedField:
    """A field whose values must match a pattern of an allow-list.

    `path`: relative to the run's spec, with the notation of `field_paths.values_at`. A field that is not set is
    allowed, except with `?`.
    `allow_list`: name of the list in the fence. `only_if`: path of a flag or number; the field is only checked if it is
    set, and neither false nor 0.
    """

    path: str
    allow_list: str
    only_if: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.path.split("."))


DEFAULT_REPOSITORIES = (vllm.IMAGE, sglang.IMAGE, tensorrt_llm.IMAGE, llama_cpp.DEFAULT_IMAGE.rpartition(":")[0])
"""Repositories of the engines' default images, which are always allowed, with any tag."""
TAG_OR_DIGEST = "(?::[^/:@]+)?(?:@.+)?"
"""Regular expression of what may follow the repository in an image."""

ALWAYS_ALLOWED: Mapping[str, tuple[str, ...]] = {"images": DEFAULT_REPOSITORIES, "extendedResources": CORE_RESOURCES}
"""Allow-list → what every fence allows besides."""
SUFFIXES: Mapping[str, str] = {"images": TAG_OR_DIGEST}
"""Allow-list → regular expression of what may follow a pattern of it."""

_TERMS = ("matchExpressions[].key", "matchFields[].key")
_AFFINITIES = ("placement.affinity", "placement.client.affinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_AFFINITIES = tuple(f"{path}.{kind}" for path in _AFFINITIES for kind in ("podAffinity", "podAntiAffinity"))
_NODE_AFFINITY_TERMS = tuple(
    f"{path}.nodeAffinity.{row}.{term}"
    for path in _AFFINITIES
    for row in (f"{_REQUIRED}.nodeSelectorTerms[]", f"{_PREFERRED}[].preference")
    for term in _TERMS
)
_CONTAINER = "placement.template.spec.containers[]"
_VOLUME = "placement.template.spec.volumes[]"
POD_AFFINITY_TERMS = tuple(
    f"{kind}.{term}" for kind in _POD_AFFINITIES for term in (f"{_REQUIRED}[]", f"{_PREFERRED}[].podAffinityTerm")
)
"""Where terms of pod affinity are."""
REFUSED_IN_POD_AFFINITY = ("namespaces", "namespaceSelector")
"""Fields of such a term that are always refused: they select pods of other namespaces."""

FENCED_FIELDS = (
    FencedField("engine.image", "images"),
    FencedField("engine.env[].name", "env"),
    FencedField("placement.client.serviceAccountName", "serviceAccounts"),
    FencedField("placement.engineServiceAccountName", "serviceAccounts"),
    FencedField("model.pvc.claimName", "claims"),
    FencedField("workloads[].dataset.pvc.claimName", "claims"),
    FencedField("workloads[].dataset.members[].pvc.claimName", "claims"),
    FencedField("placement.modelCache.claimName", "claims"),
    FencedField("placement.modelCache.claimName", "writableClaims", only_if="placement.modelCache.fill"),
    FencedField("placement.resourceClaimTemplateName", "resourceClaimTemplates"),
    FencedField("placement.priorityClassName", "priorityClasses"),
    FencedField("placement.runtimeClassName", "runtimeClasses"),
    FencedField("placement.nodeSelector{}", "nodeLabels"),
    FencedField("placement.client.nodeSelector{}", "nodeLabels"),
    *(FencedField(term, "nodeLabels") for term in _NODE_AFFINITY_TERMS),
    *(FencedField(f"{term}.topologyKey", "nodeLabels") for term in POD_AFFINITY_TERMS),
    FencedField("placement.tolerations[].key?", "tolerations"),
    FencedField("placement.client.tolerations[].key?", "tolerations"),
    FencedField("placement.gpuResourceName", "gpuResources", only_if="placement.gpus"),
    FencedField("placement.queueName", "queues"),
    FencedField("placement.queuePriorityClass", "queuePriorityClasses"),
    FencedField("placement.template.metadata.labels{=}", "podLabels"),
    FencedField("placement.template.metadata.annotations{=}", "podAnnotations"),
    FencedField("placement.client.template.metadata.labels{=}", "podLabels"),
    FencedField("placement.client.template.metadata.annotations{=}", "podAnnotations"),
    FencedField(f"{_CONTAINER}.env[].name", "env"),
    FencedField(f"{_CONTAINER}.env[].valueFrom.configMapKeyRef.name", "configMaps"),
    FencedField(f"{_CONTAINER}.resources.requests{{}}", "extendedResources"),
    FencedField(f"{_CONTAINER}.resources.limits{{}}", "extendedResources"),
    FencedField("placement.client.resources.requests{}", "extendedResources"),
    FencedField("placement.client.resources.limits{}", "extendedResources"),
    FencedField(f"{_CONTAINER}.securityContext.capabilities.add[]", "capabilities"),
    FencedField(f"{_VOLUME}.configMap.name", "configMaps"),
    FencedField(f"{_VOLUME}.persistentVolumeClaim.claimName", "claims"),
)

S3_ADDRESSES = (
    "model.uri",
    "model.tokenizer",
    "workloads[].dataset.uri",
    "workloads[].dataset.members[].uri",
    "workloads[].chatTemplate.tokenizer",
    "workloads[].chatTemplate.template",
    "load.arrival.uri",
    "gate.baselineRef.uri",
)
"""Fields that may name an object in S3, with the same notation of paths.

Clients read it at the endpoint and with the credentials of `results.s3`, so the fence must allow its bucket there.
"""
S3_SCHEME = "s3://"
