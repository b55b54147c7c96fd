"""Everything that the installed product leaves behind, as texts in which a test can search for Secrets.

The run with its status and conditions, Jobs, pods, Services, ConfigMaps, NetworkPolicies and Events, of the namespace
of the runs and of the operator's; logs of all containers; the operator's metrics; all objects in S3; and the command
lines of all processes of the product.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specbench_testing.cluster import ApiError
from specbench_testing.installed_product import InstalledProduct
from specbench_testing.retries import retry_until_available
from specbench_testing.s3_results import StoredRun

LOOK_S = 2.0
KINDS = (
    "/apis/specbench.io/v1alpha1/namespaces/{}/specbenchruns",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/events",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/apis/apps/v1/namespaces/{}/deployments",
)


class Traces:
    """Within a `with` block, a thread looks at pods and their logs, which are gone after their end."""

    def __init__(self, product: InstalledProduct) -> None:
        self.texts: dict[str, bytes] = {}
        self._command_lines: set[bytes] = set()
        self._product = product
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_repeatedly, name="traces", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """Collect all objects and the metrics as they are now."""
        for namespace in self._namespaces:
            for path in KINDS:
                for raw in self._items(path.format(namespace)):
                    self._add(path, namespace, raw)
        for pod in self._product.operators():
            pods = f"/api/v1/namespaces/{self._product.product.system}/pods"
            text = self._product.cluster.text(f"{pods}/{pod['metadata']['name']}:9090/proxy/metrics")
            self.texts["metrics"] = text.encode()

    def read_store(self, name: str, stored: StoredRun) -> None:
        """Add all objects of the run `name` in S3."""
        self.texts |= {f"S3 {key} of {name}": stored.read(key) for key in stored.versions()}

    def assert_collected(self, *patterns: str) -> None:
        """A search would find nothing in texts that were not collected. The patterns match the beginnings of places."""
        places = [place for place, text in self.texts.items() if text]
        assert [pattern for pattern in patterns if not any(re.match(pattern, place) for place in places)] == []

    @property
    def _namespaces(self) -> tuple[str, str]:
        return (self._product.namespace, self._product.product.system)

    def _look_repeatedly(self) -> None:
        while not self._over.wait(LOOK_S):
            for namespace in self._namespaces:
                for pod in self._items(f"/api/v1/namespaces/{namespace}/pods"):
                    self._add("pods", namespace, without_own_words(pod))
                    self._look_at_logs(namespace, pod)
            self._command_lines.update(command_lines())
            self.texts["command lines"] = b"\n".join(self._command_lines)

    def _add(self, path: str, namespace: str, raw: dict[str, Any]) -> None:
        meta = raw["metadata"]
        place = f"{path.rpartition('/')[2]} {namespace}/{meta['name']} {meta['resourceVersion']}"
        self.texts[place] = json.dumps(raw, ensure_ascii=False).encode()

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(retry_until_available(lambda: self._product.cluster.call("GET", path)["items"]))

    def _look_at_logs(self, namespace: str, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container['name']}"
            with suppress(ApiError):  # it has not started, or the pod is gone
                self.texts[f"log of {namespace}/{name} {container['name']}"] = self._product.cluster.text(path).encode()


def without_own_words(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without the termination message of its engine: an engine that is given a token can write it there."""
    for row in (pod.get("status") or {}).get("containerStatuses") or []:
        for state in (row.get("state") or {}, row.get("lastState") or {}):
            if row["name"] == "engine" and "terminated" in state:
                state["terminated"].pop("message", None)
    return pod


def command_lines() -> Iterator[bytes]:
    """Command lines of all processes of the product on this machine, which runs the cluster's containers."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes()
            if b"specbench_" in line or b"specbench-" in line:
                yield line
