"""Campaigns against a real API server, with the operator as a process and the chart's rights, without measuring.

S3 is unreachable for the runs, so no engine is launched. The tests write the end of a run into its status, and the
operator does not change a run that has a completionTime. One operator serves all campaigns.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from specbench_api import API_VERSION
from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_testing.api_server_runs import Definition
from specbench_testing.campaign_world import conditions
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import OperatorProcess, OperatorSite, eventually
from specbench_testing.resources import Resource, campaign

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

QUICK = {"SPECBENCH_RESYNC_S": "5"}
EDITS = {"spec.template.spec.placement": {"gpus": 64}, "spec.template.spec.engine.image": "registry.invalid/none:1"}
TWO_RUNS = {"spec.parallelism": 2, "spec.axes": [campaign()["spec"]["axes"][0]]}


@pytest.fixture(scope="module")
def site(cluster: Cluster, crd: Definition, campaign_crd: Definition) -> Iterator[OperatorSite]:
    with cluster.namespace("campaigns") as namespace:
        yield OperatorSite(cluster, namespace)


@pytest.fixture(scope="module")
def operator(site: OperatorSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("operator")
    with OperatorProcess(site, folder, "registry.invalid/specbench:none", QUICK).running() as process:
        yield process


@dataclass(frozen=True)
class Campaign:
    """A campaign and its runs."""

    site: OperatorSite
    name: str

    @property
    def path(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.site.namespace}/specbenchcampaigns/{self.name}"

    def change(self, spec: Mapping[str, Any]) -> None:
        """Merge this into its spec."""
        self.site.campaigns.patch(self.name, {"spec": spec})

    def runs(self) -> dict[str, Resource]:
        path = f"/apis/{API_VERSION}/namespaces/{self.site.namespace}/specbenchruns"
        query = {"labelSelector": f"{LABEL_CAMPAIGN}={self.name}"}
        found = self.site.cluster.call("GET", path, query=query)["items"]
        return {run["metadata"]["name"]: run for run in found}

    def await_runs(self, count: int) -> dict[str, Resource]:
        """Wait until it has this many runs, and each has a status."""

        def reconciled() -> dict[str, Resource]:
            runs = self.runs()
            all_reconciled = all(run.get("status", {}).get("phase") for run in runs.values())
            return runs if len(runs) == count and all_reconciled else {}

        return eventually(reconciled, f"{self.name} has not {count} runs: {self.status()}")

    def status(self) -> dict[str, Any]:
        return dict(self.site.campaigns.get(self.name).get("status", {}))

    def await_condition(self, kind: str, status: str, reason: str) -> None:
        def reported() -> bool:
            rows = self.status().get("conditions", [])
            return (kind, status, reason) in [(row["type"], row["status"], row["reason"]) for row in rows]

        eventually(reported, f"{self.name} does not report {kind}={status}: {self.status()}")

    def finish(self, *names: str) -> None:
        """Write the status of these runs that the run controller writes at the end."""
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
        for name in names:
            self.site.runs.set_status(name, final_status)


def make(site: OperatorSite, name: str, edits: dict[str, Any] | None = None) -> Campaign:
    site.campaigns.create(campaign({**EDITS, **(edits or {})}, name=name))
    return Campaign(site, name)


def test_a_campaign_creates_runs_up_to_parallelism_and_summarizes_them(
    site: OperatorSite, operator: OperatorProcess
) -> None:
    """Also while the operator is killed: it creates no run twice."""
    nightly = make(site, "nightly", {"spec.parallelism": 4})
    first = nightly.await_runs(4)
    owners = {run["metadata"]["ownerReferences"][0]["uid"] for run in first.values()}
    assert owners == {site.campaigns.get("nightly")["metadata"]["uid"]}
    operator.end(signal.SIGKILL)
    nightly.finish(min(first))
    operator.start()
    second = nightly.await_runs(5)
    uids = {name: run["metadata"]["uid"] for name, run in first.items()}
    assert {name: run["metadata"]["uid"] for name, run in second.items() if name in first} == uids
    nightly.finish(*(second.keys() - {min(first)}))
    nightly.finish(*(nightly.await_runs(6).keys() - second.keys()))
    nightly.await_condition("Ready", "True", "Finished")
    summary = nightly.status()
    assert (summary["phase"], summary["progress"]) == ("Succeeded", "6/6")
    assert summary["best"].startswith("ngram 1.50x at 1 (engine=")
    assert summary["gpuHoursSpent"] == 6
    columns, cells = site.campaigns.table("nightly")
    shown = dict(zip(columns, cells, strict=True))
    assert (shown["Phase"], shown["Runs"], shown["Failed"]) == ("Succeeded", "6/6", 0)
    site.wait_for_events("RoundStarted", "RoundFinished", kind="SpecBenchCampaign")
    metric = "specbench_campaign_gpu_held_seconds{"
    eventually(lambda: 'campaign="nightly"' in operator.metric(metric), "the metric is not exposed")


def test_suspend_resume_edit_rerun_and_delete(site: OperatorSite, operator: OperatorProcess) -> None:
    edited = make(site, "edited", TWO_RUNS)
    before = edited.await_runs(2)

    def each_has(field: str, value: object) -> None:
        eventually(lambda: {run["spec"][field] for run in edited.runs().values()} == {value}, f"not all have {field}")

    edited.change({"suspend": True})
    each_has("suspend", value=True)
    eventually(lambda: edited.status().get("phase") == "Suspended", "the campaign is not Suspended")
    edited.change({"suspend": False, "template": {"spec": {"activeDeadlineSeconds": 777}}})
    each_has("suspend", value=False)
    each_has("activeDeadlineSeconds", value=777)
    edited.finish(*before)
    edited.await_condition("Ready", "True", "Finished")
    edited.change({"rerun": "again"})
    assert set(edited.await_runs(4)) == {*before, *(f"{name}-2" for name in before)}
    # The runs exist before the status reports the round.
    eventually(lambda: edited.status().get("round", {}).get("number") == 2, "the new round is not in the status")
    site.cluster.call("DELETE", edited.path, {"propagationPolicy": "Background"})
    eventually(lambda: edited.runs() == {}, "the runs are not deleted")
