"""SpecBenchRuns, SpecBenchCampaigns and their definitions on a real API server."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from generators.custom_resources import CAMPAIGN, RUN
from specbench_api import API_VERSION
from specbench_testing.cluster import APPLY, MERGE, TABLE, ApiError, Cluster
from specbench_testing.resources import Resource

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ESTABLISHED_WITHIN_S = 30


@dataclass(frozen=True)
class Definition:
    """A CustomResourceDefinition as stored by the server."""

    stored: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.stored["spec"])

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.stored["status"])


def install_definition(cluster: Cluster) -> Definition:
    """Apply the definition of SpecBenchRun and wait until it is served."""
    return _installed(cluster, RUN.definition())


def install_campaign_definition(cluster: Cluster) -> Definition:
    """Apply the definition of SpecBenchCampaign and wait until it is served."""
    return _installed(cluster, CAMPAIGN.definition())


def _installed(cluster: Cluster, manifest: dict[str, Any]) -> Definition:
    plural = manifest["spec"]["names"]["plural"]
    path = f"{_DEFINITIONS}/{manifest['metadata']['name']}"
    query = {"fieldManager": "specbench-tests", "force": "true", "fieldValidation": "Strict"}
    cluster.call("PATCH", path, manifest, query=query, kind=APPLY)
    deadline = time.monotonic() + _ESTABLISHED_WITHIN_S
    while not _served(cluster, stored := cluster.call("GET", path), plural):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the definition is not established: {json.dumps(stored.get('status'))}")
    return Definition(stored)


def _served(cluster: Cluster, stored: dict[str, Any], plural: str) -> bool:
    conditions = {row["type"]: row["status"] for row in stored.get("status", {}).get("conditions") or []}
    if conditions.get("Established") != "True":
        return False
    try:  # the API is served shortly after the condition is True
        cluster.call("GET", f"/apis/{API_VERSION}/{plural}", query={"limit": "1"})
    except ApiError:
        return False
    return True


@dataclass(frozen=True)
class Runs:
    """The SpecBenchRuns of one namespace, or resources of another plural, such as SpecBenchCampaigns."""

    cluster: Cluster
    namespace: str
    plural: str = RUN.plural

    def create(self, run: Resource, *, dry_run: bool = False) -> Resource:
        """Create with strict field validation, as kubectl does. Raises ApiError."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return dict(self.cluster.call("POST", self._path(), self._here(run), query=query))

    def try_out(self, run: Resource) -> Resource:
        """Return what the server would store (dry run). Raises ApiError."""
        return self.create(run, dry_run=True)

    def refusal_of(self, run: Resource) -> str:
        """The message with which the server rejects it (dry run); empty if it accepts it."""
        try:
            self.try_out(run)
        except ApiError as refused:
            return str(refused)
        return ""

    def apply(self, run: Resource) -> Resource:
        """Apply server-side, as GitOps tools do. Raises ApiError."""
        path = self._path(run["metadata"]["name"])
        query = {"fieldManager": "specbench-tests", "force": "true", "fieldValidation": "Strict"}
        return dict(self.cluster.call("PATCH", path, self._here(run), query=query, kind=APPLY))

    def patch(self, name: str, change: dict[str, Any]) -> None:
        """Merge a change into the object, as kubectl patch does. Raises ApiError."""
        self.cluster.call("PATCH", self._path(name), change, kind=MERGE)

    def get(self, name: str) -> Resource:
        """Return the stored object."""
        return dict(self.cluster.call("GET", self._path(name)))

    def set_status(self, name: str, status: dict[str, Any]) -> None:
        """Write the status, as the operator does. Raises ApiError."""
        self.cluster.call("PATCH", f"{self._path(name)}/status", {"status": status}, kind=MERGE)

    def table(self, name: str) -> tuple[list[str], list[Any]]:
        """Columns and cells of `kubectl get sbr NAME -o wide`, as rendered by the server."""
        table = self.cluster.call("GET", self._path(name), accept=TABLE)
        return [column["name"] for column in table["columnDefinitions"]], table["rows"][0]["cells"]

    def _path(self, name: str = "") -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{self.plural}" + (f"/{name}" if name else "")

    def _here(self, run: Resource) -> Resource:
        return {**run, "metadata": {**run["metadata"], "namespace": self.namespace}}
