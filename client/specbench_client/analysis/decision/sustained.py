"""Up to which measured load an arm meets the targets: by value, and as far as its intervals show it."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.recommendation import Attainment, SloTarget, Sustained
from specbench_client.analysis.decision.attainment import missed
from specbench_client.analysis.decision.candidates import Entry


def sustained(entries: Sequence[Entry], targets: Sequence[SloTarget]) -> Sustained:
    """Of the entries of one arm on one workload. A load counts only where every smaller one meets the targets too."""
    ordered = sorted(entries, key=lambda entry: entry.cell.level.order)
    first = ordered[0].cell
    by_value = _prefix(ordered, (Attainment.MET, Attainment.MET_BY_VALUE))
    shown = _prefix(ordered, (Attainment.MET,))
    beyond = ordered[len(by_value)] if len(by_value) < len(ordered) else None
    judged = beyond is not None and beyond.cell.valid and beyond.candidate.attainment is not Attainment.UNKNOWN
    return Sustained(
        workload=first.workload,
        arm=first.arm,
        load=by_value[-1].cell.level.label if by_value else None,
        shown=shown[-1].cell.level.label if shown else None,
        missed_at=beyond.cell.level.label if beyond and judged else None,
        reason=_reason(beyond, targets) if beyond else "no measured load misses them: the limit lies beyond",
    )


def _prefix(ordered: Sequence[Entry], wanted: Sequence[Attainment]) -> list[Entry]:
    found = list[Entry]()
    for entry in ordered:
        if not entry.cell.valid or entry.candidate.attainment not in wanted:
            break
        found.append(entry)
    return found


def _reason(beyond: Entry, targets: Sequence[SloTarget]) -> str:
    if beyond.cell.valid:
        return missed(beyond.cell, targets)
    why = f"invalid ({', '.join(beyond.cell.findings)})"
    return f"not known from {beyond.cell.level.label} on: {why}"
