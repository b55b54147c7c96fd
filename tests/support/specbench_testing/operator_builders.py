"""Builders for the operator's tests: a run as stored by the API server, its summary, its own Jobs, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from specbench_api.fence.model import Fence, Patterns, StoreRule
from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.gate import BaselineRef, Gate, GateRequest
from specbench_api.spec.load import Level
from specbench_api.spec.run import SpecBenchRun
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.finding import Finding
from specbench_client.documents.summary import Cell, RequestCounts, RunSummary
from specbench_operator.render.client_jobs import client_job, gate_job, report_job
from specbench_operator.render.shared_fields import Manifest
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ContainerWaiting
from specbench_testing.resources import resource

UID = "7d0f6bd8-1111-4c4b-9d53-000000000001"
OLDER_UID = "7d0f6bd8-0000-4c4b-9d53-000000000000"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SETTINGS = OperatorSettings(client_image="registry.example/specbench:0.1.0")
_ALL = ("*",)


@dataclass
class Clock:
    """A clock that only the test advances, in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def fenced(**values: Any) -> OperatorSettings:
    """Settings with a fence that allows everything a run can name, except for the given values."""
    lists = {name: _ALL for name, field in Fence.model_fields.items() if field.annotation == Patterns}
    stores = (StoreRule(endpoint="*", bucket="*", operator_identity=True),)
    return replace(SETTINGS, fence=Fence(**{"commands": True, "stores": stores, **lists, **values}))


def operator_run(edits: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A run as stored by the API server: two arms, one repeat, so two groups of one point each."""
    run = resource({"spec.load": {"concurrency": [1], "repeats": 1}, "spec.placement": {"gpus": 2}, **(edits or {})})
    run["metadata"] |= {"uid": UID, "generation": 1, "resourceVersion": "1"}
    return run


def figure(value: float | None, low: float | None = None, high: float | None = None) -> Figure:
    """A figure, with an interval if its bounds are given."""
    interval = None if low is None or high is None else FigureInterval(low=low, high=high, method="bootstrap")
    return Figure(value=value, unit="ratio", definition="what it is", n=10, interval=interval, source="client")


def summary_of(
    plan: Plan, measured: int, *, speedup: Figure | None = None, finding: Finding | None = None
) -> RunSummary:
    """A run's summary: one cell per arm."""
    cells = [
        Cell(
            arm=arm.name,
            workload=plan.workloads[0].name,
            level=Level(concurrency=1),
            arrivals=ArrivalPattern(process="ClosedLoop"),
            points=[],
            counts=RequestCounts(requests=40, failed_requests=1, output_tokens=900),
            figures={
                "ttft_ms_p50": figure(12.5),
                "acceptance_length_emitted_pooled": figure(2.4),
                "output_tps": figure(None),
            },
            speedup=None if arm.is_baseline else speedup or figure(1.83, 1.76, 1.90),
            findings=[finding.check] if finding else [],
        )
        for arm in plan.arms
    ]
    return RunSummary(
        namespace=plan.namespace, name=plan.name, uid=plan.uid, simulated=True, created="2026-01-02T12:00:00Z",
        points_total=len(plan.points), points_measured=measured, points_invalid=0, cells=cells,
        findings=[finding] if finding else [], trustworthy=finding is None or not finding.severity.is_doubt,
        headline="ngram is 1.83 times as fast",
    )  # fmt: skip


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """Fields of a pod with a waiting container."""
    return {"phase": "Pending", "waiting": ContainerWaiting(reason, message)}


def own_jobs(run: SpecBenchRun, settings: OperatorSettings = SETTINGS) -> dict[str, Manifest]:
    """The Jobs by role. The client is that of the first group."""
    plan = expand(run)
    request = GateRequest(gate_digest="0" * 64, gate=Gate(baseline_ref=BaselineRef(run="main")), baseline="s3://b/r")
    return {
        "client": client_job(
            run, plan, plan.groups[0], 1, settings, engine=HostFacts(), engine_pod="pod", plan_digest=""
        ),
        "report": report_job(run, plan, settings, ""),
        "gate": gate_job(run, request, settings),
    }
