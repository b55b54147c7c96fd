"""spec.gate: its defaults, and that it is no part of what is measured."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.outcome.gate import AskedGate
from specbench_api.plan.asked import asked_digest
from specbench_api.plan.expand import expand
from specbench_api.spec.gate import Gate
from specbench_testing.resources import run_of

BARE: dict[str, Any] = {"baselineRef": {"run": "main"}}


def gate_of(**fields: Any) -> Gate:
    return Gate.model_validate({**BARE, **fields})


def test_a_bare_gate_asks_for_speedup_and_tpot_within_five_percent() -> None:
    assert [(each.label, each.max_regression_percent) for each in gate_of().asked] == [("speedup", 5), ("tpot", 5)]
    assert gate_of().confidence == 0.95
    assert (gate_of().inconclusive, gate_of().on_missing, gate_of().require_trustworthy) == ("Fail", "Fail", True)


def test_tolerances_replace_the_default_ones() -> None:
    asked = gate_of(tolerances=[{"metric": "ttft", "percentile": "p95", "maxRegressionPercent": 10}]).asked
    assert [each.label for each in asked] == ["ttft p95"]


def test_a_gate_is_in_no_plan_and_in_no_hash() -> None:
    assert expand(run_of({"spec.gate": BARE})) == expand(run_of())


def test_a_digest_tells_gates_apart_and_takes_defaults_as_written_out() -> None:
    assert asked_digest(gate_of()) == asked_digest(gate_of(confidence=0.95, tolerances=[]))
    assert asked_digest(gate_of()) != asked_digest(gate_of(confidence=0.9))
    assert asked_digest(gate_of()) != asked_digest(Gate.model_validate({"baselineRef": {"run": "other"}}))


@pytest.mark.parametrize("uri", ["s3://bucket/$(HOME)/x", "s3://bucket/ü"])
def test_what_is_asked_survives_the_environment_of_a_pod(uri: str) -> None:
    asked = AskedGate(asked="a", gate=gate_of(), baseline=uri)
    assert "$(" not in asked.to_line()
    assert "\n" not in asked.to_line()
    assert AskedGate.from_json(asked.to_line()) == asked
