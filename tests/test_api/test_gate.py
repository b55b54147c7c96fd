"""spec.gate: its defaults, its digest, and that it changes neither the plan nor any hash."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.plan.canonical import digest_of_gate
from specbench_api.plan.expansion import expand
from specbench_api.spec.gate import Gate, GateRequest
from specbench_testing.resources import run_of

BARE: dict[str, Any] = {"baselineRef": {"run": "main"}}


def gate_of(**fields: Any) -> Gate:
    return Gate.model_validate({**BARE, **fields})


def test_a_gate_without_tolerances_tests_speedup_and_tpot_at_five_percent() -> None:
    assert [(each.label, each.max_regression_percent) for each in gate_of().effective_tolerances] == [
        ("speedup", 5),
        ("tpot", 5),
    ]
    assert gate_of().confidence == 0.95
    assert (gate_of().on_inconclusive, gate_of().on_missing, gate_of().require_trustworthy) == ("Fail", "Fail", True)


def test_a_gate_does_not_change_the_plan() -> None:
    assert expand(run_of({"spec.gate": BARE})) == expand(run_of())


def test_the_digest_differs_between_gates_and_includes_defaults() -> None:
    assert digest_of_gate(gate_of()) == digest_of_gate(gate_of(confidence=0.95, tolerances=[]))
    assert digest_of_gate(gate_of()) != digest_of_gate(gate_of(confidence=0.9))
    assert digest_of_gate(gate_of()) != digest_of_gate(Gate.model_validate({"baselineRef": {"run": "other"}}))


@pytest.mark.parametrize("uri", ["s3://bucket/$(HOME)/x", "s3://bucket/ü"])
def test_a_gate_request_survives_a_pods_environment(uri: str) -> None:
    request = GateRequest(gate_digest="a", gate=gate_of(), baseline=uri)
    assert "$(" not in request.to_line()
    assert "\n" not in request.to_line()
    assert GateRequest.from_json(request.to_line()) == request
