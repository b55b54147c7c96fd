"""Recovery of a run whose resource is deleted halfway, and the state that tools report; on the real cluster."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import yaml

from specbench_client.cli import exit_code
from specbench_testing.api_server_runs import Runs
from specbench_testing.cluster_run import ClusterRun
from specbench_testing.health_checks import ArgoScript, health_of, kstatus
from specbench_testing.installed_product import SLOW, InstalledProduct, small_run
from specbench_testing.operator_process import eventually
from specbench_testing.retries import retry_until_available
from specbench_testing.run_watcher import RunWatcher

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]


def recovered_resource(
    product: InstalledProduct, run: ClusterRun, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> Any:
    """The resource that `specbench recover` prints for a deleted run."""
    s3 = product.ground.s3
    for name, value in (
        ("AWS_ENDPOINT_URL_S3", s3.endpoint),
        ("AWS_REGION", s3.region),
        ("AWS_ACCESS_KEY_ID", s3.access_key),
        ("AWS_SECRET_ACCESS_KEY", s3.secret_key),
    ):
        monkeypatch.setenv(name, value)
    uri = f"s3://bench-results/end-to-end/{run.name}"
    capsys.readouterr()
    assert exit_code(["recover", uri, "--credentials-secret", "bench-s3"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_a_recovered_run_measures_only_the_missing_point(
    product: InstalledProduct, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stored = product.begin("lost", {"spec.engine.args": SLOW})
    eventually(lambda: run.status().get("points", {}).get("measured") == 1, "nothing is measured", 240)
    run.delete()
    eventually(lambda: run.children("pods") == [], "pods exist after their run")
    kept = stored.manifests()
    assert len(kept) == 1

    resource = recovered_resource(product, run, capsys, monkeypatch)
    assert resource["spec"]["results"]["adopt"] == run.uid
    again = ClusterRun.of(
        product.cluster, retry_until_available(lambda: Runs(product.cluster, run.namespace).create(resource))
    )
    assert again.uid != run.uid
    with RunWatcher(again, stored) as watcher:
        status = again.ends()
    assert watcher.violations == []
    assert len(watcher.launches) == 1, "one arm is already measured"
    assert (status["progress"], status["results"]["uri"].rpartition("/")[2]) == ("2/2", run.uid)
    assert [row["arm"] for row in status["arms"]] == ["none", "eagle3"]
    assert kept.items() <= stored.manifests().items(), "measured points are unchanged"
    assert stored.violations() == []

    again.delete()
    last = ClusterRun.of(
        product.cluster, retry_until_available(lambda: Runs(product.cluster, run.namespace).create(resource))
    )
    with RunWatcher(last, stored) as watcher:
        last_status = last.ends()
    assert watcher.launches == set(), "no point is missing"
    assert [last_status[field] for field in ("arms", "trust", "points")] == [
        status[field] for field in ("arms", "trust", "points")
    ]


def test_an_adopted_uid_without_results_is_refused_before_any_launch(product: InstalledProduct) -> None:
    run, _ = product.begin("nothing", {"spec.results.adopt": "7d0f6bd8-4c4b-4d53-9d53-000000000001"})
    run.wait_for_phase("Invalid", within_s=120)
    assert "there are no results at s3://bench-results" in run.condition("Validated")[2]
    assert [run.children(kind) for kind in ("jobs", "pods", "services")] == [[], [], []]


def test_every_tool_reports_the_state_of_a_run_correctly(product: InstalledProduct) -> None:
    requested_run = small_run(f"told-{uuid.uuid4().hex[:6]}")
    created = retry_until_available(lambda: Runs(product.cluster, product.namespace).create(requested_run))
    run = ClusterRun.of(product.cluster, created)
    seen = [created]

    def has_ended() -> bool:
        item = retry_until_available(lambda: product.cluster.call("GET", run.path))
        if item["metadata"]["resourceVersion"] != seen[-1]["metadata"]["resourceVersion"]:
            seen.append(item)
        return "completionTime" in item.get("status", {})

    eventually(has_ended, "the run does not end", 240)
    assert created["status"] == {"observedGeneration": -1}
    assert len(seen) > 4
    script = ArgoScript()
    argo = [script(item).status for item in seen]
    assert [health.status for health in health_of("kstatus", seen)] == [kstatus(item) for item in seen]
    assert [kstatus(item) for item in seen[:-1]] == ["InProgress"] * (len(seen) - 1)
    assert kstatus(seen[-1]) == "Current"
    assert argo[:-1] == ["Progressing"] * (len(seen) - 1)
    verdict = seen[-1]["status"]["trust"]
    assert argo[-1] == {"Trustworthy": "Healthy", "Untrustworthy": "Degraded"}[verdict]
