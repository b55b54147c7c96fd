"""Every cell that two results share, figure by figure; and those that they do not share, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.comparison import Compared, Difference, LackReason, Standing, Uncompared
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import REPEATS_TO_TELL, Cell
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.differences import differences, other_work, refusals
from specbench_client.analysis.compare.estimate import TAIL, Estimate
from specbench_client.analysis.compare.figures import IN_COMMON, Found, Measured
from specbench_client.analysis.compare.metrics import Comparable, Wanted, of_summaries
from specbench_client.analysis.compare.result import CellKey, Result
from specbench_client.analysis.estimates.rows import rows_of
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.metrics.pairing import pair

Slot = tuple[str, str]
"""Workload and load level's label: arms of one slot are compared with one another."""


@dataclass(frozen=True)
class Row:
    """One figure of one cell on both sides."""

    key: CellKey
    figure: Comparable
    found: Found

    @property
    def told(self) -> Estimate | None:
        """The estimate, where enough repeats lie behind it to hold what runs do."""
        return self.found.estimate if min(self.found.repeats) >= REPEATS_TO_TELL else None

    def compared(self, standing: Standing) -> Compared:
        """As documents have it."""
        found, (arm, workload, load) = self.found, self.key
        definition = f"after / before of: {self.figure.definition}; {IN_COMMON}"
        return Compared(
            arm=arm,
            workload=workload,
            load=load,
            metric=self.figure.label,
            unit=self.figure.unit,
            before=found.before,
            after=found.after,
            ratio=Figure(
                value=found.after / found.before,
                unit="ratio",
                definition=definition,
                n=found.units,
                interval=_interval(self.told),
                source="both",
            ),
            more_is_better=self.figure.more_is_better,
            standing=standing,
            repeats=found.repeats,
        )


@dataclass(frozen=True)
class Compares:
    """All that was found. `rows`: in the order of the wanted figures within each cell."""

    differences: list[Difference]
    refused: list[str]
    rows: list[Row]
    uncompared: list[Uncompared]


def compare(before: Result, after: Result, wanted: Sequence[Wanted]) -> Compares:
    """Compare two results. Records are asked for one workload × load after the other."""
    found = Compares(differences(before, after), refusals(before, after), [], [])
    if found.refused:
        return found
    usable: dict[Slot, list[CellKey]] = {}
    for key, lack in _cells(before, after).items():
        if lack is None:
            usable.setdefault(key[1:], []).append(key)
        else:
            found.uncompared.append(lack)
    each = [one for keys in usable.values() for one in _slot(before, after, keys, wanted)]
    found.rows.extend(one for one in each if isinstance(one, Row))
    found.uncompared.extend(one for one in each if isinstance(one, Uncompared))
    if not found.rows and not any(each.reason in _SPOILT for each in found.uncompared):
        found.refused.append("they have no cell (arm × workload × load) in common that could be compared")
    return found


_SPOILT = (LackReason.INVALID, LackReason.NOTHING_SHARED)
"""Of a cell that both results have and that is the same work: the question is one, its answer is lacking."""


def _cells(before: Result, after: Result) -> dict[CellKey, Uncompared | None]:
    """Each cell of either side, with why it cannot be compared; None where it can."""
    old, new = before.cells, after.cells
    shared = {key[1] for key in old} & {key[1] for key in new}
    other = {workload: other_work(before, after, workload) for workload in shared}
    return {key: _lack(key, old.get(key), new.get(key), other) for key in dict.fromkeys([*old, *new])}


def _lack(key: CellKey, before: Cell | None, after: Cell | None, other: Mapping[str, str]) -> Uncompared | None:
    if before is None or after is None:
        side, reason = ("earlier", LackReason.MISSING_BEFORE) if before is None else ("later", LackReason.MISSING_AFTER)
        return _uncompared(key, reason, f"the {side} result does not have it")
    if other[key[1]]:
        return _uncompared(key, LackReason.OTHER_WORK, other[key[1]])
    for side, cell in (("earlier", before), ("later", after)):
        if not cell.valid:
            return _uncompared(key, LackReason.INVALID, f"invalid in the {side} result: {', '.join(cell.findings)}")
    return None


def _slot(
    before: Result, after: Result, keys: Sequence[CellKey], wanted: Sequence[Wanted]
) -> Iterator[Row | Uncompared]:
    """The cells of one workload and load."""
    sides = [_Side(result, keys[0][1:]) for result in (before, after)]
    for key in keys:
        mine = [each for each in wanted if each.wants(key[0], key[1], is_baseline=key[0] == BASELINE_NAME)]
        for figure in dict.fromkeys(each.figure for each in mine):
            found = _found(sides[0], sides[1], key, figure)
            if found is None:
                yield _uncompared(key, LackReason.NOTHING_SHARED, _NOTHING, figure.label)
            else:
                yield Row(key, figure, found)


_NOTHING = "no request of the one result has a partner in the other, or the figure was not to be had on one side"


class _Side:
    """One result's cells of one workload and load; rows are read once, and paired once."""

    def __init__(self, result: Result, slot: Slot) -> None:
        self.result = result
        self._slot = slot
        self._rows: dict[str, pd.DataFrame | None] = {}
        self._measured: dict[str, Measured | None] = {}

    @property
    def seed(self) -> int:
        return self.result.plan.workload(self._slot[0]).sampling.seed

    def measured(self, arm: str) -> Measured | None:
        """The arm's rows and pairs; None where its records are not there."""
        if arm not in self._measured:
            rows = self._of(arm)
            baseline = self._of(BASELINE_NAME) if arm != BASELINE_NAME else None
            pairs = None if rows is None or baseline is None else pair(rows, baseline)
            self._measured[arm] = None if rows is None else Measured(rows, pairs)
        return self._measured[arm]

    def _of(self, arm: str) -> pd.DataFrame | None:
        if arm not in self._rows:
            points = self.result.points_of((arm, *self._slot))
            self._rows[arm] = rows_of(self.result.plan, points, self.result.records) if points else None
        return self._rows[arm]


def _found(before: _Side, after: _Side, key: CellKey, figure: Comparable) -> Found | None:
    """From the records, or, where a side has none, from the summaries."""
    old, new = before.measured(key[0]), after.measured(key[0])
    if old is not None and new is not None:
        return figure.compare(old, new, after.seed)
    cells = [side.result.cells[key] for side in (before, after)]
    repeats = [len(cell.points) for cell in cells]
    return of_summaries(figure.in_cell(cells[0]), figure.in_cell(cells[1]), (repeats[0], repeats[1]))


def _uncompared(key: CellKey, reason: LackReason, message: str, metric: str = "") -> Uncompared:
    arm, workload, load = key
    return Uncompared(arm=arm, workload=workload, load=load, metric=metric, reason=reason, message=message)


def _interval(estimate: Estimate | None) -> FigureInterval | None:
    if estimate is None:
        return None
    low, high = (float(np.exp(bound)) for bound in (estimate.low(1 - TAIL), estimate.high(1 - TAIL)))
    return FigureInterval(low=low, high=high, level=LEVEL, method=f"{estimate.method}, on the log ratio")
