"""Whether a cell meets latency targets: each by its own percentile over requests, and by that figure's interval."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.recommendation import Attainment, SloTarget
from specbench_api.outcome.summary import Cell

_WORST_FIRST = (
    Attainment.MISSED,
    Attainment.UNKNOWN,
    Attainment.MISSED_BY_VALUE,
    Attainment.MET_BY_VALUE,
    Attainment.MET,
)


def attainment(cell: Cell, targets: Sequence[SloTarget]) -> Attainment:
    """The worst of all targets: one that is missed is not mended by another that is met."""
    found = {_of(cell, target) for target in targets} | {Attainment.MET}
    return next(each for each in _WORST_FIRST if each in found)


def missed(cell: Cell, targets: Sequence[SloTarget]) -> str:
    """Which targets the cell does not meet, each with its figure: `TPOT p95 ≤ 20 ms: 31.2 ms`."""
    found = []
    for target in targets:
        if not _of(cell, target).within:
            figure = cell.figures.get(target.figure)
            value = figure.value if figure else None
            found.append(f"{target.words}: {'not to be had' if value is None else f'{value:.3g} ms'}")
    return "; ".join(found)


def _of(cell: Cell, target: SloTarget) -> Attainment:
    figure = cell.figures.get(target.figure)
    if figure is None or figure.value is None:
        return Attainment.UNKNOWN
    bounds, limit = figure.interval, target.limit_ms
    if figure.value <= limit:
        return Attainment.MET if bounds and bounds.high <= limit else Attainment.MET_BY_VALUE
    return Attainment.MISSED if bounds and bounds.low > limit else Attainment.MISSED_BY_VALUE
