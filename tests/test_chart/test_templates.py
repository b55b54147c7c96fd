"""The manifests that Helm renders from the chart, checked against the schemas of Kubernetes if available."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generators.custom_resources import CAMPAIGN, RUN
from specbench_operator.settings import OperatorSettings
from specbench_testing.charts import CHART, ChartRefused, Helm, Rendered
from specbench_testing.cluster import APPLY, Cluster
from specbench_testing.operator_process import GROUP_RULES, RULES
from specbench_testing.shared_cluster import program

pytestmark = pytest.mark.cluster

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
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
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


def without_definition(rendered: Rendered) -> str:
    """All documents but the definition, which has tests of its own."""
    documents = rendered.text.split("\n---\n")
    return "\n---\n".join(document for document in documents if "kind: CustomResourceDefinition" not in document)


def test_lint_finds_nothing(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


def test_the_default_rendering_is_as_it_was(helm: Helm) -> None:
    """A change rewrites the golden file and fails: look at the difference, and commit it if it is wanted."""
    rendered = without_definition(helm.template())
    before = GOLDEN.read_text() if GOLDEN.exists() else ""
    GOLDEN.write_text(rendered)
    assert rendered == before


@pytest.mark.parametrize("file", [RUN.file_name, CAMPAIGN.file_name])
def test_the_definition_is_the_generated_one_byte_by_byte_and_survives_the_release(helm: Helm, file: str) -> None:
    text, generated = helm.template().text, (CHART.parents[1] / "crds" / file).read_text()
    keep = "  annotations:\n    helm.sh/resource-policy: keep\n"
    assert generated.replace("\nmetadata:\n", f"\nmetadata:\n{keep}", 1) in text


def test_the_definitions_go_with_the_release_or_are_left_out_where_that_is_asked_for(helm: Helm) -> None:
    found = helm.template({"crds": {"keep": False}}).of_kind("CustomResourceDefinition")
    assert found == [CAMPAIGN.definition(), RUN.definition()]
    assert helm.template({"crds": {"install": False}}).of_kind("CustomResourceDefinition") == []


@pytest.mark.parametrize("values", [{}, ALL, {"watchAllNamespaces": True}], ids=["default", "all", "all namespaces"])
def test_the_api_server_takes_every_field_that_is_rendered(
    helm: Helm, values: dict[str, Any], cluster: Cluster
) -> None:
    """Tried out with strict validation; only the kinds of the Prometheus operator are unknown there."""
    with cluster.namespace("chart") as namespace:
        own = {"watchNamespaces": [namespace]} if "watchNamespaces" in values else {}
        rendered = helm.template({**values, **own, "fullnameOverride": namespace}, namespace=namespace)
        tried = [row["kind"] for row in rendered.objects if row["kind"] in PATHS and try_out(cluster, row)]
    assert set(tried) == {row["kind"] for row in rendered.objects} - {"ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("values", [{}, ALL, {"watchAllNamespaces": True}], ids=["default", "all", "all namespaces"])
def test_the_operator_may_do_what_it_must_and_nothing_else(helm: Helm, values: dict[str, Any]) -> None:
    """The very rules with which the operator's own tests run it."""
    rendered = helm.template(values)
    kind = "ClusterRole" if values.get("watchAllNamespaces") else "Role"
    mine = [role for role in rendered.of_kind(kind) if "aggregate" not in str(role["metadata"]["labels"])]
    assert mine
    wanted = [*RULES, *GROUP_RULES] if values.get("leaderWorkerSets") else RULES
    assert all(role["rules"] == wanted for role in mine)


def test_the_right_to_read_workloads_can_be_left_out(helm: Helm) -> None:
    rules = helm.template({"rbac": {"readWorkloads": False}}).one("Role")["rules"]
    assert rules == [rule for rule in RULES if rule["resources"] != ["workloads"]]


def test_rights_stay_in_the_releases_namespace_by_default(helm: Helm) -> None:
    rendered = helm.template()
    assert rendered.one("Role")["metadata"]["namespace"] == "team"
    assert rendered.of_kind("ClusterRole") == []
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == "team"


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
def test_nodes_may_be_read_where_that_is_asked_for_and_nothing_else_of_the_cluster(
    helm: Helm, values: dict[str, Any]
) -> None:
    rendered = helm.template({**values, "rbac": {"readNodes": True}})
    (role,) = (role for role in rendered.of_kind("ClusterRole") if role["metadata"]["name"].endswith("-nodes"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    (binding,) = (
        row for row in rendered.of_kind("ClusterRoleBinding") if row["roleRef"]["name"] == role["metadata"]["name"]
    )
    account = rendered.one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "team"}]
    assert helm.template({**values, "rbac": {"create": False, "readNodes": True}}).of_kind("ClusterRole") == []


def test_the_operator_can_read_the_environment_that_the_chart_gives_it(helm: Helm) -> None:
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


def test_the_ports_are_those_of_the_operator(helm: Helm) -> None:
    ports = {row["name"]: row["containerPort"] for row in container_of(helm.template())["ports"]}
    assert ports == {"liveness": OperatorSettings("").liveness_port, "metrics": OperatorSettings("").metrics_port}


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_every_pod_of_the_chart_is_restricted(helm: Helm, kind: str) -> None:
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


def test_there_is_one_operator_and_never_two_at_a_time(helm: Helm) -> None:
    spec = helm.template().one("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ({}, "specbench:0.1.0"),
        ({"repository": "registry.example/specbench", "tag": "7"}, "registry.example/specbench:7"),
        ({"tag": "7", "digest": "sha256:" + "a" * 64}, "specbench@sha256:" + "a" * 64),
    ],
)
def test_clients_run_the_very_image_of_the_operator(helm: Helm, image: dict[str, str], wanted: str) -> None:
    rendered = helm.template({"image": image})
    assert container_of(rendered)["image"] == env_of(rendered)["SPECBENCH_CLIENT_IMAGE"] == wanted


def test_engines_can_be_closed_to_all_but_clients(helm: Helm) -> None:
    rendered = helm.template({"networkPolicy": {"enabled": True}, "watchNamespaces": ["a", "b"]})
    assert [policy["metadata"]["namespace"] for policy in rendered.of_kind("NetworkPolicy")] == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replicas": 2}, "replicas"),
        ({"image": {"repo": "x"}}, "repo"),
        ({"watchNamespaces": ["A"]}, "watchNamespaces"),
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
def test_values_that_mean_nothing_are_refused_by_name(helm: Helm, values: dict[str, Any], says: str) -> None:
    with pytest.raises(ChartRefused, match=says):
        helm.template(values)


def test_a_kubernetes_that_is_too_old_is_refused(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match=r">=1\.29\.0"):
        helm.template(version="1.28.3")


def container_of(rendered: Rendered) -> dict[str, Any]:
    """The operator's container."""
    return dict(rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0])


def env_of(rendered: Rendered) -> dict[str, str]:
    """The operator's environment."""
    return {row["name"]: row["value"] for row in container_of(rendered)["env"]}


def try_out(cluster: Cluster, thing: dict[str, Any]) -> bool:
    """Apply without doing it (but for the account that pods name). Raises Refused for what Kubernetes does not take."""
    path = PATHS[thing["kind"]].format(thing["metadata"].get("namespace"))
    query = {"fieldValidation": "Strict", "fieldManager": "specbench-tests", "force": "true"}
    query |= {} if thing["kind"] == "ServiceAccount" else {"dryRun": "All"}
    cluster.call("PATCH", f"{path}/{thing['metadata']['name']}", thing, query=query, kind=APPLY)
    return True
