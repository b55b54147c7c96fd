"""The installed product as tests use it: the chart's release, and a namespace that only this release watches.

The release watches the namespace of one session only: other tests run operators in their own namespaces, and no run
may have two operators.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_cluster import Cluster as Ground
from specbench_cluster.product import S3_ENDPOINT, Product
from specbench_testing.api_server_runs import Runs
from specbench_testing.cluster import ApiError, Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.operator_process import retry_until_available
from specbench_testing.resources import Resource, resource
from specbench_testing.s3_results import BUCKET, PROMPTS, StoredRun

QUICK = ("extraEnv[0].name=SPECBENCH_ENGINE_LOST_SETTLE_S", "extraEnv[0].value=5.0")
"""A shorter delay of the operator. With a decimal point, because helm's --set makes 5 a number."""
_NO_LOG = (400, 404)
SLOW = ["--base-ms=90"]
"""An engine so slow that the baseline's point takes about ten seconds, so that events can occur during it."""


def small_run(name: str, edits: Mapping[str, Any] | None = None) -> Resource:
    """A baseline and one drafter on the simulator: two points, half a minute. Edited by path."""
    drafter = {"name": "eagle3", "method": "eagle3", "model": "simulated-eagle3", "args": ["--acceptance=0.7"]}
    dataset = {
        "source": "jsonl",
        "uri": "/usr/share/specbench/prompts.jsonl",
        "categories": ["coding", "rag", "math", "conversation"],  # the last has two turns
        "count": PROMPTS,
    }
    given = {
        "spec.model.name": "simulated",
        "spec.drafters": [drafter],
        "spec.workloads": [{"name": "mixed", "dataset": dataset, "output": {"maxTokens": 24}}],
        "spec.load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1, "order": "Sequential"},
        "spec.placement": {"gpus": 1},
        "spec.results.s3": {
            "bucket": BUCKET,
            "prefix": f"end-to-end/{name}",
            "endpoint": S3_ENDPOINT,
            "credentialsSecretRef": {"name": "bench-s3"},
        },
        **(edits or {}),
    }
    return resource(given, name=name)


@dataclass(frozen=True)
class InstalledProduct:
    """The product, and the namespace of its runs."""

    cluster: Cluster
    ground: Ground
    product: Product
    namespace: str

    def begin(self, purpose: str, edits: Mapping[str, Any] | None = None) -> tuple[ClusterRun, StoredRun]:
        """Create a small run with a new name; returns the run and its results."""
        name = f"{purpose}-{uuid.uuid4().hex[:6]}"
        created = retry_until_available(lambda: Runs(self.cluster, self.namespace).create(small_run(name, edits)))
        return ClusterRun.of(self.cluster, created), StoredRun(self.ground.s3, created)

    def install(self) -> None:
        """Install with helm, and create the namespace with the Secret for S3, as a user does."""
        self.product.prepare_namespace(self.namespace)
        self.product.kubectl("label", "namespace", self.namespace, "pod-security.kubernetes.io/enforce=restricted")
        self.product.install(*self.values)

    @property
    def values(self) -> tuple[str, ...]:
        """The release's values, in addition to its image."""
        servers = f"fence.endpoints={{http://*.{self.namespace}.svc:8000}}"
        watched = f"watchNamespaces={{{self.namespace}}}"
        return (watched, servers, "rbac.readNodes=true", "fence.commands=true", *QUICK)

    def leader(self) -> str:
        """The operator's pod that holds the Lease."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.product.system}/leases"
        (lease,) = self.cluster.call("GET", path)["items"]
        return str(lease["spec"].get("holderIdentity") or "")

    def operators(self) -> list[Resource]:
        """Pods of the operator."""
        path = f"/api/v1/namespaces/{self.product.system}/pods"
        query = {"labelSelector": "app.kubernetes.io/component=operator"}
        return list(retry_until_available(lambda: self.cluster.call("GET", path, query=query)["items"]))

    def log(self) -> str:
        """The logs of the operator's current pods."""
        return "\n".join(self._log_of(pod["metadata"]["name"]) for pod in self.operators())

    def _log_of(self, pod: str) -> str:
        """The pod's log; empty if the pod is gone or has not started."""
        try:
            return self.cluster.text(f"/api/v1/namespaces/{self.product.system}/pods/{pod}/log")
        except ApiError as refused:
            if refused.status not in _NO_LOG:
                raise
            return ""
