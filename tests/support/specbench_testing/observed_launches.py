"""Observed launches: the facts that a test names, and a reason for all others."""

from __future__ import annotations

from pydantic import JsonValue

from specbench_api.outcome.provenance import Fact, FactName, HostFacts, LaunchRecord, merge_facts


def observed_launch(arm: str = "none", number: int = 0, **values: JsonValue) -> LaunchRecord:
    """A launch of an arm with these observed facts; None: the fact was requested but not reported."""
    facts = {FactName(name): observed_fact(value) for name, value in values.items()}
    return LaunchRecord(
        launch=f"{number}-a",
        group=number,
        arm=arm,
        simulated=False,
        queried_at=f"2030-01-02T03:04:{number:02}Z",
        facts=merge_facts(facts, HostFacts(), "nobody asked"),
    )


def observed_fact(value: JsonValue) -> Fact:
    """A fact from an arbitrary source, or an unknown one."""
    return Fact.unknown("it is not there") if value is None else Fact.observed(value, "a witness")
