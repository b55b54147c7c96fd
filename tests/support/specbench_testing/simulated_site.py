"""A site for many concurrent runs: a real control plane and S3, kwok's GPU nodes, stand-in clients, the operator.

    with simulated_site(cluster, tmp_path) as site:
        run = site.create("one", {"spec.engine.args": ["--fault=oom"]})     # or any object with site.spec() in it
        run.ends("Failed")
        assert site.violations() == []

Real are: API server, scheduler, controllers, the operator and its permissions, the store with every object, and the
results. Simulated are: kubelets and engines (`peers.kwok.stages`), and clients (`stand_in_client`).
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench_cluster import Cluster as Ground
from specbench_testing.cluster import Cluster
from specbench_testing.cluster_run import ClusterRun, gpus_of, is_living
from specbench_testing.kwok_nodes import KwokNodes, placement
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource
from specbench_testing.s3 import S3Access
from specbench_testing.s3_results import StoredRun
from specbench_testing.stand_in_client import stand_in_client
from specbench_testing.work_log import (
    WorkAction,
    WorkLog,
    WorkLogEntry,
    measured,
    measured_concurrently,
    measured_twice,
    started_twice,
    two_engines,
)

NO_IMAGE = "registry.invalid/specbench:none"
"""Nothing pulls it."""
QUICK = {"SPECBENCH_RESYNC_S": "5", "SPECBENCH_ENGINE_LOST_SETTLE_S": "1"}
ENDED = ("Succeeded", "Failed", "Invalid")
POINTS = 4
"""Points of a run from `create`: two arms, two loads."""


@dataclass(frozen=True)
class SimulatedSite:
    """One namespace. Its operator runs until the end, and may be killed and started meanwhile."""

    site: OperatorSite
    ground: Ground
    nodes: KwokNodes
    operator: OperatorProcess
    log: WorkLog

    def spec(self, edits: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The spec of a simulated run: a baseline and one drafter at two loads, one GPU, results in S3."""
        given = resource({**_RUN, "spec.results.s3": self._s3, "spec.placement": placement(), **(edits or {})})
        return dict(given["spec"])

    def create(self, name: str, edits: Mapping[str, Any] | None = None) -> ClusterRun:
        """Create a run."""
        return self.run(self.site.runs.create({**resource(name=name), "spec": self.spec(edits)}))

    def run(self, created: Resource) -> ClusterRun:
        """An existing run of this namespace."""
        return ClusterRun.of(self.site.cluster, created)

    def stored(self, run: ClusterRun) -> StoredRun:
        """The results of a run in S3."""
        return StoredRun(self.ground.s3, self.site.runs.get(run.name))

    def violations(self, cut_off: Iterable[str] = ()) -> list[str]:
        """Violations of the rule that all points are measured once, by one engine of a run at a time.

        `cut_off`: UIDs of runs that were suspended or lost an engine; their interrupted points start again.
        """
        entries, excused = self.log.entries(), set(cut_off)
        wasted = started_twice([entry for entry in entries if entry.run not in excused])
        return [
            *(f"measured twice: {row}" for row in measured_twice(entries)),
            *(f"two engines at once: {row}" for row in two_engines(entries)),
            *(f"two clients at once: {row}" for row in measured_concurrently(entries)),
            *(f"started again without a reason: {row}" for row in wasted),
            *(str(entry) for entry in entries if wasted and entry.act is WorkAction.ABANDONED),
        ]

    def measured(self, run: ClusterRun) -> list[str]:
        """Points of a run with results."""
        return measured(self.entries(), run.uid)

    def entries(self) -> list[WorkLogEntry]:
        """The log entries of the clients."""
        return self.log.entries()

    def left(self) -> list[str]:
        """Objects that can still run, be reached, or hold GPUs: living pods, active Jobs, Services."""
        jobs = [row for row in self.site.items("jobs") if not _has_ended(row)]
        pods = [pod for pod in self.site.items("pods") if is_living(pod)]
        rows = [*jobs, *pods, *self.site.items("services")]
        return [row["metadata"]["name"] for row in rows]

    def gpus(self) -> int:
        """GPUs of living pods on fake nodes."""
        return sum(gpus_of(pod) for pod in self.nodes.pods() if is_living(pod))

    def recreate_namespace(self) -> None:
        """Create the namespace, which was deleted, again, with the operator's rights in it."""
        namespace, namespaces = self.site.namespace, "/api/v1/namespaces"
        selected = {"fieldSelector": f"metadata.name={namespace}"}
        eventually(lambda: not self.site.cluster.call("GET", namespaces, query=selected)["items"], "it still exists")
        self.site.cluster.call("POST", namespaces, {"metadata": {"name": namespace}})
        _with_keys(OperatorSite(self.site.cluster, namespace, home=self.site.home), self.ground)

    @property
    def _s3(self) -> dict[str, Any]:
        s3 = self.ground.s3
        return {
            "bucket": s3.bucket,
            "prefix": "played",
            "endpoint": s3.endpoint,
            "credentialsSecretRef": {"name": "bench-s3"},
        }


_RUN: Mapping[str, Any] = {
    "spec.load": {"concurrency": [1, 2], "repeats": 1, "warmupRequests": 1, "order": "Sequential"},
    "spec.workloads[0].output": {"maxTokens": 16},
}


@contextmanager
def simulated_site(
    cluster: Cluster,
    folder: Path,
    *,
    settings: Mapping[str, str] | None = None,
    shared_nodes: KwokNodes | None = None,
    server: str = "",
    home: OperatorSite | None = None,
) -> Iterator[SimulatedSite]:
    """The site, within a `with` block. The definitions must be installed. Fails for a bug in any component.

    `shared_nodes`: nodes of several sites, which exist already. `server`: the operator's address of the API server.
    `home`: the operator's own namespace, with its account and its Lease, so that the site's may be deleted.
    """
    ground = cluster.ground
    assert ground is not None, "the S3 server of hack/cluster is needed"
    with ExitStack() as stack:
        fake = shared_nodes or stack.enter_context(KwokNodes(cluster))
        namespace = stack.enter_context(cluster.namespace("played"))
        site = OperatorSite(cluster, namespace, home=home.namespace if home else "")
        access = _with_keys(site, ground)
        log = stack.enter_context(stand_in_client(cluster, namespace, access, folder))
        settings = {**QUICK, "SPECBENCH_NAMESPACES": namespace, **(settings or {})}
        operator = OperatorProcess(home or site, folder, NO_IMAGE, settings, server=server).start()
        stack.callback(_end, operator)
        yield SimulatedSite(site, ground, fake, operator, log)
        assert operator.bugs() == []


def _with_keys(site: OperatorSite, ground: Ground) -> S3Access:
    """Create the Secret of the results' store; returns what is in it."""
    access = S3Access(ground.s3.endpoint, ground.s3.access_key, ground.s3.secret_key, ground.s3.bucket)
    site.secret("bench-s3", AWS_ACCESS_KEY_ID=access.key, AWS_SECRET_ACCESS_KEY=access.secret)
    return access


def all_end(runs: Iterable[ClusterRun], within_s: float) -> dict[str, dict[str, Any]]:
    """Wait until each run has its completionTime; returns the statuses by name."""
    ended: dict[str, dict[str, Any]] = {}
    waited = list(runs)

    def have_ended() -> bool:
        for run in waited:
            if run.name not in ended and (status := run.status()).get("completionTime"):
                ended[run.name] = status
        return len(ended) == len(waited)

    eventually(have_ended, f"{[run.name for run in waited if run.name not in ended]} do not end", within_s)
    return ended


def _end(operator: OperatorProcess) -> None:
    if operator.process:
        operator.end(signal.SIGKILL)


def _has_ended(job: Resource) -> bool:
    rows = job["status"].get("conditions") or []
    return any(row["type"] in ("Complete", "Failed") and row["status"] == "True" for row in rows)
