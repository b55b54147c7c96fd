"""The chart's ValidatingAdmissionPolicies and Roles of people, installed on a cluster for a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from specbench_testing.charts import Helm
from specbench_testing.cluster import APPLY, Cluster
from specbench_testing.shared_cluster import program

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_ACCOUNT = {"name": "operator"}


@contextmanager
def installed_policies(cluster: Cluster, namespace: str, values: Mapping[str, Any], *, name: str = "") -> Iterator[str]:
    """Install the policies of a release that watches the namespace; yields the operator's user name."""
    own = {"watchNamespaces": [namespace], "fullnameOverride": name or namespace, "serviceAccount": _ACCOUNT, **values}
    rendered = Helm(program("helm")).template(own, namespace=f"{namespace}-operator")
    found = [row for row in rendered.objects if row["kind"] in POLICIES]
    paths = [f"{ADMISSION}/{POLICIES[row['kind']]}/{row['metadata']['name']}" for row in found]
    query = {"fieldManager": "specbench-tests", "fieldValidation": "Strict"}
    try:
        for path, manifest in zip(paths, found, strict=True):
            cluster.call("PATCH", path, manifest, query=query, kind=APPLY)
        account = rendered.one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        yield f"system:serviceaccount:{namespace}-operator:{account}"
    finally:
        for path in paths:
            cluster.call("DELETE", path)


def grant(cluster: Cluster, namespace: str, user: str, name: str, rules: list[dict[str, Any]]) -> None:
    """Give a user a Role in the namespace."""
    root = f"{RBAC}/namespaces/{namespace}"
    cluster.call("POST", f"{root}/roles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    cluster.call("POST", f"{root}/rolebindings", body)
