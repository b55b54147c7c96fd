"""Runs Kueue for a cluster: its CRDs in the cluster, its controller as a process on this machine.

The API server calls its webhooks by URL, for Jobs only, and only in the given namespaces, so that no other Job depends
on a controller that has ended. `stop` removes everything.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from peers.registry import PEERS
from specbench_cluster.commands import run, tail, wait_until
from specbench_cluster.components import answers

KUEUE = PEERS["kueue"]
GROUP = "kueue.x-k8s.io"
HOST = "127.0.0.1"
HEALTH_PORT, METRICS_PORT, WEBHOOK_PORT = 18081, 18443, 19443
NAMESPACE = "kueue-system"
HOOK_NAME = "specbench-peers-kueue"
METRICS_CERTIFICATES = Path("/etc/kueue/metrics/certs")
"""Kueue always reads the certificates from this folder, even if metrics are not used."""
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": f"config.{GROUP}/v1beta2",
    "kind": "Configuration",
    "namespace": NAMESPACE,
    "health": {"healthProbeBindAddress": f"{HOST}:{HEALTH_PORT}"},
    "metrics": {"bindAddress": f"{HOST}:{METRICS_PORT}"},
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
    "manageJobsWithoutQueueName": False,
    "clientConnection": {"qps": 200, "burst": 400},
    "integrations": {"frameworks": ["batch/job"]},
    "featureGates": {"VisibilityOnDemand": False},  # it requires an aggregated API server
}
Manifest = Mapping[str, Any]


@dataclass
class Kueue:
    """A Kueue controller. `folder` contains its configuration, certificates and log."""

    kubeconfig: Path
    kubectl: Path
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> Kueue:
        """Install and start Kueue, and wait until it is ready. Raises ClusterError with the condition not met."""
        program = KUEUE.built()
        self._certificates()
        self._install()
        webhook = {"host": HOST, "port": WEBHOOK_PORT, "certDir": str(self.folder)}
        configuration = self.folder / "kueue.json"
        configuration.write_text(json.dumps({**CONFIGURATION, "webhook": webhook}))
        environment = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}
        with self._log.open("ab") as log:
            call = [str(program), "--config", str(configuration)]
            self._process = subprocess.Popen(call, env=environment, stdout=log, stderr=log, cwd=self.folder)
        ready = f"http://{HOST}:{HEALTH_PORT}/readyz"
        wait_until(lambda: answers(ready), "Kueue", timeout_s=90, explain=lambda: tail(self._log))
        return self

    def manage(self, namespaces: Iterable[str]) -> None:
        """Register Kueue's webhooks for the Jobs of these namespaces."""
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        selector = {"matchExpressions": [named]}
        hooks = [_pointed(hook, selector, self._authority) for hook in self._hooks()]
        self.apply(*hooks)

    def apply(self, *manifests: Manifest) -> None:
        """Create or change objects as the cluster's administrator. Raises CommandFailed."""
        text = yaml.safe_dump_all(manifests)
        self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def delete(self, *names: str) -> None:
        """Delete objects, each as `kind/name`, and wait until they are gone. Raises CommandFailed."""
        self._kubectl("delete", "--ignore-not-found", "--timeout=60s", *names)

    def stop(self) -> None:
        """Remove Kueue. The process stops last, because its objects have finalizers that it must process."""
        hooks = [f"{kind}webhookconfiguration/{HOOK_NAME}" for kind in ("mutating", "validating")]
        try:
            self.delete(*hooks, *(f"crd/{name}" for name in self._definitions()), f"namespace/{NAMESPACE}")
        finally:
            if self._process:
                self._process.terminate()
                self._process.wait(timeout=60)
            _take_back_metrics_certificates()

    @property
    def _log(self) -> Path:
        return self.folder / "kueue.log"

    @property
    def _authority(self) -> str:
        return base64.b64encode((self.folder / "tls.crt").read_bytes()).decode()

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return run([str(self.kubectl), f"--kubeconfig={self.kubeconfig}", *arguments], stdin=stdin)

    def _install(self) -> None:
        named = self._definitions()
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *named.values())
        self._kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in named))

    def _definitions(self) -> dict[str, Manifest]:
        """Kueue's CRDs without conversion webhooks: all clients use the stored version."""
        files = sorted((KUEUE.sources() / "config/components/crd/bases").glob("*.yaml"))
        read = [yaml.safe_load(file.read_text()) for file in files]
        return {row["metadata"]["name"]: row for row in read}

    def _hooks(self) -> list[dict[str, Any]]:
        file = KUEUE.sources() / "config/components/webhook/manifests.yaml"
        return [row for row in yaml.safe_load_all(file.read_text()) if row]

    def _certificates(self) -> None:
        """Create a self-signed certificate, used for webhooks and metrics."""
        self.folder.mkdir(parents=True, exist_ok=True)
        key, certificate = self.folder / "tls.key", self.folder / "tls.crt"
        files = ["-keyout", str(key), "-out", str(certificate)]
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *files,
             "-days", "30", "-subj", "/CN=kueue", "-addext", f"subjectAltName=IP:{HOST}"])  # fmt: skip
        METRICS_CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for file in (key, certificate):
            (METRICS_CERTIFICATES / file.name).write_bytes(file.read_bytes())


def _take_back_metrics_certificates() -> None:
    for name in ("tls.crt", "tls.key"):
        (METRICS_CERTIFICATES / name).unlink(missing_ok=True)
    for folder in (METRICS_CERTIFICATES, *METRICS_CERTIFICATES.parents[:2]):
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _pointed(configuration: Mapping[str, Any], selector: Manifest, authority: str) -> dict[str, Any]:
    """Return a webhook configuration that calls this process for Jobs only."""
    kept = [
        row for row in configuration["webhooks"] if row["clientConfig"]["service"]["path"].endswith("-batch-v1-job")
    ]
    hooks = [
        {
            **row,
            "namespaceSelector": selector,
            "clientConfig": {
                "url": f"https://{HOST}:{WEBHOOK_PORT}{row['clientConfig']['service']['path']}",
                "caBundle": authority,
            },
        }
        for row in kept
    ]
    return {**configuration, "metadata": {"name": HOOK_NAME}, "webhooks": hooks}
