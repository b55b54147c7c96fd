"""The manifests that Helm renders from the chart, checked against the schemas of Kubernetes if available."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from generators.custom_resources import CAMPAIGN, RUN
from specbench_operator.settings import OperatorSettings
from specbench_testing.charts import CHART, WATCHED, ChartRefused, Helm, Rendered
from specbench_testing.cluster import APPLY, Cluster
from specbench_testing.operator_process import GROUP_RULES, RULES
from specbench_testing.shared_cluster import program

pytestmark = pytest.mark.cluster

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
POLICY = "ValidatingAdmissionPolicy"
GOLDEN = Path(__file__).parent / "golden/default.yaml"
ALL = {
    "imagePullSecrets": [{"name": "registry"}],
    "watchNamespaces": ["a", "b"],
    "rbac": {"aggregateToUserRoles": True, "readNodes": True},
    "serviceAccount": {"annotations": {"cloud/role": "r"}},
    "extraEnv": [{"name": "SPECBENCH_CLIENT_START_DEADLINE_S", "value": "60"}],
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podLabels": {"team": "a"},
    "podAnnotations": {"note": "x"},
    "metrics": {
        "service": {"annotations": {"prometheus.io/scrape": "true"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {"enabled": True},
    "probeEngines": True,
    "leaderWorkerSets": True,
}


RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ValidatingAdmissionPolicy": ADMISSION + "/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": ADMISSION + "/validatingadmissionpolicybindings",
    "Role": RBAC + "/namespaces/{}/roles",
    "RoleBinding": RBAC + "/namespaces/{}/rolebindings",
    "ClusterRole": RBAC + "/clusterroles",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Helm, from PATH or built by hack/cluster."""
    return Helm(program("helm"))


def without_crds(rendered: Rendered) -> str:
    """All documents except the CRDs, which have their own tests."""
    documents = rendered.text.split("\n---\n")
    return "\n---\n".join(document for document in documents if "kind: CustomResourceDefinition" not in document)


def test_helm_lint_succeeds(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


def test_the_default_rendering_matches_the_golden_file(helm: Helm) -> None:
    """A change rewrites the golden file and fails the test: review the difference, then commit the new file."""
    rendered = without_crds(helm.template())
    golden = GOLDEN.read_text() if GOLDEN.exists() else ""
    GOLDEN.write_text(rendered)
    assert rendered == golden


@pytest.mark.parametrize("file", [RUN.file_name, CAMPAIGN.file_name])
def test_the_chart_contains_the_generated_crds_with_the_keep_annotation(helm: Helm, file: str) -> None:
    text, generated = helm.template().text, (CHART.parents[1] / "crds" / file).read_text()
    keep = "  annotations:\n    helm.sh/resource-policy: keep\n"
    assert generated.replace("\nmetadata:\n", f"\nmetadata:\n{keep}", 1) in text


def test_values_can_remove_the_keep_annotation_or_omit_the_crds(helm: Helm) -> None:
    found = helm.template({"crds": {"keep": False}}).of_kind("CustomResourceDefinition")
    assert found == [CAMPAIGN.definition(), RUN.definition()]
    assert helm.template({"crds": {"install": False}}).of_kind("CustomResourceDefinition") == []


@pytest.mark.parametrize("values", [{}, ALL, {"watchAllNamespaces": True}], ids=["default", "all", "all namespaces"])
def test_the_api_server_accepts_every_rendered_field(helm: Helm, values: dict[str, Any], cluster: Cluster) -> None:
    """Uses a strict dry run. The kinds of the Prometheus operator are skipped: the cluster does not have them."""
    with cluster.namespace("chart") as namespace, cluster.namespace("chart-runs") as watched:
        # The release's namespace must exist for its objects, and it cannot be watched with a fence.
        runs = [] if "watchAllNamespaces" in values else [watched]
        own = {"watchNamespaces": runs}
        rendered = helm.template({**values, **own, "fullnameOverride": namespace}, namespace=namespace)
        tried = [row["kind"] for row in rendered.objects if row["kind"] in PATHS and try_out(cluster, row)]
    assert set(tried) == {row["kind"] for row in rendered.objects} - {"ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("values", [{}, ALL, {"watchAllNamespaces": True}], ids=["default", "all", "all namespaces"])
def test_the_operators_role_has_exactly_the_required_rules(helm: Helm, values: dict[str, Any]) -> None:
    """The same rules that the operator's own tests use."""
    rendered = helm.template(values)
    kind = "ClusterRole" if values.get("watchAllNamespaces") else "Role"
    roles = [role for role in rendered.of_kind(kind) if "aggregate" not in str(role["metadata"]["labels"])]
    assert roles
    expected = [*RULES, *GROUP_RULES] if values.get("leaderWorkerSets") else RULES
    assert all(role["rules"] == expected for role in roles)


def test_the_rule_to_read_workloads_is_optional(helm: Helm) -> None:
    rules = helm.template({"rbac": {"readWorkloads": False}}).one("Role")["rules"]
    assert rules == [rule for rule in RULES if rule["resources"] != ["workloads"]]


def test_the_default_role_is_limited_to_the_watched_namespace(helm: Helm) -> None:
    rendered = helm.template()
    assert rendered.one("Role")["metadata"]["namespace"] == WATCHED
    assert rendered.of_kind("ClusterRole") == []
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == WATCHED


@pytest.mark.parametrize("namespaces", [[], ["team"], ["a", "team"]], ids=str)
def test_the_operators_own_namespace_is_only_watched_without_a_fence(helm: Helm, namespaces: list[str]) -> None:
    with pytest.raises(ChartRefused, match=r"its own namespace team.*set watchNamespaces.*fence\.enabled=false"):
        helm.template({"watchNamespaces": namespaces})
    rendered = helm.template({"watchNamespaces": namespaces, "fence": {"enabled": False}})
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == ",".join(namespaces or ["team"])


def test_the_operator_reads_the_fence_and_restarts_when_it_changes(helm: Helm) -> None:
    default, changed = helm.template(), helm.template({"fence": {"images": ["registry.example/*"]}})
    config = changed.one("ConfigMap")
    assert json.loads(config["data"]["fence.json"]) == {**VALUES["fence"], "images": ["registry.example/*"]}
    folder, _, file = env_of(changed)["SPECBENCH_FENCE"].rpartition("/")
    pod = changed.one("Deployment")["spec"]["template"]
    (volume,) = (row for row in pod["spec"]["volumes"] if "configMap" in row)
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert {"name": volume["name"], "mountPath": folder, "readOnly": True} in container_of(changed)["volumeMounts"]
    assert file in config["data"]
    assert annotations_of(default) != annotations_of(changed)
    assert annotations_of(changed) == annotations_of(helm.template({"fence": {"images": ["registry.example/*"]}}))


def test_the_admission_policies_are_optional_and_limited_to_the_watched_namespaces(helm: Helm) -> None:
    rendered = helm.template({"watchNamespaces": ["a", "b"]})
    for binding in rendered.of_kind("ValidatingAdmissionPolicyBinding"):
        (term,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert term == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    everywhere = helm.template({"watchNamespaces": [], "watchAllNamespaces": True})
    assert all("matchResources" not in row["spec"] for row in everywhere.of_kind("ValidatingAdmissionPolicyBinding"))
    assert len(everywhere.of_kind("ValidatingAdmissionPolicyBinding")) == len(rendered.of_kind(POLICY)) > 0
    assert helm.template({"admissionPolicy": {"enabled": False}}).of_kind(POLICY) == []


def test_each_watched_namespace_has_a_role_bound_to_the_operator(helm: Helm) -> None:
    rendered = helm.template({"watchNamespaces": ["a", "b"]})
    assert [(role["metadata"]["namespace"], role["metadata"]["name"]) for role in rendered.of_kind("Role")] == [
        ("a", "team-bench-specbench"),
        ("b", "team-bench-specbench"),
    ]
    assert [binding["subjects"][0]["namespace"] for binding in rendered.of_kind("RoleBinding")] == ["team", "team"]
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == "a,b"


def test_only_watching_all_namespaces_needs_a_cluster_role(helm: Helm) -> None:
    rendered = helm.template({"watchAllNamespaces": True})
    assert rendered.of_kind("Role") == []
    assert rendered.one("ClusterRoleBinding")["roleRef"]["name"] == rendered.one("ClusterRole")["metadata"]["name"]
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == ""


@pytest.mark.parametrize("values", [{}, {"watchAllNamespaces": True}], ids=["default", "all namespaces"])
def test_read_nodes_adds_a_cluster_role_that_only_gets_nodes(helm: Helm, values: dict[str, Any]) -> None:
    rendered = helm.template({**values, "rbac": {"readNodes": True}})
    (role,) = (role for role in rendered.of_kind("ClusterRole") if role["metadata"]["name"].endswith("-nodes"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    (binding,) = (
        row for row in rendered.of_kind("ClusterRoleBinding") if row["roleRef"]["name"] == role["metadata"]["name"]
    )
    account = rendered.one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "team"}]
    assert helm.template({**values, "rbac": {"create": False, "readNodes": True}}).of_kind("ClusterRole") == []


def test_the_operator_parses_its_settings_from_the_rendered_environment(helm: Helm) -> None:
    settings = OperatorSettings.from_env(env_of(helm.template(ALL | {"workers": 7, "logLevel": "DEBUG"})))
    assert settings == replace(
        OperatorSettings(client_image="specbench:0.1.0"),
        namespaces=("a", "b"),
        workers=7,
        log_level="DEBUG",
        probe_engines=True,
        leader_worker_sets=True,
        client_start_deadline_s=60,
    )


def test_the_container_ports_match_the_operators_settings(helm: Helm) -> None:
    ports = {row["name"]: row["containerPort"] for row in container_of(helm.template())["ports"]}
    assert ports == {"liveness": OperatorSettings("").liveness_port, "metrics": OperatorSettings("").metrics_port}


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_every_pod_of_the_chart_has_a_restricted_security_context(helm: Helm, kind: str) -> None:
    found = helm.template(ALL).one(kind)
    pod = found["spec"]["template"]["spec"] if kind == "Deployment" else found["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_the_deployment_has_one_replica_and_the_recreate_strategy(helm: Helm) -> None:
    spec = helm.template().one("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "specbench:0.1.0"),
        ({"repository": "registry.example/specbench", "tag": "7"}, "registry.example/specbench:7"),
        ({"tag": "7", "digest": "sha256:" + "a" * 64}, "specbench@sha256:" + "a" * 64),
    ],
)
def test_clients_use_the_same_image_as_the_operator(helm: Helm, image: dict[str, str], expected: str) -> None:
    rendered = helm.template({"image": image})
    assert container_of(rendered)["image"] == env_of(rendered)["SPECBENCH_CLIENT_IMAGE"] == expected


def test_each_watched_namespace_has_a_network_policy_if_enabled(helm: Helm) -> None:
    rendered = helm.template({"networkPolicy": {"enabled": True}, "watchNamespaces": ["a", "b"]})
    assert [policy["metadata"]["namespace"] for policy in rendered.of_kind("NetworkPolicy")] == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"replicas": 2}, "replicas"),
        ({"image": {"repo": "x"}}, "repo"),
        ({"watchNamespaces": ["A"]}, "watchNamespaces"),
        ({"fence": {"image": []}}, "image"),
        ({"fence": {"limits": {"gpus": -1}}}, "gpus"),
        (
            {"watchAllNamespaces": True, "networkPolicy": {"enabled": True}},
            "networkPolicy.enabled needs watchNamespaces",
        ),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled needs metrics.service.enabled",
        ),
    ],
)
def test_rejects_invalid_values_with_their_names(helm: Helm, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ChartRefused, match=expected):
        helm.template(values)


def test_rejects_kubernetes_before_1_29_and_before_1_30_with_admission_policies(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match=r">=1\.29\.0"):
        helm.template(version="1.28.3")
    with pytest.raises(ChartRefused, match=r"Kubernetes 1\.30.*admissionPolicy\.enabled=false"):
        helm.template(version="1.29.14")
    assert helm.template({"admissionPolicy": {"enabled": False}}, version="1.29.14").of_kind(POLICY) == []


def container_of(rendered: Rendered) -> dict[str, Any]:
    """The operator's container."""
    return dict(rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0])


def annotations_of(rendered: Rendered) -> dict[str, str]:
    """Annotations of the operator's pod."""
    return dict(rendered.one("Deployment")["spec"]["template"]["metadata"]["annotations"])


def env_of(rendered: Rendered) -> dict[str, str]:
    """The operator's environment."""
    return {row["name"]: row["value"] for row in container_of(rendered)["env"]}


def try_out(cluster: Cluster, manifest: dict[str, Any]) -> bool:
    """Apply as a dry run (except ServiceAccounts, which pods refer to). Raises ApiError if Kubernetes rejects it."""
    path = PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
    query = {"fieldValidation": "Strict", "fieldManager": "specbench-tests", "force": "true"}
    query |= {} if manifest["kind"] == "ServiceAccount" else {"dryRun": "All"}
    cluster.call("PATCH", f"{path}/{manifest['metadata']['name']}", manifest, query=query, kind=APPLY)
    return True
