"""Builds status.json from a summary: what the operator copies into the resource's status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from specbench_api.outcome.status_document import (
    ARM_AT_FAULT,
    ARMS_BYTES,
    SENTENCE_BYTES,
    StatusDocument,
    clip,
    stored_bytes,
)
from specbench_api.plan.canonical import plan_digest
from specbench_api.plan.plan import Plan, PlanCell
from specbench_api.spec.latency_percentiles import PERCENTILES
from specbench_api.spec.status import FINDINGS_MAX, TEXT_MAX, ArmResult, Interval, Percentiles
from specbench_client.documents.figure import Figure, StatusFigure
from specbench_client.documents.finding import Finding, faults_by_arm
from specbench_client.documents.summary import Cell, RunSummary, best_speedup_text
from specbench_client.report.text.results_table import speedup_text
from specbench_client.trust.registry import rank


def status_document(summary: RunSummary, plan: Plan, following: Collection[PlanCell] = frozenset()) -> StatusDocument:
    """Return status.json of a run. `following`: the cells of a round that it still needs."""
    next_round = [sorted(following, key=lambda cell: (*cell[:2], cell[2].order))] if following else []
    rows = [_arm_row(cell) for cell in summary.cells]
    kept = _fitting(rows)
    reason, message = _trust(summary)
    return StatusDocument(
        uid=summary.uid,
        plan_sha256=plan_digest(plan),
        created=summary.created,
        points_measured=summary.points_measured,
        points_invalid=summary.points_invalid,
        arms=kept,
        arms_omitted=len(rows) - len(kept),
        best=best_speedup_text(summary),
        recommendation=clip(summary.recommendation.sentence, TEXT_MAX) if summary.recommendation else "",
        rounds=[*plan.rounds_added, *next_round],
        trust="Trustworthy" if summary.trustworthy else "Untrustworthy",
        headline=clip(summary.headline, SENTENCE_BYTES),
        trust_reason=reason,
        trust_message=clip(message, SENTENCE_BYTES),
    )


def _trust(summary: RunSummary) -> tuple[str, str]:
    """Return reason and message of the condition Trustworthy: the headline, and the worst finding that is a doubt."""
    if summary.trustworthy:
        return ARM_AT_FAULT if faults_by_arm(summary.findings) else "Trustworthy", summary.headline
    worst = _worst(summary.findings)
    if worst is None:
        return "Untrustworthy", summary.headline
    return worst.check, f"{summary.headline.removesuffix('.')}; {worst.message}"


def _worst(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding to correct first in a run that is not trustworthy; None if there is none."""
    return min((finding for finding in findings if finding.severity.is_doubt), key=rank, default=None)


# The rows of results: one per arm, workload and load. A figure that is missing in the summary stays missing.


def _arm_row(cell: Cell) -> ArmResult:
    return ArmResult(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        concurrency=cell.level.concurrency,
        rate=cell.level.rate,
        speedup=_interval(cell.speedup),
        speedup_text=speedup_text(cell, cell.speedup) if _number(cell.speedup) else "",
        tpot_speedup=_interval(cell.tpot_speedup),
        e2e_speedup=_interval(cell.end_to_end.speedup if cell.end_to_end else None),
        acceptance_length=_value(cell, StatusFigure.ACCEPTANCE_LENGTH),
        acceptance_length_verified=_value(cell, StatusFigure.ACCEPTANCE_LENGTH_VERIFIED),
        acceptance_rate=_value(cell, StatusFigure.ACCEPTANCE_RATE),
        ttft_ms=_percentiles(cell, StatusFigure.TTFT_MS),
        tpot_ms=_percentiles(cell, StatusFigure.TPOT_MS),
        e2e_ms=_percentiles(cell, StatusFigure.E2E_MS),
        user_tps=_value(cell, StatusFigure.USER_TPS),
        output_tps=_value(cell, StatusFigure.OUTPUT_TPS),
        goodput=_number(cell.goodput.rate if cell.goodput else None),
        slo_attainment=_number(cell.goodput.slo_attainment if cell.goodput else None),
        requests=cell.counts.requests,
        failed_requests=cell.counts.failed_requests,
        output_tokens=cell.counts.output_tokens or 0,
        valid=cell.valid,
        findings=[name[:64] for name in dict.fromkeys(cell.findings)][:FINDINGS_MAX],
    )


def _value(cell: Cell, name: str) -> float | None:
    return _number(cell.figures.get(name))


def _number(figure: Figure | None) -> float | None:
    return _rounded(figure.value) if figure and figure.value is not None else None


def _rounded(value: float) -> float:
    """Return the value with six significant digits. No measurement is more precise."""
    return float(f"{value:.6g}")


def _percentiles(cell: Cell, name: str) -> Percentiles | None:
    values = {which: _value(cell, f"{name}_{which}") for which in PERCENTILES}
    return None if all(value is None for value in values.values()) else Percentiles(**values)


def _interval(figure: Figure | None) -> Interval | None:
    """Return the figure with its interval; None without one."""
    if figure is None or figure.value is None or figure.interval is None:
        return None
    low, high = figure.interval.low, figure.interval.high
    return Interval(value=_rounded(figure.value), low=_rounded(low), high=_rounded(high))


def _fitting(rows: Sequence[ArmResult]) -> list[ArmResult]:
    """Return as many rows as status.json may have, in their order.

    Rows are chosen for each arm and workload in turn, from the lowest load upwards, so that the rows that a row is
    compared with are kept too.
    """
    room = ARMS_BYTES - len("[]")
    kept = set[int]()
    for index in _round_robin(rows):
        room -= stored_bytes(rows[index].to_dict()) + 1
        if room < 0:
            break
        kept.add(index)
    return [row for index, row in enumerate(rows) if index in kept]


def _round_robin(rows: Sequence[ArmResult]) -> list[int]:
    """Return the indices of the first rows of all pairs of arm and workload, then of the second rows, and so on."""
    counts = Counter[tuple[str, str]]()
    turns = []
    for index, row in enumerate(rows):
        turns.append((counts[row.arm, row.workload], index))
        counts[row.arm, row.workload] += 1
    return [index for _, index in sorted(turns)]
