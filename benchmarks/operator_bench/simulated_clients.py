"""Simulated client Jobs of active runs: they store progress and manifests of points in S3, as slowly as real ones.

They write what the operator reads: progress.json once a client runs, and an empty manifest for each point. No records
and no summaries are written, so no run finishes. A client whose pod is deleted ends at once, as after SIGTERM.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config

from operator_bench.reactions import Reaction, Reactions
from specbench_api.outcome.layout import PLAN, manifest_key, run_root
from specbench_api.plan.names import LABEL_ATTEMPT, LABEL_GROUP, LABEL_ROLE, LABEL_RUN, ROLE_CLIENT, plan_name
from specbench_api.plan.plan import Plan
from specbench_cluster.settings import S3
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.operator_process import retry_until_available

POINT_STORED = "point stored → status"
POINT_S = 60.0
"""Duration of a point of each active run."""


@dataclass
class _Client:
    run: str
    root: str
    points: list[str]
    """Hashes of the points that are still to be measured."""
    measured: int = 0


@dataclass
class SimulatedClients:
    """The clients of one namespace. `on_pod` receives the events of its pods."""

    cluster: Cluster
    namespace: str
    s3: S3
    prefix: str
    reactions: Reactions
    measuring: threading.Event = field(default_factory=threading.Event)
    """While it is set, each client measures a point in POINT_S."""
    points: list[Reaction] = field(default_factory=list)
    """One reaction per measured point."""
    _clients: dict[str, _Client] = field(default_factory=dict)
    """By name of the pod."""
    _begun: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "clients"))

    def __post_init__(self) -> None:
        self._bucket = boto3.client(
            "s3",
            endpoint_url=self.s3.endpoint,
            region_name=self.s3.region,
            aws_access_key_id=self.s3.access_key,
            aws_secret_access_key=self.s3.secret_key,
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=16),
        )
        threading.Thread(target=self._keep_measuring, name="clients", daemon=True).start()

    @property
    def running(self) -> int:
        """How many clients run."""
        with self._lock:
            return len(self._clients)

    def on_pod(self, kind: str, pod: dict[str, Any], _at: float) -> None:
        """Begin a client whose pod runs, and end one whose pod is being deleted."""
        meta = pod["metadata"]
        name = meta["name"]
        if meta.get("labels", {}).get(LABEL_ROLE) != ROLE_CLIENT:
            return
        if kind == "DELETED" or "deletionTimestamp" in meta:
            with self._lock:
                self._clients.pop(name, None)
            if kind != "DELETED":
                self._threads.submit(self._end, name)
        elif pod["status"].get("phase") == "Running" and name not in self._begun:
            self._begun.add(name)
            self._threads.submit(self._begin, name, meta["labels"])

    def _begin(self, pod: str, labels: dict[str, str]) -> None:
        run, group = labels[LABEL_RUN], int(labels[LABEL_GROUP])
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{plan_name(run)}"
        found = _unless_gone(lambda: self.cluster.call("GET", path))
        if found is None:
            return
        plan = Plan.from_json(found["data"][PLAN])
        root = f"{self.prefix}/{run_root(plan.namespace, plan.name, plan.uid)}"
        progress = {"group": group, "attempt": f"{labels[LABEL_ATTEMPT]}-bench", "phase": "measuring"}
        self._put(f"{root}/progress.json", json.dumps(progress).encode())
        with self._lock:
            self._clients[pod] = _Client(run, root, [point.hash for point in plan.groups[group].points])

    def _end(self, pod: str) -> None:
        """End as after SIGTERM. kwok removes a pod that has ended; a pod that is only deleted keeps its finalizer."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/status"
        _unless_gone(lambda: self.cluster.call("PATCH", path, {"status": {"phase": "Failed"}}, kind=MERGE))

    def _keep_measuring(self) -> None:
        while True:
            self.measuring.wait()
            with self._lock:
                clients = list(self._clients.values())
            if not clients:
                time.sleep(1.0)
            began = time.monotonic()
            for number, client in enumerate(clients):
                time.sleep(max(began + number * POINT_S / len(clients) - time.monotonic(), 0.0))
                if not self.measuring.is_set():
                    break
                self._measure(client)
            else:
                time.sleep(max(began + POINT_S - time.monotonic(), 0.0) if clients else 0.0)

    def _measure(self, client: _Client) -> None:
        if not client.points:
            return
        point = client.points.pop()
        client.measured += 1
        reaction = self.reactions.expect(POINT_STORED, ("specbenchruns", client.run), _has_measured(client.measured))
        self.points.append(reaction)
        self._put(f"{client.root}/{manifest_key(point)}", b"{}")
        self.reactions.began(reaction)

    def _put(self, key: str, data: bytes) -> None:
        self._bucket.put_object(Bucket=self.s3.bucket, Key=key, Body=data)


def _has_measured(points: int) -> Callable[[dict[str, Any]], bool]:
    return lambda run: run.get("status", {}).get("points", {}).get("measured", 0) >= points


def _unless_gone(request: Callable[[], Any]) -> Any:
    try:
        return retry_until_available(request)
    except ApiError as refused:
        if refused.status not in (404, 409):
            raise
        return None
