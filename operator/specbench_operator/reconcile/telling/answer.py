"""summary.json → the rows of status: which figure stands in which column. A figure that is missing stays missing."""

from __future__ import annotations

from specbench_api.outcome.figure import PERCENTILES, Figure, Headline
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.status import ArmResult, Interval, Percentiles
from specbench_operator.reconcile.telling.size import clipped

ROWS_MAX = 1024
FINDINGS_MAX = 32
SENTENCE_BYTES = 1024
INDISTINGUISHABLE = "indistinguishable"


def arms_of(summary: RunSummary) -> list[ArmResult]:
    """One row an arm, workload and load; as many as status may hold."""
    return [_row(cell) for cell in summary.cells[:ROWS_MAX]]


def recommendation_of(summary: RunSummary) -> str:
    """What the run recommends, in a sentence; empty in a summary that is older than recommendations."""
    return clipped(summary.recommendation.sentence, SENTENCE_BYTES) if summary.recommendation else ""


def _row(cell: Cell) -> ArmResult:
    return ArmResult(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        concurrency=cell.level.concurrency,
        rate=cell.level.rate,
        speedup=_interval(cell, cell.speedup),
        speedup_text=_text(cell),
        tpot_speedup=_interval(cell, cell.tpot_speedup),
        e2e_speedup=_interval(cell, cell.end_to_end.speedup if cell.end_to_end else None),
        acceptance_length=_value(cell, Headline.ACCEPTANCE_LENGTH),
        acceptance_length_verified=_value(cell, Headline.ACCEPTANCE_LENGTH_VERIFIED),
        acceptance_rate=_value(cell, Headline.ACCEPTANCE_RATE),
        ttft_ms=_percentiles(cell, Headline.TTFT_MS),
        tpot_ms=_percentiles(cell, Headline.TPOT_MS),
        e2e_ms=_percentiles(cell, Headline.E2E_MS),
        user_tps=_value(cell, Headline.USER_TPS),
        output_tps=_value(cell, Headline.OUTPUT_TPS),
        goodput=_number(cell.goodput.rate if cell.goodput else None),
        goodput_share=_number(cell.goodput.share if cell.goodput else None),
        requests=cell.counts.requests,
        failed_requests=cell.counts.failed_requests,
        output_tokens=cell.counts.output_tokens or 0,
        valid=cell.valid,
        findings=[name[:64] for name in dict.fromkeys(cell.findings)][:FINDINGS_MAX],
    )


def _value(cell: Cell, name: str) -> float | None:
    return _number(cell.figures.get(name))


def _number(figure: Figure | None) -> float | None:
    return rounded(figure.value) if figure and figure.value is not None else None


def rounded(value: float) -> float:
    """Six digits: no measurement of ours has more, and status has a thousand rows."""
    return float(f"{value:.6g}")


def _percentiles(cell: Cell, name: str) -> Percentiles | None:
    p50, p95, p99 = (_value(cell, f"{name}_{which}") for which in PERCENTILES)
    return None if p50 is p95 is p99 is None else Percentiles(p50=p50, p95=p95, p99=p99)


def _interval(cell: Cell, figure: Figure | None) -> Interval | None:
    """Too few repeats leave the noise between runs out of it: then there is none."""
    if figure is None or figure.value is None or figure.interval is None or cell.too_few_repeats:
        return None
    return Interval(value=rounded(figure.value), low=rounded(figure.interval.low), high=rounded(figure.interval.high))


def _text(cell: Cell) -> str:
    interval, few = _interval(cell, cell.speedup), cell.too_few_repeats
    if few and cell.speedup and cell.speedup.value is not None:
        text = f"{cell.speedup.value:.2f} ({few})"
    elif interval is None:
        return ""
    else:
        holds_one = interval.low <= 1 <= interval.high
        text = INDISTINGUISHABLE if holds_one else f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
    return text if cell.valid else f"{text} invalid"
