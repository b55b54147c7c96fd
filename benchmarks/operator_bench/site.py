"""The site of a benchmark: a new cluster with kwok's nodes, and the operator process with the chart's settings."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from operator_bench.population import run_spec
from operator_bench.usage import MIB
from peers.kwok.stages import NODE_LABEL
from specbench_cluster import Cluster as Ground
from specbench_cluster import ClusterError, Settings
from specbench_cluster.components import ETCD_PORT
from specbench_cluster.processes import recorded
from specbench_testing.api_server_runs import install_campaign_definition, install_definition
from specbench_testing.charts import CHART, Helm
from specbench_testing.cluster import Cluster
from specbench_testing.kwok_nodes import KwokNodes, placement
from specbench_testing.operator_process import ACCOUNT, LEASE, OperatorProcess, OperatorSite
from specbench_testing.s3 import S3Access

NAMESPACE, SYSTEM = "bench", "specbench-system"
SECRET, PREFIX = "bench-s3", "scale"
GPU_NODES, GPUS_OF_NODE = 8, 64
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


class AlreadyUp(ClusterError):
    """A test cluster exists; the benchmark would count and stop what belongs to others."""


@dataclass(frozen=True)
class ScaleSite:
    """One namespace on a new cluster, with an operator that is not started yet."""

    ground: Ground
    cluster: Cluster
    operators: OperatorSite
    operator: OperatorProcess
    folder: Path

    @property
    def s3(self) -> dict[str, Any]:
        """`spec.results.s3` of the runs."""
        s3 = self.ground.s3
        return {
            "bucket": s3.bucket,
            "prefix": PREFIX,
            "endpoint": s3.endpoint,
            "credentialsSecretRef": {"name": SECRET},
        }

    @property
    def s3_access(self) -> S3Access:
        """The store, for clients."""
        s3 = self.ground.s3
        return S3Access(s3.endpoint, s3.access_key, s3.secret_key, s3.bucket)

    @property
    def run_spec(self) -> dict[str, Any]:
        """The spec of every run."""
        return run_spec(placement(1), self.s3)

    def database_mib(self) -> float:
        """The size of etcd's database."""
        with urllib.request.urlopen(f"http://127.0.0.1:{ETCD_PORT}/metrics", timeout=10) as answer:
            rows = (line.split() for line in answer.read().decode().splitlines())
            return next(float(row[1]) for row in rows if row[:1] == ["etcd_mvcc_db_total_size_in_bytes"]) / MIB

    def api_server_pid(self) -> int | None:
        """The process of the API server; None while it is down."""
        process = recorded(self.ground.settings.records / "kube-apiserver.json")
        return process.pid if process and process.alive else None


@contextmanager
def scale_site(folder: Path) -> Iterator[ScaleSite]:
    """A new cluster within a `with` block; afterwards nothing of it is left. Raises AlreadyUp, ClusterError."""
    ground = Ground(Settings(audited_users=(USER,)))
    if any(ground.status().components.values()):
        raise AlreadyUp("a test cluster is running: end its users, then stop it with `hack/cluster/cluster down`")
    with ExitStack() as stack:
        stack.callback(ground.down)
        ground.up()
        cluster = Cluster.at(ground.kubeconfig, ground)
        install_definition(cluster)
        install_campaign_definition(cluster)
        # Its objects are removed with the cluster: deleting thousands one by one would take minutes.
        nodes = KwokNodes(cluster, GPU_NODES, GPUS_OF_NODE)
        nodes.__enter__()
        stack.callback(nodes.end)
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        site = OperatorSite(cluster, NAMESPACE)
        _make_secret(cluster, ground)
        operator = OperatorProcess(site, folder, "specbench:benchmark", _settings(ground, folder))
        stack.callback(_end, operator)
        yield ScaleSite(ground, cluster, site, operator, folder)


def _make_secret(cluster: Cluster, ground: Ground) -> None:
    keys = {"AWS_ACCESS_KEY_ID": ground.s3.access_key, "AWS_SECRET_ACCESS_KEY": ground.s3.secret_key}
    meta = {"name": SECRET, "labels": {"specbench.io/use": "s3"}}
    cluster.call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": meta, "stringData": keys})


def _settings(ground: Ground, folder: Path) -> dict[str, str]:
    """The operator's environment as the chart sets it, with a fence that allows kwok's nodes and the S3 server."""
    fence = yaml.safe_load((CHART / "values.yaml").read_text())["fence"]
    values = {
        "watchNamespaces": [NAMESPACE],
        "clientResources": {"cpu": "0", "memory": "0"},
        "fence": {
            "stores": [{"endpoint": ground.s3.endpoint, "bucket": "*", "operatorIdentity": False}],
            "nodeLabels": [*fence["nodeLabels"], NODE_LABEL],
            "tolerations": [*fence["tolerations"], "kwok.x-k8s.io/node"],
        },
    }
    rendered = Helm(ground.settings.programs / "helm").template(values, namespace=SYSTEM)
    (config_map,) = (row for row in rendered.of_kind("ConfigMap") if "fence.json" in row["data"])
    file = folder / "fence.json"
    file.write_text(config_map["data"]["fence.json"])
    container = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]
    given = {row["name"]: value_for(row) for row in container["env"]}
    # The operator's account has the right to a Lease only in the namespace of the runs.
    return {**given, "SPECBENCH_FENCE": str(file), "SPECBENCH_LEASE": f"{NAMESPACE}/{LEASE}"}


def value_for(variable: Mapping[str, Any]) -> str:
    """The value of a variable of the operator's container; fields of its pod have a substitute."""
    if "valueFrom" not in variable:
        return str(variable["value"])
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return {"metadata.name": "benchmark", "metadata.namespace": SYSTEM, "status.podIP": "127.0.0.1"}[path]


def _end(operator: OperatorProcess) -> None:
    if operator.process:
        operator.end(signal.SIGKILL)
