"""Campaigns whose axes or include rows name Secrets: edits to refuse, with the path of the problem, and to accept.

The tests of `specbench validate` and those of the admission policy use the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Edits = Mapping[str, Any]

TEMPLATE = {
    "spec.template.spec.results.s3.credentialsSecretRef": {"name": "mine"},
    "spec.template.spec.model.tokenSecretRef": {"name": "hub"},
    "spec.template.spec.placement.imagePullSecrets": [{"name": "registry"}],
    "spec.template.spec.placement.template": {
        "spec": {
            "volumes": [{"name": "keys", "secret": {"secretName": "engine"}}],
            "containers": [
                {
                    "name": "engine",
                    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "engine", "key": "a"}}}],
                }
            ],
        }
    },
}
_KEY = {"name": "other", "key": "a"}
_VARIABLE = {"name": "B", "valueFrom": {"secretKeyRef": _KEY}}
_VOLUME = {"name": "more", "secret": {"secretName": "other"}}
_POD = "placement.template.spec"
S3 = {"bucket": "results"}


def axis(path: str, *values: Any) -> dict[str, Any]:
    """A campaign with one axis, and a template that names Secrets."""
    return {**TEMPLATE, "spec.axes": [{"path": path, "name": "x", "values": list(values)}]}


def include(**row: Any) -> dict[str, Any]:
    """A campaign with one include row, and a template that names Secrets."""
    return {**TEMPLATE, "spec.include": [row]}


REFUSED: list[tuple[Edits, str]] = [
    (axis("results.s3.credentialsSecretRef", "other"), "spec.axes[0].path"),
    (axis("results.s3.credentialsSecretRef", "mine"), "spec.axes[0].path"),
    (axis('results["s3"].credentialsSecretRef', "other"), "spec.axes[0].path"),
    (axis('results[s3]["credentialsSecretRef"]', "other"), "spec.axes[0].path"),
    (axis("model.tokenSecretRef", {"name": "other"}), "spec.axes[0].path"),
    (axis("model.tokenSecretRef.name", "other"), "spec.axes[0].path"),
    (axis("placement.imagePullSecrets", ["other"]), "spec.axes[0].path"),
    (axis("placement.imagePullSecrets[0]", "other"), "spec.axes[0].path"),
    (axis("results.s3", S3, {**S3, "credentialsSecretRef": {"name": "other"}}), "spec.axes[0].values[1]"),
    (axis("results", {"s3": {**S3, "credentialsSecretRef": {"name": "other"}}}), "spec.axes[0].values[0]"),
    (axis("model", {"name": "m", "tokenSecretRef": {"name": "other"}}), "spec.axes[0].values[0]"),
    (axis("placement", {"imagePullSecrets": [{"name": "registry"}, {"name": "other"}]}), "spec.axes[0].values[0]"),
    (include(engine="vllm", set={"results.s3.credentialsSecretRef": {"name": "other"}}), "spec.include[0].set"),
    (include(engine="vllm", set={".results..s3[credentialsSecretRef]": "other"}), "spec.include[0].set"),
    (include(engine="vllm", set={"model.tokenSecretRef.name": "other"}), "spec.include[0].set"),
    (
        include(engine="vllm", set={"results": {"s3": {**S3, "credentialsSecretRef": {"name": "other"}}}}),
        "spec.include[0].set[results]",
    ),
    (
        {
            **axis("model", {"name": "m"}),
            "spec.include": [{"x": {"name": "n", "tokenSecretRef": {"name": "other"}}}],
        },
        "spec.include[0].x",
    ),
    (axis(f"{_POD}.volumes[0].secret.secretName", "other"), "spec.axes[0].path"),
    (axis(f"{_POD}.containers[0].env[0].valueFrom.secretKeyRef.name", "other"), "spec.axes[0].path"),
    (axis('placement["template"][spec].volumes[0][secret][secretName]', "other"), "spec.axes[0].path"),
    (axis(f"{_POD}.volumes[0].secret", {"secretName": "other"}), "spec.axes[0].values[0]"),
    (axis(f"{_POD}.volumes[0]", _VOLUME), "spec.axes[0].values[0]"),
    (axis(f"{_POD}.volumes", [], [_VOLUME]), "spec.axes[0].values[1]"),
    (axis('placement["template"].spec', {"volumes": [_VOLUME]}), "spec.axes[0].values[0]"),
    (axis(f"{_POD}.containers[0].env[0].valueFrom", {"secretKeyRef": _KEY}), "spec.axes[0].values[0]"),
    (axis(f"{_POD}.containers", [{"name": "engine", "env": [_VARIABLE]}]), "spec.axes[0].values[0]"),
    (axis("placement.template", {"spec": {"volumes": [_VOLUME]}}), "spec.axes[0].values[0]"),
    (axis("placement", {"gpus": 0, "template": {"spec": {"volumes": [_VOLUME]}}}), "spec.axes[0].values[0]"),
    (include(engine="vllm", set={f"{_POD}.volumes": [_VOLUME]}), f"spec.include[0].set[{_POD}.volumes]"),
    (
        include(engine="vllm", set={".placement..template[spec].volumes": [_VOLUME]}),
        "spec.include[0].set[.placement..template[spec].volumes]",
    ),
    (include(engine="vllm", set={"placement": {"template": {"spec": {}}}}), "spec.include[0].set[placement]"),
    (
        {**axis(f"{_POD}.volumes[0].name", "keys"), "spec.include": [{"x": [_VOLUME]}]},
        "spec.include[0].x",
    ),
]
ACCEPTED: list[Edits] = [
    axis("load.repeats", 1, 2),
    axis("results.s3.prefix", "a", "b"),
    axis("results", {"s3": S3}),
    axis("results", {"s3": {**S3, "credentialsSecretRef": {"name": "mine"}}}),
    axis("results.s3", {**S3, "credentialsSecretRef": None}),
    axis("model", {"name": "m"}, {"name": "n", "tokenSecretRef": {"name": "hub"}}),
    axis("placement", {"imagePullSecrets": [{"name": "registry"}]}, {"imagePullSecrets": []}),
    include(engine="vllm", set={"load.repeats": 3}),
    axis(f"{_POD}.containers[0].resources.limits.memory", "8Gi", "16Gi"),
    axis('placement.template.metadata.annotations["k8s.v1.cni.cncf.io/networks"]', "a", "b"),
    axis("placement", {"gpus": 1}, {"template": None}),
    axis("workloads[0].chatTemplate", {"appliedBy": "Client", "template": "a"}),
]
