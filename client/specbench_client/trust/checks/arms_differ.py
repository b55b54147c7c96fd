"""Launches that differ in more than the drafter, by what the engines and their places told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from specbench_api.outcome.facts import FACTS, Alike, FactName
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.launched import Launched
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.table import dialect_of
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

NAMED = 8
"""Arguments that one finding names."""
LONGEST = 60
"""Characters of one value."""
_OWN = re.compile(r"^spec(ulative)?_|(^|_)(host|port|addr|seed|pid)$")
"""Arguments of the drafter, and of the process: where it listens, and what it draws where nothing was asked for."""
_SEVERITIES = {Alike.MUST: Severity.DOUBT, Alike.NOTED: Severity.NOTE}


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    facts = [seen for name in FACTS if (seen := _fact(name, evidence.launches))]
    return [*facts, *_arguments(evidence.launches, dialect_of(evidence.plan.engine))]


def _fact(name: FactName, launches: Sequence[Launched]) -> Seen | None:
    """One fact over all launches; those that do not know it are not held against the others."""
    severity = _SEVERITIES.get(FACTS[name].alike)
    told = [(launch.arm, value) for launch in launches if (value := launch.value(name)) is not None]
    values = _by_value(told)
    if severity is None or len(values) < 2:
        return None
    return Seen(severity, f"{name} is not the same in all launches: {_words(values)}", value=len(values), threshold=2)


def _arguments(launches: Sequence[Launched], dialect: Dialect) -> Sequence[Seen]:
    """Keys that differ, in one note: many of them follow from the drafter, and which do is a person's to say."""
    told = [(launch.arm, given) for launch in launches if isinstance(given := launch.value(FactName.ARGUMENTS), dict)]
    compared = _compared(dialect)
    keys = dict.fromkeys(key for _, given in told for key in given if not _OWN.search(key) and key not in compared)
    differing = {key: values for key in keys if len(values := _by_value(_of_key(told, key))) > 1}
    if not differing:
        return []
    named = [f"{key} ({_words(values)})" for key, values in list(differing.items())[:NAMED]]
    more = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
    message = f"arguments that took effect are not the same in all launches: {'; '.join(named)}{more}"
    return [Seen(Severity.NOTE, message, value=len(differing), threshold=1)]


def _of_key(told: Iterable[tuple[str, Mapping[str, JsonValue]]], key: str) -> list[tuple[str, JsonValue]]:
    return [(arm, given.get(key)) for arm, given in told]


def _compared(dialect: Dialect) -> set[str | int]:
    """Arguments that are facts by themselves."""
    return {reading.keys[0] for reading in dialect.readings if reading.keys and _is_compared(reading.fact)}


def _is_compared(name: FactName) -> bool:
    return FACTS[name].alike is not Alike.FREE


def _by_value(told: Iterable[tuple[str, JsonValue]]) -> dict[str, list[str]]:
    """Each value in JSON, with the arms that have it."""
    found: dict[str, list[str]] = {}
    for arm, value in told:
        arms = found.setdefault(json.dumps(value, sort_keys=True, ensure_ascii=False), [])
        if arm not in arms:
            arms.append(arm)
    return found


def _words(values: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{_short(value)} on {' and '.join(arms)}" for value, arms in values.items())


def _short(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"


CHECK: Check[RunEvidence] = Check(
    name="ArmsDiffer",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="What was seen of the launches differs in more than the drafter.",
    threshold="two values of a fact that must be alike (Doubt); of the node, the kernel or an argument (Note)",
    argument="An engine may change its limits, kernels or graphs because a drafter is there, and a cluster the node or"
    " the image: the speed-up is then of both. What only the drafter changes, such as the room in the KV cache, is not"
    " compared but shown.",
    remedy="Set the value for all arms in engine.args, or pin image and nodes in the spec, and measure again.",
    look=_look,
)
