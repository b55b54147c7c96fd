"""Launches that differ in more than the drafter, according to what the engines and their nodes reported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.provenance import FACTS, FactComparability, FactName, LaunchRecord
from specbench_client.dialects.dialect import Dialect
from specbench_client.dialects.registry import dialect_of
from specbench_client.trust.check import Check, CheckResult, CheckResults, name_some
from specbench_client.trust.evidence import RunEvidence

NAMED = 8
"""Maximum number of arguments listed in one finding."""
LONGEST = 60
"""Maximum number of characters shown of one value."""
_OWN = re.compile(r"^spec(ulative)?_|(^|_)(host|port|addr|seed|pid)$")
"""Arguments of the drafter, and of the process: its listening address, and the seed it draws if none is set."""
_SEVERITIES = {FactComparability.MUST: Severity.WARNING, FactComparability.NOTED: Severity.INFO}


def _evaluate(evidence: RunEvidence) -> CheckResults:
    facts = [result for name in FACTS if (result := _fact(name, evidence.launches))]
    return [*facts, *_arguments(evidence.launches, dialect_of(evidence.plan.engine))]


def _fact(name: FactName, launches: Sequence[LaunchRecord]) -> CheckResult | None:
    """Compare one fact over all launches; launches that do not report it are ignored."""
    severity = _SEVERITIES.get(FACTS[name].comparability)
    reported = [(launch.arm, value) for launch in launches if (value := launch.value(name)) is not None]
    values = _by_value(reported)
    if severity is None or len(values) < 2:
        return None
    return CheckResult(
        severity, f"{name} is not the same in all launches: {_format_values(values)}", value=len(values), threshold=2
    )


def _arguments(launches: Sequence[LaunchRecord], dialect: Dialect) -> CheckResults:
    """Compare all other arguments in one Info finding, because many of them follow from the drafter.

    Which of them do is left to the reader.
    """
    reported = [
        (launch.arm, arguments)
        for launch in launches
        if isinstance(arguments := launch.value(FactName.ARGUMENTS), dict)
    ]
    compared = _compared(dialect)
    keys = dict.fromkeys(
        key for _, arguments in reported for key in arguments if not _OWN.search(key) and key not in compared
    )
    differing = {key: values for key in keys if len(values := _by_value(_of_key(reported, key))) > 1}
    if not differing:
        return []
    named = name_some([f"{key} ({_format_values(values)})" for key, values in differing.items()], NAMED, "; ")
    message = f"effective arguments are not the same in all launches: {named}"
    return [CheckResult(Severity.INFO, message, value=len(differing), threshold=1)]


def _of_key(reported: Iterable[tuple[str, Mapping[str, JsonValue]]], key: str) -> list[tuple[str, JsonValue]]:
    return [(arm, arguments.get(key)) for arm, arguments in reported]


def _compared(dialect: Dialect) -> set[str | int]:
    """Keys of the arguments that are compared as facts of their own."""
    return {reading.keys[0] for reading in dialect.readings if reading.keys and _is_compared(reading.fact)}


def _is_compared(name: FactName) -> bool:
    return FACTS[name].comparability is not FactComparability.FREE


def _by_value(reported: Iterable[tuple[str, JsonValue]]) -> dict[str, list[str]]:
    """Each value as JSON, with the arms that have it."""
    found: dict[str, list[str]] = {}
    for arm, value in reported:
        arms = found.setdefault(json.dumps(value, sort_keys=True, ensure_ascii=False), [])
        if arm not in arms:
            arms.append(arm)
    return found


def _format_values(values: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{_short(value)} on {' and '.join(arms)}" for value, arms in values.items())


def _short(value: str) -> str:
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"


CHECK: Check[RunEvidence] = Check(
    name="ArmEnvironmentsDiffer",
    severities=(Severity.WARNING, Severity.INFO),
    description="The recorded environment of the launches differs in more than the drafter.",
    threshold="two values of a fact that must be equal (Warning), or of the node, the kernel or an argument (Info)",
    rationale=(
        "An engine may change its limits, kernels or graphs because a drafter is configured, and a cluster may"
        " choose another node or image: the speed-up then measures both. What only the drafter changes, such as the"
        " size of the KV cache, is shown but not compared."
    ),
    remedy="Set the value for all arms in engine.args, or pin the image and the nodes in the spec, and measure again.",
    evaluate=_evaluate,
)
