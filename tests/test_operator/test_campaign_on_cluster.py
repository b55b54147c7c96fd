"""Campaigns against a real API server, with the operator as a process and the chart's rights, without measuring.

S3 is unreachable for the runs, so no engine is launched. The tests write the end of a run into its status, and the
operator does not change a run that has a completionTime.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubernetes import config
from specbench_api import API_VERSION
from specbench_operator.cluster.api import KubernetesApi
from specbench_operator.cluster.campaigns import CampaignObserver
from specbench_operator.state.campaign import OtherRunKind
from specbench_testing.api_server_runs import Definition
from specbench_testing.campaign_world import conditions
from specbench_testing.campaigns import campaign
from specbench_testing.cluster import MERGE, Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAME = "nightly"
QUICK = {"SPECBENCH_RESYNC_S": "5"}
EDITS = {"spec.template.spec.placement": {"gpus": 64}, "spec.template.spec.engine.image": "registry.invalid/none:1"}


@pytest.fixture
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("campaigns") as namespace:
        yield OperatorSite(cluster, namespace)


@pytest.fixture
def operator(site: OperatorSite, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(site, tmp_path, "registry.invalid/specbench:none", QUICK).running() as process:
        yield process


def make(site: OperatorSite, edits: dict[str, Any] | None = None) -> Resource:
    return site.campaigns.create(campaign({**EDITS, **(edits or {})}, name=NAME))


def runs(site: OperatorSite) -> dict[str, Resource]:
    found = site.cluster.call("GET", f"/apis/{API_VERSION}/namespaces/{site.namespace}/specbenchruns")["items"]
    return {run["metadata"]["name"]: run for run in found}


def status(site: OperatorSite) -> dict[str, Any]:
    return dict(site.campaigns.get(NAME).get("status", {}))


def condition(site: OperatorSite, kind: str) -> tuple[str, str]:
    rows = {row["type"]: row for row in status(site).get("conditions", [])}
    return (rows[kind]["status"], rows[kind]["reason"]) if kind in rows else ("", "")


def finish(site: OperatorSite, name: str) -> None:
    """Write the status that the run controller writes at the end."""
    rows = {"Ready": "True", "Reconciling": "False", "Stalled": "False", "Trustworthy": "True", "Validated": "True"}
    rows |= {"ResultsStored": "True", "MeasurementComplete": "True", "EngineReady": "True"}
    final_status = {
        "observedGeneration": 1,
        "phase": "Succeeded",
        "completionTime": "2026-01-02T12:00:00Z",
        "conditions": conditions(rows),
        "best": "ngram 1.50x at 1",
        "arms": [{"arm": "ngram", "workload": "chat", "speedup": {"value": 1.5, "low": 1.4, "high": 1.6}}],
        "gpuSecondsHeld": 3600.0,
    }
    eventually(lambda: runs(site)[name].get("status", {}).get("phase"), "the run controller has not written a status")
    site.runs.set_status(name, final_status)


def finish_existing_runs(site: OperatorSite) -> None:
    for name, run in runs(site).items():
        if not run.get("status", {}).get("completionTime"):
            finish(site, name)


def test_a_campaign_creates_runs_up_to_parallelism_and_summarizes_them(
    site: OperatorSite, operator: OperatorProcess
) -> None:
    made = make(site, {"spec.parallelism": 4})
    eventually(lambda: len(runs(site)) == 4, "four runs are not created")
    owners = {run["metadata"]["ownerReferences"][0]["uid"] for run in runs(site).values()}
    assert owners == {made["metadata"]["uid"]}
    finish_existing_runs(site)
    eventually(lambda: len(runs(site)) == 6, "the remaining runs are not created")
    finish_existing_runs(site)
    eventually(lambda: condition(site, "Ready") == ("True", "Finished"), f"the campaign has not ended: {status(site)}")
    summary = status(site)
    assert (summary["phase"], summary["progress"]) == ("Succeeded", "6/6")
    assert summary["best"].startswith("ngram 1.50x at 1 (engine=")
    assert summary["gpuHoursSpent"] == 6
    columns, cells = site.campaigns.table(NAME)
    shown = dict(zip(columns, cells, strict=True))
    assert (shown["Phase"], shown["Runs"], shown["Failed"]) == ("Succeeded", "6/6", 0)
    site.wait_for_events("RoundStarted", "RoundFinished", kind="SpecBenchCampaign")
    assert 'specbench_campaign_gpu_held_seconds{campaign="nightly"' in eventually(
        lambda: operator.metric("specbench_campaign_gpu_held_seconds{"), "the metric is not exposed"
    )


def test_suspend_resume_edit_and_rerun(site: OperatorSite, operator: OperatorProcess) -> None:
    make(site, {"spec.parallelism": 2, "spec.axes": [campaign()["spec"]["axes"][0]]})
    eventually(lambda: len(runs(site)) == 2, "two runs are not created")
    change(site, {"suspend": True})
    eventually(lambda: all(run["spec"]["suspend"] for run in runs(site).values()), "the runs are not suspended")
    eventually(lambda: status(site).get("phase") == "Suspended", "the campaign is not Suspended")
    change(site, {"suspend": False, "template": {"spec": {"activeDeadlineSeconds": 777}}})
    eventually(lambda: not any(run["spec"]["suspend"] for run in runs(site).values()), "the runs are not resumed")
    eventually(
        lambda: {run["spec"]["activeDeadlineSeconds"] for run in runs(site).values()} == {777},
        "the deadline is not propagated",
    )
    finish_existing_runs(site)
    eventually(lambda: condition(site, "Ready")[0] == "True", "the campaign has not ended")
    before = set(runs(site))
    change(site, {"rerun": "again"})
    eventually(lambda: set(runs(site)) == before | {f"{name}-2" for name in before}, "no new round")
    # The runs exist before the status reports the round.
    eventually(lambda: status(site).get("round", {}).get("number") == 2, "the new round is not in the status")


def test_deleting_a_campaign_deletes_its_runs(site: OperatorSite, operator: OperatorProcess) -> None:
    make(site, {"spec.parallelism": 2})
    eventually(lambda: len(runs(site)) == 2, "two runs are not created")
    path = f"/apis/{API_VERSION}/namespaces/{site.namespace}/specbenchcampaigns/{NAME}"
    site.cluster.call("DELETE", path, {"propagationPolicy": "Background"})
    eventually(lambda: runs(site) == {}, "the runs are not deleted")


def test_a_killed_operator_continues_and_creates_no_run_twice(site: OperatorSite, operator: OperatorProcess) -> None:
    make(site, {"spec.parallelism": 2})
    eventually(lambda: len(runs(site)) == 2, "two runs are not created")
    before = {name: run["metadata"]["uid"] for name, run in runs(site).items()}
    eventually(
        lambda: all(run.get("status", {}).get("phase") for run in runs(site).values()), "the runs have no status"
    )
    operator.end(signal.SIGKILL)
    finish(site, min(before))
    operator.start()
    eventually(lambda: len(runs(site)) == 3, "no further run is created")
    assert {name: run["metadata"]["uid"] for name, run in runs(site).items() if name in before} == before


def test_a_foreign_run_is_reported_and_an_invalid_campaign_is_refused(
    site: OperatorSite, operator: OperatorProcess, tmp_path: Path
) -> None:
    first = make(site, {"spec.suspend": True})
    eventually(lambda: status(site).get("phase") == "Suspended", "the campaign is not reconciled")
    name = status(site)["runs"][0]["name"]
    site.runs.create(resource({"spec.suspend": True}, name=name))
    change(site, {"suspend": False})
    eventually(lambda: status(site)["runs"][0].get("reason") == "NameTaken", "the foreign run is not reported")
    eventually(lambda: len(runs(site)) == 2, "the other runs are not created")
    api = KubernetesApi(config.new_client_from_config(str(site.kubeconfig(tmp_path))), 10)  # type: ignore[no-untyped-call]
    observed = CampaignObserver(api).observe(site.namespace, NAME)
    assert observed is not None
    assert observed.other_runs == {name: OtherRunKind.FOREIGN}
    assert [run.ref.name for run in observed.runs] == [other for other in runs(site) if other != name]
    assert first["metadata"]["uid"] == observed.resource["metadata"]["uid"]
    site.delete_run(name)
    eventually(
        lambda: status(site)["runs"][0]["reason"] == "", "the end of the foreign run does not queue the campaign"
    )
    change(site, {"axes": [{"path": "engine.kind", "values": ["no-such-engine"]}]})
    eventually(lambda: condition(site, "Validated") == ("False", "InvalidSpec"), "the edit is not refused")
    assert len(runs(site)) == 1


def change(site: OperatorSite, spec: dict[str, Any]) -> None:
    path = f"/apis/{API_VERSION}/namespaces/{site.namespace}/specbenchcampaigns/{NAME}"
    site.cluster.call("PATCH", path, {"spec": spec}, kind=MERGE)
