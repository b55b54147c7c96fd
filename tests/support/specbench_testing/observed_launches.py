"""Launches that were seen: every fact that a test names, and a reason for all the others."""

from __future__ import annotations

from pydantic import JsonValue

from specbench_api.outcome.provenance import Fact, FactName, HostFacts, LaunchRecord, merge_facts


def observed_launch(arm: str = "none", number: int = 0, **values: JsonValue) -> LaunchRecord:
    """One launch of an arm, of which these facts were seen; None: it was asked for and not told."""
    facts = {FactName(name): observed_fact(value) for name, value in values.items()}
    return LaunchRecord(
        launch=f"{number}-a",
        group=number,
        arm=arm,
        simulated=False,
        queried_at="2030-01-02T03:04:05Z",
        facts=merge_facts(facts, HostFacts(), "nobody asked"),
    )


def observed_fact(value: JsonValue) -> Fact:
    """A fact by a witness of no importance."""
    return Fact.unknown("it is not there") if value is None else Fact.observed(value, "a witness")
