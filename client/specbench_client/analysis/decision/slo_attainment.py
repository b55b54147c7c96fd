"""Whether a cell meets latency targets: each is judged by its own percentile over requests, and by that interval."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL
from specbench_client.documents.recommendation import Attainment, SloTarget
from specbench_client.documents.summary import Cell
from specbench_client.trust.check_type import list_names

_WORST_FIRST = (
    Attainment.MISSED,
    Attainment.UNKNOWN,
    Attainment.MISSED_BY_VALUE,
    Attainment.MET_BY_VALUE,
    Attainment.MET,
)


def attainment(cell: Cell, targets: Sequence[SloTarget]) -> Attainment:
    """Return the worst attainment over all targets."""
    found = {_target_attainment(cell, target) for target in targets} | {Attainment.MET}
    return next(each for each in _WORST_FIRST if each in found)


def missed(cell: Cell, targets: Sequence[SloTarget]) -> str:
    """Return the targets that the cell misses, with their figures: `TPOT p95 ≤ 20 ms: 31.2 ms`."""
    found = []
    for target in targets:
        if not _target_attainment(cell, target).within:
            value = cell.value(target.figure)
            found.append(f"{target.words}: {_why_unknown(cell, target) if value is None else f'{value:.3g} ms'}")
    return "; ".join(found)


def _why_unknown(cell: Cell, target: SloTarget) -> str:
    figure = cell.figures.get(target.figure)
    return (figure.missing if figure else "") or "not measured"


def _target_attainment(cell: Cell, target: SloTarget) -> Attainment:
    figure = cell.figures.get(target.figure)
    if figure is None or figure.value is None:
        return Attainment.UNKNOWN
    bounds, limit = figure.interval, target.limit_ms
    if figure.value <= limit:
        return Attainment.MET if bounds and bounds.high <= limit else Attainment.MET_BY_VALUE
    return Attainment.MISSED if bounds and bounds.low > limit else Attainment.MISSED_BY_VALUE


def why_by_value(cell: Cell, targets: Sequence[SloTarget]) -> str:
    """Return why targets are met or missed by value only (an interval includes one, or is missing), or not known."""
    found = []
    for target in targets:
        attained, (name, _, limit) = _target_attainment(cell, target), target.words.partition(" ≤ ")
        if attained is Attainment.UNKNOWN:
            found.append(f"{name}: {_why_unknown(cell, target)}")
        elif attained in (Attainment.MET_BY_VALUE, Attainment.MISSED_BY_VALUE):
            figure = cell.figures[target.figure]
            includes = f"the interval of {name} includes {limit}"
            found.append(includes if figure.interval else f"{name} has {figure.missing or NO_INTERVAL}")
    return list_names(found)
