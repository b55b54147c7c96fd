"""One run on a cluster as a user sees it, through the Kubernetes API only: its status, children and events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from generators.custom_resources import RUN
from specbench_api import API_VERSION
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.operator_process import eventually, retry_until_available
from specbench_testing.resources import Resource

ENDED = ("Succeeded", "Failed", "Invalid")
WITHIN_S = 240.0
_ROOTS = {"jobs": "/apis/batch/v1", "pods": "/api/v1", "services": "/api/v1", "configmaps": "/api/v1"}


@dataclass(frozen=True)
class ClusterRun:
    """A run by its name and UID."""

    cluster: Cluster
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, cluster: Cluster, created: Resource) -> ClusterRun:
        """The run that was just created."""
        meta = created["metadata"]
        return cls(cluster, meta["namespace"], meta["name"], meta["uid"])

    @property
    def path(self) -> str:
        """The API path of the run."""
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{RUN.plural}/{self.name}"

    def status(self) -> dict[str, Any]:
        """The current status; empty before the first reconcile."""
        return dict(retry_until_available(lambda: self.cluster.call("GET", self.path)).get("status") or {})

    def phase(self) -> str:
        """The current phase."""
        return str(self.status().get("phase", ""))

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        rows = [row for row in self.status().get("conditions", []) if row["type"] == kind]
        return (rows[0]["status"], rows[0]["reason"], rows[0]["message"]) if rows else ("", "", "")

    def wait_for_phase(self, *phases: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """Wait for one of these phases and return the status; fails if the run ends in another phase."""
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.update(self.status())
            phase = seen.get("phase", "")
            assert phase in phases or phase not in ENDED, f"{self.name} is {phase}: {seen}"
            return phase in phases

        eventually(reached, f"{self.name} is not {phases}: {seen}", within_s)
        return seen

    def has_ended(self) -> bool:
        """Whether the run has its completion time, or is deleted."""
        return not self._exists() or bool(self.status().get("completionTime"))

    def ends(self, phase: str = "Succeeded", within_s: float = WITHIN_S) -> dict[str, Any]:
        """Wait until the run has ended and its GPUs are free; return its status."""
        self.wait_for_phase(phase, within_s=within_s)

        def completed_status() -> dict[str, Any]:
            status = self.status()
            return status if status.get("completionTime") else {}

        return eventually(completed_status, f"{self.name} does not end")

    def children(self, kind: str, role: str = "") -> list[Resource]:
        """Children of one kind, optionally of one role."""
        path = f"{_ROOTS[kind]}/namespaces/{self.namespace}/{kind}"
        labels = f"specbench.io/run-uid={self.uid}" + (f",specbench.io/role={role}" if role else "")
        return list(
            retry_until_available(lambda: self.cluster.call("GET", path, query={"labelSelector": labels})["items"])
        )

    def living(self, role: str = "") -> list[str]:
        """Names of pods that have not ended."""
        return [pod["metadata"]["name"] for pod in self.children("pods", role) if is_living(pod)]

    def active_objects(self) -> list[str]:
        """Everything that can still run or be reached: living pods, active Jobs, Services."""
        jobs = [job["metadata"]["name"] for job in self.children("jobs") if not _has_ended(job)]
        return [*self.living(), *jobs, *(row["metadata"]["name"] for row in self.children("services"))]

    def gpus(self) -> int:
        """GPUs that its living pods request."""
        return sum(gpus_of(pod) for pod in self.children("pods") if is_living(pod))

    def events(self) -> list[Resource]:
        """Its Events."""
        path, query = f"/api/v1/namespaces/{self.namespace}/events", {"fieldSelector": f"involvedObject.uid={self.uid}"}
        return list(retry_until_available(lambda: self.cluster.call("GET", path, query=query)["items"]))

    def reasons(self) -> set[str]:
        """Reasons of its Events."""
        return {row["reason"] for row in self.events()}

    def warnings(self) -> list[str]:
        """What its Warning Events say, for the message of a failed assertion."""
        return [f"{row['reason']}: {row['message']}" for row in self.events() if row["type"] == "Warning"]

    def wait_for_events(self, *reasons: str) -> None:
        """Wait for Events with these reasons; Events are posted after the status."""
        eventually(lambda: set(reasons) <= self.reasons(), f"{self.name} does not have all Events {reasons}")

    def suspend(self, *, suspended: bool) -> None:
        """Set spec.suspend."""
        retry_until_available(
            lambda: self.cluster.call("PATCH", self.path, {"spec": {"suspend": suspended}}, kind=MERGE)
        )

    def delete(self) -> None:
        """Delete the run and wait until it is gone; its children may still exist."""
        retry_until_available(lambda: self.cluster.call("DELETE", self.path, {"propagationPolicy": "Background"}))
        eventually(lambda: not self._exists(), f"{self.name} still exists")

    def _exists(self) -> bool:
        try:
            self.status()
        except ApiError as refused:
            if refused.status != 404:
                raise
            return False
        return True


def is_living(pod: Resource) -> bool:
    """Whether a pod may hold the resources it requests."""
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def gpus_of(pod: Resource) -> int:
    """GPUs that a pod requests."""
    limits = (row.get("resources", {}).get("limits", {}) for row in pod["spec"]["containers"])
    return sum(int(row.get("nvidia.com/gpu", 0)) for row in limits)


def _has_ended(job: Resource) -> bool:
    rows = job["status"].get("conditions") or []
    return any(row["type"] in ("Complete", "Failed") and row["status"] == "True" for row in rows)
