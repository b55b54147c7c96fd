"""Complete runs with the product's image on a real Kubernetes with a real S3, also through failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from specbench_cluster import Cluster as Ground
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WITHIN_S = 400.0
QUICK = {
    "SPECBENCH_RESYNC_S": "5",
    "SPECBENCH_ENGINE_LOST_SETTLE_S": "3",
    "SPECBENCH_NETWORK_POLICIES": '{"blockedAddresses": ["169.254.0.0/16"], "engineFrom": [], "runEgress": []}',
}
SLOW = ["--base-ms=40"]


@pytest.fixture
def ground(cluster: Cluster) -> Ground:
    if cluster.ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    return cluster.ground


@pytest.fixture
def site(cluster: Cluster, crd: Definition, ground: Ground) -> Iterator[OperatorSite]:
    with cluster.namespace("whole") as namespace:
        site = OperatorSite(cluster, namespace)
        site.enforce("restricted")
        site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
        yield site


@pytest.fixture
def operator(site: OperatorSite, image: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(site, tmp_path, image, QUICK).running() as process:
        yield process


Make = Callable[..., Resource]


@pytest.fixture
def make(site: OperatorSite, ground: Ground) -> Make:
    """Creates a run with two arms on the simulator and these edits."""

    def create(edits: dict[str, Any] | None = None) -> Resource:
        s3 = {"bucket": ground.s3.bucket, "endpoint": ground.s3.endpoint, "credentialsSecretRef": {"name": "bench-s3"}}
        dataset = {"source": "jsonl", "uri": "/usr/share/specbench/prompts.jsonl", "count": 8}
        given = {
            "spec.model.name": "simulated",
            "spec.workloads[0]": {"name": "mixed", "dataset": dataset, "output": {"maxTokens": 24}},
            "spec.load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1},
            "spec.placement": {"gpus": 8},
            "spec.results": {"s3": {**s3, "prefix": "whole"}},
            **(edits or {}),
        }
        return site.runs.create(resource(given))

    return create


class RunObjects:
    """The objects of a run in S3."""

    def __init__(self, ground: Ground, run: Resource) -> None:
        s3, meta = ground.s3, run["metadata"]
        self._client = boto3.client(
            "s3",
            endpoint_url=s3.endpoint,
            region_name=s3.region,
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )
        self._bucket = s3.bucket
        self._root = f"whole/runs/{meta['namespace']}/{meta['name']}/{meta['uid']}/"

    def keys(self) -> list[str]:
        """Keys below the run's root."""
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._root).get("Contents", [])
        return [row["Key"].removeprefix(self._root) for row in found]

    def json(self, key: str) -> Any:
        """The parsed JSON object at this key."""
        return json.loads(self._client.get_object(Bucket=self._bucket, Key=self._root + key)["Body"].read())

    def manifests(self) -> list[str]:
        """Keys of the point manifests."""
        return [key for key in self.keys() if key.endswith("/manifest.json")]


def measuring(site: OperatorSite) -> bool:
    """Whether a client is running."""
    pods = site.items("pods", "client")
    return any(pod["status"]["phase"] == "Running" for pod in pods)


def test_a_client_is_guaranteed_its_cores_and_a_run_keeps_its_network_policies(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.placement": {"gpus": 8, "client": {"resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}}})
    policies = f"/apis/networking.k8s.io/v1/namespaces/{site.namespace}/networkpolicies"

    def names() -> set[str]:
        return {row["metadata"]["name"] for row in site.cluster.call("GET", policies)["items"]}

    eventually(lambda: site.items("pods", "engine"), "no engine starts")
    assert names() == {"demo-engines", "demo-clients"}
    site.cluster.call("DELETE", f"{policies}/demo-engines")
    eventually(lambda: "demo-engines" in names(), "the deleted policy is not restored")
    eventually(lambda: measuring(site), "no client runs", WITHIN_S)
    assert {pod["status"]["qosClass"] for pod in site.items("pods", "client")} == {"Guaranteed"}
    site.wait_for_phase("demo", "Succeeded", WITHIN_S)
    site.delete_run("demo")
    eventually(lambda: names() == set(), "the policies outlive their run")


def test_a_run_completes_with_one_engine_at_a_time(
    site: OperatorSite, operator: OperatorProcess, make: Make, ground: Ground
) -> None:
    run = make()
    most = 0
    pinned: list[Any] = []

    def has_ended() -> bool:
        nonlocal most
        jobs = site.items("jobs", "engine")
        pinned[:] = [job["spec"]["template"]["spec"].get("affinity") for job in jobs] or pinned
        alive = [pod for pod in site.items("pods", "engine") if pod["status"]["phase"] in ("Pending", "Running")]
        most = max(most, len(alive))
        return site.phase("demo") in ("Succeeded", "Failed")

    eventually(has_ended, "the run does not end", WITHIN_S)
    status, objects = site.status("demo"), RunObjects(ground, run)
    assert status["phase"] == "Succeeded", status
    assert most == 1
    assert (status["progress"], len(objects.manifests())) == ("2/2", 2)
    summary = objects.json("summary.json")
    for launch in objects.json("provenance.json")["launches"].values():
        facts = launch["facts"]
        assert facts["node"]["value"]
        assert facts["image_digest"]["value"].startswith("sha256:")
        assert "may not read the node" in facts["kubelet"]["reason"], (
            "the operator may not read nodes, and the run continues"
        )
    assert [row["arm"] for row in status["arms"]] == [cell["arm"] for cell in summary["cells"]] == ["none", "ngram"]
    speedup_text = f"{summary['cells'][1]['speedup']['value']:.2f} (1 repeat: too few to tell)"
    assert status["arms"][1]["speedupText"].removesuffix(" invalid") == speedup_text
    assert "speedup" not in status["arms"][1], "one repeat gives a ratio without an interval"
    assert status["recommendation"] == summary["recommendation"]["sentence"]
    (node,) = status["engineNodes"]
    assert node in json.dumps(pinned[-1]), "the second arm prefers the node of the first"
    assert status["arms"][1]["ttftMs"]["p50"] > 0
    assert status["arms"][1]["acceptanceLength"] > 1
    assert site.status_and_reason("demo", "Ready")[0] == site.status_and_reason("demo", "ResultsStored")[0] == "True"
    assert site.status_and_reason("demo", "EngineReady") == ("True", "Done")
    assert site.status_and_reason("demo", "Trustworthy")[0] in ("True", "False")
    assert status["results"]["report"].endswith("/report.html")
    assert status["gpuSecondsHeld"] > 8
    eventually(
        lambda: site.names("pods", "engine") == site.names("services") == [], "engines exist after the measurement"
    )
    site.wait_for_events("EngineStarting", "EngineReady", "GroupMeasured", "MeasurementComplete", "ResultsReady")
    site.delete_run("demo")
    eventually(lambda: not site.names("jobs"), "children exist after their run")
    assert len(objects.manifests()) == 2, "deleting a run never deletes results"


def test_a_refused_first_completion_is_reported_with_the_engines_message(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.engine.args": ["--fault=http-500=1"]})
    status = site.wait_for_phase("demo", "Failed", WITHIN_S)
    assert [row["reason"] for row in status["groups"]] == ["FirstRequestFailed"] * 2
    assert site.status_and_reason("demo", "EngineReady") == ("False", "FirstRequestFailed")
    assert "500" in status["groups"][0]["message"]


def test_missing_prompts_stall_the_run_and_release_the_engine(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.workloads[0].dataset.uri": "/usr/share/specbench/missing.jsonl"})
    site.wait_for_phase("demo", "Failed", WITHIN_S)
    assert site.status_and_reason("demo", "Stalled")[0] == "True"
    assert "/usr/share/specbench/missing.jsonl" in site.message("demo", "Stalled")
    eventually(lambda: not site.names("pods", "engine"), "the engine pod still exists")
    assert site.names("jobs", "engine") == ["demo-g0-0"]


def test_a_suspended_run_continues_and_a_lost_status_is_rebuilt(
    site: OperatorSite, operator: OperatorProcess, make: Make, ground: Ground
) -> None:
    run = make({"spec.engine.args": SLOW})
    path = f"/apis/specbench.io/v1alpha1/namespaces/{site.namespace}/specbenchruns/demo"
    eventually(lambda: site.status("demo").get("points", {}).get("measured") == 1, "nothing is measured", WITHIN_S)
    site.cluster.call("PATCH", path, {"spec": {"suspend": True}}, kind=MERGE)
    site.wait_for_phase("demo", "Suspended")
    eventually(lambda: not site.names("pods", "engine"), "the GPUs are still held")
    first = RunObjects(ground, run).manifests()
    site.cluster.call("PATCH", path, {"spec": {"suspend": False}}, kind=MERGE)
    before = site.wait_for_phase("demo", "Succeeded", WITHIN_S)
    assert set(first) < set(RunObjects(ground, run).manifests())
    jobs = site.names("jobs")
    site.cluster.call("PATCH", f"{path}/status", {"status": None}, kind=MERGE)
    after = site.wait_for_phase("demo", "Succeeded")
    assert (after["arms"], after["trust"]) == (before["arms"], before["trust"])
    assert site.names("jobs") == jobs


def serve_simulator(site: OperatorSite, name: str, image: str, *arguments: str) -> dict[str, str]:
    """Start a simulator that belongs to no run, as a plain pod with a Service; returns its endpoint."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["specbench", "simulate", "--host", "0.0.0.0", "--port", "8000", *arguments],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
        "securityContext": security,
    }
    pod_security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    metadata = {"name": name, "namespace": site.namespace, "labels": {"app": name}}
    core = f"/api/v1/namespaces/{site.namespace}"
    spec = {"containers": [container], "securityContext": pod_security, "automountServiceAccountToken": False}
    site.cluster.call("POST", f"{core}/pods", {"metadata": metadata, "spec": spec})
    ports = [{"port": 8000, "targetPort": 8000}]
    service = {"metadata": metadata, "spec": {"selector": {"app": name}, "ports": ports}}
    site.cluster.call("POST", f"{core}/services", service)

    def is_ready() -> bool:
        status = site.cluster.call("GET", f"{core}/pods/{name}")["status"]
        return any(row["type"] == "Ready" and row["status"] == "True" for row in status.get("conditions", []))

    eventually(is_ready, f"the simulator {name} is not ready", WITHIN_S)
    return {"name": name, "url": f"http://{name}.{site.namespace}.svc:8000"}


def test_running_servers_are_compared_without_an_engine(
    site: OperatorSite, operator: OperatorProcess, make: Make, ground: Ground, image: str
) -> None:
    key = "plain words that are the key of both servers"
    site.secret("endpoint-key", OPENAI_API_KEY=key)
    plain = serve_simulator(site, "none", image, "--drafter", "none")
    drafting = serve_simulator(site, "eagle3", image, "--drafter", "eagle3", "--num-speculative-tokens", "3")
    engine = {
        "kind": "external",
        "dialect": "vllm",
        "endpoints": [plain, drafting],
        "apiKeySecretRef": {"name": "endpoint-key"},
    }
    load = {"concurrency": [2], "repeats": 2, "requests": 8, "warmupRequests": 1}
    edits = {"spec.engine": engine, "spec.drafters": [], "spec.placement": {}, "spec.load": load}
    run = make(edits)
    most = 0

    def has_ended() -> bool:
        nonlocal most
        alive = [pod for pod in site.items("pods", "client") if pod["status"]["phase"] in ("Pending", "Running")]
        most = max(most, len(alive))
        return site.phase("demo") in ("Succeeded", "Failed")

    eventually(has_ended, "the run does not end", WITHIN_S)
    status, objects = site.status("demo"), RunObjects(ground, run)
    assert status["phase"] == "Succeeded", status
    assert most == 1, "one client at a time"
    assert site.names("jobs", "engine") == site.names("pods", "engine") == site.names("services", "engine") == []
    assert [row["arm"] for row in status["groups"]] == ["none", "eagle3", "eagle3", "none"]
    assert site.names("jobs", "client") == [f"demo-g{group}-0-client" for group in range(4)]
    summary, provenance = objects.json("summary.json"), objects.json("provenance.json")
    assert [row["arm"] for row in status["arms"]] == [cell["arm"] for cell in summary["cells"]] == ["none", "eagle3"]
    assert summary["cells"][1]["speedup"]["value"] > 1
    assert status.get("gpuSecondsHeld", 0) == 0
    assert key not in json.dumps([status, summary, provenance, objects.json("plan.json")])
    assert "endpoint-key" not in json.dumps(objects.json("plan.json"))
    site.delete_run("demo")
    eventually(lambda: not site.names("jobs"), "children exist after their run")
    assert len(objects.manifests()) == 4
