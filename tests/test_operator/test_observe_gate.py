"""What is read for a gate, and that nothing is read when it is not needed."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.campaign.names import ANNOTATION_CELL, LABEL_CAMPAIGN
from specbench_api.outcome.gate_report import GateReport
from specbench_operator.cluster.observer import RunObserver
from specbench_operator.state.run import EarlierRun, RunObservation, StoredResults
from specbench_testing.gate_reports import EARLIER, GATE, digest_of, gate_report
from specbench_testing.operator_builders import operator_run

NIGHTLY = {"baselineRef": {"campaign": "nightly"}}


class Cluster:
    """A fake API server and S3 that return fixed objects and record the requests."""

    def __init__(self, gate: dict[str, Any] | None, /, **status: Any) -> None:
        self.run = operator_run({"spec.gate": gate} if gate else None)
        self.run["status"] = {"phase": "Succeeded", "completionTime": "2026-01-02T12:00:00Z", **status}
        self.report = gate_report(gate=gate) if gate else None
        self.requests: list[object] = []
        annotations = {ANNOTATION_CELL: "c"}
        meta = {"name": "main", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}
        self.main = {"metadata": meta, "status": {"phase": "Succeeded", "results": {"uri": EARLIER}}}

    def get(self, kind: str, _namespace: str, name: str) -> Any:
        if kind == "SpecBenchRun" and name != "demo":
            self.requests.append(name)
        return {"demo": self.run, "main": self.main}.get(name)

    def list(self, kind: str, _namespace: str, *, labels: str = "", fields: str = "") -> list[Any]:
        if kind == "SpecBenchRun":
            self.requests.append(labels)
        return [self.main] if kind == "SpecBenchRun" else []

    def each(self, kind: str, namespace: str, *, labels: str = "") -> Any:
        return self.list(kind, namespace, labels=labels)

    def read(self, _run: object, *, last_launch: bool) -> StoredResults:
        assert last_launch, "no status records where the last engine ran"
        return StoredResults()

    def read_gate(self, _run: object) -> GateReport | None:
        self.requests.append("gate.json")
        return self.report

    def observe(self) -> RunObservation:
        here: Any = self
        observed = RunObserver(here, here).observe("default", "demo")
        assert observed is not None
        return observed


MAIN = EarlierRun("main", "u", "2026-01-01T00:00:00Z", "Succeeded", EARLIER, "c")


@pytest.mark.parametrize(
    ("gate", "requests", "earlier"),
    [
        (GATE, ["gate.json", "main"], (MAIN,)),
        (NIGHTLY, ["gate.json", f"{LABEL_CAMPAIGN}=nightly"], (MAIN,)),
        ({"baselineRef": {"uri": "s3://results/else"}}, ["gate.json"], ()),
        ({"baselineRef": {"run": "gone"}}, ["gate.json", "gone"], ()),
    ],
    ids=["run", "campaign", "uri", "gone"],
)
def test_a_finished_run_reads_its_gate_report_and_its_baseline_runs(
    gate: dict[str, Any], requests: list[object], earlier: tuple[EarlierRun, ...]
) -> None:
    cluster = Cluster(gate)
    observed = cluster.observe()
    assert (observed.gate, observed.earlier, cluster.requests) == (cluster.report, earlier, requests)


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(None),
        Cluster(GATE, completionTime=None),
        Cluster(GATE, phase="Failed"),
        Cluster(GATE, gate={"gateDigest": digest_of(), "passed": True, "reason": "Passed"}),
    ],
    ids=["no gate", "not finished", "failed", "evaluated"],
)
def test_nothing_is_read_when_the_gate_needs_no_evaluation(cluster: Cluster) -> None:
    observed = cluster.observe()
    assert (observed.gate, observed.earlier, cluster.requests) == (None, (), [])


def test_a_changed_gate_is_read_again() -> None:
    cluster = Cluster(GATE, gate={"gateDigest": digest_of(NIGHTLY), "passed": True, "reason": "Passed"})
    assert cluster.observe().gate == cluster.report
