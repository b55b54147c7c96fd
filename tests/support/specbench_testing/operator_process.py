"""The operator as a separate process with exactly the permissions of the chart, on a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import yaml
from urllib3.exceptions import HTTPError

from generators.custom_resources import CAMPAIGN, RUN
from specbench_api import API_VERSION
from specbench_testing.api_server_runs import Runs
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.ports import free_port
from specbench_testing.resources import Resource

PATIENCE_S = 180.0
AWAY_S = 60.0
_BUSY = 429
LONGEST_PAUSE_S = 0.5
"""Each look costs the API server and this process as much as some steps of the operator."""
ACCOUNT = "specbench-operator"
LEASE = "specbench-operator"
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
    {
        "apiGroups": [""],
        "resources": ["services", "configmaps"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "list", "patch"]},
    {
        "apiGroups": ["networking.k8s.io"],
        "resources": ["networkpolicies"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
]
"""All permissions of the operator in the namespaces that it watches."""

GROUP_RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["batch"], "resources": ["jobs/finalizers"], "verbs": ["update"]},
    {
        "apiGroups": ["leaderworkerset.x-k8s.io"],
        "resources": ["leaderworkersets"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
]
"""Additional permissions for engines on several nodes."""

LEASE_RULES: list[dict[str, list[str]]] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [LEASE],
        "verbs": ["get", "patch"],
    },
]
"""Permissions for leader election, in the namespace of the Lease."""

T = TypeVar("T")


def eventually(probe: Callable[[], T], why: str = "", within_s: float = PATIENCE_S) -> T:
    """Returns the result of `probe` as soon as it is truthy. Raises AssertionError with the last result."""
    deadline, pause_s = time.monotonic() + within_s, 0.05
    while not (found := probe()):
        assert time.monotonic() < deadline, f"{why or 'the condition is not met'} within {within_s} s: {found!r}"
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LONGEST_PAUSE_S)
    return found


def retry_until_available(ask: Callable[[], T]) -> T:
    """The response as soon as there is one. Raises ApiError for a client error."""

    def answer() -> tuple[T] | None:
        try:
            return (ask(),)
        except ApiError as refused:
            if refused.status < 500 and refused.status != _BUSY:
                raise
        except HTTPError:
            pass
        return None

    found = eventually(answer, "the API server does not answer", AWAY_S)
    assert found is not None
    return found[0]


class BackgroundThread:
    """A thread during a `with` block; its error is raised at the end of the block.

    `work` is called once and returns soon after `over` is set.
    """

    def __init__(self, name: str) -> None:
        self.over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def work(self) -> None:
        """What the thread does."""
        raise NotImplementedError

    def raise_failure(self) -> None:
        """Raise the error of the thread, if it failed."""
        if self._failure:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        if error is None:
            self.raise_failure()

    def _guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 -- handed over to the test's thread
            self._failure = error


@dataclass
class OperatorSite:
    """A namespace with the operator's account in it."""

    cluster: Cluster
    namespace: str
    more_rules: tuple[dict[str, list[str]], ...] = ()
    home: str = ""
    """The namespace of the account, if it is another one."""

    def __post_init__(self) -> None:
        self.runs = Runs(self.cluster, self.namespace)
        self.campaigns = Runs(self.cluster, self.namespace, CAMPAIGN.plural)
        self._make(f"{self._core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        rbac = f"{_RBAC}/namespaces/{self.namespace}"
        self._make(f"{rbac}/roles", {"metadata": {"name": ACCOUNT}, "rules": [*RULES, *LEASE_RULES, *self.more_rules]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.home or self.namespace}
        self._make(f"{rbac}/rolebindings", {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})
        eventually(self._has_permissions, "the API server does not grant the operator its permissions")

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def _make(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.cluster.call("POST", path, body)

    def _has_permissions(self) -> bool:
        """Asks the API server, because its copy of roles and bindings may be outdated."""
        attributes = {"namespace": self.namespace, "verb": "list", "group": "specbench.io", "resource": "specbenchruns"}
        user = f"system:serviceaccount:{self.home or self.namespace}:{ACCOUNT}"
        body = {"spec": {"user": user, "resourceAttributes": attributes}}
        answer = self._make("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(answer["status"]["allowed"])

    def enforce(self, level: str) -> None:
        """Set the Pod Security level of the namespace."""
        labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}
        self.cluster.call("PATCH", f"/api/v1/namespaces/{self.namespace}", labels, kind=MERGE)

    def secret(self, name: str, **data: str) -> None:
        """Create a Secret."""
        self._make(f"{self._core}/secrets", {"metadata": {"name": name}, "stringData": data})

    def kubeconfig(self, folder: Path, server: str = "") -> Path:
        """The administrator's kubeconfig with the operator's token instead of the certificate.

        `server`: another address, such as that of a proxy.
        """
        spec = {"spec": {"expirationSeconds": 3600}}
        token = self._make(f"{self._core}/serviceaccounts/{ACCOUNT}/token", spec)["status"]["token"]
        given = yaml.safe_load(self.cluster.kubeconfig.read_text())
        given["users"] = [{"name": user["name"], "user": {"token": token}} for user in given["users"]]
        if server:
            given["clusters"] = [{**row, "cluster": {"server": server}} for row in given["clusters"]]
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
        """Names of the children."""
        return [item["metadata"]["name"] for item in self.items(kind, role)]

    def has(self, kind: str, name: str) -> bool:
        """Whether a child of this name exists."""
        return name in self.names(kind)

    def delete(self, kind: str, name: str) -> None:
        """Delete in the background, as kubectl does."""
        root = f"/apis/batch/v1/namespaces/{self.namespace}" if kind == "jobs" else self._core
        self.cluster.call("DELETE", f"{root}/{kind}/{name}", {"propagationPolicy": "Background"})

    def delete_run(self, name: str) -> None:
        """Delete a run and wait until it is gone; its children may still exist."""
        path = f"/apis/{API_VERSION}/namespaces/{self.namespace}/{RUN.plural}/{name}"
        self.cluster.call("DELETE", path, {"propagationPolicy": "Background"})
        eventually(lambda: not self.exists(name), "the run still exists")

    def exists(self, name: str) -> bool:
        """Whether a run of this name exists."""
        try:
            self.runs.get(name)
        except ApiError as refused:
            if refused.status != 404:
                raise
            return False
        return True

    def status(self, name: str) -> dict[str, Any]:
        """The status of a run; empty before the first reconcile."""
        return dict(self.runs.get(name).get("status", {}))

    def status_and_reason(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        rows = {row["type"]: row for row in self.status(name).get("conditions", [])}
        return (rows[kind]["status"], rows[kind]["reason"]) if kind in rows else ("", "")

    def message(self, name: str, kind: str) -> str:
        """A condition's message."""
        rows = {row["type"]: row for row in self.status(name).get("conditions", [])}
        return str(rows.get(kind, {}).get("message", ""))

    def phase(self, name: str) -> str:
        """A run's phase."""
        return str(self.status(name).get("phase", ""))

    def wait_for_phase(self, name: str, phase: str, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for a phase and return the status with it."""

        def there() -> dict[str, Any]:
            status = self.status(name)
            return status if status.get("phase") == phase else {}

        return eventually(there, f"{name} is not {phase}", within_s)

    def reasons(self, kind: str = "SpecBenchRun") -> set[str]:
        """Reasons of the Events about runs, or about another kind."""
        query = {"fieldSelector": f"involvedObject.kind={kind}"}
        found = self.cluster.call("GET", f"{self._core}/events", query=query)["items"]
        return {event["reason"] for event in found}

    def wait_for_events(self, *reasons: str, kind: str = "SpecBenchRun") -> None:
        """Wait for Events with these reasons; Events are posted after the status."""
        eventually(lambda: set(reasons) <= self.reasons(kind), f"not all Events {reasons} exist")


@dataclass
class OperatorProcess:
    """`python -m specbench_operator` as a child process."""

    site: OperatorSite
    folder: Path
    image: str
    settings: Mapping[str, str] = field(default_factory=dict)
    pod: str = "operator"
    """Name of the pod that the process represents. A process that restarts in the same pod leads again at once."""
    server: str = ""
    """The address of the API server, if it is not that of the cluster's kubeconfig."""
    program: tuple[str, ...] = ("-m", "specbench_operator")
    python: str = sys.executable
    """The Python whose environment has the operator, of this version or of another one."""
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._kubeconfig = self.site.kubeconfig(self.folder, self.server)
        self.liveness, self.metrics = free_port(), free_port()

    @property
    def log(self) -> Path:
        """The stderr of all starts."""
        return self.folder / "operator.log"

    def start(self) -> OperatorProcess:
        """Start the operator and wait until it is healthy."""
        self.launch()
        eventually(lambda: self.ended is not None or self.healthy(), "the operator does not become healthy")
        assert self.ended is None, self.log.read_text()[-4000:]
        return self

    def launch(self) -> None:
        """Start the operator without waiting."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPECBENCH_"))},
            "KUBECONFIG": str(self._kubeconfig),
            "SPECBENCH_NAMESPACES": self.site.namespace,
            "SPECBENCH_CLIENT_IMAGE": self.image,
            "SPECBENCH_LEASE": f"{self.site.namespace}/{LEASE}",
            "SPECBENCH_POD_NAME": self.pod,
            "SPECBENCH_LIVENESS_PORT": str(self.liveness),
            "SPECBENCH_METRICS_PORT": str(self.metrics),
            # Several clients run at the same time on a node that may have only two cores.
            "SPECBENCH_CLIENT_CPU": "0",
            **self.settings,
        }
        with self.log.open("ab") as log:
            call = [self.python, *self.program]
            self.process = subprocess.Popen(call, env=environment, stdout=log, stderr=log, cwd=self.folder)

    @property
    def ended(self) -> int | None:
        """The exit code, once the process has ended."""
        return self.process.poll() if self.process else None

    def healthy(self) -> bool:
        """Whether the liveness probe succeeds."""
        return self._probe("healthz")

    def ready(self) -> bool:
        """Whether the readiness probe succeeds: the operator has listed everything that it watches."""
        return self._probe("readyz")

    def _probe(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.liveness}/{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def metric(self, name: str) -> str:
        """Lines of /metrics that start with a name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            return "\n".join(line for line in answer.read().decode().splitlines() if line.startswith(name))

    def reconcile_count(self) -> int:
        """The number of reconciles since the start."""
        counted = self.metric("specbench_reconcile_duration_seconds_count").splitlines()
        return int(sum(float(line.split()[-1]) for line in counted))

    def requests(self) -> float:
        """The number of requests to the API server since the start, without those of the watches."""
        lines = self.metric("specbench_api_requests_total{").splitlines()
        return sum(float(line.split()[-1]) for line in lines)

    def end(self, signal_number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal_number)
        code = self.process.wait(timeout=120)
        self.process = None
        return code

    @contextmanager
    def running(self) -> Iterator[OperatorProcess]:
        """Start the operator, and kill it at the end if it still runs. Fails if it has logged a bug."""
        try:
            yield self.start()
            assert self.bugs() == []
        finally:
            if self.process:
                self.end(signal.SIGKILL)

    def bugs(self) -> list[str]:
        """Log lines with a traceback. After a kill, the last line may be incomplete."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.startswith("{") and "Traceback" in line]
