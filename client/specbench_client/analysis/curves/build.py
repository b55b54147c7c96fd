"""Builds curves over one axis: points with their conclusions, and crossovers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.stored_result import CellKey, StoredResult
from specbench_client.analysis.curves.axes import AXIS_KINDS, CONCURRENCY, AxisKind, CurveCell
from specbench_client.analysis.curves.crossover import MeasuredPlace, find_crossover
from specbench_client.analysis.estimates.speedups import (
    OVER_PAIRS,
    SPEEDUP,
    PairedSpeedup,
    paired_speedup,
    sum_pairs,
)
from specbench_client.analysis.statistics.effects import Effect, log_ratio
from specbench_client.analysis.statistics.significance import verdicts
from specbench_client.documents.curves import Crossover, CurvePoint, Curves, SpeedupCurve
from specbench_client.documents.figure import Figure, Verdict
from specbench_client.metrics.acceptance import EMITTED_POOLED, limit_to_drafts
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import Table, collect_tables
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import TextCodes, Values


def build_curves(by: str, result: StoredResult) -> Curves:
    """Build all curves of a run over one axis. `by`: a name of AXIS_KINDS."""
    kind = AXIS_KINDS[by]
    groups, left_out = group_cells(kind, result)
    found = list(zip(groups, measured_samples(kind, result, groups), strict=True))
    found.sort(key=lambda each: -len(each[1]))
    effects = [each.compared.effect for _, points in found for each in points]
    words = iter(verdicts(effects))
    return Curves(
        axis=by,
        unit=kind.axis.unit,
        simulated=result.summary.simulated,
        curves=[_curve(kind, cells, points, [next(words) for _ in points]) for cells, points in found],
        comparisons=sum(each is not None and each.supports_claim for each in effects),
        left_out=left_out,
        limit=kind.limit,
    )


def _curve(
    kind: AxisKind, cells: Sequence[CurveCell], points: Sequence[MeasuredSample], words: Sequence[Verdict]
) -> SpeedupCurve:
    return SpeedupCurve(
        title=_title(kind, cells),
        points=[_point(each, word) for each, word in zip(points, words, strict=True)],
        crossover=_crossover(kind, points, words),
    )


def _point(found: MeasuredSample, word: Verdict) -> CurvePoint:
    return CurvePoint(
        place=found.place,
        label=found.label,
        arm=", ".join(dict.fromkeys(cell.arm.name for cell in found.cells)),
        workload=", ".join(dict.fromkeys(cell.workload.name for cell in found.cells)),
        pairs=found.pairs,
        speedup=found.compared.figure,
        conclusion=word,
        acceptance_length=_length_figure(found.length, found.drafts),
    )


def _length_figure(length: Effect | None, drafts: int) -> Figure:
    """Return an acceptance length; its interval is limited to 1 … drafts + 1, which its method then states."""
    if length is None:
        return Figure(unit="tokens/step", definition=LENGTH_DEFINITION, n=0, source="both")
    (ratio,) = limit_to_drafts([EMITTED_POOLED], drafts)
    return length.figure(LENGTH_DEFINITION, "tokens/step").within(ratio.lowest, ratio.highest)


def _crossover(kind: AxisKind, points: Sequence[MeasuredSample], words: Sequence[Verdict]) -> Crossover:
    rungs, left_out = [], []
    for each, word in zip(points, words, strict=True):
        effect = each.compared.effect
        if effect is not None and effect.supports_claim:
            rungs.append(MeasuredPlace(each.place, effect))
        else:
            left_out.append(f"{kind.axis.words(each.place)}: {word}")
    return find_crossover(kind.axis, rungs, left_out, points[0].seed)


def _title(kind: AxisKind, cells: Sequence[CurveCell]) -> str:
    arms = ", ".join(dict.fromkeys(cell.arm.name for cell in cells))
    workloads = ", ".join(dict.fromkeys(cell.workload.name for cell in cells))
    load = "" if kind.axis is CONCURRENCY else f" at {cells[0].level.words}"
    return f"{arms} on {workloads}{load}"


# The pairs with the baseline at each place of a curve, and what is measured over them.
#
# On a declared axis (temperature, draft length, load) the place belongs to a whole cell. On a measured axis (a
# length) it belongs to each request: requests are sorted into classes around 1,024, 2,048, … (from 2^(k − 1/2) to
# 2^(k + 1/2)), so that prompts of a nominal length are in one class with any tokenizer. A class pools the curve's
# cells with different prompts or different limits.
#
# Many rows are on disk. In memory are the pairs of one cell, on a measured axis those of one curve: 8 bytes each.


LENGTH_DEFINITION = f"Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps of the arm, {OVER_PAIRS}"


@dataclass(frozen=True)
class MeasuredSample:
    """Speed-up and acceptance length at one place. `length`: None if the engine does not report its steps."""

    place: float
    label: str
    cells: Sequence[CurveCell]
    """Where its pairs come from."""
    pairs: int
    compared: PairedSpeedup
    length: Effect | None

    @property
    def seed(self) -> int:
        """Seed of its resamples."""
        return self.cells[0].workload.sampling.seed

    @property
    def drafts(self) -> int:
        """Largest number of draft tokens per step of its arms."""
        return max(cell.arm.most_drafts for cell in self.cells)


def group_cells(kind: AxisKind, result: StoredResult) -> tuple[list[list[CurveCell]], list[str]]:
    """Return the cells of each curve, and the cells that are in none, with the reason."""
    left_out: list[str] = []
    found: dict[tuple[object, ...], list[CurveCell]] = {}
    for each in result.summary.cells:
        if each.arm == BASELINE_NAME:
            continue
        cell = CurveCell(result.plan.arm(each.arm), result.plan.workload(each.workload), each.level)
        why = why_unusable(result, cell)
        if not why and kind.place is not None and kind.place(cell) is None:
            why = f"it has no {kind.axis.words()}"
        if why:
            left_out.append(f"{cell.words}: {why}")
        else:
            found.setdefault(kind.alike(cell), []).append(cell)
    return list(found.values()), left_out


def why_unusable(result: StoredResult, cell: CurveCell) -> str:
    """Return why a cell cannot be part of a curve; empty if it can."""
    measured = result.cells_by_key[cell.key]
    if why := measured.why_not_compared(result.summary.findings):
        return why
    return "" if all(map(result.points_of, (cell.key, baseline_of(cell)))) else "its records are gone"


def baseline_of(cell: CurveCell) -> CellKey:
    """Return the key of the baseline at the cell's workload and load."""
    return BASELINE_NAME, cell.workload.name, cell.level.label


def measured_samples(
    kind: AxisKind, result: StoredResult, groups: Sequence[Sequence[CurveCell]]
) -> list[list[MeasuredSample]]:
    """Return the samples of each curve, the smallest place first; on a declared axis one per cell."""
    if kind.place is None:
        return [list(_by_class(kind, result, cells)) for cells in groups]
    slots: dict[CellKey, list[CurveCell]] = {}
    for cell in (cell for cells in groups for cell in cells):
        slots.setdefault(baseline_of(cell), []).append(cell)
    found: dict[CellKey, MeasuredSample] = {}
    for key, cells in slots.items():
        baseline = rows_of(result, key)
        for cell in cells:
            place = kind.place(cell)
            assert place is not None, "a cell without a place is in no group"
            pairs = pair_requests(rows_of(result, cell.key), baseline, result.plan)
            found[cell.key] = _measured(place, f"{place:g}", [cell], pairs)
    return [sorted((found[cell.key] for cell in cells), key=lambda sample: sample.place) for cells in groups]


def rows_of(result: StoredResult, key: CellKey) -> Table:
    """Return the tidy rows of a cell."""
    return result.rows_of(result.points_of(key))


def _measured(place: float, label: str, cells: Sequence[CurveCell], pairs: Pairs) -> MeasuredSample:
    """Measure speed-up and acceptance length over the same pairs."""
    seed = cells[0].workload.sampling.seed
    length = log_ratio(sum_pairs(pairs, 2, _length_parts), (1, -1), seed)
    return MeasuredSample(place, label, cells, len(pairs), paired_speedup(SPEEDUP, pairs, seed), length)


def _length_parts(arm: Table, _: Table) -> list[Values]:
    steps = numbers(arm, "steps")
    later = numbers(arm, "tokens") - 1
    return [np.where(later >= 1, later, np.nan), np.where(steps >= 1, steps, np.nan)]


def _by_class(kind: AxisKind, result: StoredResult, cells: Sequence[CurveCell]) -> Iterator[MeasuredSample]:
    pairs = [
        pair_requests(rows_of(result, cell.key), rows_of(result, baseline_of(cell)), result.plan) for cell in cells
    ]
    datasets = [each.dataset for each in result.plan.workloads]
    classes = [_classes(numbers(each.baseline, kind.column)) for each in pairs]
    for number in np.unique(np.concatenate(classes)):
        if number >= 0:
            inside = [each.among(mine == number) for each, mine in zip(pairs, classes, strict=True)]
            sources = [(cell, each) for cell, each in zip(cells, inside, strict=True) if len(each)]
            pooled = _pooled([(f"{datasets.index(cell.workload.dataset)}/", each) for cell, each in sources])
            place = float(np.exp(np.log(numbers(pooled.baseline, kind.column)).mean()))
            yield _measured(place, f"about {2 ** int(number):,.0f}", [cell for cell, _ in sources], pooled)


def _classes(lengths: Values) -> NDArray[np.int8]:
    """Return the class of each length, shape (pairs,): the nearest power of 2; −1 if the length is not known."""
    known = lengths >= 1
    return np.where(known, np.round(np.log2(np.where(known, lengths, 1.0))), -1.0).astype(np.int8)


_POOLED = ("repeat", "category", "input_tokens", "tokens", "timed_tokens", "steps", "intended_ns", "last_token_ns")
"""Columns that are read of pooled pairs, besides the prompt."""


def _pooled(cells: Sequence[tuple[str, Pairs]]) -> Pairs:
    """Return the pairs of several cells, each with a prefix for its prompts: other datasets have other prompts."""
    arm, baseline = (
        collect_tables(
            piece.table(_POOLED).assign(prompt_id=_prefixed(prefix, piece.codes("prompt_id")))
            for prefix, pairs in cells
            for piece in (pairs.arm if side == "arm" else pairs.baseline).pieces()
        )
        for side in ("arm", "baseline")
    )
    alternating, anytime = all(each.alternating for _, each in cells), any(each.anytime for _, each in cells)
    return Pairs(arm, baseline, len(arm), 0, alternating, anytime)


def _prefixed(prefix: str, column: TextCodes) -> TextCodes:
    return TextCodes(column.codes, np.array([f"{prefix}{text}" for text in column.texts], dtype=np.object_))
