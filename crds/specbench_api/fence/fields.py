"""The fields of a run's spec that the fence limits, and the allow-list of each.

The only list of them: the operator and `specbench validate` check a run with it, and hack/generate makes the admission
policy of the chart from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench_api.launch import llama_cpp, sglang, tensorrt_llm, vllm


@dataclass(frozen=True)
class FencedField:
    """A field whose values must match a pattern of an allow-list.

    `path`: relative to the run's spec. `name[]` means every row of a list, `name{}` every key of a map, and `name?` a
    field that counts as empty text if it is not set; any other field that is not set is allowed.
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

_TERMS = ("matchExpressions[].key", "matchFields[].key")
_NODE_AFFINITY = "placement.affinity.nodeAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_AFFINITIES = ("placement.affinity.podAffinity", "placement.affinity.podAntiAffinity")
POD_AFFINITY_TERMS = tuple(
    f"{kind}.{term}" for kind in _POD_AFFINITIES for term in (f"{_REQUIRED}[]", f"{_PREFERRED}[].podAffinityTerm")
)
"""Where terms of pod affinity are."""
REFUSED_IN_POD_AFFINITY = ("namespaces", "namespaceSelector")
"""Fields of such a term that are always refused: they select pods of other namespaces."""

FENCED_FIELDS = (
    FencedField("engine.image", "images"),
    FencedField("engine.env[].name", "env"),
    FencedField("placement.serviceAccountName", "serviceAccounts"),
    FencedField("placement.engineServiceAccountName", "serviceAccounts"),
    FencedField("model.pvc.claimName", "claims"),
    FencedField("workloads[].dataset.pvc.claimName", "claims"),
    FencedField("workloads[].dataset.members[].pvc.claimName", "claims"),
    FencedField("placement.modelCache.claimName", "claims"),
    FencedField("placement.modelCache.claimName", "writableClaims", only_if="placement.modelCache.fill"),
    FencedField("placement.resourceClaimTemplateName", "resourceClaimTemplates"),
    FencedField("placement.priorityClassName", "priorityClasses"),
    FencedField("placement.runtimeClassName", "runtimeClasses"),
    FencedField("placement.schedulerName", "schedulers"),
    FencedField("placement.nodeSelector{}", "nodeLabels"),
    FencedField("placement.clientNodeSelector{}", "nodeLabels"),
    FencedField("placement.topologySpreadConstraints[].topologyKey", "nodeLabels"),
    *(FencedField(f"{_NODE_AFFINITY}.{_REQUIRED}.nodeSelectorTerms[].{term}", "nodeLabels") for term in _TERMS),
    *(FencedField(f"{_NODE_AFFINITY}.{_PREFERRED}[].preference.{term}", "nodeLabels") for term in _TERMS),
    *(FencedField(f"{term}.topologyKey", "nodeLabels") for term in POD_AFFINITY_TERMS),
    FencedField("placement.tolerations[].key?", "tolerations"),
    FencedField("placement.gpuResourceName", "gpuResources", only_if="placement.gpus"),
    FencedField("placement.queueName", "queues"),
    FencedField("placement.queuePriorityClass", "queuePriorityClasses"),
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


def values_at(node: Any, steps: Sequence[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each occurrence of a field below a node."""
    if not steps:
        yield path, node
        return
    name = steps[0].rstrip("[]{}?")
    child = node.get(name) if isinstance(node, Mapping) else None
    where = f"{path}.{name}" if path else name
    if steps[0].endswith("?"):
        yield where, "" if child is None else child
    elif steps[0].endswith("[]"):
        for row, item in enumerate(child if isinstance(child, list) else []):
            yield from values_at(item, steps[1:], f"{where}[{row}]")
    elif steps[0].endswith("{}"):
        yield from ((f"{where}[{key}]", key) for key in (child if isinstance(child, Mapping) else {}))
    elif child is not None:
        yield from values_at(child, steps[1:], where)
