"""Runs Kueue for a cluster. It manages Jobs, LeaderWorkerSets and the pods of these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from peers.webhook_controller import HOST, WebhookController

GROUP = "kueue.x-k8s.io"
NAMESPACE = "kueue-system"
METRICS_CERTIFICATES = Path("/etc/kueue/metrics/certs")
"""Kueue always reads the certificates from this folder, even if metrics are not used."""
MANAGED = ("-batch-v1-job", "--v1-pod", "-leaderworkerset-x-k8s-io-v1-leaderworkerset")
"""Ends of the paths of the webhooks that are called."""


class Kueue(WebhookController):
    """Kueue's controller. The definition of LeaderWorkerSet must exist before it is started."""

    PEER: ClassVar[str] = "kueue"
    DEFINITIONS: ClassVar[str] = "config/components/crd/bases"
    HOOKS: ClassVar[str] = "config/components/webhook/manifests.yaml"
    HEALTH_PORT: ClassVar[int] = 18081
    WEBHOOK_PORT: ClassVar[int] = 19443
    CONFIGURATION: ClassVar[Mapping[str, Any]] = {
        "apiVersion": f"config.{GROUP}/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "metrics": {"bindAddress": f"{HOST}:18443"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "manageJobsWithoutQueueName": False,
        "clientConnection": {"qps": 200, "burst": 400},
        "integrations": {"frameworks": ["batch/job", "leaderworkerset.x-k8s.io/leaderworkerset"]},
        "featureGates": {"VisibilityOnDemand": False},  # it requires an aggregated API server
    }

    @classmethod
    def hook(cls, row: dict[str, Any]) -> dict[str, Any] | None:
        """The webhook as it is registered; None if it is not."""
        return row if row["clientConfig"]["service"]["path"].endswith(MANAGED) else None

    def stop(self) -> None:
        """Remove Kueue."""
        try:
            super().stop()
            self.delete(f"namespace/{NAMESPACE}")
        finally:
            _take_back_metrics_certificates()

    def _install(self) -> None:
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        super()._install()

    def _certificates(self) -> None:
        super()._certificates()
        METRICS_CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for name in ("tls.key", "tls.crt"):
            (METRICS_CERTIFICATES / name).write_bytes((self.folder / name).read_bytes())


def _take_back_metrics_certificates() -> None:
    for name in ("tls.crt", "tls.key"):
        (METRICS_CERTIFICATES / name).unlink(missing_ok=True)
    for folder in (METRICS_CERTIFICATES, *METRICS_CERTIFICATES.parents[:2]):
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
