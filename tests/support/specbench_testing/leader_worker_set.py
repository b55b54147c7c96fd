"""LeaderWorkerSet's own controller and webhooks, built from its Go module, for the test cluster's API server.

It runs on the host as the administrator, and its webhooks only receive the objects of the test's namespace. Its
definitions and webhook manifests come from the same module version: hack/peers/lws.
"""

from __future__ import annotations

import base64
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from peers.registry import PEERS
from specbench_testing.cluster import APPLY, ApiError, Cluster
from specbench_testing.operator_process import eventually
from specbench_testing.ports import free_port

FIELD = {"fieldManager": "specbench-tests", "force": "true"}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
PODS = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}


@contextmanager
def leader_worker_sets(cluster: Cluster, namespace: str, folder: Path) -> Iterator[None]:
    """Run LeaderWorkerSet for one namespace; removed afterwards with its definition."""
    built, source, port = PEERS["lws"].built(), PEERS["lws"].sources(), free_port()
    _certificate(folder)
    configuration = folder / "lws.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(folder, port)))
    _define(cluster, source)
    call = [str(built), f"--config={configuration}", f"--kubeconfig={cluster.kubeconfig}"]
    with (folder / "lws.log").open("wb") as log:
        process = subprocess.Popen(call, stdout=log, stderr=log)
    hooks = [_admitting(row, namespace, port, folder) for row in _documents(source / "config/webhook/manifests.yaml")]
    try:
        _await_port(port, process, folder / "lws.log")
        for hook in hooks:
            cluster.call("PATCH", _path(hook), hook, query=FIELD, kind=APPLY)
        yield
    finally:
        for hook in hooks:
            _remove(cluster, _path(hook))
        _remove(cluster, f"{DEFINITIONS}/{SETS}")
        process.terminate()
        process.wait(120)


def _configuration(folder: Path, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }


def _certificate(folder: Path) -> None:
    """Create a self-signed certificate, which is its own authority."""
    files = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    names = ("-subj", "/CN=lws", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=digitalSignature")
    call = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run([*call, *files, *names], check=True, capture_output=True)


def _define(cluster: Cluster, source: Path) -> None:
    (file,) = (source / "config/crd/bases").glob("*.yaml")
    (definition,) = _documents(file)
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    cluster.call("PATCH", path, definition, query=FIELD, kind=APPLY)
    eventually(lambda: _established(cluster.call("GET", path)), "the definition is not established")


def _established(definition: dict[str, Any]) -> bool:
    rows = definition.get("status", {}).get("conditions") or []
    return any((row["type"], row["status"]) == ("Established", "True") for row in rows)


def _admitting(manifest: dict[str, Any], namespace: str, port: int, folder: Path) -> dict[str, Any]:
    """The module's own webhook configuration, with our port and limited to one namespace."""
    authority = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    for row in manifest["webhooks"]:
        path = row["clientConfig"]["service"]["path"]
        row["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        row["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        if "pods" in row["rules"][0]["resources"]:
            row["objectSelector"] = PODS
    return {**manifest, "metadata": {"name": f"lws-{manifest['metadata']['name']}"}}


def _path(hook: dict[str, Any]) -> str:
    return f"{ADMISSION}/{hook['kind'].lower()}s/{hook['metadata']['name']}"


def _documents(file: Path) -> list[dict[str, Any]]:
    return [row for row in yaml.safe_load_all(file.read_text()) if row]


def _remove(cluster: Cluster, path: str) -> None:
    with suppress(ApiError):
        cluster.call("DELETE", path)


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def listens() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    eventually(listens, "LeaderWorkerSet does not listen")
