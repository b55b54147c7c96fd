"""The operator against a real Kubernetes: the behaviour of API server, Job controller and kubelet.

These tests need no image of specbench: engines that fail in every real way, and restarts of the operator. Complete
runs are in `test_whole_run.py`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specbench_api import API_VERSION
from specbench_cluster.configuration import PAUSE_IMAGE
from specbench_testing.api_server_runs import Definition
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource
from specbench_testing.retries import retry_until_available

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NO_IMAGE = "registry.invalid/specbench:none"
QUICK = {
    "SPECBENCH_IMAGE_PULL_GRACE_S": "2",
    "SPECBENCH_RESYNC_S": "5",
    "SPECBENCH_CLIENT_START_DEADLINE_S": "5",
}


@pytest.fixture
def site(cluster: Cluster, crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("operator") as namespace:
        yield OperatorSite(cluster, namespace)


@pytest.fixture
def operator(site: OperatorSite, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(site, tmp_path, NO_IMAGE, QUICK).running() as process:
        yield process


@pytest.fixture
def bucket(site: OperatorSite) -> dict[str, Any]:
    """The S3 destination of the test cluster, with its Secret in the namespace."""
    ground = site.cluster.ground
    if ground is None:
        pytest.skip("the S3 server of hack/cluster is needed")
    site.secret("bench-s3", AWS_ACCESS_KEY_ID=ground.s3.access_key, AWS_SECRET_ACCESS_KEY=ground.s3.secret_key)
    return {"bucket": ground.s3.bucket, "endpoint": ground.s3.endpoint, "credentialsSecretRef": {"name": "bench-s3"}}


Make = Callable[..., Resource]


def first_group(site: OperatorSite) -> dict[str, Any]:
    """The row of the run's first engine group; empty before its first status."""
    return dict(next(iter(site.status("demo").get("groups", [])), {}))


@pytest.fixture
def make(site: OperatorSite, bucket: dict[str, Any]) -> Make:
    """Creates a run with two arms and these edits."""

    def create(edits: dict[str, Any] | None = None, name: str = "demo") -> Resource:
        given = {
            "spec.load": {"concurrency": [1], "repeats": 1},
            "spec.engine.image": PAUSE_IMAGE,
            "spec.engine.command": ["/pause"],  # an engine that runs but never answers
            "spec.results": {"s3": bucket},
            "spec.startupDeadlineSeconds": 600,
            **(edits or {}),
        }
        return site.runs.create(resource(given, name=name))

    return create


def test_a_missing_image_fails_each_arm_and_leaves_no_pod(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.engine.image": NO_IMAGE, "spec.placement": {"gpus": 4}})
    status = site.wait_for_phase("demo", "Failed")
    assert [row["reason"] for row in status["groups"]] == ["ImagePullFailed"] * 2
    assert site.status_and_reason("demo", "Stalled") == ("True", "ImagePullFailed")
    assert "registry.invalid" in site.message("demo", "Stalled")
    assert site.status_and_reason("demo", "Reconciling")[0] == "False"
    eventually(lambda: not site.names("pods", "engine"), "engine pods still exist")
    assert site.names("jobs", "engine") == ["demo-g0-0", "demo-g1-0"], "the Jobs are kept as records"
    assert site.names("services") == []
    assert status["gpuSecondsHeld"] > 0
    site.wait_for_events("EngineStarting", "ImagePullFailed")
    eventually(lambda: site.status("demo").get("completionTime"), "the run does not complete")


def test_an_unschedulable_engine_reports_the_schedulers_message(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.placement": {"gpus": 64}, "spec.startupDeadlineSeconds": 15})
    assert "nvidia.com/gpu" in site.wait_for_condition("demo", "EngineReady", "False", "Unschedulable")
    status = site.wait_for_phase("demo", "Failed")
    assert [row["reason"] for row in status["groups"]] == ["Unschedulable"] * 2
    assert status["gpuSecondsHeld"] == 0


def test_a_command_that_cannot_start_is_a_config_error(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.engine.command": ["no-such-program"]})
    status = site.wait_for_phase("demo", "Failed")
    assert [row["reason"] for row in status["groups"]] == ["ConfigError"] * 2
    assert "no-such-program" in status["groups"][0]["message"]


def test_an_engine_that_never_answers_is_never_ready(site: OperatorSite, operator: OperatorProcess, make: Make) -> None:
    make({"spec.startupDeadlineSeconds": 5})
    status = site.wait_for_phase("demo", "Failed")
    assert [row["reason"] for row in status["groups"]] == ["NeverReady"] * 2
    eventually(lambda: not site.names("pods", "engine"), "engine pods still exist")


def test_an_exhausted_namespace_quota_is_reported(site: OperatorSite, operator: OperatorProcess, make: Make) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    site.cluster.call("POST", f"/api/v1/namespaces/{site.namespace}/resourcequotas", quota)
    make()
    eventually(lambda: "quota" in site.message("demo", "EngineReady"), "the quota is not reported")


def test_an_invalid_spec_that_admission_accepts_is_refused_and_creates_nothing(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.engine.args": ["--port=1"]})
    site.wait_for_phase("demo", "Invalid")
    assert site.status_and_reason("demo", "Validated") == ("False", "InvalidSpec")
    assert "spec.engine.args[0]" in site.message("demo", "Validated")
    assert site.names("jobs") == site.names("services") == site.names("configmaps") == []
    site.wait_for_events("Invalid")


def test_deleting_a_run_frees_its_gpus_while_the_operator_is_down(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.placement": {"gpus": 8}})
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    operator.end(signal.SIGKILL)
    site.delete_run("demo")
    for kind in ("pods", "jobs", "services", "configmaps"):  # Kubernetes guarantees no order
        eventually(lambda kind=kind: not site.names(kind), f"{kind} are not deleted")  # type: ignore[misc]


def test_a_killed_operator_continues_and_creates_nothing_twice(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make()
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    before = site.items("jobs")[0]["metadata"]["uid"]
    operator.end(signal.SIGKILL)
    operator.start()
    site.runs.apply({**resource(), "spec": {**site.runs.get("demo")["spec"], "startupDeadlineSeconds": 5}})
    status = site.wait_for_phase("demo", "Failed")
    assert [row["attempt"] for row in status["groups"]] == [0, 0]
    jobs = site.items("jobs", "engine")
    assert [job["metadata"]["name"] for job in jobs] == ["demo-g0-0", "demo-g1-0"]
    assert jobs[0]["metadata"]["uid"] == before


def test_a_launch_missing_from_status_is_stopped_and_keeps_its_number(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.placement": {"gpus": 8}})
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    operator.end(signal.SIGKILL)
    path = f"/apis/{API_VERSION}/namespaces/{site.namespace}/specbenchruns/demo"
    site.cluster.call("PATCH", path, {"spec": {"suspend": True}}, kind=MERGE)
    site.cluster.call("PATCH", f"{path}/status", {"status": None}, kind=MERGE)
    operator.start()
    site.wait_for_phase("demo", "Suspended")
    eventually(lambda: not site.names("pods", "engine"), "its GPUs are still held")
    assert site.names("jobs", "engine") == ["demo-g0-0"], "the Job is kept as a record"
    site.cluster.call("PATCH", path, {"spec": {"suspend": False}}, kind=MERGE)
    eventually(lambda: site.names("pods", "engine"), "the run does not resume")
    assert site.names("jobs", "engine") == ["demo-g0-0", "demo-g0-1"]
    row = eventually(lambda: [row for row in site.status("demo")["groups"] if row["attempt"] == 1])[0]
    assert row["suspensions"] == 1


def test_a_recreated_run_replaces_the_children_of_the_old_one(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make()
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    old = {job["metadata"]["uid"] for job in site.items("jobs")}
    site.delete_run("demo")
    uid = make()["metadata"]["uid"]

    def owners() -> set[str]:
        return {job["metadata"]["ownerReferences"][0]["uid"] for job in site.items("jobs", "engine")}

    eventually(lambda: owners() == {uid}, "the new run has no engine of its own")
    assert not old & {job["metadata"]["uid"] for job in site.items("jobs")}


def test_a_foreign_service_with_a_childs_name_is_reported_and_not_replaced(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    foreign_service = {"metadata": {"name": "demo-g0-0"}, "spec": {"ports": [{"port": 80}]}}
    site.cluster.call("POST", f"/api/v1/namespaces/{site.namespace}/services", foreign_service)
    make()
    eventually(
        lambda: site.status_and_reason("demo", "Reconciling") == ("True", "NameTaken"),
        "the name conflict is not reported",
    )
    assert site.names("jobs") == []
    site.delete("services", "demo-g0-0")
    eventually(lambda: site.names("jobs", "engine"), "the run does not continue without the conflict")


WRONG_S3: dict[str, tuple[str, dict[str, Any]]] = {
    "BucketMissing": ("False", {"bucket": "nowhere-at-all"}),
    "SecretMissing": ("False", {"credentialsSecretRef": {"name": "nowhere"}}),
    "S3Away": ("Unknown", {"endpoint": "http://127.0.0.1:9"}),
}


@pytest.mark.parametrize("reason", WRONG_S3)
def test_without_s3_no_engine_is_launched_and_the_reason_is_reported(
    site: OperatorSite, operator: OperatorProcess, make: Make, bucket: dict[str, Any], reason: str
) -> None:
    status, wrong = WRONG_S3[reason]
    make({"spec.results": {"s3": {**bucket, **wrong}}})
    eventually(lambda: site.status_and_reason("demo", "ResultsStored") == (status, reason), f"{reason} is not reported")
    assert site.names("jobs") == []
    assert site.status_and_reason("demo", "Reconciling") == ("True", reason)
    before, looks = site.runs.get("demo")["metadata"]["resourceVersion"], operator.reconcile_count()
    eventually(lambda: operator.reconcile_count() >= looks + 2, "the run is not reconciled again")
    assert site.runs.get("demo")["metadata"]["resourceVersion"] == before, "an unchanged status is written again"


def test_a_deleted_engine_job_is_launched_three_times_in_total(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make()
    for attempt in range(3):
        name = f"demo-g0-{attempt}"
        eventually(partial(site.has, "jobs", name), f"{name} was not launched")
        site.delete("jobs", name)
    eventually(lambda: first_group(site).get("reason") == "EngineLost", "the number of launches is not limited")
    eventually(lambda: site.names("jobs", "engine") == ["demo-g1-0"], "the other arm does not start")
    eventually(lambda: len(site.names("pods", "engine")) == 1, "a pod is left behind")


def test_a_deleted_engine_pod_is_a_lost_launch_and_not_a_crash(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make()
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    site.delete("pods", site.names("pods", "engine")[0])
    eventually(lambda: site.has("jobs", "demo-g0-1"), "the engine is not launched again")
    site.wait_for_events("EngineLost")
    eventually(lambda: first_group(site).get("state") == "Starting", "the group is not Starting")

    def attempts() -> list[str]:
        """Returns the attempts of the active engine pods; a Job exists before its pod."""
        engines = [pod for pod in site.items("pods", "engine") if pod["status"]["phase"] in ("Pending", "Running")]
        return [pod["metadata"]["labels"]["specbench.io/attempt"] for pod in engines]

    assert eventually(attempts, "the second launch has no pod") == ["1"]


def test_a_drained_engine_is_preempted_and_relaunched_and_its_job_records_it(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.placement": {"gpus": 1}})
    eventually(lambda: [pod for pod in site.items("pods", "engine") if pod["status"]["phase"] == "Running"])
    (pod,) = site.names("pods", "engine")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    site.cluster.call("POST", f"/api/v1/namespaces/{site.namespace}/pods/{pod}/eviction", body)
    eventually(
        lambda: "demo-g0-1" in site.names("jobs", "engine"), f"the engine is not launched again: {site.status('demo')}"
    )
    row = eventually(lambda: [row for row in site.status("demo")["groups"] if row["attempt"] == 1])[0]
    assert (row["preemptions"], row.get("suspensions", 0)) == (1, 0)
    site.wait_for_events("Preempted")
    (first, _) = site.items("jobs", "engine")
    assert '"reason": "Preempted"' in first["metadata"]["annotations"]["specbench.io/verdict"]

    def failures() -> set[str]:
        rows = site.items("jobs", "engine")[0]["status"].get("conditions", [])
        return {row["reason"] for row in rows if row["type"] == "Failed"}

    eventually(failures, "its Job does not fail")
    assert failures() <= {"PodFailurePolicy", "DeadlineExceeded"}, "DeadlineExceeded if the operator acts first"


def test_a_queue_without_kueue_is_reported_and_holds_no_gpus(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.placement": {"gpus": 8, "queueName": "bench"}})
    assert "no Kueue" in site.wait_for_condition("demo", "Queued", "True", "Inadmissible")
    assert site.phase("demo") == "Queued"
    assert site.names("pods") == []
    assert site.status("demo")["gpuSecondsHeld"] == 0


def test_suspending_releases_the_gpus(site: OperatorSite, operator: OperatorProcess, make: Make) -> None:
    make({"spec.placement": {"gpus": 8}})
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    # A launch that is not in the status yet leaves its stopped Job behind, as the record of its number.
    eventually(lambda: first_group(site).get("state") == "Starting", "the launch is not in the status")
    path = f"/apis/specbench.io/v1alpha1/namespaces/{site.namespace}/specbenchruns/demo"
    site.cluster.call("PATCH", path, {"spec": {"suspend": True}}, kind=MERGE)
    site.wait_for_phase("demo", "Suspended")
    eventually(lambda: not site.names("pods") and not site.names("jobs"), "the GPUs are still held")
    site.cluster.call("PATCH", path, {"spec": {"suspend": False}}, kind=MERGE)
    eventually(lambda: site.names("jobs", "engine") == ["demo-g0-1"], "the run does not resume")
    # The Job exists before the status reports it.
    eventually(lambda: first_group(site).get("attempt") == 1, "the second launch is not in the status")
    assert first_group(site).get("suspensions", 0) == 1, "it counts as suspended, not as lost"


def test_children_are_deleted_after_their_ttl_and_the_run_is_kept(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.startupDeadlineSeconds": 5, "spec.ttlSecondsAfterFinished": 3})
    site.wait_for_phase("demo", "Failed")
    eventually(lambda: not site.names("jobs") and not site.names("configmaps"), "the children exist after their TTL")
    assert site.phase("demo") == "Failed"


def test_concurrent_runs_do_not_wait_for_each_other(site: OperatorSite, operator: OperatorProcess, make: Make) -> None:
    for name in ("one", "two", "three"):
        make({"spec.startupDeadlineSeconds": 30}, name=name)
    eventually(lambda: len(site.names("jobs", "engine")) == 3, "not every run has its engine")


@pytest.mark.chaos  # every user of the cluster loses its API server
def test_the_operator_waits_for_an_unavailable_api_server(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make()
    eventually(lambda: site.names("pods", "engine"), "no engine was launched")
    ground = site.cluster.ground
    assert ground is not None
    ground.kill("kube-apiserver")
    time.sleep(10)  # long enough for every retry of a single request to have failed
    assert operator.ended is None
    ground.start("kube-apiserver")
    path = f"/apis/specbench.io/v1alpha1/namespaces/{site.namespace}/specbenchruns/demo"
    retry_until_available(lambda: site.cluster.call("PATCH", path, {"spec": {"startupDeadlineSeconds": 5}}, kind=MERGE))
    status = site.wait_for_phase("demo", "Failed")
    assert [row["attempt"] for row in status["groups"]] == [0, 0]
    assert operator.ended is None
    assert operator.healthy()


def test_the_operator_exposes_metrics_and_exits_cleanly_on_sigterm(
    site: OperatorSite, operator: OperatorProcess, make: Make
) -> None:
    make({"spec.startupDeadlineSeconds": 5})
    site.wait_for_phase("demo", "Failed")
    eventually(lambda: 'specbench_runs{phase="Failed"} 1.0' in operator.metric("specbench_runs"), "no metrics")
    assert operator.reconcile_count() > 0
    assert float(operator.metric("specbench_last_watch_event_timestamp_seconds").split()[-1]) > time.time() - 120
    assert operator.healthy()
    assert operator.end(signal.SIGTERM) == 0
