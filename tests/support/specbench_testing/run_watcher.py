"""Watches a run from start to end and records violations: two engines at once, or a manifest that changes.

Uses the API server's watch instead of polling, because two engines may coexist for a moment only. Each watch lasts a
few seconds, so that its events arrive as one plain response; the next one continues there.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from specbench_testing.cluster import ApiError
from specbench_testing.cluster_run import ClusterRun, is_living
from specbench_testing.operator_process import BackgroundThread
from specbench_testing.resources import Resource
from specbench_testing.s3_results import StoredRun

WATCH_S = 2
_AGAIN_S = 0.3


class RunWatcher(BackgroundThread):
    """A watching thread, within a `with` block."""

    def __init__(self, run: ClusterRun, stored: StoredRun) -> None:
        super().__init__(f"watcher of {run.name}")
        self._run, self._stored = run, stored
        self._engines: dict[str, Resource] = {}
        self._manifests: dict[str, str] = {}
        self.violations: list[str] = []
        self.launches: set[str] = set()
        self.seen: list[Resource] = []
        """Versions of the run, as often as a watch ends."""

    def work(self) -> None:
        """Follow the engine pods, the run and its manifests."""
        version = ""
        while not self.over.is_set():
            try:
                version = self._follow(version) if version else self._list()
                self._see_run()
            except (HTTPError, ApiError):
                self.over.wait(_AGAIN_S)  # the API server is down, and keeps events; or the run is deleted
            try:
                self._see_manifests(self._stored.manifests())
            except (BotoCoreError, ClientError):
                self.over.wait(_AGAIN_S)  # S3 is down

    def _request(self, **query: str) -> str:
        labels = f"specbench.io/run-uid={self._run.uid},specbench.io/role=engine"
        path = f"/api/v1/namespaces/{self._run.namespace}/pods"
        return self._run.cluster.text(f"{path}?{urlencode({'labelSelector': labels, **query})}")

    def _list(self) -> str:
        found = json.loads(self._request())
        self._engines = {pod["metadata"]["uid"]: pod for pod in found["items"]}
        self._see_engines()
        return str(found["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        response = self._request(watch="1", timeoutSeconds=str(WATCH_S), resourceVersion=version)
        for event in map(json.loads, response.splitlines()):
            if event["type"] == "ERROR":
                return ""  # the version is too old, so list again
            version = self._note(event["type"], event["object"])
        return version

    def _note(self, kind: str, pod: dict[str, Any]) -> str:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._engines.pop(uid, None)
        else:
            self._engines[uid] = pod
        self._see_engines()
        return str(pod["metadata"]["resourceVersion"])

    def _see_run(self) -> None:
        run = self._run.cluster.call("GET", self._run.path)
        if run["metadata"]["uid"] == self._run.uid and run not in self.seen[-1:]:
            self.seen.append(run)

    def _see_engines(self) -> None:
        living = sorted(pod["metadata"]["name"] for pod in self._engines.values() if is_living(pod))
        self.launches.update(living)
        if len(living) > 1:
            self.violations.append(f"engines at once: {living}")

    def _see_manifests(self, seen: dict[str, str]) -> None:
        for key, version in self._manifests.items():
            if seen.get(key) != version:
                self.violations.append(f"{key} was {version} and is {seen.get(key)}")
        self._manifests = {**seen, **self._manifests}
