"""Comparison of two results: the verdict on every figure of every cell that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.comparability import differences, refusals, workload_difference
from specbench_client.analysis.compare.effects import IN_COMMON, FigureOnBothSides, compare_summaries
from specbench_client.analysis.compare.metrics import SHOWN_METRICS, ComparableMetric, MetricSelection
from specbench_client.analysis.compare.shared_requests import ComparedArm, MeasuredArm
from specbench_client.analysis.compare.stored_result import CellKey, StoredResult
from specbench_client.analysis.statistics.effects import Effect
from specbench_client.analysis.statistics.significance import verdicts
from specbench_client.documents.comparison import (
    ComparedFigure,
    Comparison,
    ComparisonGap,
    ComparisonGapReason,
    Difference,
)
from specbench_client.documents.figure import Figure, Verdict
from specbench_client.documents.finding import doubting_checks
from specbench_client.documents.summary import Cell
from specbench_client.metrics.pairing import pair_requests
from specbench_client.metrics.rows import Table

SlotKey = tuple[str, str]
"""Workload and load level's label: arms of one slot are compared with each other."""


@dataclass(frozen=True)
class ComparisonRow:
    """One figure of one cell on both sides."""

    key: CellKey
    figure: ComparableMetric
    result: FigureOnBothSides

    @property
    def improvement(self) -> Effect:
        """The effect, above 1 if the later result is better."""
        return self.result.effect if self.figure.more_is_better else self.result.effect.inverted()

    def compared(self, verdict: Verdict) -> ComparedFigure:
        """Return the row as it is in documents."""
        result, effect, (arm, workload, load) = self.result, self.result.effect, self.key
        definition = f"after / before of: {self.figure.definition}; {IN_COMMON}"
        return ComparedFigure(
            arm=arm,
            workload=workload,
            load=load,
            metric=self.figure.label,
            unit=self.figure.unit,
            before=result.before,
            after=result.after,
            ratio=Figure(
                value=result.after / result.before,
                unit="ratio",
                definition=definition,
                n=effect.units,
                interval=effect.interval() if effect.supports_claim else None,
                missing=effect.missing,
                source="both",
            ),
            more_is_better=self.figure.more_is_better,
            conclusion=verdict,
            repeats=result.repeats,
        )


@dataclass(frozen=True)
class ResultComparison:
    """The result of a comparison. `rows` are in the order of the selected figures within each cell."""

    differences: list[Difference]
    refused: list[str]
    rows: list[ComparisonRow]
    uncompared: list[ComparisonGap]


def compare_results(
    before: StoredResult, after: StoredResult, selections: Sequence[MetricSelection]
) -> ResultComparison:
    """Compare two results, reading the records of one workload × load at a time."""
    result = ResultComparison(differences(before, after), refusals(before, after), [], [])
    if result.refused:
        return result
    usable: dict[SlotKey, list[CellKey]] = {}
    for key, gap in _cells(before, after).items():
        if gap is None:
            usable.setdefault(key[1:], []).append(key)
        else:
            result.uncompared.append(gap)
    each = [one for keys in usable.values() for one in _compare_slot(before, after, keys, selections)]
    result.rows.extend(one for one in each if isinstance(one, ComparisonRow))
    result.uncompared.extend(one for one in each if isinstance(one, ComparisonGap))
    if not result.rows and not any(each.reason in _COMPARABLE_GAPS for each in result.uncompared):
        result.refused.append("the results share no cell (arm × workload × load) that can be compared")
    return result


_COMPARABLE_GAPS = (ComparisonGapReason.INVALID, ComparisonGapReason.NOTHING_SHARED)
"""Reasons for which a cell with the same work in both results has no row: it is comparable, but has no answer."""


def _cells(before: StoredResult, after: StoredResult) -> dict[CellKey, ComparisonGap | None]:
    """Each cell of either side, with the reason why it cannot be compared, or None."""
    old, new = before.cells_by_key, after.cells_by_key
    shared = {key[1] for key in old} & {key[1] for key in new}
    other = {workload: workload_difference(before, after, workload) for workload in shared}
    invalid = {
        key: f"{cell.why_invalid(result.summary.findings)} in the {side} result"
        for side, result in (("later", after), ("earlier", before))
        for key, cell in result.cells_by_key.items()
        if not cell.valid
    }
    return {
        key: _gap(key, old.get(key), new.get(key), other, invalid.get(key, "")) for key in dict.fromkeys([*old, *new])
    }


def _gap(
    key: CellKey, before: Cell | None, after: Cell | None, other: Mapping[str, str], invalid: str
) -> ComparisonGap | None:
    if before is None or after is None:
        side, reason = (
            ("earlier", ComparisonGapReason.MISSING_BEFORE)
            if before is None
            else ("later", ComparisonGapReason.MISSING_AFTER)
        )
        missing = f"the {side} result does not have this cell"
        return _make_gap(key, reason, "; ".join(filter(None, [missing, other.get(key[1])])))
    if other[key[1]]:
        return _make_gap(key, ComparisonGapReason.OTHER_WORK, "; ".join(filter(None, [other[key[1]], invalid])))
    return _make_gap(key, ComparisonGapReason.INVALID, invalid) if invalid else None


def _compare_slot(
    before: StoredResult, after: StoredResult, keys: Sequence[CellKey], selections: Sequence[MetricSelection]
) -> Iterator[ComparisonRow | ComparisonGap]:
    """Compare the cells of one workload and load."""
    sides = [_Side(result, keys[0][1:]) for result in (before, after)]
    for key in keys:
        selected = [each for each in selections if each.includes(key[0], key[1], is_baseline=key[0] == BASELINE_NAME)]
        both = _compared_arm(sides[0], sides[1], key[0]) if selected else None
        for figure in dict.fromkeys(each.figure for each in selected):
            result = _compare_figure(sides[0], sides[1], key, figure, both)
            if result is None:
                message = _why_missing(figure, before.cells_by_key[key], after.cells_by_key[key])
                yield _make_gap(key, ComparisonGapReason.NOTHING_SHARED, message, figure.label)
            else:
                yield ComparisonRow(key, figure, result)


def _why_missing(figure: ComparableMetric, before: Cell, after: Cell) -> str:
    """Distinguish a figure that a result does not have from one without a request that both results answered."""
    lacking = [
        side
        for side, cell in (("earlier", before), ("later", after))
        if (known := figure.in_cell(cell)) is None or known.value is None
    ]
    if lacking:
        return f"the {' and the '.join(lacking)} result {'have' if len(lacking) > 1 else 'has'} no value for it"
    return "too few requests that have it were answered in the steady state of both results"


class _Side:
    """One result's cells of one workload and load; the rows of an arm are read once, and one arm's pairs are kept."""

    def __init__(self, result: StoredResult, slot: SlotKey) -> None:
        self.result = result
        self._slot = slot
        self._rows: dict[str, Table | None] = {}

    @property
    def seed(self) -> int:
        return self.result.plan.workload(self._slot[0]).sampling.seed

    def measured(self, arm: str) -> MeasuredArm | None:
        """Return the arm's rows and pairs; None if its records are not stored."""
        rows = self._rows_of(arm)
        baseline = self._rows_of(BASELINE_NAME) if arm != BASELINE_NAME else None
        pairs = None if rows is None or baseline is None else pair_requests(rows, baseline, self.result.plan)
        return None if rows is None else MeasuredArm(rows, pairs)

    def _rows_of(self, arm: str) -> Table | None:
        if arm not in self._rows:
            points = self.result.points_of((arm, *self._slot))
            self._rows[arm] = self.result.rows_of(points) if points else None
        return self._rows[arm]


def _compared_arm(before: _Side, after: _Side, arm: str) -> ComparedArm | None:
    """Return the arm's requests on both sides; None if a side has no records."""
    old, new = before.measured(arm), after.measured(arm)
    return None if old is None or new is None else ComparedArm(old, new)


def _compare_figure(
    before: _Side, after: _Side, key: CellKey, figure: ComparableMetric, both: ComparedArm | None
) -> FigureOnBothSides | None:
    """Compare from the records, or, if a side has none, from the summaries."""
    cells = [side.result.cells_by_key[key] for side in (before, after)]
    known = [figure.in_cell(cell) for cell in cells]
    if any(each is not None and each.value is None for each in known):
        return None
    if both is not None:
        return figure.compare(both, after.seed)
    return compare_summaries(known[0], known[1], (len(cells[0].points), len(cells[1].points)))


def _make_gap(key: CellKey, reason: ComparisonGapReason, message: str, metric: str = "") -> ComparisonGap:
    arm, workload, load = key
    return ComparisonGap(arm=arm, workload=workload, load=load, metric=metric, reason=reason, message=message)


SHARED = (
    "Before and after are over the requests that both results answered, each of which counts equally, and tpot is the"
    " mean over their tokens: a report has all requests of its run and medians, and may show other figures."
)
APART = (
    "The two results were measured at different times. Ratios of times and throughput include differences between days"
    " or nodes, and no interval covers them. A speed-up is hardly affected, because it is relative to the baseline of"
    " its own run."
)


def comparison(before: StoredResult, after: StoredResult, created: str) -> Comparison:
    """Compare all shown figures; verdicts are after Holm's correction over all of them. `created` is in RFC 3339."""
    doubts = [
        f"The {side} result is not trustworthy: {', '.join(doubting_checks(each.summary.findings))}."
        for side, each in (("earlier", before), ("later", after))
        if not each.summary.trustworthy
    ]
    result = compare_results(before, after, [MetricSelection(figure) for figure in SHOWN_METRICS])
    are_alike = before.summary.name == after.summary.name and before.summary.uid != after.summary.uid
    runs = Difference(name="run", before=before.summary.uid, after=after.summary.uid)
    return Comparison(
        created=created,
        before=before.side,
        after=after.side,
        differences=[*([runs] if are_alike else []), *result.differences],
        refused=result.refused,
        cells=[row.compared(verdict) for row, verdict in zip(result.rows, change_verdicts(result.rows), strict=True)],
        uncompared=result.uncompared,
        limits=[*doubts, SHARED, *([] if before.summary.uid == after.summary.uid else [APART])],
    )


def change_verdicts(rows: Sequence[ComparisonRow]) -> list[Verdict]:
    """Return the two-sided verdict on each row."""
    return verdicts([row.improvement for row in rows], Verdict.BETTER, Verdict.WORSE)
