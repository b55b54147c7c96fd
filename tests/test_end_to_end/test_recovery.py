"""A run whose resource is lost in the middle of it, and what tools say of a run while it lives; on the real cluster."""

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

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600), pytest.mark.xdist_group("end-to-end")]


def imported(product: InstalledProduct, run: ClusterRun, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> Any:
    """What `specbench recover` prints of a run that is no more."""
    s3 = product.ground.s3
    for name, value in (
        ("AWS_ENDPOINT_URL_S3", s3.endpoint),
        ("AWS_REGION", s3.region),
        ("AWS_ACCESS_KEY_ID", s3.access_key),
        ("AWS_SECRET_ACCESS_KEY", s3.secret_key),
    ):
        monkeypatch.setenv(name, value)
    place = f"s3://bench-results/end-to-end/{run.name}"
    capsys.readouterr()
    assert exit_code(["recover", place, "--credentials-secret", "bench-s3"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_a_run_that_was_lost_with_one_point_measured_is_imported_and_measures_the_other_alone(
    product: InstalledProduct, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stored = product.begin("lost", {"spec.engine.args": SLOW})
    eventually(lambda: run.status().get("points", {}).get("measured") == 1, "nothing is measured", 240)
    run.delete()
    eventually(lambda: run.children("pods") == [], "pods outlive their run")
    kept = stored.manifests()
    assert len(kept) == 1

    resource = imported(product, run, capsys, monkeypatch)
    assert resource["spec"]["results"]["adopt"] == run.uid
    again = ClusterRun.of(
        product.cluster, retry_until_available(lambda: Runs(product.cluster, run.namespace).create(resource))
    )
    assert again.uid != run.uid
    with RunWatcher(again, stored) as witness:
        status = again.ends()
    assert witness.offences == []
    assert len(witness.launches) == 1, "one arm was measured already"
    assert (status["progress"], status["results"]["uri"].rpartition("/")[2]) == ("2/2", run.uid)
    assert [row["arm"] for row in status["arms"]] == ["none", "eagle3"]
    assert kept.items() <= stored.manifests().items(), "what was measured is as it was"
    assert stored.wrongs() == []

    again.delete()
    last = ClusterRun.of(
        product.cluster, retry_until_available(lambda: Runs(product.cluster, run.namespace).create(resource))
    )
    with RunWatcher(last, stored) as witness:
        told = last.ends()
    assert witness.launches == set(), "nothing is missing"
    assert [told[field] for field in ("arms", "trust", "points")] == [
        status[field] for field in ("arms", "trust", "points")
    ]


def test_a_uid_under_which_nothing_lies_is_refused_before_anything_is_launched(product: InstalledProduct) -> None:
    run, _ = product.begin("nothing", {"spec.results.adopt": "7d0f6bd8-4c4b-4d53-9d53-000000000001"})
    run.reaches("Invalid", within_s=120)
    assert "there are no results at s3://bench-results" in run.said("Validated")[2]
    assert [run.children(kind) for kind in ("jobs", "pods", "services")] == [[], [], []]


def test_from_create_to_the_end_every_tool_says_what_is_so(product: InstalledProduct) -> None:
    wanted = small_run(f"told-{uuid.uuid4().hex[:6]}")
    created = retry_until_available(lambda: Runs(product.cluster, product.namespace).create(wanted))
    run = ClusterRun.of(product.cluster, created)
    seen = [created]

    def over() -> bool:
        item = retry_until_available(lambda: product.cluster.call("GET", run.path))
        if item["metadata"]["resourceVersion"] != seen[-1]["metadata"]["resourceVersion"]:
            seen.append(item)
        return "completionTime" in item.get("status", {})

    eventually(over, "the run does not come to an end", 240)
    assert created["status"] == {"observedGeneration": -1}
    assert len(seen) > 4
    script = ArgoScript()
    argo = [script(item).status for item in seen]
    assert [told.status for told in health_of("kstatus", seen)] == [kstatus(item) for item in seen]
    assert [kstatus(item) for item in seen[:-1]] == ["InProgress"] * (len(seen) - 1)
    assert kstatus(seen[-1]) == "Current"
    assert argo[:-1] == ["Progressing"] * (len(seen) - 1)
    verdict = seen[-1]["status"]["trust"]
    assert argo[-1] == {"Trustworthy": "Healthy", "Untrustworthy": "Degraded"}[verdict]
