"""Fake nodes are added, offer GPUs to the scheduler, and are removed completely."""

from __future__ import annotations

from typing import Any

import pytest

from peers.kwok.stages import NODE_LABEL, ROLE
from specbench_testing.cluster import Cluster
from specbench_testing.kwok_nodes import KwokNodes, placement
from specbench_testing.operator_process import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(300)]

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def pod(name: str, gpus: int) -> dict[str, Any]:
    place = placement(gpus)
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "engine", "image": "registry.invalid/none", "args": [], "resources": resources}
    spec = {"nodeSelector": place["nodeSelector"], "tolerations": place["tolerations"], "containers": [container]}
    return {"metadata": {"name": name, "labels": {ROLE: "engine"}}, "spec": {**spec, "restartPolicy": "Never"}}


def test_fake_gpus_are_scheduled_and_the_nodes_are_removed_completely(cluster: Cluster) -> None:
    with cluster.namespace("kwok") as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"
        eventually(lambda: cluster.call("GET", path.replace("pods", "serviceaccounts"))["items"], "no service account")

        def wait_for_condition(name: str, kind: str, status: str) -> None:
            def condition_status() -> str:
                rows = cluster.call("GET", f"{path}/{name}")["status"].get("conditions", [])
                return "".join(row["status"] for row in rows if row["type"] == kind)

            eventually(lambda: condition_status() == status, f"{name} is not {kind}={status}")

        with KwokNodes(cluster, nodes=1, gpus=8) as nodes:
            cluster.call("POST", path, pod("first", gpus=5))
            wait_for_condition("first", "Ready", "True")
            cluster.call("POST", path, pod("second", gpus=5))
            wait_for_condition("second", "PodScheduled", "False")
            cluster.call("DELETE", f"{path}/first")
            wait_for_condition("second", "Ready", "True")
        assert nodes.pods() == []
    assert cluster.call("GET", "/api/v1/nodes", query={"labelSelector": NODE_LABEL})["items"] == []
    held = {row["metadata"]["name"] for row in cluster.call("GET", _LEASES)["items"]}
    assert not held & set(nodes.names)
