"""`cluster.kubernetes_api` against a real API server: preconditions of writes and the mapping of errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubernetes import client, config
from specbench_operator.cluster.kubernetes_api import KubernetesApi
from specbench_operator.cluster.parsing import parse_job
from specbench_operator.cluster.writer import Writer
from specbench_operator.errors import Changed, Retry, Stop
from specbench_operator.run.decide import decide_run
from specbench_operator.state.objects import FailureScope, LaunchVerdict, ObjectRef
from specbench_operator.state.run import RunDecision, RunObservation, StopJob, StoredResults
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.operator_builders import NOON, SETTINGS
from specbench_testing.operator_process import OperatorSite, eventually
from specbench_testing.ports import free_port
from specbench_testing.resources import resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def site(cluster: Cluster, crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("api") as namespace:
        yield OperatorSite(cluster, namespace)


@pytest.fixture
def api(site: OperatorSite, tmp_path: Path) -> KubernetesApi:
    """A client with the operator's own permissions."""
    return KubernetesApi(config.new_client_from_config(str(site.kubeconfig(tmp_path))), 10)  # type: ignore[no-untyped-call]


def config_map(site: OperatorSite, name: str = "thing", **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": site.namespace, "labels": {"app.kubernetes.io/managed-by": "specbench"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def test_a_missing_object_is_none_and_deleting_it_succeeds(site: OperatorSite, api: KubernetesApi) -> None:
    assert api.get("ConfigMap", site.namespace, "nothing") is None
    assert api.merge("ConfigMap", site.namespace, "nothing", {"data": {}}) is None
    api.delete("ConfigMap", site.namespace, "nothing", "any-uid")


def test_a_bare_list_returns_metadata_only(site: OperatorSite, api: KubernetesApi) -> None:
    assert api.list("SpecBenchRun", site.namespace, bare=True) == []
    made = resource({"metadata.labels": {"team": "a"}})
    site.runs.create(made)
    (found,) = api.list("SpecBenchRun", site.namespace, labels="team!=b", bare=True)
    assert found["metadata"]["labels"] == {"team": "a"}
    assert "spec" not in found
    assert api.list("SpecBenchRun", site.namespace, labels="team!=a", bare=True) == []


def test_a_uid_mismatch_prevents_delete_and_merge(site: OperatorSite, api: KubernetesApi) -> None:
    api.apply(config_map(site, data="kept"))
    api.delete("ConfigMap", site.namespace, "thing", "another-uid")
    with pytest.raises(Changed):
        api.merge("ConfigMap", site.namespace, "thing", {"metadata": {"uid": "another-uid"}, "data": {"data": "lost"}})
    found = api.get("ConfigMap", site.namespace, "thing")
    assert found is not None
    assert found["data"] == {"data": "kept"}
    api.delete("ConfigMap", site.namespace, "thing", found["metadata"]["uid"])
    assert api.get("ConfigMap", site.namespace, "thing") is None


def test_a_version_mismatch_prevents_delete_and_merge(site: OperatorSite, api: KubernetesApi) -> None:
    made = api.apply(config_map(site, key="first"))["metadata"]
    changed = api.apply(config_map(site, key="second"))["metadata"]
    outdated = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    with pytest.raises(Changed, match="modified"):
        api.merge("ConfigMap", site.namespace, "thing", {"metadata": outdated, "data": {"key": "third"}})
    with pytest.raises(Changed):
        api.delete("ConfigMap", site.namespace, "thing", made["uid"], made["resourceVersion"])
    assert (api.get("ConfigMap", site.namespace, "thing") or {})["data"] == {"key": "second"}
    api.delete("ConfigMap", site.namespace, "thing", changed["uid"], changed["resourceVersion"])
    assert api.get("ConfigMap", site.namespace, "thing") is None


def test_an_object_that_the_server_rejects_raises_stop_with_the_reason(site: OperatorSite, api: KubernetesApi) -> None:
    broken = config_map(site)
    broken["metadata"]["labels"] = {"x": "not a label!"}
    with pytest.raises(Stop) as refused:
        api.apply(broken)
    assert refused.value.reason == "ManifestRefused"
    assert "not a label" in str(refused.value)


def test_forbidden_requests_raise_retry(site: OperatorSite, api: KubernetesApi) -> None:
    with pytest.raises(Retry) as refused:
        api.list("Secret", site.namespace)
    assert refused.value.reason == "Forbidden"
    with pytest.raises(Retry) as elsewhere:
        api.list("Job", "default")
    assert elsewhere.value.reason == "Forbidden"
    assert "rbac.namespaces" in str(elsewhere.value)


def test_an_unreachable_server_raises_retry_with_a_stable_message() -> None:
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{free_port()}"
    api = KubernetesApi(client.ApiClient(configuration), 1)
    messages = set()
    for _ in range(2):
        with pytest.raises(Retry) as away:
            api.get("Pod", "default", "x")
        messages.add(str(away.value))
        assert away.value.reason == "ApiUnreachable"
    assert len(messages) == 1
    assert "0x" not in messages.pop()


def test_status_decided_on_an_outdated_run_is_not_written(site: OperatorSite, api: KubernetesApi) -> None:
    actor = Writer(api)
    created = site.runs.create(resource())
    decision = decide_run(RunObservation(created, stored=StoredResults()), SETTINGS, NOON)
    site.cluster.call(
        "PATCH",
        f"/apis/specbench.io/v1alpha1/namespaces/{site.namespace}/specbenchruns/demo",
        {"spec": {"suspend": True}},
        kind=MERGE,
    )
    with pytest.raises(Changed):
        actor.report(created, decision.status, NOON)
    current = site.runs.get("demo")
    assert "phase" not in current.get("status", {})
    assert actor.report(current, decision.status, NOON)
    written = site.runs.get("demo")
    assert written["status"] == decision.status.to_dict(), "the server pruned and defaulted nothing"
    assert not actor.report(written, decision.status, NOON), "an equal status is not written again"


def test_rows_removed_from_the_status_are_removed_on_the_server(site: OperatorSite, api: KubernetesApi) -> None:
    actor = Writer(api)
    decision = decide_run(RunObservation(site.runs.create(resource()), stored=StoredResults()), SETTINGS, NOON)
    actor.report(site.runs.get("demo"), decision.status, NOON)
    fewer = decision.status.model_copy(
        update={"conditions": decision.status.conditions[:3], "groups": decision.status.groups[:1], "start_time": None}
    )
    actor.report(site.runs.get("demo"), fewer, NOON)
    assert site.runs.get("demo")["status"] == fewer.to_dict()


def test_applying_the_same_decision_twice_changes_nothing(site: OperatorSite, api: KubernetesApi) -> None:
    actor = Writer(api)
    created = site.runs.create(resource())
    decision = decide_run(RunObservation(created, stored=StoredResults()), SETTINGS, NOON)
    actor.act_on_run(created, decision)
    before = {name: site.items(name) for name in ("services", "configmaps")}
    uids = [job["metadata"]["uid"] for job in site.items("jobs")]
    actor.act_on_run(created, decision)
    assert {name: site.items(name) for name in ("services", "configmaps")} == before
    assert [job["metadata"]["uid"] for job in site.items("jobs")] == uids


def test_a_stopped_job_ends_keeps_its_verdict_and_loses_its_pods(site: OperatorSite, api: KubernetesApi) -> None:
    created = site.runs.create(resource())
    launched = decide_run(RunObservation(created, stored=StoredResults()), SETTINGS, NOON)
    Writer(api).act_on_run(created, launched)
    job = site.items("jobs")[0]
    ref = ObjectRef("Job", job["metadata"]["name"], job["metadata"]["uid"])
    verdict = LaunchVerdict(FailureScope.GROUP, "NeverReady", "said", NOON)
    stop = RunDecision(launched.status, stop=(StopJob(ref, verdict, ended=False),))
    Writer(api).act_on_run(created, stop)
    eventually(lambda: parse_job(site.items("jobs")[0]).ended, "the Job has not ended")
    assert parse_job(site.items("jobs")[0]).verdict == verdict
    eventually(lambda: not site.names("pods"), "its pods still exist")


def test_a_stopped_multi_node_engine_job_ends_without_pods_and_has_no_ttl(
    site: OperatorSite, api: KubernetesApi
) -> None:
    created = site.runs.create(resource({"spec.placement": {"gpus": 1, "nodes": 2}}))
    settings = replace(SETTINGS, leader_worker_sets=True)
    launched = decide_run(RunObservation(created, stored=StoredResults()), settings, NOON)
    Writer(api).act_on_run(created, launched)
    (job,) = site.items("jobs")
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    ref = ObjectRef("Job", job["metadata"]["name"], job["metadata"]["uid"])
    verdict = LaunchVerdict(FailureScope.GROUP, "NeverReady", "said", NOON)
    Writer(api).act_on_run(created, RunDecision(launched.status, stop=(StopJob(ref, verdict, ended=False),)))
    eventually(lambda: parse_job(site.items("jobs")[0]).ended, "the Job without pods has not ended")
    (stopped,) = site.items("jobs")
    assert parse_job(stopped).started_at is not None
    assert "ttlSecondsAfterFinished" not in stopped["spec"], "the Job is the record of its launch"
    assert site.names("pods") == []
