"""The verdict in one sentence, for a person. Which word a comparison gets is decided in `analysis.summary.claims`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specbench_api.outcome.claims import Standing
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import Cell
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.summary.cell import Judged
from specbench_client.trust.checks import research_runtime

CLAUSES = 4
"""Arms that one sentence can name; the others stand in the table."""


@dataclass(frozen=True)
class Verdict:
    """What a verdict speaks of. `judged`: with their claims."""

    plan: Plan
    judged: Sequence[Judged]
    findings: Sequence[Finding]
    trustworthy: bool
    simulated: bool


def verdict_of(facts: Verdict) -> str:
    """Return the sentence."""
    return f"{_head(facts)}{_claims(facts)}; {_trust(facts)}"


def standings(judged: Sequence[Judged]) -> list[tuple[Cell, Standing]]:
    """How each cell but the baselines' stands."""
    return [(each.cell, each.cell.claims.overall) for each in judged if each.cell.claims is not None]


def _head(facts: Verdict) -> str:
    """What must be known before any figure is read."""
    if facts.simulated:
        return "simulated, not a measurement: "
    found = any(finding.check == research_runtime.CHECK.name for finding in facts.findings)
    return "on a research runtime: " if found or facts.plan.engine.kind is EngineKind.TRANSFORMERS else ""


def _claims(facts: Verdict) -> str:
    found = standings(facts.judged)
    if not facts.judged:
        return "nothing was measured"
    if not found:
        return "only the baseline was measured"
    if BASELINE_NAME not in {arm.name for arm in facts.plan.arms}:
        return "no baseline was asked for, so there is no speed-up"
    several = len({cell.workload for cell, _ in found}) > 1
    keys = list(dict.fromkeys((cell.arm, cell.workload) for cell, _ in found))
    keys.sort(key=lambda key: -_best(cell for cell, _ in found if (cell.arm, cell.workload) == key))
    clauses = []
    for arm, workload in keys[:CLAUSES]:
        mine = [(cell, standing) for cell, standing in found if (cell.arm, cell.workload) == (arm, workload)]
        clauses.append(f"{arm}{f' on {workload}' if several else ''} is {_phrases(mine)}")
    more = [f"{len(keys) - CLAUSES} more in the table"] if len(keys) > CLAUSES else []
    return "; ".join([*clauses, *more])


def _best(cells: Iterable[Cell]) -> float:
    """The largest speed-up of an arm, for the order of clauses; what is invalid comes last."""
    return max((cell.speedup.value or 0.0 for cell in cells if cell.valid and cell.speedup), default=0.0)


def _phrases(found: Sequence[tuple[Cell, Standing]]) -> str:
    """One phrase a standing, in the order of the enumeration; what the load's number means is written out once."""
    phrases: list[str] = []
    for standing in Standing:
        cells = [cell for cell, its in found if its is standing]
        if cells:
            phrases.append(_phrase(standing, cells, cells[0].level.label if phrases else cells[0].level.words))
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _phrase(standing: Standing, cells: Sequence[Cell], load: str) -> str:
    """`load`: how the first cell's load is told."""
    first, *rest = cells
    where = ", ".join([load, *(cell.level.label for cell in rest)])
    match standing:
        case Standing.FASTER | Standing.SLOWER:
            tail = "".join(f", {_ratio(cell)} at {cell.level.label}" for cell in rest)
            word = "faster" if standing is Standing.FASTER else "(slower)"
            return f"{_ratio(first)} {word} at {load}{tail}"
        case Standing.INDISTINGUISHABLE:
            return f"indistinguishable from the baseline at {where}"
        case Standing.UNCLEAR:
            return f"not clearly different among so many comparisons at {where}"
        case Standing.TOO_FEW_REPEATS:
            few = dict.fromkeys(cell.too_few_repeats for cell in cells)
            tail = "".join(f", {_value(cell)} at {cell.level.label}" for cell in rest)
            return f"{_value(first)} at {load}{tail} ({'; '.join(few)})"
        case Standing.NO_INTERVAL:
            return f"compared without an interval at {where}"
        case Standing.NOT_COMPARABLE:
            return f"not comparable at {where}"


def _value(cell: Cell) -> str:
    assert cell.speedup is not None
    return f"{cell.speedup.value:.2f}x"


def _ratio(cell: Cell) -> str:
    assert cell.speedup is not None
    assert cell.speedup.interval is not None
    interval = cell.speedup.interval
    return f"{_value(cell)} [{interval.low:.2f}, {interval.high:.2f}]"


def _trust(facts: Verdict) -> str:
    if facts.trustworthy:
        return "trustworthy"
    bad = [finding for finding in facts.findings if finding.severity is not Severity.NOTE]
    bad.sort(key=lambda finding: finding.severity is not Severity.INVALID)
    names = list(dict.fromkeys(finding.check for finding in bad))
    return f"not trustworthy ({', '.join(names)})" if names else "not trustworthy"
