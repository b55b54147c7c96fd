"""A third-party controller with webhooks: its CRDs in the cluster, its program as a process on this machine.

The API server calls its webhooks by URL, and only in the given namespaces, so that nothing else depends on a controller
that has ended. `stop` removes everything.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

from peers.go_program import GoProgram
from peers.registry import PEERS
from specbench_cluster.commands import run, tail, wait_until
from specbench_cluster.components import answers, listens

HOST = "127.0.0.1"
Manifest = Mapping[str, Any]


@dataclass
class WebhookController:
    """A controller. `folder` contains its configuration, certificates and log."""

    PEER: ClassVar[str]
    """Its name in the registry of peers."""
    DEFINITIONS: ClassVar[str]
    """Folder of its CRDs, below its sources."""
    HOOKS: ClassVar[str]
    """File of its webhook configurations, below its sources."""
    HEALTH_PORT: ClassVar[int]
    WEBHOOK_PORT: ClassVar[int]
    CONFIGURATION: ClassVar[Manifest]
    """Its configuration without `health` and `webhook`."""

    kubeconfig: Path
    kubectl: Path
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @classmethod
    def hook(cls, row: dict[str, Any]) -> dict[str, Any] | None:
        """The webhook as it is registered; None if it is not."""
        return row

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the controller. Raises ClusterError."""
        try:
            self.start()
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        """Install and start the controller, and wait until it is ready. Raises ClusterError with what is missing."""
        program = self._peer.built()
        self._certificates()
        self._install()
        configuration = self.folder / f"{self.PEER}.json"
        settings = {
            "health": {"healthProbeBindAddress": f"{HOST}:{self.HEALTH_PORT}"},
            "webhook": {"host": HOST, "port": self.WEBHOOK_PORT, "certDir": str(self.folder)},
        }
        configuration.write_text(json.dumps({**self.CONFIGURATION, **settings}))
        environment = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}
        with self._log.open("ab") as log:
            call = [str(program), "--config", str(configuration)]
            self._process = subprocess.Popen(call, env=environment, stdout=log, stderr=log, cwd=self.folder)
        ready = f"http://{HOST}:{self.HEALTH_PORT}/readyz"
        wait_until(
            lambda: answers(ready) and listens(HOST, self.WEBHOOK_PORT),
            self.PEER,
            timeout_s=90,
            explain=lambda: tail(self._log),
        )

    def manage(self, namespaces: Iterable[str]) -> None:
        """Register the webhooks for these namespaces."""
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        selector = {"matchExpressions": [named]}
        self.apply(*(self._pointed(hook, selector) for hook in self._documents(self.HOOKS)))

    def apply(self, *manifests: Manifest) -> None:
        """Create or change objects as the cluster's administrator. Raises CommandFailed."""
        text = yaml.safe_dump_all(manifests)
        self._kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def delete(self, *names: str) -> None:
        """Delete objects, each as `kind/name`, and wait until they are gone. Raises CommandFailed."""
        self._kubectl("delete", "--ignore-not-found", "--timeout=60s", *names)

    def stop(self) -> None:
        """Remove the controller. The process stops last, because its objects have finalizers that it must process."""
        hooks = [f"{kind}webhookconfiguration/{self._hook_name}" for kind in ("mutating", "validating")]
        try:
            self.delete(*hooks, *(f"crd/{name}" for name in self._definitions()))
        finally:
            if self._process:
                self._process.terminate()
                self._process.wait(timeout=60)

    @property
    def _peer(self) -> GoProgram:
        return PEERS[self.PEER]

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.PEER}.log"

    @property
    def _hook_name(self) -> str:
        return f"specbench-peers-{self.PEER}"

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return run([str(self.kubectl), f"--kubeconfig={self.kubeconfig}", *arguments], stdin=stdin)

    def _install(self) -> None:
        named = self._definitions()
        self.apply(*named.values())
        for name in named:
            wait_until(partial(self._established, name), f"the definition {name}")

    def _established(self, name: str) -> bool:
        # `kubectl wait` fails while a new definition has no conditions.
        status = json.loads(self._kubectl("get", f"crd/{name}", "--output=json")).get("status") or {}
        rows = status.get("conditions") or []
        return any((row["type"], row["status"]) == ("Established", "True") for row in rows)

    def _definitions(self) -> dict[str, Manifest]:
        """Its CRDs without conversion webhooks: all clients use the stored version."""
        files = sorted((self._peer.sources() / self.DEFINITIONS).glob("*.yaml"))
        read = [row for file in files for row in self._documents(f"{self.DEFINITIONS}/{file.name}")]
        return {row["metadata"]["name"]: row for row in read}

    def _documents(self, file: str) -> list[dict[str, Any]]:
        return [row for row in yaml.safe_load_all((self._peer.sources() / file).read_text()) if row]

    def _certificates(self) -> None:
        """Create a self-signed certificate, which is its own authority."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = ["-keyout", str(self.folder / "tls.key"), "-out", str(self.folder / "tls.crt")]
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *files,
             "-days", "30", "-subj", f"/CN={self.PEER}", "-addext", f"subjectAltName=IP:{HOST}"])  # fmt: skip

    def _pointed(self, configuration: Manifest, selector: Manifest) -> dict[str, Any]:
        """Return a webhook configuration that calls this process."""
        authority = base64.b64encode((self.folder / "tls.crt").read_bytes()).decode()
        hooks = []
        for row in filter(None, map(self.hook, configuration["webhooks"])):
            url = f"https://{HOST}:{self.WEBHOOK_PORT}{row['clientConfig']['service']['path']}"
            called = {"url": url, "caBundle": authority}
            hooks.append({**row, "namespaceSelector": selector, "clientConfig": called})
        return {**configuration, "metadata": {"name": self._hook_name}, "webhooks": hooks}
