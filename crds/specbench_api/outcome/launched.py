"""What was seen of one launch of an engine: facts, each with its witness, or the reason why nobody saw it.

Two witnesses are heard. The engine itself tells over HTTP, once, after its first completion and before the first
point. Whoever started it tells where it runs: the operator hands it to the client's Job, a local run looks at this
machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import JsonValue, model_serializer, model_validator

from specbench_api.model import ApiModel
from specbench_api.outcome.facts import FACTS, FactName, Told


class Fact(ApiModel):
    """`{value, source}` where it was seen, `{value: null, reason}` where it was not."""

    value: JsonValue = None
    """What was seen."""
    source: str | None = None
    """Who told it, and where it stands there."""
    reason: str | None = None
    """Why it is not known."""

    @classmethod
    def seen(cls, value: JsonValue, source: str) -> Self:
        """A fact with its witness."""
        return cls(value=value, source=source)

    @classmethod
    def unseen(cls, reason: str) -> Self:
        """A fact that nobody told."""
        return cls(reason=reason)

    @classmethod
    def of(cls, value: JsonValue, source: str, missing: str) -> Self:
        """Seen; where the value is empty, unseen, and `missing` says why."""
        return cls.unseen(missing) if value in (None, "", []) else cls.seen(value, source)

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.value is None) != (self.reason is not None) or (self.value is None) != (self.source is None):
            raise ValueError("a fact has a value and its source, or no value and the reason")
        return self

    @model_serializer(mode="plain")
    def _told(self) -> dict[str, Any]:
        """`value` is always there: that it is null is said, not left out."""
        return {"value": self.value, **({"reason": self.reason} if self.value is None else {"source": self.source})}


Facts = Mapping[FactName, Fact]
PLACE_VARIABLE = "SPECBENCH_PLACE"
"""In a client's environment: the Whereabouts of its engine."""


class Whereabouts(ApiModel):
    """Where an engine runs, as whoever started it sees it."""

    facts: dict[FactName, Fact] = {}
    """What it saw."""
    unseen: str = "whoever drove the engine did not see where it runs"
    """Why the place's other facts are not known."""

    def value(self, name: FactName) -> JsonValue:
        """What was seen of it; None where nothing was."""
        return _value(self.facts, name)

    def to_line(self) -> str:
        """As one line of JSON for the environment of a pod, where Kubernetes would expand `$(NAME)`."""
        return self.model_dump_json(by_alias=True).replace("$", "\\u0024")


class Launched(ApiModel):
    """One launch. Every fact has its row, seen or not."""

    schema_version: Literal["specbench.io/launch/v1"] = "specbench.io/launch/v1"
    """Version of this document."""
    launch: str
    """Which launch: group-attempt, as in the manifests of its points."""
    group: int
    """Index of the engine group."""
    arm: str
    """Name of the arm."""
    simulated: bool
    """True when the engine was the simulator: what it tells of itself is pretended."""
    asked: str
    """When it was asked, RFC 3339."""
    facts: dict[FactName, Fact]
    """By name: see docs/provenance.md."""

    def value(self, name: FactName) -> JsonValue:
        """What was seen of it; None where nothing was."""
        return _value(self.facts, name)


def all_facts(engine: Facts, place: Whereabouts, silent: str) -> dict[FactName, Fact]:
    """Every fact once, from its first witness who saw it; else with every reason. `silent`: why the engine tells none.

    The engine is heard first: what it says of itself is nearer to what was measured than what its place looks like.
    """
    unseen = {Told.ENGINE: silent, Told.PLACE: place.unseen}
    return {name: _first(name, (engine, place.facts), unseen[about.told]) for name, about in FACTS.items()}


def _value(facts: Facts, name: FactName) -> JsonValue:
    return facts[name].value if name in facts else None


def _first(name: FactName, witnesses: tuple[Facts, ...], otherwise: str) -> Fact:
    told = [witness[name] for witness in witnesses if name in witness]
    seen = next((fact for fact in told if fact.value is not None), None)
    reasons = dict.fromkeys(fact.reason for fact in told if fact.reason)
    return seen or Fact.unseen("; ".join(reasons) or otherwise)
