"""summary.json → the rows of status: which figure stands in which column. A figure that is missing stays missing."""

from __future__ import annotations

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.status import ArmResult, Interval, Percentiles

ROWS_MAX = 1024
FINDINGS_MAX = 32
INDISTINGUISHABLE = "indistinguishable"


def arms_of(summary: RunSummary) -> list[ArmResult]:
    """One row an arm, workload and load; as many as status may hold."""
    return [_row(cell) for cell in summary.cells[:ROWS_MAX]]


def best_of(summary: RunSummary) -> str:
    """The largest speed-up whose interval lies above 1, with where it was found; empty where there is none."""
    found = [
        (cell.speedup.value, cell)
        for cell in summary.cells
        if cell.valid and cell.speedup and cell.speedup.value is not None
        if cell.speedup.interval and cell.speedup.interval.low > 1
    ]
    if not found:
        return ""
    value, cell = max(found, key=lambda pair: pair[0])
    several = len({cell.workload for cell in summary.cells}) > 1
    where = f" {cell.workload}" if several else ""
    return f"{cell.arm} {value:.2f}x at concurrency {cell.concurrency}{where}"[:128]


def _row(cell: Cell) -> ArmResult:
    return ArmResult(
        arm=cell.arm,
        workload=cell.workload,
        concurrency=cell.concurrency,
        speedup=_interval(cell.speedup),
        speedup_text=_text(_interval(cell.speedup)),
        tpot_speedup=_interval(cell.tpot_speedup),
        acceptance_length=_value(cell, "acceptance_length_emitted"),
        acceptance_length_verified=_value(cell, "acceptance_length_verified"),
        acceptance_rate=_value(cell, "acceptance_rate"),
        ttft_ms=_percentiles(cell, "ttft_ms"),
        tpot_ms=_percentiles(cell, "tpot_ms"),
        e2e_ms=_percentiles(cell, "e2e_ms"),
        user_tps=_value(cell, "user_tps"),
        output_tps=_value(cell, "output_tps"),
        requests=cell.counts.requests,
        failed_requests=cell.counts.failed_requests,
        output_tokens=cell.counts.output_tokens or 0,
        valid=cell.valid,
        findings=[name[:64] for name in dict.fromkeys(cell.findings)][:FINDINGS_MAX],
    )


def _value(cell: Cell, name: str) -> float | None:
    figure = cell.figures.get(name)
    return figure.value if figure else None


def _percentiles(cell: Cell, name: str) -> Percentiles | None:
    p50, p95, p99 = (_value(cell, f"{name}_{which}") for which in ("p50", "p95", "p99"))
    return None if p50 is p95 is p99 is None else Percentiles(p50=p50, p95=p95, p99=p99)


def _interval(figure: Figure | None) -> Interval | None:
    if figure is None or figure.value is None or figure.interval is None:
        return None
    return Interval(value=figure.value, low=figure.interval.low, high=figure.interval.high)


def _text(interval: Interval | None) -> str:
    if interval is None:
        return ""
    if interval.low <= 1 <= interval.high:
        return INDISTINGUISHABLE
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
