"""Runs LeaderWorkerSet for a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from peers.webhook_controller import WebhookController

PODS: Mapping[str, Any] = {
    "matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}],
}


class LeaderWorkerSets(WebhookController):
    """LeaderWorkerSet's controller. Its webhook for pods is called for its own pods only, as in its own manifests."""

    PEER: ClassVar[str] = "lws"
    DEFINITIONS: ClassVar[str] = "config/crd/bases"
    HOOKS: ClassVar[str] = "config/webhook/manifests.yaml"
    HEALTH_PORT: ClassVar[int] = 18082
    WEBHOOK_PORT: ClassVar[int] = 19444
    CONFIGURATION: ClassVar[Mapping[str, Any]] = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
    }

    @classmethod
    def hook(cls, row: dict[str, Any]) -> dict[str, Any] | None:
        """The webhook as it is registered."""
        return {**row, "objectSelector": PODS} if "pods" in row["rules"][0]["resources"] else row
