"""The tool's own calls to the API server; uses only the standard library."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from specbench_cluster.errors import ClusterError
from specbench_cluster.settings import Settings

_NEVER = "1970-01-01T00:00:00Z"


class ApiRefused(ClusterError):
    """The API server was unreachable (`code` is None) or rejected the request."""

    def __init__(self, call: str, code: int | None, reason: str) -> None:
        self.code = code
        super().__init__(f"{call}: {reason}")


@dataclass(frozen=True, slots=True)
class Node:
    """The node as the scheduler sees it; `reported`: the kubelet has reported since `await_report`."""

    ready: bool
    reported: bool
    gpus: int


class KubernetesApi:
    """Calls as the cluster's administrator."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        user = json.loads(settings.kubeconfig.read_text())["users"][0]["user"]
        self._token = str(user["token"])
        self._context = ssl.create_default_context(cafile=str(settings.certificates / "ca.crt"))

    def node(self) -> Node | None:
        """The node, or None before the kubelet has registered it."""
        found = self._call_or_none("GET", f"/api/v1/nodes/{self._settings.node}")
        if found is None:
            return None
        status = found["status"]
        ready: dict[str, Any] = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
        reported = ready.get("lastHeartbeatTime") != _NEVER
        return Node(
            ready.get("status") == "True", reported, int(status.get("allocatable", {}).get("nvidia.com/gpu", "0"))
        )

    def await_report(self) -> None:
        """Reset the time of the kubelet's last report, to distinguish the next report from it.

        Call it before starting a kubelet: its registration, which sets the GPUs to zero, is
        complete once it has reported. Does nothing without a node.
        """
        if self.node() is not None:
            condition = {"type": "Ready", "lastHeartbeatTime": _NEVER}
            path = f"/api/v1/nodes/{self._settings.node}/status"
            self._call("PATCH", path, {"status": {"conditions": [condition]}})

    def give_gpus(self, gpus: int, product: str) -> None:
        """Write GPUs and their product into the node, as a device plugin and feature discovery would.

        A kubelet keeps extended resources that it does not manage, but sets them to zero when
        it registers: call this again after every start of the kubelet.
        """
        amount = {"nvidia.com/gpu": str(gpus)}
        path = f"/api/v1/nodes/{self._settings.node}"
        self._call("PATCH", f"{path}/status", {"status": {"capacity": amount, "allocatable": amount}})
        labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.present": "true"}
        self._call("PATCH", path, {"metadata": {"labels": labels}})

    def pods_can_be_made(self) -> bool:
        """Whether the default service account exists, without which every pod is rejected."""
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return self._call_or_none("GET", path) is not None

    def _call_or_none(self, method: str, path: str) -> dict[str, Any] | None:
        try:
            return self._call(method, path)
        except ApiRefused as refused:
            if refused.code == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  our own API server
            f"{self._settings.api_url}{path}",
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/strategic-merge-patch+json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:  # noqa: S310
                read: dict[str, Any] = json.load(answer)
                return read
        except urllib.error.HTTPError as refused:
            with refused:
                reason = refused.read().decode(errors="replace")
            raise ApiRefused(f"{method} {path}", refused.code, reason) from refused
        except (urllib.error.URLError, OSError, http.client.HTTPException) as failed:
            raise ApiRefused(f"{method} {path}", None, str(failed)) from failed
