"""Two results beside each other, and what can be said of every figure: better, worse, or not to be told."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.comparison import Comparison, Standing
from specbench_client.analysis.compare.cells import Row, compare
from specbench_client.analysis.compare.estimate import TAIL
from specbench_client.analysis.compare.metrics import SHOWN, Wanted
from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.holm import rejected

APART = (
    "The two results were measured at different times: what differs from day to day, or from node to node, is in the"
    " ratios of times and throughput and in no interval. A speed-up is spared most of it, being divided by the baseline"
    " of its own run."
)


def comparison(before: Result, after: Result, created: str) -> Comparison:
    """Compare all that is shown. `created`: RFC 3339. Better and worse hold after Holm's correction over all."""
    found = compare(before, after, [Wanted(figure) for figure in SHOWN])
    standings = standings_of(found.rows)
    return Comparison(
        created=created,
        before=before.side,
        after=after.side,
        differences=found.differences,
        refused=found.refused,
        cells=[row.compared(standing) for row, standing in zip(found.rows, standings, strict=True)],
        uncompared=found.uncompared,
        limits=[APART],
    )


def standings_of(rows: Sequence[Row]) -> list[Standing]:
    """What can be said of each, two-sided."""
    clear = rejected([row.told.p_two_sided() if row.told else None for row in rows], 1 - LEVEL)
    return [_standing(row, clear=is_clear) for row, is_clear in zip(rows, clear, strict=True)]


def _standing(row: Row, *, clear: bool) -> Standing:
    if row.found.estimate is None:
        return Standing.NO_INTERVAL
    if row.told is None:
        return Standing.TOO_FEW_REPEATS
    if row.told.low(1 - TAIL) <= 0 <= row.told.high(1 - TAIL):
        return Standing.INDISTINGUISHABLE
    if not clear:
        return Standing.UNCLEAR
    return Standing.BETTER if (row.told.value > 0) == row.figure.more_is_better else Standing.WORSE
