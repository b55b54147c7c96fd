"""Conflicts of `spec.placement.template` with what the operator sets, and rules that no schema can express.

The tables of this module are also what the operator renders: volumes, folders and annotations of an engine's pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import PurePosixPath

from specbench_api import GROUP
from specbench_api.errors import Problem
from specbench_api.launch.arguments import variable_problem
from specbench_api.launch.launcher import CONFIG_FOLDER, MODEL_MOUNT
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.patterns import DOMAIN_MAX, QUALIFIED_NAME, is_label_key
from specbench_api.spec.placement import Placement
from specbench_api.spec.pod_template import (
    CORE_RESOURCES,
    EngineContainer,
    PodTemplate,
    PodTemplateMetadata,
    ResourceRequirements,
)
from specbench_api.spec.run import RunSpec

HUB_TOKEN = "HF_TOKEN"  # noqa: S105 - the name of a variable
HUB_HOME = "HF_HOME"
HUB_CACHE = "HF_HUB_CACHE"
HUB_OFFLINE = "HF_HUB_OFFLINE"
CACHE_VARIABLES = (HUB_HOME, HUB_CACHE, HUB_OFFLINE)
"""Environment variables that spec.placement.modelCache sets."""
TOKENS = (HUB_TOKEN, "HUGGING_FACE_HUB_TOKEN", "HF_HUB_TOKEN")
"""Environment variables in which hub libraries look for a token."""
ENGINE_VARIABLES = ("HOME", "USER", *CACHE_VARIABLES, "LLAMA_CACHE", "LLAMA_ARG_OFFLINE", "LLAMA_OFFLINE")
"""Environment variables that the operator sets in some engine's container, besides those of the launchers."""
LWS_PREFIX = "LWS_"
"""Prefix of the environment variables that LeaderWorkerSet sets."""

CACHE_FOLDER = "/var/cache/specbench/hub"
"""Where the volume of `spec.placement.modelCache` is mounted."""
ENGINE_VOLUMES: Mapping[str, str] = {
    "shm": "/dev/shm",  # noqa: S108 - a mount, not a file
    "tmp": "/tmp",  # noqa: S108 - a mount, not a file
    "models": MODEL_MOUNT,
    "cache": CACHE_FOLDER,
    "config": CONFIG_FOLDER,
}
"""Volumes of an engine's pod → the folder where each is mounted."""
DO_NOT_DISRUPT: Mapping[str, str] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations that keep autoscalers from evicting the pod, because a lost measurement costs more than a node."""
JOB_LABELS = ("controller-uid", "job-name")
"""Labels without a prefix that Kubernetes sets on the pods of a Job."""

_TEMPLATE = "spec.placement.template"
_CONTAINER = f"{_TEMPLATE}.spec.containers[0]"
_RESERVED = re.compile(rf"^(?:.*\.)?(?:{re.escape(GROUP)}|kubernetes\.io|k8s\.io)/")
_QUEUES = re.compile(r"^(?:.*\.)?x-k8s\.io/")
"""Labels of queueing systems, which hand a pod over to them. Their annotations only place it (`podset-…topology`)."""
_FACTORS = {"m": Decimal("0.001"), "": Decimal(1)} | {
    f"{letter}{kind}": Decimal(base) ** power
    for kind, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("kMGT" if not kind else "KMGT", start=1)
}


def template_problems(spec: RunSpec, variables: Sequence[str]) -> list[Problem]:
    """Return all problems of the template and of resources. `variables`: names that the launches of the arms set."""
    placement = spec.placement
    found = [*_of_requirements("spec.placement.client.resources", placement.client.resources, ())]
    if placement.client.template is not None:
        found += _of_metadata("spec.placement.client.template", placement.client.template.metadata)
    template = placement.template
    if template is not None:
        found += _of_metadata(_TEMPLATE, template.metadata)
        found += _of_volumes(template)
        found += _of_variables(template.engine, {*variables, *spec.engine.environment}, spec.engine.kind)
        found += _of_engine_resources(placement, template.engine.resources)
    return found


def _of_metadata(where: str, metadata: PodTemplateMetadata) -> Iterator[Problem]:
    owned: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = {
        "labels": (metadata.labels, JOB_LABELS),
        "annotations": (metadata.annotations, tuple(DO_NOT_DISRUPT)),
    }
    for field, (given, names) in owned.items():
        for key in given:
            path = f"{where}.metadata.{field}[{key}]"
            if not is_label_key(key):
                yield Problem(path, f"{key!r} is not a valid key", "write a key like team or example.com/team")
            elif key in names or _RESERVED.match(key) or (field == "labels" and _QUEUES.match(key)):
                yield Problem(path, "is set by Kubernetes or specbench", "remove it")


def _of_volumes(template: PodTemplate) -> Iterator[Problem]:
    names = {volume.name: volume for volume in template.spec.volumes}
    for row, volume in enumerate(template.spec.volumes):
        if volume.name in ENGINE_VOLUMES:
            path = f"{_TEMPLATE}.spec.volumes[{row}].name"
            yield Problem(path, f"{volume.name!r} is a volume that specbench sets", "choose another name")
    for row, mount in enumerate(template.engine.volume_mounts):
        path = f"{_CONTAINER}.volumeMounts[{row}]"
        if mount.name not in names:
            message = f"the template has no volume {mount.name!r}"
            remedy = f"use one of {', '.join(names)}" if names else f"add it to {_TEMPLATE}.spec.volumes"
            yield Problem(f"{path}.name", message, remedy)
        for folder in ENGINE_VOLUMES.values():
            if _overlap(mount.mount_path, folder):
                message = f"{mount.mount_path} overlaps {folder}, which specbench mounts"
                yield Problem(f"{path}.mountPath", message, "choose another folder, such as /mnt/NAME")


def _overlap(one: str, other: str) -> bool:
    first, second = (PurePosixPath("/" + path.strip("/")) for path in (one, other))
    return first.is_relative_to(second) or second.is_relative_to(first)


def _of_variables(container: EngineContainer, launched: set[str], kind: EngineKind) -> Iterator[Problem]:
    for row, variable in enumerate(container.env):
        path, name = f"{_CONTAINER}.env[{row}].name", variable.name
        if problem := variable_problem(kind, name, path):
            yield problem
        if name in TOKENS:
            yield Problem(path, f"{name} is set by spec.model.tokenSecretRef", "name the Secret there")
        elif name in launched:
            message = f"{name} is also set by spec.engine.env, or by specbench for this engine"
            yield Problem(path, message, "remove one of them")
        elif name in ENGINE_VARIABLES or name.startswith(LWS_PREFIX):
            yield Problem(path, f"{name} is set by specbench or by LeaderWorkerSet", "remove it")


def _of_engine_resources(placement: Placement, given: ResourceRequirements) -> Iterator[Problem]:
    path = f"{_CONTAINER}.resources"
    yield from _of_requirements(path, given, (placement.gpu_resource_name,))


def _of_requirements(path: str, given: ResourceRequirements, gpus: Sequence[str]) -> Iterator[Problem]:
    """Check names, and the amounts that the API server would refuse."""
    for field, amounts in (("requests", given.requests), ("limits", given.limits)):
        for name, amount in amounts.items():
            where = f"{path}.{field}[{name}]"
            if name in gpus:
                yield Problem(where, "is set by spec.placement.gpus", "set gpus instead")
            elif not _is_resource(name):
                message = f"{name!r} is neither {', '.join(CORE_RESOURCES)} nor an extended resource"
                yield Problem(where, message, "write a device plugin's name, such as rdma/hca")
            elif name not in CORE_RESOURCES and amount_of(amount) % 1:
                yield Problem(where, f"{amount} is not a whole number", "write a whole number")
            elif field == "requests":
                yield from _of_request(where, name, amount, given.limits.get(name))


def _of_request(where: str, name: str, requested: str, limit: str | None) -> Iterator[Problem]:
    if name not in CORE_RESOURCES and (limit is None or amount_of(limit) != amount_of(requested)):
        yield Problem(where, "differs from the limit of this extended resource", "set only its limit")
    elif limit is not None and amount_of(requested) > amount_of(limit):
        yield Problem(where, f"{requested} is more than the limit {limit}", "request at most the limit")


def _is_resource(name: str) -> bool:
    """Return whether a container can have the resource. Names below kubernetes.io and requests. are reserved."""
    domain = name.partition("/")[0]
    extended = re.fullmatch(QUALIFIED_NAME[1:-1], name) is not None and len(domain) <= DOMAIN_MAX
    reserved = domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests.")
    return name in CORE_RESOURCES or (extended and not reserved)


def amount_of(quantity: str) -> Decimal:
    """Return the number that a Kubernetes quantity stands for."""
    number = quantity.rstrip("mkKMGTi")
    return Decimal(number) * _FACTORS[quantity[len(number) :]]
