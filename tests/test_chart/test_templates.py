"""The manifests that Helm renders from the chart, checked against the schemas of Kubernetes if available."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import yaml

from generators.custom_resources import CAMPAIGN, RUN
from specbench_api.fence.model import Fence
from specbench_api.plan.expansion import expand
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.engine_job import engine_job
from specbench_operator.settings import Lease, OperatorSettings
from specbench_operator.telemetry import Telemetry
from specbench_testing.charts import CHART, KUBERNETES, ChartRefused, Helm, Rendered
from specbench_testing.cluster import APPLY, ApiError, Cluster
from specbench_testing.operator_builders import SETTINGS, operator_run
from specbench_testing.operator_process import GROUP_RULES, LEASE_RULES, RULES, eventually
from specbench_testing.shared_cluster import program

pytestmark = pytest.mark.cluster

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
POLICY = "ValidatingAdmissionPolicy"
DIGEST = "sha256:" + "a" * 64
GOLDEN = Path(__file__).parent / "golden/default.yaml"
GENERATED_RULES = {
    name: yaml.safe_load((CHART / f"files/admission/{name}.yaml").read_text()) for name in ("requester", "fence")
}
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
    "networkPolicy": {
        "engineFrom": [{"namespaceSelector": {}}],
        "runEgress": [{}],
        "operatorEgress": [{"to": [{"ipBlock": {"cidr": "169.254.169.252/32"}}]}],
    },
    "clientResources": {"cpu": 4, "memory": "8Gi"},
    "probeEngines": True,
    "leaderWorkerSets": True,
    "replicas": 2,
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    ],
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
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "ValidatingAdmissionPolicy": ADMISSION + "/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": ADMISSION + "/validatingadmissionpolicybindings",
    "Role": RBAC + "/namespaces/{}/roles",
    "RoleBinding": RBAC + "/namespaces/{}/rolebindings",
    "ClusterRole": RBAC + "/clusterroles",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


NAMED_BY_PATH = tuple(kind for kind, path in PATHS.items() if path.startswith((RBAC, ADMISSION)))
"""Kinds whose names may have 253 characters, since nothing repeats them as a label or a host's name."""


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Helm, from PATH or built by hack/cluster."""
    return Helm(program("helm"))


def hand_written(rendered: Rendered) -> str:
    """All documents without CRDs and without the rules that hack/generate writes: both have their own tests."""
    documents = rendered.text.split("\n---\n")
    found = [document for document in documents if "kind: CustomResourceDefinition" not in document]
    return "\n---\n".join(
        without_generated_rules(document) if f"kind: {POLICY}\n" in document else document for document in found
    )


def without_generated_rules(document: str) -> str:
    policy = yaml.safe_load(document)
    for field in ("variables", "validations"):
        generated = [row for rules in GENERATED_RULES.values() for row in rules[field]]
        policy["spec"][field] = [row for row in policy["spec"][field] if row not in generated]
    return str(yaml.safe_dump(policy, sort_keys=False, width=120)).rstrip("\n")


def is_for_election(role: dict[str, Any]) -> bool:
    """Whether a Role or RoleBinding is the one for leader election."""
    return str(role["metadata"]["name"]).endswith("-leader-election")


def run_roles(rendered: Rendered, kind: str = "Role") -> list[dict[str, Any]]:
    """Roles or bindings for runs: all but those for leader election."""
    return [role for role in rendered.of_kind(kind) if not is_for_election(role)]


def test_helm_lint_succeeds(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


@pytest.mark.parametrize("page", ["NOTES.txt", "upgrade.md"])
def test_the_commands_before_an_uninstallation_suspend_all_runs_and_wait_for_their_engines(
    helm: Helm, tmp_path: Path, page: str
) -> None:
    """An operator that is gone cannot end engines. `helm template` leaves the notes out."""
    text = (CHART.parents[1] / "docs/how-to/upgrade.md").read_text()
    if page == "NOTES.txt":
        chart = shutil.copytree(CHART, tmp_path / "chart")
        (chart / "templates/notes.yaml").write_text(
            'text: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}'
        )
        options = ["--set", "image.repository=specbench,watchNamespaces={bench}", "--kube-version", KUBERNETES]
        text = helm.run("template", "x", str(chart), *options, "--show-only", "templates/notes.yaml")
        text = yaml.safe_load(text)["text"]
    (suspend,) = re.findall(
        r"kubectl -n bench get (\S+) -o name \| xargs -r -n1 kubectl -n bench patch (.+)$", text, re.MULTILINE
    )
    (waited,) = re.findall(r"kubectl -n bench wait --for=delete pod --selector=(\S+)", text)
    kinds = [
        yaml.safe_load((CHART / f"files/crds/specbench.io_{row.plural}.yaml").read_text()) for row in (CAMPAIGN, RUN)
    ]
    assert suspend[0].split(",") == [kind["spec"]["names"]["shortNames"][0] for kind in kinds], "campaigns first"
    assert suspend[1].startswith("--type=merge -p '")
    patch = json.loads(suspend[1].split("'")[1])
    resource = operator_run()
    resource["spec"] |= patch["spec"]
    run = parse_run(resource)
    plan = expand(run)
    pod = engine_job(run, plan, plan.groups[0], 1, SETTINGS)["spec"]["template"]
    assert run.spec.suspend
    assert dict(row.split("=") for row in waited.split(",")).items() <= pod["metadata"]["labels"].items()


def test_the_default_rendering_matches_the_golden_file(helm: Helm) -> None:
    """A change rewrites the golden file and fails the test: review the difference, then commit the new file."""
    rendered = hand_written(helm.template())
    golden = GOLDEN.read_text() if GOLDEN.exists() else ""
    GOLDEN.write_text(rendered)
    assert rendered == golden


@pytest.mark.parametrize("name", GENERATED_RULES)
def test_a_policy_contains_the_generated_rules_after_those_of_the_chart(helm: Helm, name: str) -> None:
    (policy,) = [row for row in helm.template().of_kind(POLICY) if row["metadata"]["name"].endswith(f"-{name}")]
    own = {"requester": (0, 0), "fence": (6, 1)}[name]
    for field, count in zip(("variables", "validations"), own, strict=True):
        assert policy["spec"][field][count:] == GENERATED_RULES[name][field]


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
        everywhere = "watchAllNamespaces" in values
        own: dict[str, Any] = {"watchNamespaces": [] if everywhere else [watched]}
        own |= {"rbac": {"clusterWide": True, "namespaces": [watched]}} if everywhere else {}
        rendered = helm.template({**values, **own, "fullnameOverride": namespace}, namespace=namespace)
        tried = [row["kind"] for row in rendered.objects if row["kind"] in PATHS and try_out(cluster, row)]
    assert set(tried) == {row["kind"] for row in rendered.objects} - {"ServiceMonitor", "PrometheusRule"}


EVERYWHERE = {"watchAllNamespaces": True, "rbac": {"namespaces": ["a", "b"]}}


@pytest.mark.parametrize("values", [{}, ALL, EVERYWHERE], ids=["default", "all", "all namespaces"])
def test_the_operators_role_has_exactly_the_required_rules(helm: Helm, values: dict[str, Any]) -> None:
    """The same rules that the operator's own tests use."""
    rendered = helm.template(values)
    kind = "ClusterRole" if values.get("watchAllNamespaces") else "Role"
    others = ("-watch", "-view", "-edit", "-nodes")
    roles = [role for role in run_roles(rendered, kind) if not role["metadata"]["name"].endswith(others)]
    assert roles
    expected = [*RULES, *GROUP_RULES] if values.get("leaderWorkerSets") else RULES
    assert all(role["rules"] == expected for role in roles)


def test_the_page_of_the_chart_lists_every_right_of_the_operator(helm: Helm) -> None:
    values = {**ALL, "watchAllNamespaces": True, "watchNamespaces": ["team-*"], "rbac": {"readNodes": True}}
    rendered = helm.template(values)
    rules = [rule for kind in ("Role", "ClusterRole") for role in rendered.of_kind(kind) for rule in role["rules"]]
    granted = Counter(
        (rule["apiGroups"][0] or "core", tuple(rule["resources"]), tuple(rule["verbs"])) for rule in rules
    )
    page = (CHART / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|`]+ \| ([a-z0-9.-]+) \| (`[^|]+) \| ([a-z, ]+) \|", page, re.MULTILINE)
    assert granted == Counter(
        (group, tuple(re.findall(r"`(.+?)`", resources)), tuple(verbs.split(", "))) for group, resources, verbs in rows
    )


ONE_SECRET = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["bench-s3"], "verbs": ["get"]}


@pytest.mark.parametrize(
    ("values", "resource", "expected"),
    [
        ({"rbac": {"readWorkloads": False}}, "workloads", []),
        ({"networkPolicy": {"enabled": False}}, "networkpolicies", []),
        ({"rbac": {"secretNames": ["bench-s3"]}}, "secrets", [ONE_SECRET]),
    ],
)
def test_values_remove_or_limit_a_rule(
    helm: Helm, values: dict[str, Any], resource: str, expected: list[dict[str, Any]]
) -> None:
    (role,) = run_roles(helm.template(values))
    assert [rule for rule in role["rules"] if rule["resources"] == [resource]] == expected
    others = [rule for rule in RULES if rule["resources"] != [resource]]
    assert [rule for rule in role["rules"] if rule["resources"] != [resource]] == others


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


def test_the_longest_names_of_release_and_namespace_give_valid_names(helm: Helm) -> None:
    options = ["--namespace", "n" * 63, "--kube-version", KUBERNETES, "--values", "-"]
    values = {**ALL, "watchNamespaces": ["w" * 63], "image": {"repository": "specbench"}}
    rendered = Rendered(helm.run("template", "r" * 53, str(CHART), *options, stdin=json.dumps(values)))
    for raw in rendered.objects:
        meta, is_label = raw["metadata"], raw["kind"] not in NAMED_BY_PATH
        assert len(meta["name"]) <= (63 if is_label else 253), meta["name"]
        assert max(len(value) for value in meta.get("labels", {"": ""}).values()) <= 63


def test_each_watched_namespace_has_a_role_bound_to_the_operator(helm: Helm) -> None:
    rendered = helm.template({"watchNamespaces": ["a", "b"]})
    assert [(role["metadata"]["namespace"], role["metadata"]["name"]) for role in run_roles(rendered)] == [
        ("a", "team-bench-specbench"),
        ("b", "team-bench-specbench"),
    ]
    assert [binding["subjects"][0]["namespace"] for binding in run_roles(rendered, "RoleBinding")] == ["team", "team"]
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == "a,b"


def bindings_of(rendered: Rendered, kind: str) -> dict[str, list[str]]:
    """ClusterRole -> where it is bound: namespaces, or an empty text for the whole cluster."""
    found: dict[str, list[str]] = {}
    for row in run_roles(rendered, kind):
        assert row["roleRef"]["kind"] == "ClusterRole"
        found.setdefault(row["roleRef"]["name"], []).append(row["metadata"].get("namespace", ""))
    return found


def test_with_all_namespaces_the_operator_executes_runs_only_where_its_cluster_role_is_bound(helm: Helm) -> None:
    rendered = helm.template(EVERYWHERE)
    assert run_roles(rendered) == []
    assert {role["metadata"]["name"] for role in rendered.of_kind("ClusterRole")} == {
        "team-bench-specbench",
        "team-bench-specbench-watch",
    }
    assert bindings_of(rendered, "ClusterRoleBinding") == {"team-bench-specbench-watch": [""]}
    assert bindings_of(rendered, "RoleBinding") == {"team-bench-specbench": ["a", "b"]}
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == ""


PATTERNS = {"watchAllNamespaces": True, "watchNamespaces": ["team-*", "bench"]}


def test_patterns_limit_which_of_all_namespaces_are_watched(helm: Helm) -> None:
    rendered = helm.template(PATTERNS)
    assert env_of(rendered)["SPECBENCH_NAMESPACES"] == "team-*,bench"
    assert {role["metadata"]["namespace"] for role in rendered.of_kind("Role")} == {"team"}, "only that of the Lease"


def test_the_right_to_watch_all_namespaces_includes_no_secret_and_creates_nothing(helm: Helm) -> None:
    (role,) = (
        role
        for role in helm.template({"watchAllNamespaces": True}).of_kind("ClusterRole")
        if role["metadata"]["name"].endswith("-watch")
    )
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    status = {"specbenchruns/status", "specbenchcampaigns/status"}
    read = {"specbenchruns", "specbenchcampaigns", "jobs", "pods"}
    assert granted == {(resource, "patch") for resource in status} | {
        (resource, verb) for resource in read for verb in ("get", "list", "watch")
    }


def test_rights_in_the_whole_cluster_are_only_granted_on_request(helm: Helm) -> None:
    values = {"watchAllNamespaces": True, "rbac": {"clusterWide": True}}
    assert set(bindings_of(helm.template(values), "ClusterRoleBinding")) == {
        "team-bench-specbench-watch",
        "team-bench-specbench",
    }


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


def test_the_operator_parses_its_settings_from_the_rendered_environment(helm: Helm, tmp_path: Path) -> None:
    rendered = helm.template(ALL | {"workers": 7, "logLevel": "DEBUG"})
    settings = settings_of(rendered, tmp_path)
    assert settings == replace(
        OperatorSettings(client_image="specbench:0.1.0"),
        namespaces=("a", "b"),
        workers=7,
        log_level="DEBUG",
        probe_engines=True,
        leader_worker_sets=True,
        client_start_deadline_s=60,
        fence=Fence.model_validate_json(json.dumps(VALUES["fence"])),
        operator_namespace="team",
        lease=Lease("team", "bench-specbench"),
        client_cpu="4",
        client_memory="8Gi",
        network_policies=settings.network_policies,  # compared with the operator's own policy by another test
    )


def test_the_container_ports_match_the_operators_settings(helm: Helm) -> None:
    ports = {row["name"]: row["containerPort"] for row in container_of(helm.template())["ports"]}
    assert ports == {"liveness": OperatorSettings("").liveness_port, "metrics": OperatorSettings("").metrics_port}


def test_one_of_several_replicas_may_be_evicted_at_a_time(helm: Helm) -> None:
    assert helm.template().of_kind("PodDisruptionBudget") == []
    rendered = helm.template({"replicas": 2})
    deployment, budget = rendered.one("Deployment")["spec"], rendered.one("PodDisruptionBudget")["spec"]
    assert deployment["replicas"] == 2
    assert budget == {"maxUnavailable": 1, "selector": deployment["selector"]}


def test_values_replace_how_replicas_are_spread(helm: Helm) -> None:
    """The golden file has the default: over zones and nodes."""
    own = [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    rendered = helm.template({"topologySpreadConstraints": own})
    assert rendered.one("Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"] == own


@pytest.mark.parametrize("values", [{}, EVERYWHERE], ids=["default", "all namespaces"])
def test_the_operator_may_use_its_lease_in_its_own_namespace(
    helm: Helm, values: dict[str, Any], tmp_path: Path
) -> None:
    rendered = helm.template(values)
    (role,) = (row for row in rendered.of_kind("Role") if is_for_election(row))
    (binding,) = (row for row in rendered.of_kind("RoleBinding") if is_for_election(row))
    lease = settings_of(rendered, tmp_path).lease
    names = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
    assert (role["metadata"]["namespace"], names) == (lease.namespace, [lease.name])
    assert [{**rule, "resourceNames": None} for rule in role["rules"]] == [
        {**rule, "resourceNames": None} for rule in LEASE_RULES
    ]
    account = rendered.one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": lease.namespace}]
    assert helm.template({**values, "rbac": {"create": False}}).of_kind("Role") == []


@pytest.mark.parametrize(
    ("image", "operator_image", "client", "operator"),
    [
        ({}, {}, "specbench:0.1.0", "specbench-operator:0.1.0"),
        ({"repository": "r.example/s", "tag": "7"}, {}, "r.example/s:7", "r.example/s-operator:7"),
        ({"tag": "7", "digest": DIGEST}, {}, f"specbench@{DIGEST}", "specbench-operator:7"),
        ({"tag": "7"}, {"repository": "o", "digest": DIGEST}, "specbench:7", f"o@{DIGEST}"),
        ({"tag": "7"}, {"tag": "8"}, "specbench:7", "specbench-operator:8"),
    ],
)
def test_the_operators_image_is_named_after_the_clients_unless_it_is_set(
    helm: Helm, image: dict[str, str], operator_image: dict[str, str], client: str, operator: str
) -> None:
    rendered = helm.template({"image": image, "operatorImage": operator_image})
    assert env_of(rendered)["SPECBENCH_CLIENT_IMAGE"] == client
    assert container_of(rendered)["image"] == operator


def test_the_operator_blocks_the_same_addresses_for_the_pods_of_runs(helm: Helm, tmp_path: Path) -> None:
    rendered = helm.template(ALL)
    settings = settings_of(rendered, tmp_path).network_policies
    assert settings is not None
    to = [row for rule in rendered.one("NetworkPolicy")["spec"]["egress"] for row in rule.get("to", [])]
    blocked = {cidr for row in to for cidr in row.get("ipBlock", {}).get("except", [])}
    assert blocked == set(settings.blocked) == set(VALUES["networkPolicy"]["blockedAddresses"])
    assert (settings.engine_from, settings.egress) == (({"namespaceSelector": {}},), ({},))
    disabled = helm.template({"networkPolicy": {"enabled": False}})
    assert (disabled.of_kind("NetworkPolicy"), settings_of(disabled, tmp_path).network_policies) == ([], None)


def test_nobody_may_read_the_metrics_if_no_peer_is_listed(helm: Helm) -> None:
    assert helm.template({"networkPolicy": {"metricsFrom": []}}).one("NetworkPolicy")["spec"]["ingress"] == []


def test_on_cilium_the_operator_may_reach_an_api_server_on_a_node(helm: Helm) -> None:
    policy = helm.template(api_versions=("cilium.io/v2",)).one("CiliumNetworkPolicy")
    assert policy["spec"]["egress"] == [{"toEntities": ["kube-apiserver"]}]
    assert helm.template().of_kind("CiliumNetworkPolicy") == []


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
@pytest.mark.parametrize(
    ("values", "api_versions"),
    [
        ({}, ("security.openshift.io/v1",)),
        ({"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}, ()),
    ],
    ids=["detected", "value"],
)
def test_on_openshift_the_operators_pod_has_no_user_id(
    helm: Helm, values: dict[str, Any], api_versions: tuple[str, ...], kind: str
) -> None:
    found = helm.template(values, api_versions=api_versions).one(kind)
    pod = found["spec"]["template"]["spec"] if kind == "Deployment" else found["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"replicas": 0}, "replicas"),
        ({"image": {"repo": "x"}}, "repo"),
        ({"image": {"repository": ""}}, r"image\.repository is not set.*set image\.repository=REGISTRY/specbench"),
        ({"image": {"repository": "", "digest": DIGEST}}, r"image\.repository is not set"),
        ({"watchNamespaces": ["A"]}, "watchNamespaces"),
        ({"fence": {"image": []}}, "image"),
        ({"fence": {"limits": {"gpus": -1}}}, "gpus"),
        ({"fence": {"defaultStore": {"endpoint": "http://minio:9000"}}}, "bucket"),
        ({"fence": {"defaultStore": {"bucket": "a", "credentials": "b"}}}, "credentials"),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled needs metrics.service.enabled",
        ),
        ({"rbac": {"clusterWide": True}}, "no effect without watchAllNamespaces"),
        ({"rbac": {"namespaces": ["a"]}}, "no effect without watchAllNamespaces"),
        ({"watchNamespaces": ["team-*"]}, r"team-\*.*watchAllNamespaces=true"),
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


@pytest.mark.parametrize(
    ("opened", "right", "expected"),
    [
        (True, "create batch/jobs", True),
        (True, "create networking.k8s.io/networkpolicies", True),
        (True, "get /secrets/bench-s3", True),
        (True, "get /secrets/other", False),
        (True, "list /secrets", False),
        (True, "create /pods", False),
        (False, "list specbench.io/specbenchruns", True),
        (False, "patch specbench.io/specbenchruns/status", True),
        (False, "create batch/jobs", False),
        (False, "create specbench.io/specbenchruns", False),
        (False, "get /secrets/bench-s3", False),
        (False, "get /configmaps/x", False),
    ],
)
def test_an_api_server_grants_rights_only_in_opened_namespaces(
    everywhere: tuple[Cluster, str, str], *, opened: bool, right: str, expected: bool
) -> None:
    cluster, namespace, elsewhere = everywhere
    verb, _, target = right.partition(" ")
    group, resource, *rest = target.split("/")
    is_status = rest == ["status"]
    attributes = {
        "namespace": namespace if opened else elsewhere,
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": "status" if is_status else "",
        "name": "" if is_status or not rest else rest[0],
    }
    body = {"spec": {"user": f"system:serviceaccount:{namespace}:{namespace}", "resourceAttributes": attributes}}
    answer = cluster.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert answer["status"]["allowed"] is expected


@pytest.fixture(scope="module")
def everywhere(helm: Helm, cluster: Cluster) -> Iterator[tuple[Cluster, str, str]]:
    """A cluster with the rights of an operator that watches all namespaces, an opened namespace, and another one."""
    with cluster.namespace("opened") as namespace, cluster.namespace("elsewhere") as elsewhere:
        values = {
            "watchAllNamespaces": True,
            "rbac": {"namespaces": [namespace], "secretNames": ["bench-s3"]},
            "fullnameOverride": namespace,
        }
        rules = [row for row in helm.template(values, namespace=namespace).objects if "rbac" in row["apiVersion"]]
        paths = [
            f"{PATHS[row['kind']].format(row['metadata'].get('namespace'))}/{row['metadata']['name']}" for row in rules
        ]
        try:
            for path, row in zip(paths, rules, strict=True):
                cluster.call("PATCH", path, row, query={"fieldManager": "specbench-tests"}, kind=APPLY)
            review = {"user": f"system:serviceaccount:{namespace}:{namespace}"}
            attributes = {"namespace": namespace, "verb": "create", "group": "batch", "resource": "jobs"}
            body = {"spec": {**review, "resourceAttributes": attributes}}
            reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            eventually(lambda: cluster.call("POST", reviews, body)["status"]["allowed"], "the rights are not granted")
            yield cluster, namespace, elsewhere
        finally:
            for path in paths:
                with suppress(ApiError):  # a test that failed before has not created all of them
                    cluster.call("DELETE", path)


def container_of(rendered: Rendered) -> dict[str, Any]:
    """The operator's container."""
    return dict(rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0])


def annotations_of(rendered: Rendered) -> dict[str, str]:
    """Annotations of the operator's pod."""
    return dict(rendered.one("Deployment")["spec"]["template"]["metadata"]["annotations"])


def env_of(rendered: Rendered) -> dict[str, str]:
    """The operator's environment."""
    return {row["name"]: row["value"] for row in container_of(rendered)["env"] if "value" in row}


def settings_of(rendered: Rendered, folder: Path) -> OperatorSettings:
    """The operator's settings, with the fence of the ConfigMap in a file of `folder`."""
    fence = folder / "fence.json"
    fence.write_text(rendered.one("ConfigMap")["data"]["fence.json"])
    return OperatorSettings.from_env({**env_of(rendered), "SPECBENCH_FENCE": str(fence)})


def try_out(cluster: Cluster, manifest: dict[str, Any]) -> bool:
    """Apply as a dry run (except ServiceAccounts, which pods refer to). Raises ApiError if Kubernetes rejects it."""
    path = PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
    query = {"fieldValidation": "Strict", "fieldManager": "specbench-tests", "force": "true"}
    query |= {} if manifest["kind"] == "ServiceAccount" else {"dryRun": "All"}
    cluster.call("PATCH", f"{path}/{manifest['metadata']['name']}", manifest, query=query, kind=APPLY)
    return True


# The chart's alerts use metrics that the operator exposes, and fire when they should (checked with promtool).

JOB = 'namespace="team",job="bench-specbench-metrics"'


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    """The rule groups in the format of Prometheus."""
    enabled = {"metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}}
    spec: dict[str, Any] = Helm(program("helm")).template(enabled).one("PrometheusRule")["spec"]
    return spec


def test_alerts_use_only_metrics_that_the_operator_exposes(rules: dict[str, Any]) -> None:
    telemetry = Telemetry()
    telemetry.counted_runs([], lambda _namespace, _name: None)
    exposed = set(
        re.findall(r"^(\w+)[ {]", prometheus_client.generate_latest(telemetry.registry).decode(), re.MULTILINE)
    )
    used = {name for rule in rules["groups"][0]["rules"] for name in re.findall(r"\bspecbench_\w+", rule["expr"])}
    assert used
    assert used <= exposed


SCENARIOS: tuple[tuple[str, str, dict[str, str], set[str]], ...] = (
    ("runs make progress", "3h", {"up": "1x300", "running": "1x300", "points": "0+1x300", "gpus": "0+240x300"}, set()),
    ("no run is active", "3h", {"up": "1x300", "running": "0x300", "points": "9x300", "gpus": "99x300"}, set()),
    ("the operator is down", "10m", {"up": "0x300"}, {"SpecbenchOperatorDown"}),
    ("the operator was never scraped", "10m", {}, {"SpecbenchOperatorDown"}),
    ("a replica leads", "10m", {"up": "1x300", "leader": "1x300", "standby": "0x300"}, set()),
    ("no replica leads", "10m", {"up": "1x300", "leader": "0x300", "standby": "0x300"}, {"SpecbenchNoLeader"}),
    (
        "a run completes no point",
        "2h",
        {"up": "1x300", "running": "1x300", "points": "5x300", "gpus": "0+240x300"},
        {"SpecbenchRunStalled"},
    ),
    (
        "GPUs are held without a run",
        "40m",
        {"up": "1x300", "running": "0x300", "points": "5x300", "gpus": "0+240x300"},
        {"SpecbenchGpusHeldIdle"},
    ),
    (
        "the operator reports a bug",
        "10m",
        {"up": "1x300", "running": "0x300", "bugs": "0x8 1x300"},
        {"SpecbenchOperatorBug"},
    ),
)
SERIES = {
    "up": f"up{{{JOB}}}",
    "running": f'specbench_runs{{{JOB},phase="Running"}}',
    "points": f"specbench_points_measured_total{{{JOB}}}",
    "gpus": f"specbench_gpu_held_seconds_total{{{JOB}}}",
    "leader": f'specbench_leader{{{JOB},pod="a"}}',
    "standby": f'specbench_leader{{{JOB},pod="b"}}',
    "bugs": f'specbench_reconcile_duration_seconds_count{{{JOB},result="Bug"}}',
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH, so alerts cannot be tested")
def test_each_alert_fires_exactly_in_its_scenario(rules: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    names = [rule["alert"] for rule in rules["groups"][0]["rules"]]
    tests = [
        {
            "name": why,
            "interval": "1m",
            "input_series": [{"series": SERIES[name], "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                    "eval_time": eval_time,
                    "exp_samples": [{"labels": "{}", "value": int(name in firing)}],
                }
                for name in names
            ],
        }
        for why, eval_time, series, firing in SCENARIOS
    ]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
