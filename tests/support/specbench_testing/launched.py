"""Launches that were seen: every fact that a test names, and a reason for all the others."""

from __future__ import annotations

from pydantic import JsonValue

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.launched import Fact, Launched, Whereabouts, all_facts


def launched(arm: str = "none", number: int = 0, **values: JsonValue) -> Launched:
    """One launch of an arm, of which these facts were seen; None: it was asked for and not told."""
    facts = {FactName(name): seen(value) for name, value in values.items()}
    return Launched(
        launch=f"{number}-a",
        group=number,
        arm=arm,
        simulated=False,
        asked="2030-01-02T03:04:05Z",
        facts=all_facts(facts, Whereabouts(), "nobody asked"),
    )


def seen(value: JsonValue) -> Fact:
    """A fact by a witness of no importance."""
    return Fact.unseen("it is not there") if value is None else Fact.seen(value, "a witness")
