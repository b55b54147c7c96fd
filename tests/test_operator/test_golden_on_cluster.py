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

GOLDEN = {file.stem: file for file in sorted((Path(__file__).parent / "golden").glob("*.yaml"))}
MAIN = {
    "engine-placed",
    "engine-multus",
    "engine-istio",
    "client-istio",
    "group-deadline",
    "client-full",
    "report-full",
}
PATHS = {
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "Service": "/api/v1/namespaces/default/services",
    "ConfigMap": "/api/v1/namespaces/default/configmaps",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
    "Pod": "/api/v1/namespaces/default/pods",
}
"""Paths of the kinds. Of a LeaderWorkerSet only the pods are tested here; tests/test_peers has the rest."""


def tried_out(cluster: Cluster, manifest: dict[str, Any]) -> Any:
    """What the server would store. Raises ApiError."""
    there = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default", "name": "tried-out"}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return cluster.call("POST", PATHS[manifest["kind"]], there, query=query)


def test_the_api_server_accepts_the_rendered_manifests(cluster: Cluster) -> None:
    accepted = set()
    for name, file in GOLDEN.items():
        manifest = yaml.safe_load(file.read_text())
        if manifest["kind"] == "LeaderWorkerSet":
            templates = manifest["spec"]["leaderWorkerTemplate"]
            for role in ("leader", "worker"):
                tried_out(cluster, {**templates[f"{role}Template"], "apiVersion": "v1", "kind": "Pod"})
            continue
        made = tried_out(cluster, manifest)
        if manifest["kind"] == "Job":
            requested, kept = (each["spec"]["template"]["spec"] for each in (manifest, made))
            lost = {field for field, value in requested.items() if value and field not in kept}
            assert (name, lost) == (name, set()), "the server dropped a field of the pod"
        if manifest["kind"] in REPAIRED_KINDS:
            assert fulfils(made["spec"], manifest["spec"]), f"the operator would apply {name} again and again"
        accepted.add(name)
    assert accepted >= MAIN
