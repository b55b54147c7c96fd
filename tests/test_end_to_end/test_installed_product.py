"""The product as a user installs it: one release of the chart, and runs on a real cluster with a real S3.

All runs start together and the tests wait for one after another: each run waits for images, engines and deadlines most
of the time. What the operator decides is tested with tables in tests/test_operator; here are the facts that only a real
kubelet, scheduler, store, image and release can show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_client.cli import exit_code
from specbench_cluster.settings import IPV6
from specbench_testing.api_server_runs import Runs
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.health_checks import ArgoScript, kstatus
from specbench_testing.installed_product import SLOW, InstalledProduct, small_run
from specbench_testing.operator_process import BackgroundThread, eventually, retry_until_available
from specbench_testing.run_watcher import RunWatcher
from specbench_testing.s3_results import StoredRun
from specbench_testing.secret_search import find_secrets

LOOK_S = 2.0
KINDS = (
    "/apis/specbench.io/v1alpha1/namespaces/{}/specbenchruns",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/events",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/apis/apps/v1/namespaces/{}/deployments",
)


class Traces(BackgroundThread):
    """Within a `with` block, a thread looks at pods and their logs, which are gone after their end."""

    def __init__(self, product: InstalledProduct) -> None:
        super().__init__("traces")
        self.texts: dict[str, bytes] = {}
        self._command_lines: set[bytes] = set()
        self._product = product

    def look(self) -> None:
        """Collect all objects and the metrics as they are now."""
        for namespace in self._namespaces:
            for path in KINDS:
                for raw in self._items(path.format(namespace)):
                    self._add(path, namespace, raw)
        for pod in self._product.operators():
            pods = f"/api/v1/namespaces/{self._product.product.system}/pods"
            text = self._product.cluster.text(f"{pods}/{pod['metadata']['name']}:9090/proxy/metrics")
            self.texts["metrics"] = text.encode()

    def read_store(self, name: str, stored: StoredRun) -> None:
        """Add all objects of the run `name` in S3."""
        self.texts |= {f"S3 {key} of {name}": stored.read(key) for key in stored.versions()}

    def so_far(self) -> dict[str, bytes]:
        """A copy of what was collected: the thread goes on."""
        return dict(self.texts)

    def assert_collected(self, *patterns: str) -> None:
        """A search would find nothing in texts that were not collected. The patterns match the beginnings of places."""
        places = [place for place, text in self.so_far().items() if text]
        assert [pattern for pattern in patterns if not any(re.match(pattern, place) for place in places)] == []

    @property
    def _namespaces(self) -> tuple[str, str]:
        return (self._product.namespace, self._product.product.system)

    def work(self) -> None:
        """Look at pods, logs and command lines until the end of the block."""
        while not self.over.wait(LOOK_S):
            for namespace in self._namespaces:
                for pod in self._items(f"/api/v1/namespaces/{namespace}/pods"):
                    self._add("pods", namespace, without_own_words(pod))
                    self._look_at_logs(namespace, pod)
            self._command_lines.update(command_lines())
            self.texts["command lines"] = b"\n".join(self._command_lines)

    def _add(self, path: str, namespace: str, raw: dict[str, Any]) -> None:
        meta = raw["metadata"]
        place = f"{path.rpartition('/')[2]} {namespace}/{meta['name']} {meta['resourceVersion']}"
        self.texts[place] = json.dumps(raw, ensure_ascii=False).encode()

    def _items(self, path: str) -> list[dict[str, Any]]:
        return list(retry_until_available(lambda: self._product.cluster.call("GET", path)["items"]))

    def _look_at_logs(self, namespace: str, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container['name']}"
            with suppress(ApiError):  # it has not started, or the pod is gone
                self.texts[f"log of {namespace}/{name} {container['name']}"] = self._product.cluster.text(path).encode()


def without_own_words(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without the termination message of its engine: an engine that is given a token can write it there."""
    for row in (pod.get("status") or {}).get("containerStatuses") or []:
        for state in (row.get("state") or {}, row.get("lastState") or {}):
            if row["name"] == "engine" and "terminated" in state:
                state["terminated"].pop("message", None)
    return pod


def command_lines() -> Iterator[bytes]:
    """Command lines of all processes of the product on this machine, which runs the cluster's containers."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes()
            if b"specbench_" in line or b"specbench-" in line:
                yield line


pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

WITHIN_S = 600.0
TOKEN = "hf_" + "kN4vTq8LxR2mZ7bWcY5dJ1sGhP3fUaE9"
API_KEY = "plain words that are the key of both servers"
REVEAL_TOKEN = (
    "t=$HF_TOKEN; printf 'token %s is invalid, https://me:%s@hub.example, %s' $t $t"
    " $(printf %s $t | base64 -w0) > /dev/termination-log; exit 1"
)
"""An engine that ends with its own token in the termination message."""
HUB = {"spec.model.tokenSecretRef": {"name": "hub"}}
SMALL_MEMORY = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "12Mi"}}}]}}


@dataclass(frozen=True)
class Failure:
    """How a run fails. `text`: text that the message must contain. `arms`: the arms that fail."""

    edits: Mapping[str, Any]
    reason: str
    text: str
    arms: tuple[str, ...] = ("none", "eagle3")


FAILURES = {
    "crashed": Failure({"spec.drafters[0].args": ["--fault=crash-after=3"]}, "Crashed", "exit code 1", ("eagle3",)),
    "memory": Failure({"spec.placement.template": SMALL_MEMORY}, "OOMKilled", "resources.limits.memory"),
    "reveals": Failure(
        {**HUB, "spec.engine.command": ["sh", "-c", REVEAL_TOKEN]}, "Crashed", "token [redacted] is invalid"
    ),
}


WATCHED = ("lost", "whole")


@dataclass(frozen=True)
class Begun:
    """A run that has been created, its results, and its watcher, which runs for those of WATCHED."""

    run: ClusterRun
    stored: StoredRun
    watcher: RunWatcher


@pytest.fixture(scope="module")
def traces(product: InstalledProduct) -> Iterator[Traces]:
    """What the product leaves behind during all tests of this module."""
    with Traces(product) as collected:
        yield collected


@pytest.fixture(scope="module")
def begun(product: InstalledProduct, traces: Traces) -> Iterator[dict[str, Begun]]:
    """All runs, by name. The one that a test deletes halfway is the first."""
    for name, use, data in (("hub", "hub", {"HF_TOKEN": TOKEN}), ("servers", "endpoint", {"OPENAI_API_KEY": API_KEY})):
        meta = {"name": name, "labels": {"specbench.io/use": use}}
        product.product.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}, namespace=product.namespace
        )
    edits: dict[str, Mapping[str, Any]] = {
        "lost": {"spec.engine.args": SLOW},
        # All prompts are shorter, but a run with this field fails if the client's image does not contain o200k_base.
        "whole": {**HUB, "spec.workloads[0].dataset.inputTokens": {"max": 100_000}},
        "prompts": {"spec.workloads[0].dataset.uri": "/usr/share/specbench/missing.jsonl"},
        "servers": running_servers(product),
        **{name: failure.edits for name, failure in FAILURES.items()},
    }
    with ExitStack() as stack:
        runs = {}
        for name, edit in edits.items():
            run, stored = product.begin(name, edit)
            runs[name] = Begun(run, stored, RunWatcher(run, stored))
            if name in WATCHED:
                stack.enter_context(runs[name].watcher)
        yield runs


def running_servers(product: InstalledProduct) -> dict[str, Any]:
    """Start two simulators that belong to no run; returns the edits of a run that compares them.

    Clients find both by the cluster's DNS: one by its URL, the other by its Service.
    """
    serve_simulator(product, "none", "--drafter", "none")
    serve_simulator(product, "eagle3", "--drafter", "eagle3", "--num-speculative-tokens", "3")
    by_url = {"name": "none", "url": f"http://none.{product.namespace}.svc:8000"}
    engine = {
        "kind": "external",
        "dialect": "vllm",
        "endpoints": [by_url, {"name": "eagle3", "serviceRef": {"name": "eagle3", "port": 8000}}],
        "apiKeySecretRef": {"name": "servers"},
    }
    return {"spec.engine": engine, "spec.drafters": [], "spec.placement": {}}


def serve_simulator(product: InstalledProduct, name: str, *arguments: str) -> None:
    """Start a simulator as a plain pod with a Service."""
    container = {
        "name": "server",
        "image": product.product.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["specbench", "simulate", "--host", "::" if IPV6 else "0.0.0.0", "--port", "8000", *arguments],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    metadata = {"name": name, "labels": {"app": name}}
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    ports = [{"port": 8000, "targetPort": 8000}]
    product.product.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container], "securityContext": security},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {"app": name}, "ports": ports},
        },
        namespace=product.namespace,
    )


def test_a_suspended_run_that_is_deleted_is_recovered(
    product: InstalledProduct, begun: dict[str, Begun], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stored = begun["lost"].run, begun["lost"].stored
    eventually(lambda: run.status().get("points", {}).get("measured") == 1, "nothing is measured", WITHIN_S)
    run.suspend(suspended=True)
    run.wait_for_phase("Suspended")
    eventually(lambda: run.gpus() == 0 and run.active_objects() == [], "the GPUs are still held")
    run.wait_for_events("Suspended")
    run.delete()
    kept = stored.manifests()
    assert len(kept) == 1

    resource = recovered_resource(product, run, capsys, monkeypatch)
    assert resource["spec"]["results"]["adopt"] == run.uid
    again = ClusterRun.of(product.cluster, Runs(product.cluster, run.namespace).create(resource))
    with RunWatcher(again, stored) as watcher:
        status = again.ends(within_s=WITHIN_S)
    assert begun["lost"].watcher.violations == watcher.violations == stored.violations() == []
    assert len(watcher.launches) == 1, f"one arm is already measured: {again.warnings()}"
    assert (status["progress"], status["results"]["uri"].rpartition("/")[2]) == ("2/2", run.uid)
    assert kept.items() <= stored.manifests().items(), "measured points are unchanged"

    jobs = [job["metadata"]["uid"] for job in again.children("jobs")]
    product.cluster.call("PATCH", f"{again.path}/status", {"status": None}, kind=MERGE)
    rebuilt = again.ends()
    assert [rebuilt[field] for field in ("arms", "trust", "points")] == [
        status[field] for field in ("arms", "trust", "points")
    ]
    assert [job["metadata"]["uid"] for job in again.children("jobs")] == jobs


def recovered_resource(product: InstalledProduct, run: ClusterRun, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The resource that `specbench recover` prints for a deleted run."""
    s3 = product.ground.s3
    for name, value in (
        ("AWS_ENDPOINT_URL_S3", s3.endpoint),
        ("AWS_REGION", s3.region),
        ("AWS_ACCESS_KEY_ID", s3.access_key),
        ("AWS_SECRET_ACCESS_KEY", s3.secret_key),
    ):
        monkeypatch.setenv(name, value)
    uri = f"s3://{s3.bucket}/end-to-end/{run.name}"
    capsys.readouterr()
    assert exit_code(["recover", uri, "--credentials-secret", "bench-s3"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


CONDITIONS = {
    "Validated": "Valid",
    "EngineReady": "Done",
    "MeasurementComplete": "Finished",
    "ResultsStored": "Stored",
    "Ready": "Finished",
}


def test_a_run_completes_and_its_deletion_keeps_the_results(
    product: InstalledProduct, begun: dict[str, Begun], traces: Traces
) -> None:
    run, stored, watcher = begun["whole"].run, begun["whole"].stored, begun["whole"].watcher
    waited = product.product.kubectl(
        *("-n", run.namespace, "wait", "--for=condition=Ready", f"sbr/{run.name}", f"--timeout={WITHIN_S:.0f}s")
    )
    assert "condition met" in waited
    status = run.ends()
    assert watcher.violations == []
    assert len(watcher.launches) == 2 + launches_lost(run), f"one engine per arm: {run.warnings()}"
    assert {kind: run.condition(kind)[:2] for kind in CONDITIONS} == {k: ("True", v) for k, v in CONDITIONS.items()}
    assert run.condition("Trustworthy")[0] in ("True", "False")
    assert status["progress"] == "2/2"
    assert status["points"] == {"total": 2, "measured": 2, "failed": 0, "invalid": status["points"]["invalid"]}
    assert status["gpuSecondsHeld"] > 0
    check_results(status, stored)
    check_provenance(stored)
    assert stored.violations() == []
    eventually(lambda: run.active_objects() == [], "the run is active although its results exist")
    assert run.children("jobs", "engine") == [], "an engine's Job is kept only as the record of a failure"
    run.wait_for_events("EngineStarting", "EngineReady", "GroupMeasured", "MeasurementComplete", "ResultsReady")
    check_health(watcher.seen)

    policies = f"/apis/networking.k8s.io/v1/namespaces/{run.namespace}/networkpolicies/{run.name}-engines"
    product.cluster.call("GET", policies)
    traces.look()
    before = stored.versions()
    run.delete()
    for kind in ("jobs", "pods", "services", "configmaps"):
        eventually(lambda kind=kind: run.children(kind) == [], f"{kind} exist after their run")  # type: ignore[misc]
    eventually(lambda: is_missing(product.cluster, policies), "the network policy outlives its run")
    assert stored.versions() == before, "deleting a run keeps its results"


def launches_lost(run: ClusterRun) -> int:
    """Launches that were lost, as the run's Events report: a node under pressure is no fault of the product."""
    return len([event for event in run.events() if event["reason"] in ("EngineLost", "Preempted")])


def is_missing(cluster: Cluster, path: str) -> bool:
    try:
        cluster.call("GET", path)
    except ApiError as refused:
        return refused.status == 404
    return False


def check_results(status: Mapping[str, Any], stored: StoredRun) -> None:
    baseline, eagle3 = status["arms"]
    assert (baseline["arm"], eagle3["arm"]) == ("none", "eagle3")
    assert not {"speedup"} & {*baseline, *eagle3}, "one repeat gives a ratio without an interval"
    assert 1.5 < eagle3["acceptanceLength"] < 4, "three drafts, each accepted with probability 0.7"
    assert baseline["acceptanceLength"] == pytest.approx(1)
    summary = stored.json("summary.json")
    for row, cell in zip(status["arms"], summary["cells"], strict=True):
        for shown, name in (("ttftMs", "ttft_ms_p50"), ("tpotMs", "tpot_ms_p50"), ("e2eMs", "e2e_ms_p50")):
            figure = cell["figures"][name]
            # On a node under pressure a client that sends or reads too late leaves a time out, with the reason.
            value = figure.get("value")
            assert row.get(shown, {}).get("p50") == (None if value is None else pytest.approx(value, rel=1e-5))
            assert value is not None or figure["missing"], (row["arm"], name)
        assert row["failedRequests"] == 0
    ratio = summary["cells"][1]["speedup"]["value"]
    assert eagle3["speedupText"].removesuffix(" invalid") == f"{ratio:.2f} (1 repeat: too few to tell)"
    assert status["recommendation"] == summary["recommendation"]["sentence"]
    assert status["results"]["report"].endswith("/report.html")
    assert b"<html" in stored.read("report.html")


def check_provenance(stored: StoredRun) -> None:
    """Node and image of each launch, the GPU from the node's label, and a reason for each unknown fact."""
    provenance = stored.json("provenance.json")
    launches = provenance["launches"]
    assert {launch["arm"] for launch in launches.values()} == {"none", "eagle3"}
    assert set(stored.versions("")) >= {f"launches/{name}.json" for name in launches}
    for launch in launches.values():
        facts = launch["facts"]
        assert launch["simulated"] is True
        assert facts["engine_version"]["value"].startswith("simulated")
        assert facts["image_digest"]["value"].startswith("sha256:")
        assert facts["gpu_count"]["value"] == 1
        assert facts["gpu"]["value"] or facts["gpu"]["reason"] == "the node has no label nvidia.com/gpu.product"
        assert [name for name in ("node", "kubelet", "kernel", "cores") if not facts[name]["value"]] == []
        unknown = [facts[name] for name in ("driver", "interconnect", "torch")]
        assert all(fact["value"] is None and fact["reason"] for fact in unknown)
    assert len(provenance["imageDigests"]) == 1
    assert provenance["differences"] == []
    assert [row["arm"] for row in provenance["arms"]] == ["none", "eagle3"]
    assert provenance["arms"][1]["kvCacheLost"]["value"] == 0


def check_health(seen: list[dict[str, Any]]) -> None:
    """kstatus and Argo CD report the state of the run correctly in every version of it."""
    assert len(seen) > 4
    argo = [ArgoScript()(item).status for item in seen]
    ended = ["completionTime" in item["status"] for item in seen]
    last = ended.index(True)
    assert {kstatus(item) for item in seen[:last]} == {"InProgress"}
    assert {kstatus(item) for item in seen[last:]} == {"Current"}
    assert set(argo[:last]) == {"Progressing"}
    healthy = seen[-1]["status"]["trust"] == "Trustworthy"
    assert set(argo[last:]) == {"Healthy" if healthy else "Degraded"}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_engine_is_reported_and_the_other_arm_keeps_its_results(begun: dict[str, Begun], name: str) -> None:
    failure, run, stored = FAILURES[name], begun[name].run, begun[name].stored
    alone = len(failure.arms) == 2
    status = run.ends("Failed" if alone else "Succeeded", WITHIN_S)
    rows = {row["arm"]: row for row in status["groups"]}
    assert {arm: rows[arm]["reason"] for arm in failure.arms} == dict.fromkeys(failure.arms, failure.reason)
    assert all(failure.text in rows[arm]["message"] for arm in failure.arms), rows
    assert run.condition("EngineReady")[:2] == run.condition("MeasurementComplete")[:2] == ("False", failure.reason)
    run.wait_for_events(failure.reason)
    assert status["points"]["failed"] == len(failure.arms)
    if alone:
        assert run.condition("Stalled")[0] == "True"
        assert run.condition("Stalled")[:2] == ("True", failure.reason)
        assert stored.manifests() == {}
    else:
        assert stored.violations(stored.points()[:1]) == []
        assert rows["none"]["state"] == "Done"
        assert run.condition("Ready")[0] == "True"
        assert run.condition("Trustworthy")[0] == "False", "a comparison needs both arms"
    eventually(lambda: run.active_objects() == [] and run.gpus() == 0, f"objects are left: {run.active_objects()}")


def test_missing_prompts_stall_the_run_and_release_the_engine(begun: dict[str, Begun]) -> None:
    run = begun["prompts"].run
    run.ends("Failed", WITHIN_S)
    stalled, _, message = run.condition("Stalled")
    assert stalled == "True"
    assert "/usr/share/specbench/missing.jsonl" in message
    eventually(lambda: run.living("engine") == [], "the engine pod still exists")
    assert [job["metadata"]["name"] for job in run.children("jobs", "engine")] == [f"{run.name}-g0-0"]


def test_running_servers_are_compared_without_an_engine(begun: dict[str, Begun]) -> None:
    run, stored = begun["servers"].run, begun["servers"].stored
    status = run.ends(within_s=WITHIN_S)
    assert run.children("jobs", "engine") == run.children("services") == []
    assert [row["arm"] for row in status["groups"]] == [row["arm"] for row in status["arms"]] == ["none", "eagle3"]
    assert stored.json("summary.json")["cells"][1]["speedup"]["value"] > 0
    assert status.get("gpuSecondsHeld", 0) == 0
    assert "apiKeySecretRef" not in stored.read("plan.json").decode(), "the plan names no Secret"


def test_no_secret_is_left_anywhere(product: InstalledProduct, begun: dict[str, Begun], traces: Traces) -> None:
    """The words of an engine that is given a token are its own: its termination message may contain it."""
    eventually(lambda: all(each.run.has_ended() for each in begun.values()), "not all runs end", WITHIN_S)
    traces.look()
    for name, each in begun.items():
        traces.read_store(name, each.stored)
    pods = f"log of {product.namespace}/{begun['whole'].run.name}-g0-0"
    traces.assert_collected(
        "specbenchruns", "jobs", "pods", "services", "configmaps", "events", "deployments", "networkpolicies",
        "metrics", "command lines", f"log of {product.product.system}", rf"{pods}-\S+ engine", rf"{pods}-\S+ client",
        "S3 summary.json", "S3 report.html", "S3 plan.json", "S3 points/",
    )  # fmt: skip
    assert b"specbench-client" in traces.texts["command lines"] or b"specbench_client" in traces.texts["command lines"]
    keys = product.ground.s3
    secrets = {"hub token": TOKEN, "API key": API_KEY, "S3 access key": keys.access_key, "S3 key": keys.secret_key}
    assert find_secrets(secrets, traces.so_far()) == []


@pytest.mark.long
def test_a_namespace_that_loses_its_rights_does_not_disturb_a_run_of_another(product: InstalledProduct) -> None:
    """Its RoleBindings are deleted while the run is measured, and every watch begins again."""
    cluster, other = product.cluster, f"{product.namespace}-other"
    product.product.prepare_namespace(other)
    product.product.install(*product.values, f"watchNamespaces={{{product.namespace},{other}}}")
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other}/rolebindings"
    taken = cluster.call("GET", bindings)["items"]
    assert taken, "the release has rights there"
    run, stored = product.begin("undisturbed", {"spec.engine.args": SLOW})
    with RunWatcher(run, stored) as watcher:
        run.wait_for_phase("Running")
        for binding in taken:
            cluster.call("DELETE", f"{bindings}/{binding['metadata']['name']}")
        product.ground.restart("kube-apiserver")
        created = retry_until_available(lambda: Runs(cluster, other).create(small_run("waiting")))
        waiting = ClusterRun.of(cluster, created)
        status = run.ends(within_s=WITHIN_S)
    assert (status["progress"], watcher.violations, stored.violations()) == ("2/2", [], [])
    assert f"nothing is reconciled in {other}" in product.log()
    assert waiting.children("jobs") == []
    for binding in taken:
        kept = {"name": binding["metadata"]["name"], "labels": binding["metadata"].get("labels", {})}
        cluster.call("POST", bindings, {**binding, "metadata": kept})
    assert waiting.ends(within_s=WITHIN_S)["progress"] == "2/2"
    restarts = [row["restartCount"] for pod in product.operators() for row in pod["status"]["containerStatuses"]]
    assert restarts == [0]


def test_the_release_is_restricted_and_an_upgrade_replaces_its_pod(product: InstalledProduct) -> None:
    assert "Phase:          Succeeded" in product.product.helm_test()
    (pod,) = product.operators()
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 0)
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "is forbidden" not in product.log()
    product.product.install(*product.values, "podLabels.upgraded=yes")
    (upgraded,) = [pod for pod in product.operators() if "deletionTimestamp" not in pod["metadata"]]
    assert upgraded["metadata"]["labels"].get("upgraded") == "yes"
    eventually(lambda: product.leader() == upgraded["metadata"]["name"], "the new pod does not lead")
