"""The operator as a process of its own, with exactly the rights that the chart gives it, beside a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from generators.custom_resources import CAMPAIGN, RUN
from specbench_api import API_VERSION
from specbench_testing.api_server_runs import Runs
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.ports import free_port
from specbench_testing.resources import Resource

PATIENCE_S = 180.0
ACCOUNT = "specbench-operator"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES: list[dict[str, list[str]]] = [
    {
        "apiGroups": ["specbench.io"],
        "resources": ["specbenchruns"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": ["specbench.io"], "resources": ["specbenchcampaigns"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["specbench.io"],
        "resources": ["specbenchruns/status", "specbenchcampaigns/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": ["specbench.io"], "resources": ["specbenchruns/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": ["get", "list", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "list", "patch"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
]
"""All that the operator may do, in the namespaces that it watches and nowhere else."""

GROUP_RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["batch"], "resources": ["jobs/finalizers"], "verbs": ["update"]},
    {
        "apiGroups": ["leaderworkerset.x-k8s.io"],
        "resources": ["leaderworkersets"],
        "verbs": ["get", "list", "create", "patch", "delete"],
    },
]
"""Beside them, where engines may spread over several nodes."""

T = TypeVar("T")


def eventually(look: Callable[[], T], why: str = "", within_s: float = PATIENCE_S) -> T:
    """What `look` gives as soon as it is true. Raises AssertionError with what it gave last."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{why or 'it did not come about'} within {within_s} s: {found!r}"
        time.sleep(0.1)
    return found


@dataclass
class OperatorSite:
    """A namespace with the operator's account in it."""

    cluster: Cluster
    namespace: str
    more_rules: tuple[dict[str, list[str]], ...] = ()

    def __post_init__(self) -> None:
        self.runs = Runs(self.cluster, self.namespace)
        self.campaigns = Runs(self.cluster, self.namespace, CAMPAIGN.plural)
        self._make(f"{self._core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        rbac = f"{_RBAC}/namespaces/{self.namespace}"
        self._make(f"{rbac}/roles", {"metadata": {"name": ACCOUNT}, "rules": [*RULES, *self.more_rules]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}
        self._make(f"{rbac}/rolebindings", {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})
        eventually(self._has_its_rights, "the API server does not grant the operator its rights")

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def _make(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.cluster.call("POST", path, body)

    def _has_its_rights(self) -> bool:
        """Asked, for the API server judges by a copy of roles and bindings that may be a moment old."""
        wanted = {"namespace": self.namespace, "verb": "list", "group": "specbench.io", "resource": "specbenchruns"}
        user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        body = {"spec": {"user": user, "resourceAttributes": wanted}}
        answer = self._make("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(answer["status"]["allowed"])

    def enforce(self, level: str) -> None:
        """Pod Security of the namespace."""
        labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}
        self.cluster.call("PATCH", f"/api/v1/namespaces/{self.namespace}", labels, kind=MERGE)

    def secret(self, name: str, **data: str) -> None:
        """A Secret."""
        self._make(f"{self._core}/secrets", {"metadata": {"name": name}, "stringData": data})

    def kubeconfig(self, folder: Path) -> Path:
        """The administrator's kubeconfig with the operator's token instead of his certificate."""
        spec = {"spec": {"expirationSeconds": 3600}}
        token = self._make(f"{self._core}/serviceaccounts/{ACCOUNT}/token", spec)["status"]["token"]
        given = yaml.safe_load(self.cluster.kubeconfig.read_text())
        given["users"] = [{"name": user["name"], "user": {"token": token}} for user in given["users"]]
        file = folder / "operator.kubeconfig"
        file.write_text(yaml.safe_dump(given))
        return file

    def items(self, kind: str, role: str = "") -> list[Resource]:
        """Children of one kind and role, oldest first."""
        root = f"/apis/batch/v1/namespaces/{self.namespace}" if kind == "jobs" else self._core
        query = {"labelSelector": f"specbench.io/role={role}" if role else "app.kubernetes.io/managed-by=specbench"}
        found = self.cluster.call("GET", f"{root}/{kind}", query=query)["items"]
        return sorted(found, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))

    def names(self, kind: str, role: str = "") -> list[str]:
        """Their names."""
        return [item["metadata"]["name"] for item in self.items(kind, role)]

    def has(self, kind: str, name: str) -> bool:
        """Whether there is a child of this name."""
        return name in self.names(kind)

    def delete(self, kind: str, name: str) -> None:
        """Delete as kubectl does: in the background."""
        root = f"/apis/batch/v1/namespaces/{self.namespace}" if kind == "jobs" else self._core
        self.cluster.call("DELETE", f"{root}/{kind}/{name}", {"propagationPolicy": "Background"})

    def delete_run(self, name: str) -> None:
        """Delete a run, and wait until it is gone; its children may still be there."""
        path = f"/apis/{API_VERSION}/namespaces/{self.namespace}/{RUN.plural}/{name}"
        self.cluster.call("DELETE", path, {"propagationPolicy": "Background"})
        eventually(lambda: not self.exists(name), "the run is still there")

    def exists(self, name: str) -> bool:
        """Whether there is such a run."""
        try:
            self.runs.get(name)
        except ApiError as refused:
            if refused.status != 404:
                raise
            return False
        return True

    def status(self, name: str) -> dict[str, Any]:
        """Of a run; empty while there is none."""
        return dict(self.runs.get(name).get("status", {}))

    def said(self, name: str, kind: str) -> tuple[str, str]:
        """A condition's status and reason."""
        rows = {row["type"]: row for row in self.status(name).get("conditions", [])}
        return (rows[kind]["status"], rows[kind]["reason"]) if kind in rows else ("", "")

    def message(self, name: str, kind: str) -> str:
        """A condition's message."""
        rows = {row["type"]: row for row in self.status(name).get("conditions", [])}
        return str(rows.get(kind, {}).get("message", ""))

    def phase(self, name: str) -> str:
        """A run's phase."""
        return str(self.status(name).get("phase", ""))

    def reaches(self, name: str, phase: str, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for a phase, and give the status in which it was reached."""

        def there() -> dict[str, Any]:
            status = self.status(name)
            return status if status.get("phase") == phase else {}

        return eventually(there, f"{name} is not {phase}", within_s)

    def comes_to_say(self, name: str, kind: str, *wanted: str, words: str = "", within_s: float = PATIENCE_S) -> str:
        """Wait until a condition has this status (and this reason, where one is given); its message of that moment."""

        def there() -> list[str]:
            rows = [row for row in self.status(name).get("conditions", []) if row["type"] == kind]
            said = [row for row in rows if (row["status"], row["reason"])[: len(wanted)] == wanted]
            return [row["message"] for row in said if words in row["message"]]

        return eventually(there, f"{name} does not say {kind}={wanted} {words}", within_s)[0]

    def reasons(self, kind: str = "SpecBenchRun") -> set[str]:
        """Reasons of the Events about runs, or about another kind."""
        query = {"fieldSelector": f"involvedObject.kind={kind}"}
        found = self.cluster.call("GET", f"{self._core}/events", query=query)["items"]
        return {event["reason"] for event in found}

    def tells(self, *reasons: str, kind: str = "SpecBenchRun") -> None:
        """Wait for Events with these reasons: they are posted after the status that they tell of."""
        eventually(lambda: set(reasons) <= self.reasons(kind), f"not all of {reasons} are told")


@dataclass
class OperatorProcess:
    """`python -m specbench_operator`, started and ended by its own pid."""

    site: OperatorSite
    folder: Path
    image: str
    settings: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._kubeconfig = self.site.kubeconfig(self.folder)
        self.liveness, self.metrics = free_port(), free_port()

    @property
    def log(self) -> Path:
        """Its stderr, all starts in one."""
        return self.folder / "operator.log"

    def start(self) -> OperatorProcess:
        """Start, and wait until it is alive."""
        self.launch()
        eventually(lambda: self.ended is not None or self.healthy(), "the operator does not get alive")
        assert self.ended is None, self.log.read_text()[-4000:]
        return self

    def launch(self) -> None:
        """Start, and do not wait."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPECBENCH_"))},
            "KUBECONFIG": str(self._kubeconfig),
            "SPECBENCH_NAMESPACES": self.site.namespace,
            "SPECBENCH_CLIENT_IMAGE": self.image,
            "SPECBENCH_LIVENESS_PORT": str(self.liveness),
            "SPECBENCH_METRICS_PORT": str(self.metrics),
            **self.settings,
        }
        with self.log.open("ab") as log:
            call = [sys.executable, "-m", "specbench_operator"]
            self.process = subprocess.Popen(call, env=environment, stdout=log, stderr=log, cwd=self.folder)

    @property
    def ended(self) -> int | None:
        """Its exit code, once it has ended."""
        return self.process.poll() if self.process else None

    def healthy(self) -> bool:
        """What the kubelet would be told."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.liveness}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def metric(self, name: str) -> str:
        """Lines of /metrics that begin with a name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            return "\n".join(line for line in answer.read().decode().splitlines() if line.startswith(name))

    def looks(self) -> int:
        """How often it has looked at a run, since it was started."""
        counted = self.metric("specbench_reconcile_seconds_count").split()
        return int(float(counted[-1])) if counted else 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(timeout=120)
        self.process = None
        return code

    def bugs(self) -> list[str]:
        """Log lines that tell of a bug of ours. Where it was killed, a line may be half a line."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.startswith("{") and "Traceback" in line]
