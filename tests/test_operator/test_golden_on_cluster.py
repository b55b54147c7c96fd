"""A real API server accepts every manifest that the operator renders, with strict field validation.

The requests are dry runs, so nothing is created; a Job is validated with its whole pod template.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_operator.state.objects import REPAIRED_KINDS, fulfils
from specbench_testing.cluster import Cluster

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent / "golden"
PATHS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}
"""Paths of the kinds. Of a LeaderWorkerSet only the pods are tested here; tests/test_peers has the rest."""


def manifests() -> dict[str, Any]:
    found = {file.stem: yaml.safe_load(file.read_text()) for file in sorted(GOLDEN.glob("*.yaml"))}
    return {name: manifest for name, manifest in found.items() if manifest["kind"] in PATHS}


def pods_of_groups() -> dict[str, Any]:
    groups = {file.stem: yaml.safe_load(file.read_text()) for file in sorted(GOLDEN.glob("group*.yaml"))}
    return {
        f"{name}-{role}": group["spec"]["leaderWorkerTemplate"][f"{role}Template"]
        for name, group in groups.items()
        if group["kind"] == "LeaderWorkerSet"
        for role in ("leader", "worker")
    }


@pytest.mark.parametrize("name", pods_of_groups())
def test_the_api_server_accepts_the_pods_of_a_group(name: str, cluster: Cluster) -> None:
    template = pods_of_groups()[name]
    pod = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "tried-out"}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    assert cluster.call("POST", "/api/v1/namespaces/default/pods", pod, query=query)["kind"] == "Pod"


def test_the_golden_files_include_the_main_variants() -> None:
    assert {
        "engine-placed",
        "engine-multus",
        "engine-istio",
        "client-istio",
        "group-deadline",
        "client-full",
        "report-full",
    } <= set(manifests())


@pytest.mark.parametrize("name", manifests())
def test_the_api_server_accepts_the_rendered_manifests(name: str, cluster: Cluster) -> None:
    manifest = manifests()[name]
    there = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default", "name": "tried-out"}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    made = cluster.call("POST", PATHS[manifest["kind"]].format("default"), there, query=query)
    if manifest["kind"] == "Job":
        requested, kept = (each["spec"]["template"]["spec"] for each in (manifest, made))
        lost = {field for field, value in requested.items() if value and field not in kept}
        assert lost == set(), "the server dropped a field of the pod"
    if manifest["kind"] in REPAIRED_KINDS:
        assert fulfils(made["spec"], manifest["spec"]), "the operator would apply it again and again"
