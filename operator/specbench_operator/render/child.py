"""What all children share: names, labels, the owner, and the security of pods.

The owner reference is the whole of our clean-up: Kubernetes' own garbage collector frees the GPUs of a deleted run,
also while the operator is dead, so there is no finalizer that could block for ever.
"""

from __future__ import annotations

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
from specbench_api.plan.placing import HUB_TOKEN
from specbench_api.spec.placement import Resources
from specbench_api.spec.run import RunSpec, SpecBenchRun
from specbench_operator.state.child import Place

Manifest = dict[str, Any]

STAY_PUT: Mapping[str, str] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""A pod that is moved to save a node spoils a measurement that costs more than the node."""

OURS: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Container security of our own image: Pod Security `restricted`."""

THEIRS: Mapping[str, Any] = {"allowPrivilegeEscalation": False}
"""Of an engine's image, whose user and file system are not ours to choose: `baseline`."""


def metadata(run: SpecBenchRun, name: str, place: Place, arm: str | None = None) -> Manifest:
    """Name, namespace, labels and owner of a child."""
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": labels(run, place, arm),
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


def labels(run: SpecBenchRun, place: Place, arm: str | None = None) -> dict[str, str]:
    """What a child is found by, and what people select by."""
    return {
        "app.kubernetes.io/name": "specbench",
        "app.kubernetes.io/component": place.role,
        LABEL_MANAGED: MANAGER,
        LABEL_RUN: run.metadata.name,
        **selector(run, place),
        **({LABEL_ARM: arm} if arm is not None else {}),
    }


def selector(run: SpecBenchRun, place: Place) -> dict[str, str]:
    """The labels that tell one launch's pods from all others."""
    return {
        LABEL_RUN_UID: run.metadata.uid,
        LABEL_ROLE: place.role,
        **({LABEL_GROUP: str(place.group)} if place.group is not None else {}),
        **({LABEL_ATTEMPT: str(place.attempt)} if place.attempt is not None else {}),
    }


def pod_security(*, ours: bool) -> Manifest:
    """Pod-level security. No user is named: our image has its own number, and OpenShift gives another."""
    return {**({"runAsNonRoot": True} if ours else {}), "seccompProfile": {"type": "RuntimeDefault"}}


def same_for_all(run: SpecBenchRun, *, ours: bool, grace_s: int) -> Manifest:
    """The part of a PodSpec that every pod of a run has."""
    secrets = [{"name": name} for name in run.spec.placement.image_pull_secrets]
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": pod_security(ours=ours),
        **({"imagePullSecrets": secrets} if secrets else {}),
    }


def limits(resources: Resources, extra: Mapping[str, str] | None = None) -> Manifest:
    """Requests equal to limits: a pod throttled by its neighbours' luck measures its neighbours."""
    named = {"cpu": resources.cpu, "memory": resources.memory}
    asked = {name: value for name, value in named.items() if value is not None} | dict(extra or {})
    return {"resources": {"requests": asked, "limits": dict(asked)}} if asked else {}


def empty_dir(name: str, medium: str | None = None) -> Manifest:
    """A volume that lives as long as its pod."""
    return {"name": name, "emptyDir": {"medium": medium} if medium else {}}


def hub_token(spec: RunSpec) -> list[Manifest]:
    """The variable that holds the token, by reference alone, so that no manifest of ours holds it; none without one."""
    token = spec.model.token_secret
    return [{"name": HUB_TOKEN, "valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}}] if token else []
