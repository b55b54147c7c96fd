"""Fields that all children share: labels, the owner reference, pod security and resources.

The owner reference is the only clean-up: the garbage collector of Kubernetes deletes the children of a deleted run,
also while the operator is down. There is no finalizer, because one that nobody removes would block the deletion
forever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specbench_api import API_VERSION
from specbench_api.plan.names import (
    LABEL_ARM,
    LABEL_ATTEMPT,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_ROLE,
    LABEL_RUN,
    LABEL_RUN_UID,
    MANAGER,
)
from specbench_api.plan.template_conflicts import DO_NOT_DISRUPT, HUB_TOKEN
from specbench_api.spec.pod_template import (
    CORE_RESOURCES,
    EngineSecurityContext,
    PodTemplateMetadata,
    ResourceRequirements,
)
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_api.spec.secret_refs import API_KEY_VARIABLE
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ChildKey

Manifest = dict[str, Any]

RESTRICTED_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of containers with specbench's own image: Pod Security level `restricted`."""

ENGINE_SECURITY: Mapping[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Security context of engine images, which write caches to their own file system.

A pod with it meets Pod Security level `restricted` if it also has `runAsNonRoot`, from placement.securityContext.
"""


REPORT_RESOURCES: Mapping[str, Mapping[str, str]] = {
    "requests": {"cpu": "100m", "memory": "512Mi"},
    "limits": {"cpu": "2", "memory": "4Gi"},
}
"""Resources of report and gate Jobs, which measure nothing, so they may share their cores.

A report on a million requests uses 387 MiB (benchmarks/README.md); texts and several million requests need more.
"""


def metadata(run: SpecBenchRun, name: str, key: ChildKey, arm: str | None = None) -> Manifest:
    """The metadata of a child: name, namespace, labels and owner reference."""
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": labels(run, key, arm),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": run.kind,
                "name": run.metadata.name,
                "uid": run.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def labels(run: SpecBenchRun, key: ChildKey, arm: str | None = None) -> dict[str, str]:
    """The labels of a child, by which the operator finds it and people select it."""
    return {
        "app.kubernetes.io/name": "specbench",
        "app.kubernetes.io/component": key.role,
        LABEL_MANAGED: MANAGER,
        LABEL_RUN: run.metadata.name,
        **selector(run, key),
        **({LABEL_ARM: arm} if arm is not None else {}),
    }


def pod_metadata(own: Mapping[str, str], added: PodTemplateMetadata | None, *, disruptable: bool = False) -> Manifest:
    """Labels and annotations of a pod, with those of the run's template. The operator's `own` labels win.

    `disruptable`: whether autoscalers may evict the pod, which costs nothing if it can be repeated.
    """
    added = added or PodTemplateMetadata()
    annotations = {**added.annotations, **({} if disruptable else DO_NOT_DISRUPT)}
    return {"labels": {**added.labels, **own}, **({"annotations": annotations} if annotations else {})}


def selector(run: SpecBenchRun, key: ChildKey) -> dict[str, str]:
    """The labels that identify the pods of one launch."""
    return {
        LABEL_RUN_UID: run.metadata.uid,
        LABEL_ROLE: key.role,
        **({LABEL_GROUP: str(key.group)} if key.group is not None else {}),
        **({LABEL_ATTEMPT: str(key.attempt)} if key.attempt is not None else {}),
    }


def pod_security(*, ours: bool) -> Manifest:
    """Pod-level security context. No user ID is set: specbench's image has one, and OpenShift assigns another."""
    return {**({"runAsNonRoot": True} if ours else {}), "seccompProfile": {"type": "RuntimeDefault"}}


def engine_pod_security(chosen: EngineSecurityContext | None, *, ours: bool) -> Manifest:
    """Pod-level security context of an engine, with the user and groups of placement.securityContext."""
    fields = chosen.to_dict() if chosen else {}
    # Without this policy, every launch would change the group of every file of a model cache.
    policy = {"fsGroupChangePolicy": "OnRootMismatch"} if "fsGroup" in fields else {}
    return {**pod_security(ours=ours), **fields, **policy}


def shared_pod_fields(run: SpecBenchRun, *, ours: bool, grace_s: int) -> Manifest:
    """The fields that every PodSpec of a run has. `ours`: whether the pod runs specbench's own image."""
    secrets = [secret.to_dict() for secret in run.spec.placement.image_pull_secrets]
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": pod_security(ours=ours),
        **({"imagePullSecrets": secrets} if secrets else {}),
    }


def resource_requirements(
    chosen: ResourceRequirements,
    extra: Mapping[str, str] | None = None,
    defaults: Mapping[str, Mapping[str, str]] | None = None,
) -> Manifest:
    """The resources of a container.

    `extra`: amounts that are both requested and limited. `defaults`: requests and limits of resources of which
    `chosen` sets neither. Without a request, the limit is requested.
    """
    given = {"requests": {**chosen.limits, **chosen.requests}, "limits": chosen.limits}
    names = {*chosen.limits, *chosen.requests}
    found: Manifest = {}
    for kind, amounts in given.items():
        default = {name: amount for name, amount in (defaults or {}).get(kind, {}).items() if name not in names}
        merged = {**default, **amounts, **(extra or {})}
        found[kind] = {name: merged[name] for name in sorted(merged, key=_order_of_resources)}
    return {"resources": {kind: amounts for kind, amounts in found.items() if amounts}} if any(found.values()) else {}


def _order_of_resources(name: str) -> tuple[int, str]:
    return (CORE_RESOURCES.index(name) if name in CORE_RESOURCES else len(CORE_RESOURCES), name)


def client_requirements(run: SpecBenchRun, settings: OperatorSettings) -> Manifest:
    """Resources of a measuring client: those of the run, else the operator's defaults. The pod is then Guaranteed."""
    own = {"cpu": settings.client_cpu, "memory": settings.client_memory}
    amounts = {name: amount for name, amount in own.items() if amount != "0"}
    defaults = {"requests": amounts, "limits": amounts}
    return resource_requirements(run.spec.placement.client.resources, defaults=defaults)


def report_requirements(run: SpecBenchRun) -> Manifest:
    """Resources of a report or gate Job: those of the run's client if it sets them, else REPORT_RESOURCES."""
    return resource_requirements(run.spec.placement.client.resources, defaults=REPORT_RESOURCES)


def empty_dir(name: str, size_limit: str, medium: str | None = None) -> Manifest:
    """An emptyDir volume, which exists as long as its pod. A pod that writes more is evicted (in memory: ENOSPC)."""
    return {"name": name, "emptyDir": {**({"medium": medium} if medium else {}), "sizeLimit": size_limit}}


_REFERENCE = re.compile(r"\$(?=[$(])(?!\(LWS_(?:LEADER_ADDRESS|WORKER_INDEX)\))")
"""A `$` with a meaning in commands and variables, except in the two references that launchers write."""


def literal(text: str) -> str:
    """The text for a container's command, arguments or variables, in which Kubernetes expands `$(NAME)`.

    Otherwise an argument `$(HF_TOKEN)` would put the token into the command line, which the results contain.
    """
    return _REFERENCE.sub("$$", text)


def hub_token(spec: RunSpec) -> list[Manifest]:
    """The variable with the hub token, as a reference to its Secret; empty if the run names no Secret."""
    token = spec.model.token_secret_ref
    return [_from_secret(HUB_TOKEN, token.name, token.key)] if token else []


def api_key(spec: RunSpec) -> list[Manifest]:
    """The variable with the API key of running servers, as a reference to its Secret; empty if the run names none."""
    secret = spec.engine.api_key_secret_ref
    return [_from_secret(API_KEY_VARIABLE, secret.name, secret.key)] if secret else []


def _from_secret(variable: str, name: str, key: str) -> Manifest:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
