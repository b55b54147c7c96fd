"""A gate's report as its Job would write it, without a measurement."""

from __future__ import annotations

from typing import Any

from specbench_api.plan.canonical import digest_of_gate
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate
from specbench_api.spec.status import GateStatus
from specbench_client.documents.comparison import ComparedResult, GateReport

EARLIER = "s3://results/runs/default/main/0001"
GATE: dict[str, Any] = {"baselineRef": {"run": "main"}}


def digest_of(gate: dict[str, Any] | None = None) -> str:
    """The digest of a gate as a user writes it."""
    return digest_of_gate(Gate.model_validate(gate or GATE))


def gate_report(reason: GateReason = GateReason.PASSED, gate: dict[str, Any] | None = None) -> GateReport:
    """The contents of gate.json."""
    parsed_gate = Gate.model_validate(gate or GATE)
    return GateReport(
        gate_digest=digest_of_gate(parsed_gate),
        created="2026-01-02T12:00:00Z",
        gate=parsed_gate,
        passed=reason is GateReason.PASSED,
        reason=reason,
        message="3 of 3 tests are fine",
        baseline=EARLIER,
        before=side("main", EARLIER),
        after=side("demo", "s3://results/runs/default/demo/0002"),
    )


def gate_status(reason: GateReason = GateReason.PASSED, gate: dict[str, Any] | None = None) -> GateStatus:
    """What the operator reads of it."""
    return GateStatus.from_untrusted_json(gate_report(reason, gate).to_json().encode())


def side(name: str, uri: str) -> ComparedResult:
    """One of the two compared results."""
    return ComparedResult(
        uri=uri,
        namespace="default",
        name=name,
        uid=uri.rpartition("/")[2],
        created="2026-01-02T12:00:00Z",
        simulated=False,
        trustworthy=True,
        headline="trustworthy",
    )
