"""Renders the Helm chart with Helm, and installs its admission policies and Roles of people for a test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from specbench_testing.cluster import APPLY, Cluster
from specbench_testing.shared_cluster import program

CHART = Path(__file__).resolve().parents[3] / "helm/specbench"
KUBERNETES = "1.35.4"
"""Without a cluster, Helm assumes an old Kubernetes version."""
WATCHED = "runs"
"""The namespace of runs. The chart requires one, and refuses the release's own."""


class ChartRefused(Exception):
    """Helm failed; the message is Helm's output."""


@dataclass(frozen=True)
class Rendered:
    """The objects that a release would create."""

    text: str

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        # libyaml's loader: PyYAML's own takes seconds for the definitions of the custom resources.
        return [document for document in yaml.load_all(self.text, yaml.CSafeLoader) if document]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, in order."""
        return [row for row in self.objects if row["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        """Return the only object of a kind."""
        (found,) = self.of_kind(kind)
        return found


@dataclass(frozen=True)
class Helm:
    """The Helm program."""

    program: Path

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        version: str = KUBERNETES,
        namespace: str = "team",
        api_versions: Sequence[str] = (),
    ) -> Rendered:
        """Render the release `bench`, which watches WATCHED unless the values say otherwise. Raises ChartRefused.

        `api_versions`: further APIs of the cluster.
        """
        options = ["--namespace", namespace, "--kube-version", version, "--values", "-"]
        options += [word for api in api_versions for word in ("--api-versions", api)]
        values = values or {}
        given = {
            "watchNamespaces": [] if values.get("watchAllNamespaces") else [WATCHED],
            **values,
            "image": {"repository": "specbench", **values.get("image", {})},
        }
        return Rendered(self.run("template", "bench", str(CHART), *options, stdin=json.dumps(given)))

    def run(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """Run Helm. Raises ChartRefused."""
        cluster = ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        command = [str(self.program), *arguments, *cluster]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChartRefused(done.stderr)
        return done.stdout


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
