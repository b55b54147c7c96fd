"""Many fake GPU nodes: kwok simulates their kubelets and engines, with a real control plane.

Two pools: tainted nodes with GPUs, and client nodes with a taint of effect PreferNoSchedule (client pods carry no
tolerations, so those nodes cannot refuse pods without a toleration). The scheduler counts GPUs; nothing computes,
answers or pulls an image. peers.kwok.stages defines what fake engines do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from peers.kwok.stages import NODE_LABEL, Pace, configuration
from peers.registry import PEERS
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.operator_process import eventually, retry_until_available
from specbench_testing.resources import Resource

GPU_POOL, CLIENT_POOL = "gpu", "client"
PRODUCT = "KWOK-FAKE-GPU"
CLIENT_NODES = 2
_TAINT = "kwok.x-k8s.io/node"
_NODES, _LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NOT_FOUND = 404
_END_WITHIN_S = 20


def placement(gpus: int = 1) -> dict[str, Any]:
    """`spec.placement` of a run whose engines and clients run on fake nodes."""
    return {
        "gpus": gpus,
        "nodeSelector": {NODE_LABEL: GPU_POOL},
        "tolerations": [{"key": _TAINT, "operator": "Exists", "effect": "NoSchedule"}],
        "client": {"nodeSelector": {NODE_LABEL: CLIENT_POOL}},
    }


class KwokNodes:
    """A number of nodes with a number of GPUs each, within a `with` block; removed completely afterwards.

    kwok is started through a link in the cluster's own folder, if there is one: if this process is killed, the
    cluster's `down` ends kwok.
    """

    def __init__(self, cluster: Cluster, nodes: int = 8, gpus: int = 8, pace: Pace | None = None) -> None:
        self.cluster = cluster
        self._nodes = [
            *(_node(f"kwok-gpu-{number}", GPU_POOL, gpus) for number in range(nodes)),
            *(_node(f"kwok-client-{number}", CLIENT_POOL, 0) for number in range(CLIENT_NODES)),
        ]
        self._pace = pace
        self._folder = Path()
        self._kwok: subprocess.Popen[bytes] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the nodes."""
        return [node["metadata"]["name"] for node in self._nodes]

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="specbench-kwok-"))
        try:
            self._start()
            for node in self._nodes:
                self.cluster.call("POST", _NODES, node)
            eventually(lambda: self._unready() == [], f"the fake nodes do not get ready: {self.log()}", 60)
        except BaseException:
            self._remove_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_all()

    def log(self) -> str:
        """The last lines of kwok's log."""
        file = self._folder / "kwok.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-20:]) if file.exists() else ""

    def end(self) -> None:
        """End kwok without deleting nodes and pods, for a cluster that is removed as a whole."""
        self._end_kwok()
        if self._folder != Path():  # it exists since __enter__
            shutil.rmtree(self._folder)

    def pods(self) -> list[Resource]:
        """All pods on these nodes, of any namespace."""
        found = retry_until_available(lambda: self.cluster.call("GET", "/api/v1/pods"))["items"]
        return [pod for pod in found if pod["spec"].get("nodeName") in self.names]

    def _start(self) -> None:
        folder = self._folder
        (folder / "kwok.yaml").write_text(yaml.safe_dump_all(configuration(self._pace), sort_keys=False))
        call = [str(self._program()), f"--kubeconfig={self.cluster.kubeconfig}", f"--config={folder / 'kwok.yaml'}"]
        with (folder / "kwok.log").open("wb") as log:  # a separate home, without any user's configuration
            environment = {**os.environ, "HOME": str(folder)}
            self._kwok = subprocess.Popen(call, stdout=log, stderr=log, cwd=folder, env=environment)

    def _program(self) -> Path:
        program = PEERS["kwok"].built()
        if self.cluster.ground is None:
            return program
        link = self.cluster.ground.settings.programs / "kwok"
        if not link.exists():
            link.symlink_to(program)
        return link

    def _unready(self) -> list[str]:
        assert self._kwok is not None
        assert self._kwok.poll() is None, f"kwok ended: {self.log()}"
        found = self.cluster.call("GET", _NODES, query={"labelSelector": NODE_LABEL})["items"]
        return [node["metadata"]["name"] for node in found if not _is_ready(node)]

    def _remove_all(self) -> None:
        """Delete pods first, while kwok still ends them; then nodes, kwok, and the nodes' leases."""
        try:
            self._delete_pods()
            for name in self.names:
                self._delete(f"{_NODES}/{name}")
            eventually(lambda: not self._remaining(_NODES), "fake nodes still exist")
        finally:
            self.end()
        for name in self.names:
            self._delete(f"{_LEASES}/{name}")

    def _delete_pods(self) -> None:
        def gone() -> bool:
            pods = self.pods()
            for pod in pods:
                meta = pod["metadata"]
                self._delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", gracePeriodSeconds=0)
            return not pods

        eventually(gone, "pods on the fake nodes still exist")

    def _end_kwok(self) -> None:
        if self._kwok is None:
            return
        self._kwok.terminate()
        try:
            self._kwok.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._kwok.kill()
            self._kwok.wait()

    def _remaining(self, path: str) -> list[str]:
        items = retry_until_available(lambda: self.cluster.call("GET", path))["items"]
        return [item["metadata"]["name"] for item in items if item["metadata"]["name"] in self.names]

    def _delete(self, path: str, **options: Any) -> None:
        _unless_gone(lambda: retry_until_available(lambda: self.cluster.call("DELETE", path, options or None)))


def _unless_gone(act: Callable[[], object]) -> None:
    try:
        act()
    except ApiError as refused:
        if refused.status != _NOT_FOUND:
            raise


def _node(name: str, pool: str, gpus: int) -> Resource:
    effect = "NoSchedule" if pool == GPU_POOL else "PreferNoSchedule"
    has = {"cpu": "64", "memory": "512Gi", "pods": "512", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    labels = {NODE_LABEL: pool, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "metadata": {"name": name, "labels": labels | ({"nvidia.com/gpu.product": PRODUCT} if gpus else {})},
        "spec": {"taints": [{"key": _TAINT, "value": "fake", "effect": effect}]},
        "status": {"capacity": has, "allocatable": has, "nodeInfo": _INFO},
    }


_INFO = {
    "kernelVersion": "kwok",
    "kubeletVersion": "v1.35.4",
    "containerRuntimeVersion": "kwok://0.8.0",
    "osImage": "none",
    "operatingSystem": "linux",
    "architecture": "amd64",
    **dict.fromkeys(("bootID", "kubeProxyVersion", "machineID", "systemUUID"), ""),
}


def _is_ready(node: Resource) -> bool:
    conditions = {row["type"]: row["status"] for row in node["status"].get("conditions", [])}
    waits = any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", []))
    return conditions.get("Ready") == "True" and not waits
