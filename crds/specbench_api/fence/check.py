"""Checks a run's spec against the fence: the fields that it limits, and the allow-list of each.

The admission policy of the chart contains the same rules as CEL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_snake

from specbench_api.errors import Problem
from specbench_api.fence.model import Fence, matches
from specbench_api.launch import llama_cpp, sglang, tensorrt_llm, vllm
from specbench_api.launch.registry import with_gpus
from specbench_api.spec.field_paths import values_at
from specbench_api.spec.placement import PinNode, Placement
from specbench_api.spec.pod_template import CORE_RESOURCES
from specbench_api.spec.results import S3
from specbench_api.spec.run import RunSpec
from specbench_api.spec.store_endpoints import address_rule, refused_endpoint, store_access


def problems_of(
    spec: RunSpec, fence: Fence, *, namespace: str = "default", own_images: Sequence[str] = ()
) -> list[Problem]:
    """Return everything in a run's spec that the fence does not allow.

    `own_images`: repositories of specbench's image.
    """
    if not fence.enabled:
        return []
    spec = with_gpus(spec)
    data, s3 = spec.to_dict(), spec.results.s3 or fence.default_store
    return [
        *_of_lists(data, fence, own_images),
        *_of_pod_affinity(data),
        *_of_command(spec, fence),
        *(_of_store(s3, fence) if s3 else ()),
        *_of_endpoints(spec, fence, namespace),
        *(_of_addresses(data, s3, fence) if s3 else ()),
        *_of_limits(spec, fence),
        *_of_forced_queue(spec.placement, fence.force.queue_name),
    ]


def repository_of(image: str) -> str:
    """Return an image's name without its tag and digest."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


OWN_NAMESPACE = Problem(
    "metadata.namespace",
    "runs in the operator's own namespace could use its service account and Secrets",
    "use another namespace",
)
NO_STORE = Problem(
    "spec.results.s3",
    "is not set, and this cluster has no default store",
    "set it, or ask the administrator to set fence.defaultStore of the chart",
)


@dataclass(frozen=True, eq=False)
class FenceCheck:
    """The fence of an installed operator. It is compared by identity, so that it can be the key of a cache."""

    fence: Fence
    client_image: str
    """The installation's own image, which is always allowed."""
    operator_namespace: str = ""
    """Every run of this namespace is refused."""

    def problems_of(self, spec: RunSpec, namespace: str) -> list[Problem]:
        """Return everything in the spec of a run of this namespace that the fence does not allow."""
        own = bool(self.operator_namespace) and namespace == self.operator_namespace
        found = problems_of(spec, self.fence, namespace=namespace, own_images=[repository_of(self.client_image)])
        return [OWN_NAMESPACE, *found] if own and self.fence.enabled else found

    def problems_of_baseline(self, spec: RunSpec, location: str) -> list[Problem]:
        """Return why a run's gate must not read this baseline, which another run's status names."""
        return list(of_address("spec.gate.baselineRef", location, spec.results.store, self.fence))


def _of_lists(data: dict[str, Any], fence: Fence, own_images: Sequence[str]) -> Iterator[Problem]:
    for field in FENCED_FIELDS:
        if field.only_if and not any(flag for _, flag in values_at(data, field.only_if.split("."))):
            continue
        patterns = list(getattr(fence, to_snake(field.allow_list)))
        known = [*ALWAYS_ALLOWED.get(field.allow_list, ()), *(own_images if field.allow_list == "images" else ())]
        suffix = SUFFIXES.get(field.allow_list, "")
        for path, value in values_at(data, field.steps):
            if not matches(str(value), (*patterns, *known), suffix):
                yield _not_allowed(f"spec.{path}", str(value), field.allow_list, patterns)


def _not_allowed(path: str, value: str, allow_list: str, patterns: Sequence[str]) -> Problem:
    message = f"{value or 'an empty value'} is not allowed on this cluster (allowed: {', '.join(patterns) or 'none'})"
    remedy = f"use an allowed value, or ask the administrator to extend fence.{allow_list} of the chart"
    return Problem(path, message, remedy)


def _of_pod_affinity(data: dict[str, Any]) -> Iterator[Problem]:
    for term in POD_AFFINITY_TERMS:
        for field in REFUSED_IN_POD_AFFINITY:
            for path, _ in values_at(data, [*term.split("."), field]):
                message = "is not allowed on this cluster, because it selects pods of other namespaces"
                yield Problem(f"spec.{path}", message, "remove it")


def _of_command(spec: RunSpec, fence: Fence) -> Iterator[Problem]:
    if spec.engine.command is not None and not fence.commands:
        remedy = "remove it, or ask the administrator to set fence.commands: true"
        yield Problem("spec.engine.command", "is not allowed on this cluster", remedy)


def _of_store(s3: S3, fence: Fence) -> Iterator[Problem]:
    access = store_access(fence.stores, s3.endpoint, s3.bucket)
    if not access.allowed:
        yield _bucket_not_allowed("spec.results.s3", s3.bucket, s3, fence)
        return
    if refusal := refused_endpoint(s3.endpoint, access.addresses):
        remedy = "use the address of an S3 server, or ask the administrator to list the endpoint in fence.stores"
        yield Problem("spec.results.s3.endpoint", f"is refused on this cluster: {refusal}", remedy)
    if s3.credentials_secret_ref is None and not access.operator_identity:
        message = "is not set, and this store cannot be used with the operator's own identity"
        remedy = "set it, or ask the administrator to set operatorIdentity: true in fence.stores of the chart"
        yield Problem("spec.results.s3.credentialsSecretRef", message, remedy)


def _of_endpoints(spec: RunSpec, fence: Fence, namespace: str) -> Iterator[Problem]:
    """Report servers that clients must not send load to. Names are not resolved, because clients do that later."""
    for row, endpoint in enumerate(spec.engine.endpoints or ()):
        path, url = f"spec.engine.endpoints[{row}]", endpoint.in_namespace(namespace).address
        rule = address_rule(fence.endpoints, url)
        if rule is None:
            yield _not_allowed(path, url, "endpoints", fence.endpoints)
        elif refusal := refused_endpoint(url, rule):
            remedy = "use the address of an engine, or ask the administrator to list the URL in fence.endpoints"
            yield Problem(path, f"is refused on this cluster: {refusal}", remedy)


def _bucket_not_allowed(path: str, bucket: str, s3: S3, fence: Fence) -> Problem:
    allowed = [f"bucket {row.bucket} at {row.endpoint or 'AWS'}" for row in fence.stores]
    return _not_allowed(path, f"bucket {bucket} at {s3.endpoint or 'AWS'}", "stores", allowed)


def _of_addresses(data: dict[str, Any], s3: S3, fence: Fence) -> Iterator[Problem]:
    for field in S3_ADDRESSES:
        for path, address in values_at(data, field.split(".")):
            yield from of_address(f"spec.{path}", str(address), s3, fence)


def of_address(path: str, address: str, s3: S3, fence: Fence) -> Iterator[Problem]:
    """Report an address that clients of a run must not read. They read S3 at the endpoint of the run's results."""
    if address.startswith(S3_SCHEME):
        bucket = address.removeprefix(S3_SCHEME).partition("/")[0]
        if not store_access(fence.stores, s3.endpoint, bucket).allowed:
            yield _bucket_not_allowed(path, bucket, s3, fence)


def _of_limits(spec: RunSpec, fence: Fence) -> Iterator[Problem]:
    limits = fence.limits
    given = (
        ("placement", "gpus", spec.placement.engine_devices, limits.gpus),
        ("", "activeDeadlineSeconds", spec.active_deadline_seconds, limits.active_deadline_seconds),
        ("", "ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, limits.ttl_seconds_after_finished),
    )
    for holder, name, value, limit in given:
        if 0 < limit < value:
            path = ".".join(["spec", *([holder] if holder else []), name])
            message = f"{value} exceeds this cluster's limit of {limit}"
            remedy = f"use at most {limit}, or ask the administrator to raise fence.limits.{name}"
            yield Problem(path, message, remedy)


def _of_forced_queue(placement: Placement, queue: str) -> Iterator[Problem]:
    """Report what a queue does not support: the rule of spec.placement, for the queue that the fence forces."""
    if queue and placement.pin_node is PinNode.REQUIRE:
        reason = f"Require is not possible on this cluster, where every engine is admitted by the queue {queue}"
        yield Problem("spec.placement.pinNode", reason, "set pinNode: Prefer")


# The fields of a run's spec that the fence limits, and the allow-list of each.
#
# The only list of them: the operator and `specbench validate` check a run with it, and hack/generate makes the
# admission policy of the chart from it.


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
