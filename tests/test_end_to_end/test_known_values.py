"""Known values of a run's Secrets, searched for in everything that the installed product leaves behind.

Searched are: the run with its status and conditions, Jobs, pods, Services, ConfigMaps, NetworkPolicies and Events, of
its namespace and of the operator's; logs of all containers; the operator's metrics; all objects in S3; and the command
lines of all processes of the product.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specbench_testing.cluster import ApiError
from specbench_testing.cluster_run import ENDED, ClusterRun
from specbench_testing.installed_product import InstalledProduct
from specbench_testing.operator_process import eventually
from specbench_testing.retries import retry_until_available
from specbench_testing.s3_results import StoredRun
from specbench_testing.secret_search import find_secrets

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

TOKEN = "hf_" + "kN4vTq8LxR2mZ7bWcY5dJ1sGhP3fUaE9"
KINDS = (
    "/apis/specbench.io/v1alpha1/namespaces/{}/specbenchruns",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/events",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/apis/apps/v1/namespaces/{}/deployments",
)
REPEATS_ITS_TOKEN = (
    "t=$HF_TOKEN; printf 'FATAL error: token %s is invalid, https://me:%s@hub.example, %s' $t $t"
    " $(printf %s $t | base64 -w0) > /dev/termination-log; exit 1"
)
"""An engine that ends with its own token in the termination message."""


@dataclass
class Traces:
    """Collects all texts of one run. It looks repeatedly, because pods and their logs are gone after their end."""

    product: InstalledProduct
    texts: dict[str, bytes] = field(default_factory=dict)

    def look(self) -> None:
        """Collect objects, logs, metrics and command lines as they are now."""
        for namespace in (self.product.namespace, self.product.product.system):
            for path in KINDS:
                for raw in self._items(path.format(namespace)):
                    meta = raw["metadata"]
                    place = f"{path.rsplit('/', 1)[1]} {namespace}/{meta['name']} {meta['resourceVersion']}"
                    self.texts[place] = json.dumps(without_own_words(raw), ensure_ascii=False).encode()
                    if path.endswith("/pods"):
                        self._look_at_logs(namespace, raw)
        for pod in self.product.operators():
            proxy = (
                f"/api/v1/namespaces/{self.product.product.system}/pods/{pod['metadata']['name']}:9090/proxy/metrics"
            )
            with suppress(ApiError):  # it restarts
                self.texts["metrics"] = self.product.cluster.text(proxy).encode()
        self.texts["command lines"] = self.texts.get("command lines", b"") + b"\n".join(command_lines())

    def read_store(self, stored: StoredRun) -> None:
        """Add all objects of the run in S3."""
        self.texts |= {f"S3 {key}": stored.read(key) for key in stored.versions()}

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(retry_until_available(lambda: self.product.cluster.call("GET", path)["items"]))

    def _look_at_logs(self, namespace: str, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container['name']}"
            with suppress(ApiError):  # it has not started, or the pod is gone
                self.texts[f"log of {namespace}/{name} {container['name']}"] = self.product.cluster.text(path).encode()


def without_own_words(raw: dict[str, Any]) -> dict[str, Any]:
    """A pod without the termination message of its engine: an engine that is given a token can write it there."""
    for row in (raw.get("status") or {}).get("containerStatuses") or []:
        for state in (row.get("state") or {}, row.get("lastState") or {}):
            if row["name"] == "engine" and "terminated" in state:
                state["terminated"].pop("message", None)
    return raw


def command_lines() -> Iterator[bytes]:
    """Command lines of all processes of the product on this machine, which runs the cluster's containers."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes()
            if b"specbench_" in line or b"specbench-" in line:
                yield line


@pytest.fixture
def secrets(product: InstalledProduct) -> dict[str, str]:
    """Creates the hub's Secret; the values of all Secrets of the namespace."""
    meta = {"name": "hub", "labels": {"specbench.io/use": "hub"}}
    data = {"HF_TOKEN": base64.b64encode(TOKEN.encode()).decode()}
    product.product.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}, namespace=product.namespace
    )
    keys = product.ground.s3
    return {"hub token": TOKEN, "S3 access key": keys.access_key, "S3 secret key": keys.secret_key}


def traces_of(product: InstalledProduct, run: ClusterRun, stored: StoredRun) -> dict[str, bytes]:
    """All texts of a run, from now until its end."""
    traces = Traces(product)

    def ended() -> bool:
        traces.look()
        return run.phase() in ENDED and bool(run.status().get("completionTime"))

    eventually(ended, f"{run.name} does not end", 240)
    traces.look()
    traces.read_store(stored)
    return traces.texts


def assert_collected(texts: dict[str, bytes], *places: str) -> None:
    """The search would find nothing in texts that were not collected."""
    assert [place for place in places if not any(name.startswith(place) and text for name, text in texts.items())] == []


def test_a_successful_run_contains_no_secret(product: InstalledProduct, secrets: dict[str, str]) -> None:
    run, stored = product.begin("values", {"spec.model.tokenSecretRef": {"name": "hub"}})
    texts = traces_of(product, run, stored)
    assert run.phase() == "Succeeded", run.status()
    pods = f"log of {product.namespace}/{run.name}"
    assert_collected(
        texts, "specbenchruns", "jobs", "pods", "services", "configmaps", "events", "deployments", "metrics",
        "command lines", f"log of {product.product.system}", pods, "S3 summary.json", "S3 report.html", "S3 plan.json",
        "S3 points/",
    )  # fmt: skip
    logged = [name for name, text in texts.items() if name.startswith(pods) and text]
    assert any(name.endswith(" engine") for name in logged), logged
    assert any(name.endswith(" client") for name in logged), logged
    assert b"specbench-client" in texts["command lines"] or b"specbench_client" in texts["command lines"]
    assert find_secrets(secrets, texts) == []


def test_an_engine_that_repeats_its_token_reveals_it_nowhere_else(
    product: InstalledProduct, secrets: dict[str, str]
) -> None:
    product.product.install(*product.values, "fence.commands=true")
    try:
        edits = {"spec.model.tokenSecretRef": {"name": "hub"}, "spec.engine.command": ["sh", "-c", REPEATS_ITS_TOKEN]}
        run, stored = product.begin("values", edits)
        texts = traces_of(product, run, stored)
    finally:
        product.product.install(*product.values)
    status = run.status()
    assert status["phase"] == "Failed"
    assert "FATAL error: token [redacted] is invalid" in status["groups"][0]["message"]
    assert_collected(texts, "specbenchruns", "jobs", "pods", "events", "metrics", f"log of {product.product.system}")
    assert find_secrets(secrets, texts) == []
