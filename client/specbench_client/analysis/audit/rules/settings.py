"""Rules on settings: equal settings have equal figures, and the engine's release has the method."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from packaging.version import InvalidVersion, Version

from specbench_api.launch.support_matrix import support_of
from specbench_api.spec.drafter import Method
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.audit.columns import Quantity
from specbench_client.analysis.audit.document import AuditDocument, AuditRow
from specbench_client.analysis.audit.rules.rule import AuditRule, RuleOutcome, RuleViolation

TOLERANCE = 0.05


def _repeated_setting(document: AuditDocument) -> RuleOutcome:
    groups: dict[str, list[AuditRow]] = {}
    for row in document.rows:
        groups.setdefault(repr(sorted(row.settings.items())), []).append(row)
    comparisons, violations = 0, []
    for rows in groups.values():
        for one, other in combinations(rows, 2):
            for name in one.values.keys() & other.values.keys():
                comparisons += 1
                first, second = one.values[name], other.values[name]
                if first.differs(second, TOLERANCE):
                    places = f"{one.table} row {one.number}: {first}", f"{other.table} row {other.number}: {second}"
                    violations.append(
                        RuleViolation((one, other), f"{one.label}: {name} is both {first} and {second}", places)
                    )
    return RuleOutcome(comparisons, violations)


REPEATED = AuditRule(
    "RepeatedSetting",
    "rows with the same settings, in one table or in two, have the same figures",
    "otherwise a setting differs that the document does not state, or one row is of another run",
    f"{TOLERANCE:.0%}",
    _repeated_setting,
)


@dataclass(frozen=True)
class FirstRelease:
    """The first release of an engine that has a method, and the source of this fact."""

    version: str
    source: str


FIRST_RELEASES = {
    (EngineKind.VLLM, Method.EAGLE3): FirstRelease(
        "0.8.5", "vLLM's pull request 16937, opened on 21 April 2025, a week after 0.8.4; 0.7.3 is of February 2025"
    ),
}
"""First releases where they are known. Methods that later releases dropped are in docs/reference/engines.md."""


def _engine_release(document: AuditDocument) -> RuleOutcome:
    comparisons, found = 0, dict[tuple[str, str, str], list[AuditRow]]()
    words = dict[tuple[str, str, str], tuple[str, str]]()
    for row in document.rows:
        kind, version = _engine(row), row.settings.get(Quantity.ENGINE_VERSION)
        if kind is None or row.method is None or not isinstance(version, str):
            continue
        comparisons += 1
        missing = _missing_method(kind, row.method, version)
        if missing:
            key = (kind, version, row.method)
            words[key] = missing
            found.setdefault(key, []).append(row)
    violations = [RuleViolation(tuple(rows), words[key][0], (words[key][1],)) for key, rows in found.items()]
    return RuleOutcome(comparisons, violations)


def _engine(row: AuditRow) -> EngineKind | None:
    name = str(row.settings.get(Quantity.ENGINE, "")).lower().replace("_", "-")
    return next((kind for kind in EngineKind if kind.value == name), None)


def _missing_method(kind: EngineKind, method: Method, version: str) -> tuple[str, str] | None:
    """Return why this release does not have the method, and the source; None if it has it or that is unknown."""
    first = FIRST_RELEASES.get((kind, method))
    try:
        early = first is not None and Version(version.removeprefix("v")) < Version(first.version)
    except InvalidVersion:
        return None
    if first is not None and early:
        return f"{kind} {version} does not have {method}: {first.version} is the first that does", first.source
    here, ever = support_of(kind, method, version), support_of(kind, method)
    return (
        (f"{kind} {version} does not have {method}: {here.how}", here.evidence.source)
        if ever.versions and not here.supported
        else None
    )


RELEASE = AuditRule(
    "EngineRelease",
    "the engine's release has the method",
    "a table of first releases, each with its source, and the table in docs/reference/engines.md",
    "none; a version that is not a number is accepted",
    _engine_release,
)
