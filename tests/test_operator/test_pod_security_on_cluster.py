"""Every pod of every example and engine against the Pod Security Standard `restricted`, judged by a real API server.

The requests are dry runs in a namespace that enforces the level, so nothing is created. The how-to about restricted
namespaces contains the verdicts; SPECBENCH_REWRITE_GOLDEN=1 rewrites its table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.plan.expansion import expand
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.parsing import parse_campaign, parse_run
from specbench_api.spec.pod_template import EngineSecurityContext
from specbench_api.spec.run import SpecBenchRun
from specbench_operator.render.engine_job import engine_job, leader_worker_set, leader_worker_set_job
from specbench_operator.render.shared_fields import Manifest
from specbench_operator.state.objects import REPAIRED_KINDS, ChildKey, Job, ObjectRef, fulfils
from specbench_testing.cluster import MERGE, ApiError, Cluster
from specbench_testing.operator_builders import NOON, SETTINGS, UID, operator_run, own_jobs
from specbench_testing.operator_process import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "tests/test_chart/golden/default.yaml"
PAGE = ROOT / "docs/how-to/restricted-namespaces-and-openshift.md"
MARKS = "<!-- verdicts: asserted by tests/test_operator/test_pod_security_on_cluster.py -->", "<!-- end of verdicts -->"
PROBED = replace(SETTINGS, probe_engines=True)
NON_ROOT = EngineSecurityContext(run_as_non_root=True, run_as_user=2000, run_as_group=0, fs_group=2000)
ALL_EXAMPLES = sorted(
    file
    for file in (ROOT / "examples").rglob("*.yaml")
    if re.search(r"^kind: SpecBench(Run|Campaign)$", file.read_text(encoding="utf-8"), re.MULTILINE)
)
EXAMPLES = [file for file in ALL_EXAMPLES if "kind: external" not in file.read_text(encoding="utf-8")]
"""Examples with engines."""
RESEARCH = "registry.example/specbench:research"
ENGINES: Mapping[str, dict[str, Any]] = {
    "simulator": {"spec.engine": {"kind": "simulator"}},
    "vllm": {"spec.engine": {"kind": "vllm"}},
    "vllm, two nodes": {
        "spec.engine": {"kind": "vllm", "tensorParallelSize": 2},
        "spec.placement": {"gpus": 1, "nodes": 2},
    },
    "sglang": {"spec.engine": {"kind": "sglang"}},
    "tensorrt-llm": {"spec.engine": {"kind": "tensorrt-llm"}},
    "llama-cpp": {"spec.engine": {"kind": "llama-cpp"}},
    "transformers": {"spec.engine": {"kind": "transformers", "image": RESEARCH}},
}
NEEDS_USER = "runAsNonRoot != true"


@pytest.fixture(scope="module")
def restricted(cluster: Cluster) -> Iterator[str]:
    """A namespace that enforces the level `restricted`."""
    with cluster.namespace("restricted") as name:
        labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        cluster.call("PATCH", f"/api/v1/namespaces/{name}", labels, kind=MERGE)
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        eventually(lambda: cluster.call("GET", accounts)["items"], "the namespace has no service account")
        yield name


def verdict(cluster: Cluster, namespace: str, pod: Manifest) -> str:
    """What the level forbids in this PodSpec, separated by commas; empty if nothing."""
    spec = {name: value for name, value in pod.items() if name != "serviceAccountName"}  # the account would be missing
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried-out"}, "spec": spec}
    try:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", body, query=query)
    except ApiError as refused:
        level, found, violations = str(refused).partition('violates PodSecurity "restricted:latest": ')
        assert found, level
        return re.sub(r" \([^)]*\)", "", violations)  # without the names of containers and fields
    return ""


def own_pods(run: SpecBenchRun) -> list[Manifest]:
    """PodSpecs of client, report and gate."""
    return [job["spec"]["template"]["spec"] for job in own_jobs(run).values()]


def engine_pods(run: SpecBenchRun) -> list[Manifest]:
    """PodSpecs of the engines of all arms."""
    plan = expand(run)
    groups = {group.arm: group for group in plan.groups}.values()
    if run.spec.placement.nodes == 1:
        return [engine_job(run, plan, group, 0, PROBED)["spec"]["template"]["spec"] for group in groups]
    found = []
    for group in groups:
        job = leader_worker_set_job(run, group, 0, PROBED)
        ref = ObjectRef("Job", job["metadata"]["name"], "uid-of-the-job")
        owner = Job(ref, UID, ChildKey(ROLE_ENGINE, group.index, 0), NOON)
        templates = leader_worker_set(run, plan, group, owner, PROBED)["spec"]["leaderWorkerTemplate"]
        found += [
            job["spec"]["template"]["spec"],
            templates["leaderTemplate"]["spec"],
            templates["workerTemplate"]["spec"],
        ]
    return found


def with_user(run: SpecBenchRun) -> SpecBenchRun:
    """The run, whose engines start as a user that is not root."""
    placement = run.spec.placement.model_copy(update={"security_context": NON_ROOT})
    return run.model_copy(update={"spec": run.spec.model_copy(update={"placement": placement})})


def runs_of(file: Path) -> list[SpecBenchRun]:
    """The run of an example, or the runs of its campaign, as stored by the API server: a local one gets a bucket."""
    resource = yaml.safe_load(file.read_text(encoding="utf-8"))
    if resource["kind"] == "SpecBenchRun":
        resource["spec"].setdefault("results", {"s3": {"bucket": "results", "prefix": "local"}})
    resource["metadata"] |= {"namespace": "bench", "uid": UID}
    if resource["kind"] == "SpecBenchRun":
        return [parse_run(resource)]
    return [
        each.run.model_copy(update={"metadata": each.run.metadata.model_copy(update={"uid": UID})})
        for each in expand_campaign(parse_campaign(resource)).runs
    ]


def judged(cluster: Cluster, namespace: str, pods: list[Manifest]) -> set[str]:
    """Distinct verdicts about the pods."""
    assert pods
    return {verdict(cluster, namespace, pod) for pod in pods}


def test_the_level_is_enforced(cluster: Cluster, restricted: str) -> None:
    """Otherwise every other test of this module would pass whatever is rendered."""
    pod = {"containers": [{"name": "root", "image": "x", "securityContext": {"privileged": True}}]}
    assert "privileged" in verdict(cluster, restricted, pod)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT / "examples")))
def test_the_pods_of_an_example_are_admitted_with_a_user(cluster: Cluster, restricted: str, file: Path) -> None:
    without: set[str] = set()
    for run in runs_of(file):
        assert judged(cluster, restricted, [*own_pods(run), *engine_pods(with_user(run))]) == {""}
        without |= judged(cluster, restricted, engine_pods(run))
    assert without <= {"", NEEDS_USER}
    assert (str(file.relative_to(ROOT / "examples")) in passing_without_user()) == (without == {""})


def passing_without_user() -> list[str]:
    """The examples whose engines, according to the page, pass without a user."""
    page = PAGE.read_text(encoding="utf-8")
    (names,) = re.findall(r"^Without a user, only the engines of (.+) pass\.$", page, re.MULTILINE)
    return re.findall(r"`([^`]+)`", names)


@pytest.mark.parametrize("file", sorted({*ALL_EXAMPLES} - {*EXAMPLES}), ids=lambda file: file.name)
def test_the_clients_of_running_servers_are_admitted(cluster: Cluster, restricted: str, file: Path) -> None:
    for run in runs_of(file):
        assert judged(cluster, restricted, own_pods(run)) == {""}


def without_user(verdicts: set[str]) -> str:
    """The cell of the page's tables for engines without `placement.securityContext`."""
    return "fails: no `runAsNonRoot`" if NEEDS_USER in verdicts else "passes"


def test_the_page_names_existing_examples() -> None:
    assert set(passing_without_user()) <= {str(file.relative_to(ROOT / "examples")) for file in EXAMPLES}


def test_the_charts_pods_are_admitted(cluster: Cluster, restricted: str) -> None:
    manifests = [row for row in yaml.safe_load_all(CHART.read_text()) if row]
    pods = [row["spec"]["template"]["spec"] for row in manifests if row["kind"] == "Deployment"]
    pods += [row["spec"] for row in manifests if row["kind"] == "Pod"]
    assert len(pods) == 2
    assert judged(cluster, restricted, pods) == {""}


def test_the_page_has_the_verdict_about_every_kind_of_pod(cluster: Cluster, restricted: str) -> None:
    rows = [f"| {name} | passes | |" for name in ("operator, `helm test`", "client", "report", "gate")]
    for name, edits in ENGINES.items():
        run = parse_run(operator_run(edits))
        assert judged(cluster, restricted, own_pods(run)) == {""}
        without, given = (judged(cluster, restricted, engine_pods(each)) for each in (run, with_user(run)))
        assert without <= {"", NEEDS_USER}
        rows.append(f"| engine {name} | {without_user(without)} | {'passes' if given == {''} else 'fails'} |")
    head = "| pod | without `placement.securityContext` | with `runAsNonRoot` and a user |\n|---|---|---|\n"
    table = head + "\n".join(rows) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    begin, end = (page.index(mark) for mark in MARKS)
    present, begin = page[begin + len(MARKS[0]) : end], begin + len(MARKS[0])
    if os.environ.get("SPECBENCH_REWRITE_GOLDEN") == "1":
        PAGE.write_text(f"{page[:begin]}\n\n{table}\n{page[end:]}", encoding="utf-8")
    assert present.strip() == table.strip()


# The API server accepts every manifest that the operator renders, with strict field validation.


GOLDEN = {file.stem: file for file in sorted((Path(__file__).parent / "golden").glob("*.yaml"))}
MAIN = {
    "engine-placed",
    "engine-multus",
    "engine-istio",
    "client-istio",
    "group-deadline",
    "client-full",
    "report-full",
}
PATHS = {
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "Service": "/api/v1/namespaces/default/services",
    "ConfigMap": "/api/v1/namespaces/default/configmaps",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
    "Pod": "/api/v1/namespaces/default/pods",
}
"""Paths of the kinds. Of a LeaderWorkerSet only the pods are tested here; tests/test_peers has the rest."""


def tried_out(cluster: Cluster, manifest: dict[str, Any]) -> Any:
    """What the server would store. Raises ApiError."""
    there = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default", "name": "tried-out"}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return cluster.call("POST", PATHS[manifest["kind"]], there, query=query)


def test_the_api_server_accepts_the_rendered_manifests(cluster: Cluster) -> None:
    accepted = set()
    for name, file in GOLDEN.items():
        manifest = yaml.safe_load(file.read_text())
        if manifest["kind"] == "LeaderWorkerSet":
            templates = manifest["spec"]["leaderWorkerTemplate"]
            for role in ("leader", "worker"):
                tried_out(cluster, {**templates[f"{role}Template"], "apiVersion": "v1", "kind": "Pod"})
            continue
        made = tried_out(cluster, manifest)
        if manifest["kind"] == "Job":
            requested, kept = (each["spec"]["template"]["spec"] for each in (manifest, made))
            lost = {field for field, value in requested.items() if value and field not in kept}
            assert (name, lost) == (name, set()), "the server dropped a field of the pod"
        if manifest["kind"] in REPAIRED_KINDS:
            assert fulfils(made["spec"], manifest["spec"]), f"the operator would apply {name} again and again"
        accepted.add(name)
    assert accepted >= MAIN
