"""examples/gitops on a real API server, with the CRDs of Argo CD and Flux."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from peers.health.definitions import definition
from specbench_testing.api_server_runs import Definition, Runs
from specbench_testing.cluster import APPLY, ApiError, Cluster
from specbench_testing.health_checks import FOREIGN, GITOPS
from specbench_testing.operator_process import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict", "fieldManager": "specbench-tests", "dryRun": "All"}


def manifest(file: str) -> dict[str, Any]:
    return dict(yaml.safe_load((GITOPS / file).read_text(encoding="utf-8")))


def dry_run(cluster: Cluster, item: dict[str, Any], plural: str) -> Any:
    """What the API server would store for this manifest, by a strict dry run."""
    namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
    root = f"/apis/{item['apiVersion']}" if "/" in item["apiVersion"] else f"/api/{item['apiVersion']}"
    path = f"{root}/namespaces/{namespace}/{plural}/{name}"
    return cluster.call("PATCH", path, item, query=STRICT, kind=APPLY)


@pytest.fixture
def foreign_crds(cluster: Cluster) -> Iterator[list[str]]:
    """The CRDs of Argo CD and Flux, and a namespace for each, for the duration of the test."""
    created = []
    for name in FOREIGN.values():
        crd_manifest = yaml.safe_load(definition(name).read_text(encoding="utf-8"))
        cluster.call("POST", DEFINITIONS, crd_manifest)
        created.append(f"{DEFINITIONS}/{name}")
    for namespace in ("argocd", "flux-system"):
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        created.append(f"/api/v1/namespaces/{namespace}")
    try:
        yield created
    finally:
        for path in created:
            cluster.call("DELETE", path)


def test_the_api_server_accepts_the_argo_cd_and_flux_manifests(cluster: Cluster, foreign_crds: list[str]) -> None:
    for file, name in FOREIGN.items():
        item, plural = manifest(file), name.partition(".")[0]
        eventually(lambda item=item, plural=plural: served(cluster, item, plural), f"{name} is not served")  # type: ignore[misc]
        assert dry_run(cluster, item, plural)["spec"].keys() >= item["spec"].keys()
        with pytest.raises(ApiError, match="unheard"):
            dry_run(cluster, {**item, "spec": {**item["spec"], "unheard": 1}}, plural)
    dry_run(cluster, manifest("clusters/argocd/argocd-cm.yaml"), "configmaps")


def served(cluster: Cluster, item: dict[str, Any], plural: str) -> bool:
    try:
        cluster.call("GET", f"/apis/{item['apiVersion']}/{plural}", query={"limit": "1"})
    except ApiError as rejected:
        if rejected.status != 404:
            raise
        return False
    return True


def test_the_api_server_accepts_the_release_run(cluster: Cluster, crd: Definition) -> None:
    with cluster.namespace("gitops") as namespace:
        stored = Runs(cluster, namespace).try_out(manifest("benchmarks/release.yaml"))
        assert stored["status"] == {"observedGeneration": -1}
