"""A fence, and runs that it allows or refuses: the same tables for the operator's check and the admission policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Edits = Mapping[str, Any]

FENCE: dict[str, Any] = {
    "enabled": True,
    "secretsOptIn": False,
    "images": ["registry.example/team/*", "registry.example/one"],
    "commands": False,
    "env": ["VLLM_*", "OMP_NUM_THREADS"],
    "serviceAccounts": ["bench-*"],
    "claims": ["models", "prompts-*", "cache"],
    "writableClaims": ["cache"],
    "resourceClaimTemplates": ["gpu"],
    "priorityClasses": ["low"],
    "runtimeClasses": [],
    "schedulers": [],
    "nodeLabels": ["nvidia.com/*", "topology.kubernetes.io/zone"],
    "tolerations": ["nvidia.com/gpu"],
    "gpuResources": ["nvidia.com/*"],
    "queues": ["team-*"],
    "queuePriorityClasses": [],
    "stores": [
        {"endpoint": "", "bucket": "results", "operatorIdentity": False},
        {"endpoint": "https://*.example", "bucket": "team-*", "operatorIdentity": True},
    ],
    "limits": {
        "gpus": 8,
        "activeDeadlineSeconds": 86_400,
        "ttlSecondsAfterFinished": 604_800,
        "runs": 0,
        "gpuHours": 0,
    },
}
"""Values of the chart, and so the operator's file."""
OWN_REPOSITORY = "own.example/specbench"
"""The chart's image.repository."""
BASE = {"spec.results.s3.credentialsSecret": "mine"}
_PVC = {"claimName": "other", "path": "x"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
_GPU = {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "Exists"}]}
_FIELD = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
_ZONE = "topology.kubernetes.io/zone"
_DIGEST = "sha256:" + "a" * 64


def _of(path: str, *values: Any) -> list[Edits]:
    return [{f"spec.{path}": value} for value in values]


def _affinity(kind: str, when: str, *terms: Any) -> Edits:
    wrapped = {"nodeSelectorTerms": list(terms)} if (kind, when) == ("nodeAffinity", _REQUIRED) else list(terms)
    return {"spec.placement.affinity": {kind: {when: wrapped}}}


def _dataset(**fields: Any) -> Edits:
    return {"spec.workloads[0].dataset": {"source": "jsonl", **fields}}


def _mix(*claims: str) -> Edits:
    members = [
        {"name": f"m{n}", "weight": 1, "source": "jsonl", "pvc": {"claimName": claim, "path": "x"}}
        for n, claim in enumerate(claims)
    ]
    return {"spec.workloads[0].dataset": {"source": "mix", "count": 2, "members": members}}


def _store(**fields: str) -> Edits:
    return {"spec.results.s3": fields}


ALLOWED: list[Edits] = [
    {},
    *_of("engine.image", "registry.example/team/engine:1", f"registry.example/team/a/b@{_DIGEST}"),
    *_of("engine.image", "registry.example/one", "registry.example/one:2", f"registry.example/one:2@{_DIGEST}"),
    *_of("engine.image", "vllm/vllm-openai:nightly", "own.example/specbench:7"),
    *_of("engine.env", [{"name": "VLLM_LOGGING_LEVEL", "value": "x"}, {"name": "OMP_NUM_THREADS", "value": "1"}]),
    *_of("placement.serviceAccountName", "bench-s3"),
    *_of("model.pvc", {"claimName": "models", "path": "x"}),
    _dataset(pvc={"claimName": "prompts-a", "path": "x"}),
    _mix("prompts-a", "models"),
    *_of("placement.modelCache", {"claimName": "models"}, {"claimName": "models", "fill": False}),
    *_of("placement.modelCache", {"claimName": "cache", "fill": True}),
    {"spec.placement": {"resourceClaimTemplateName": "gpu", "claimedGpus": 8}},
    *_of("placement.priorityClassName", "low"),
    *_of("placement.nodeSelector", {"nvidia.com/gpu.product": "H100"}, {}),
    _affinity("nodeAffinity", _REQUIRED, _GPU),
    _affinity("nodeAffinity", _PREFERRED, {"weight": 1, "preference": _GPU}),
    _affinity("podAntiAffinity", _REQUIRED, {"topologyKey": _ZONE, "labelSelector": {}}),
    *_of("placement.tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    {"spec.placement": {"gpus": 8}},
    {"spec.placement": {"gpus": 4, "nodes": 2}},
    {"spec.placement": {"gpus": 0, "gpuResourceName": "google.com/tpu"}},
    *_of("placement.queueName", "team-a"),
    _store(bucket="results", credentialsSecret="mine"),
    _store(bucket="team-a", endpoint="https://s3.example"),
    *_of("activeDeadlineSeconds", 86_400),
]
REFUSED: list[tuple[Edits, str]] = [
    *((edits, "engine.image") for edits in _of("engine.image", "registry.example/other/x", "registry.example/team")),
    *(
        (edits, "engine.image")
        for edits in _of("engine.image", "evil.io/registry.example/team/x", "registryXexample/one")
    ),
    *((edits, "engine.image") for edits in _of("engine.image", "vllm/vllm-openai-x:1", "registry.example/one/x:1")),
    *((edits, "engine.image") for edits in _of("engine.image", "registry.example:80/one", "vllm/vllm-openai/x")),
    *((edits, "engine.env[0].name") for edits in _of("engine.env", [{"name": "LD_PRELOAD"}], [{"name": "vllm_x"}])),
    *((edits, "engine.env[1].name") for edits in _of("engine.env", [{"name": "VLLM_X"}, {"name": "PYTHONPATH"}])),
    *((edits, "engine.command") for edits in _of("engine.command", ["sh"], [])),
    *((edits, "placement.serviceAccountName") for edits in _of("placement.serviceAccountName", "default")),
    *((edits, "placement.engineServiceAccountName") for edits in _of("placement.engineServiceAccountName", "admin")),
    *((edits, "model.pvc.claimName") for edits in _of("model.pvc", _PVC)),
    (_dataset(pvc=_PVC), "workloads[0].dataset.pvc.claimName"),
    (_mix("models", "other"), "workloads[0].dataset.members[1].pvc.claimName"),
    *((edits, "placement.modelCache.claimName") for edits in _of("placement.modelCache", {"claimName": "other"})),
    ({"spec.placement.modelCache": {"claimName": "models", "fill": True}}, "placement.modelCache.claimName"),
    (
        {"spec.placement": {"resourceClaimTemplateName": "all", "claimedGpus": 1}},
        "placement.resourceClaimTemplateName",
    ),
    *((edits, "placement.priorityClassName") for edits in _of("placement.priorityClassName", "system-node-critical")),
    *((edits, "placement.runtimeClassName") for edits in _of("placement.runtimeClassName", "nvidia")),
    *((edits, "placement.schedulerName") for edits in _of("placement.schedulerName", "mine")),
    (
        {"spec.placement.nodeSelector": {"nvidia.com/a": "b", "kubernetes.io/hostname": "n"}},
        "placement.nodeSelector[kubernetes.io/hostname]",
    ),
    (
        {"spec.placement.clientNodeSelector": {"node-role.kubernetes.io/control-plane": ""}},
        "placement.clientNodeSelector[node-role.kubernetes.io/control-plane]",
    ),
    (
        {"spec.placement.topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname"}]},
        "placement.topologySpreadConstraints[0].topologyKey",
    ),
    (
        _affinity("nodeAffinity", _REQUIRED, _GPU, _HOST),
        f"placement.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[1].matchExpressions[0].key",
    ),
    (
        _affinity("nodeAffinity", _REQUIRED, _FIELD),
        f"placement.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[0].matchFields[0].key",
    ),
    (
        _affinity("nodeAffinity", _PREFERRED, {"weight": 1, "preference": _HOST}),
        f"placement.affinity.nodeAffinity.{_PREFERRED}[0].preference.matchExpressions[0].key",
    ),
    (
        _affinity("nodeAffinity", _PREFERRED, {"weight": 1, "preference": _FIELD}),
        f"placement.affinity.nodeAffinity.{_PREFERRED}[0].preference.matchFields[0].key",
    ),
    *(
        (
            _affinity(kind, _REQUIRED, {"topologyKey": _ZONE, field: value}),
            f"placement.affinity.{kind}.{_REQUIRED}[0].{field}",
        )
        for kind in ("podAffinity", "podAntiAffinity")
        for field, value in (("topologyKey", "x"), ("namespaces", ["kube-system"]), ("namespaceSelector", {}))
    ),
    *(
        (
            _affinity(kind, _PREFERRED, {"weight": 1, "podAffinityTerm": {"topologyKey": _ZONE, field: value}}),
            f"placement.affinity.{kind}.{_PREFERRED}[0].podAffinityTerm.{field}",
        )
        for kind in ("podAffinity", "podAntiAffinity")
        for field, value in (("topologyKey", "x"), ("namespaces", ["kube-system"]), ("namespaceSelector", {}))
    ),
    *(
        ({"spec.placement.tolerations": [row]}, "placement.tolerations[0].key")
        for row in ({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}, {"operator": "Exists"})
    ),
    ({"spec.placement": {"gpus": 1, "gpuResourceName": "google.com/tpu"}}, "placement.gpuResourceName"),
    *((edits, "placement.queueName") for edits in _of("placement.queueName", "prod")),
    (
        {"spec.placement": {"queueName": "team-a", "queuePriorityClass": "high"}},
        "placement.queuePriorityClass",
    ),
    (_store(bucket="prod-data", credentialsSecret="mine"), "results.s3"),
    (_store(bucket="results", endpoint="http://evil", credentialsSecret="mine"), "results.s3"),
    (_store(bucket="team-a", endpoint="https://s3.example.evil", credentialsSecret="mine"), "results.s3"),
    (_store(bucket="team-a", credentialsSecret="mine"), "results.s3"),
    (_store(bucket="results"), "results.s3.credentialsSecret"),
    ({"spec.placement": {"gpus": 9}}, "placement.gpus"),
    ({"spec.placement": {"gpus": 4, "nodes": 3}}, "placement.gpus"),
    ({"spec.placement": {"resourceClaimTemplateName": "gpu", "claimedGpus": 9}}, "placement.gpus"),
    *((edits, "activeDeadlineSeconds") for edits in _of("activeDeadlineSeconds", 86_401)),
    *((edits, "ttlSecondsAfterFinished") for edits in _of("ttlSecondsAfterFinished", 604_801)),
]
"""Edits of a run, and the path of the problem below `spec`."""
