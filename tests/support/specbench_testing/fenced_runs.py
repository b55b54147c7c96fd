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
    "nodeLabels": ["nvidia.com/*", "topology.kubernetes.io/zone"],
    "tolerations": ["nvidia.com/gpu"],
    "gpuResources": ["nvidia.com/*"],
    "queues": ["team-*"],
    "queuePriorityClasses": [],
    "podLabels": ["sidecar.istio.io/inject=false", "team=*"],
    "podAnnotations": ["k8s.v1.cni.cncf.io/networks=rdma-net", "example.com/*", "example.net/*=true"],
    "configMaps": ["nccl-*"],
    "extendedResources": ["rdma/hca"],
    "capabilities": [],
    "stores": [
        {"endpoint": "", "bucket": "results", "operatorIdentity": False},
        {"endpoint": "https://*.example", "bucket": "team-*", "operatorIdentity": True},
        {"endpoint": "http://*:9000", "bucket": "*-lab", "operatorIdentity": False},
        {"endpoint": "http://127.0.0.1:9001", "bucket": "*-lab", "operatorIdentity": False},
        {"endpoint": "http://169.254.169.254", "bucket": "*-lab", "operatorIdentity": False},
    ],
    "endpoints": [
        "http://*.svc:8002",
        "http://*.bench:8000",
        "https://gateway.example/team-*",
        "http://*:9000",
        "http://127.0.0.1:8001",
    ],
    "limits": {
        "gpus": 8,
        "activeDeadlineSeconds": 86_400,
        "ttlSecondsAfterFinished": 604_800,
        "runs": 0,
    },
}
"""Values of the chart, and so the operator's file."""
FORCED_QUEUE: dict[str, Any] = {**FENCE, "force": {"queueName": "shared"}}
"""The same fence with a queue for every engine."""
OWN_REPOSITORY = "own.example/specbench"
"""The chart's image.repository."""
BASE = {"spec.results.s3.credentialsSecretRef": {"name": "mine"}}
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


def _template(**fields: Any) -> Edits:
    """A run whose pod template has these labels, annotations and volumes, or fields of the engine's container."""
    metadata = {name: fields.pop(name) for name in ("labels", "annotations") if name in fields}
    volumes = fields.pop("volumes", [])
    spec = {"volumes": volumes, "containers": [{"name": "engine", **fields}]}
    return {"spec.placement.template": {"metadata": metadata, "spec": spec}}


def _variable(variable: str, source: str, **fields: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {source: fields}}


_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_INJECT = "sidecar.istio.io/inject"
_IN_TEMPLATE = "placement.template.spec"
_ENGINE = f"{_IN_TEMPLATE}.containers[0]"


def _store(**fields: Any) -> Edits:
    return {"spec.results.s3": fields}


def _at(endpoint: str, bucket: str = "a-lab", **edits: Any) -> Edits:
    return {**_store(bucket=bucket, endpoint=endpoint, credentialsSecretRef={"name": "mine"}), **edits}


def reading(uri: str) -> dict[str, Edits]:
    """Field → a run whose client reads this file or folder. One run for each field that may be in S3."""
    member = {"name": "m", "weight": 1, "source": "jsonl", "uri": uri}
    return {
        "model.uri": {"spec.model.uri": uri},
        "model.tokenizer": {"spec.model.tokenizer": uri},
        "workloads[0].dataset.uri": _dataset(uri=uri),
        "workloads[0].dataset.members[0].uri": {
            "spec.workloads[0].dataset": {"source": "mix", "count": 1, "members": [member]}
        },
        "workloads[0].chatTemplate.tokenizer": {
            "spec.workloads[0].chatTemplate": {"appliedBy": "Client", "tokenizer": uri}
        },
        "workloads[0].chatTemplate.template": {
            "spec.workloads[0].chatTemplate": {"appliedBy": "Client", "template": uri}
        },
        "load.arrival.uri": {"spec.load": {"slots": 1, "arrival": {"process": "Trace", "uri": uri}}},
        "gate.baselineRef.uri": {"spec.gate": {"baselineRef": {"uri": uri}}},
    }


def _service(port: int) -> Edits:
    """A run that measures a Service of its namespace."""
    endpoint = {"name": "llama", "serviceRef": {"name": "llama", "port": port}}
    return {"spec.engine": {"kind": "external", "endpoints": [endpoint]}, "spec.drafters": []}


def _servers(*urls: str) -> Edits:
    """A run that measures servers which are already running."""
    endpoints = [{"name": f"e{row}", "url": url} for row, url in enumerate(urls)]
    return {"spec.engine": {"kind": "external", "endpoints": endpoints}, "spec.drafters": []}


ALLOWED: list[Edits] = [
    {},
    *_of("engine.image", "registry.example/team/engine:1", f"registry.example/team/a/b@{_DIGEST}"),
    *_of("engine.image", "registry.example/one", "registry.example/one:2", f"registry.example/one:2@{_DIGEST}"),
    *_of("engine.image", "vllm/vllm-openai:nightly", "own.example/specbench:7"),
    *_of("engine.env", [{"name": "VLLM_LOGGING_LEVEL", "value": "x"}, {"name": "OMP_NUM_THREADS", "value": "1"}]),
    *_of("placement.client.serviceAccountName", "bench-s3"),
    *_of("model.pvc", {"claimName": "models", "path": "x"}),
    _dataset(pvc={"claimName": "prompts-a", "path": "x"}),
    _mix("prompts-a", "models"),
    *_of("placement.modelCache", {"claimName": "models"}, {"claimName": "models", "fill": False}),
    *_of("placement.modelCache", {"claimName": "cache", "fill": True}),
    {"spec.placement": {"resourceClaimTemplateName": "gpu", "claimedGpus": 8}},
    *_of("placement.priorityClassName", "low", None),
    *_of("placement.nodeSelector", {"nvidia.com/gpu.product": "H100"}, {}),
    _affinity("nodeAffinity", _REQUIRED, _GPU),
    _affinity("nodeAffinity", _PREFERRED, {"weight": 1, "preference": _GPU}),
    _affinity("podAntiAffinity", _REQUIRED, {"topologyKey": _ZONE, "labelSelector": {}}),
    *_of("placement.tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    {"spec.placement": {"gpus": 8}},
    {"spec.placement": {"gpus": 4, "nodes": 2}},
    {"spec.placement": {"gpus": 0, "gpuResourceName": "google.com/tpu"}},
    *_of("placement.queueName", "team-a"),
    _template(labels={_INJECT: "false", "team": "a"}, annotations={_NETWORKS: "rdma-net", "example.com/a": "b\nc=d"}),
    _template(annotations={"example.net/a": "true"}),
    _template(env=[_variable("VLLM_KEY", "secretKeyRef", name="any", key="k")]),
    _template(env=[_variable("VLLM_TOPO", "configMapKeyRef", name="nccl-topo", key="k")]),
    _template(env=[_variable("VLLM_HOST_IP", "fieldRef", fieldPath="status.podIP")]),
    _template(resources={"requests": {"cpu": 8}, "limits": {"cpu": "8", "memory": "64Gi", "rdma/hca": 1}}),
    _template(
        volumes=[
            {"name": "a", "configMap": {"name": "nccl-topo"}},
            {"name": "b", "secret": {"secretName": "any"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "d", "emptyDir": {"sizeLimit": "1Gi"}},
        ]
    ),
    _template(),
    *_of("placement.template", {}, {"metadata": {}}, {"spec": {"containers": []}}),
    *_of("placement.client.resources", {"limits": {"cpu": 4, "memory": "8Gi"}}),
    *_of("placement.client.tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    {"spec.placement.client.affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": _GPU}]}}},
    _store(bucket="results", credentialsSecretRef={"name": "mine"}),
    _store(bucket="team-a", endpoint="https://s3.example"),
    *_of("activeDeadlineSeconds", 86_400),
    *reading("s3://results/a/b").values(),
    *reading("s3://results/a b?c#d/x results").values(),
    {**_at("https://s3.example", "team-a"), **reading("s3://team-b/x")["workloads[0].dataset.uri"]},
    *(reading("prod/x")[field] for field in ("model.tokenizer", "workloads[0].dataset.uri", "gate.baselineRef.uri")),
    *(
        _at(endpoint)
        for endpoint in (
            "http://minio:9000",
            "http://10.0.0.7:9000",
            "http://127.0.0.1:9001",
            "http://127.0.0.1.example:9000",
            "http://1.example:9000",
            "http://[2001:db8::1]:9000",
        )
    ),
    _servers("http://a.bench:8000", "http://b.bench:8000"),
    _service(8002),
    *map(_servers, ("https://gateway.example/team-a", "http://10.0.0.7:9000", "http://127.0.0.1:8001")),
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
    *(
        (edits, "placement.client.serviceAccountName")
        for edits in _of("placement.client.serviceAccountName", "default")
    ),
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
    (
        {"spec.placement.nodeSelector": {"nvidia.com/a": "b", "kubernetes.io/hostname": "n"}},
        "placement.nodeSelector[kubernetes.io/hostname]",
    ),
    (
        {"spec.placement.client.nodeSelector": {"node-role.kubernetes.io/control-plane": ""}},
        "placement.client.nodeSelector[node-role.kubernetes.io/control-plane]",
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
        for row in (
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            {"operator": "Exists"},
            {"operator": "Exists", "key": ""},
            {"operator": "Exists", "key": None},
        )
    ),
    ({"spec.placement": {"gpus": 1, "gpuResourceName": "google.com/tpu"}}, "placement.gpuResourceName"),
    *((edits, "placement.queueName") for edits in _of("placement.queueName", "prod")),
    (
        {"spec.placement": {"queueName": "team-a", "queuePriorityClass": "high"}},
        "placement.queuePriorityClass",
    ),
    *(
        (_template(labels=labels), f"placement.template.metadata.labels[{key}]")
        for labels, key in (
            ({"app": "payments"}, "app"),
            ({_INJECT: "true"}, _INJECT),
            ({_INJECT: "false", "team": "a", "teams": "a"}, "teams"),
        )
    ),
    ({"spec.placement.template.metadata.labels.app": "payments"}, "placement.template.metadata.labels[app]"),
    ({"spec.placement.client.template.metadata.labels.app": "x"}, "placement.client.template.metadata.labels[app]"),
    (
        {"spec.placement.client.template.metadata.annotations.note": "x"},
        "placement.client.template.metadata.annotations[note]",
    ),
    *(
        (_template(annotations={key: value}), f"placement.template.metadata.annotations[{key}]")
        for key, value in (
            (_NETWORKS, "prod/net"),
            (_NETWORKS, "rdma-net,prod/net"),
            ("example.org/a", "b"),
            ("example.net/a", "b=true"),
        )
    ),
    (_template(env=[_variable("PYTHONPATH", "fieldRef", fieldPath="spec.nodeName")]), f"{_ENGINE}.env[0].name"),
    (
        _template(env=[_variable("VLLM_A", "configMapKeyRef", name="prod", key="k")]),
        f"{_ENGINE}.env[0].valueFrom.configMapKeyRef.name",
    ),
    (
        _template(resources={"limits": {"nvidia.com/gpu.shared": 1}}),
        f"{_ENGINE}.resources.limits[nvidia.com/gpu.shared]",
    ),
    (_template(resources={"limits": {"rdma/hca_b": 1}}), f"{_ENGINE}.resources.limits[rdma/hca_b]"),
    ({"spec.placement.client.resources": {"limits": {"rdma/x": 1}}}, "placement.client.resources.limits[rdma/x]"),
    (_template(volumes=[{"name": "a", "configMap": {"name": "prod"}}]), f"{_IN_TEMPLATE}.volumes[0].configMap.name"),
    (
        _template(volumes=[{"name": "a", "persistentVolumeClaim": {"claimName": "other"}}]),
        f"{_IN_TEMPLATE}.volumes[0].persistentVolumeClaim.claimName",
    ),
    (
        _template(securityContext={"capabilities": {"add": ["IPC_LOCK"]}}),
        f"{_ENGINE}.securityContext.capabilities.add[0]",
    ),
    *(
        ({"spec.placement.client.tolerations": [row]}, "placement.client.tolerations[0].key")
        for row in ({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}, {"operator": "Exists"})
    ),
    (
        {"spec.placement.client.affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": _FIELD}]}}},
        f"placement.client.affinity.nodeAffinity.{_PREFERRED}[0].preference.matchFields[0].key",
    ),
    (
        {"spec.placement.client.affinity": {"podAffinity": {_REQUIRED: [{"topologyKey": _ZONE, "namespaces": ["x"]}]}}},
        f"placement.client.affinity.podAffinity.{_REQUIRED}[0].namespaces",
    ),
    (_store(bucket="prod-data", credentialsSecretRef={"name": "mine"}), "results.s3"),
    (_store(bucket="results", endpoint="http://evil", credentialsSecretRef={"name": "mine"}), "results.s3"),
    (_store(bucket="team-a", endpoint="https://s3.example.evil", credentialsSecretRef={"name": "mine"}), "results.s3"),
    (
        _store(bucket="team-a", endpoint="https://evil.test/x.example", credentialsSecretRef={"name": "mine"}),
        "results.s3",
    ),
    (_store(bucket="team-a", credentialsSecretRef={"name": "mine"}), "results.s3"),
    (_store(bucket="team-a", endpoint="", credentialsSecretRef={"name": "mine"}), "results.s3"),
    (_store(bucket="results"), "results.s3.credentialsSecretRef"),
    (_store(bucket="results", credentialsSecretRef=None), "results.s3.credentialsSecretRef"),
    ({"spec.placement": {"gpus": 9}}, "placement.gpus"),
    ({"spec.placement": {"gpus": 4, "nodes": 3}}, "placement.gpus"),
    ({"spec.placement": {"resourceClaimTemplateName": "gpu", "claimedGpus": 9}}, "placement.gpus"),
    *((edits, "activeDeadlineSeconds") for edits in _of("activeDeadlineSeconds", 86_401)),
    *((edits, "ttlSecondsAfterFinished") for edits in _of("ttlSecondsAfterFinished", 604_801)),
    *((edits, field) for field, edits in reading("s3://prod-data/a/b").items()),
    *(
        (reading(uri)["workloads[0].dataset.uri"], "workloads[0].dataset.uri")
        for uri in (
            "s3://prod",
            "s3://results.evil/x",
            "s3://results#/x",
            "s3://results?endpoint=http://evil/x",
            "s3://RESULTS/x",
            "s3://reſults/x",
            "s3:///results/x",
            "s3://team-a/x",
            "s3://prod/x results",
        )
    ),
    *(
        ({**_at("http://minio:9000"), **reading(uri)["workloads[0].dataset.uri"]}, "workloads[0].dataset.uri")
        for uri in ("s3://prod#a-lab/x", "s3://prod/a-lab", "s3://results/x", "s3://prod/ b-lab")
    ),
    *(
        (_at(endpoint), "results.s3.endpoint")
        for endpoint in (
            "http://127.0.0.1:9000",
            "http://127.0.0.1.:9000",
            "http://127.9.9.9:9000",
            "http://localhost:9000",
            "http://LocalHost.:9000",
            "http://a.localhost:9000",
            "http://0.0.0.0:9000",
            "http://0.1.2.3:9000",
            "http://224.0.0.1:9000",
            "http://239.1.1.1:9000",
            "http://255.255.255.255:9000",
            "http://169.254.1.1:9000",
            "http://169.254.169.254",
            "http://168.63.129.16:9000",
            "http://100.100.100.200:9000",
            "http://2130706433:9000",
            "http://0x7f000001:9000",
            "http://0X7F.1:9000",
            "http://0177.0.0.1:9000",
            "http://127.1:9000",
            "http://10.0.0.010:9000",
            "http://1.2.3.4.5:9000",
        )
    ),
    (_servers("http://a.bench:8000", "http://other:8000"), "engine.endpoints[1]"),
    (_service(8003), "engine.endpoints[0]"),
    *(
        (_servers(url), "engine.endpoints[0]")
        for url in (
            "http://a.bench:80",
            "http://a.bench:8000/",
            "http://evil/.bench:8000",
            "https://gateway.example/team-a/b",
            "https://gateway.example/other",
            "http://bénch:9000",
            "http://①②⑦.0.0.1:9000",
            "http://127.0.0.1:9000",
            "http://localhost:9000",
            "http://169.254.1.1:9000",
            "http://169.254.169.254:9000",
            "http://2130706433:9000",
        )
    ),
    *(
        (_at(endpoint, "team-a"), "results.s3")
        for endpoint in ("https://S3.EXAMPLE", "https://s3.example.", "https://s3.example/", "https://s3.example:443")
    ),
]
"""Edits of a run, and the path of the problem below `spec`."""

REFUSED_BY_QUEUE: list[tuple[Edits, str]] = [
    ({"spec.placement.pinNode": "Require"}, "placement.pinNode"),
]
"""Edits that FENCED and FORCED_QUEUE differ about: a queue does not support them."""
OPERATOR_ONLY = [
    "http://[::1]:9000",
    "http://[0:0:0:0:0:0:0:1]:9000",
    "http://[::ffff:127.0.0.1]:9000",
    "http://[::ffff:7f00:1]:9000",
    "http://[fe80::1]:9000",
    "http://[fd00:ec2:0::254]:9000",
    "http://[2002:a9fe:a9fe::1]:9000",
]
"""Endpoints of `a-lab` that only the operator refuses, because addresses of IPv6 have many spellings."""
INVALID_ENDPOINTS = [
    "http://me:pw@minio:9000",
    "http://me@minio:9000",
    "http://minio:9000?x=1",
    "http://minio:9000/#a",
    "http://minio:9000\\@evil",
    "http://mınio:9000",
    "http://evil。example:9000",
    "http://①②⑦.0.0.1:9000",
    "http://mini%6f:9000",
    "http://[fe80::1%25eth0]:9000",
    "HTTP://minio:9000",
    " http://minio:9000",
    "ftp://minio:9000",
]
"""Endpoints that no run may have, with or without a fence."""
INVALID: list[tuple[Edits, str]] = [
    *(({"spec.results.s3.endpoint": endpoint}, "results.s3.endpoint") for endpoint in INVALID_ENDPOINTS),
    *((edits, "engine.image") for edits in _of("engine.image", "registry.example/tе\u0430m/x", "")),
    *((edits, "engine.env[0].name") for edits in _of("engine.env", [{"name": "VLLM_\uff38"}])),
    *(
        (edits, "placement.client.serviceAccountName")
        for edits in _of("placement.client.serviceAccountName", "", "bench-\u0430")
    ),
    *((edits, "model.pvc.claimName") for edits in _of("model.pvc", {"claimName": "modеls", "path": "x"})),
    (
        {"spec.results.s3": {"bucket": "results", "credentials_secret_ref": {"name": "mine"}}},
        "results.s3.credentials_secret_ref",
    ),
    ({"spec.placement.client": {"service_account_name": "bench-a"}}, "placement.client.service_account_name"),
    ({"spec.engine": {"kind": "vllm", "Image": "evil.example/x"}}, "engine.Image"),
]
"""Edits of a run that are invalid with any fence, and the path: look-alike letters, empty texts, Python's names."""
