"""Builds curves over one axis: points with their conclusions, and crossovers."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.crossover import Crossover
from specbench_api.outcome.figure import Verdict
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.axes import AXIS_KINDS, CONCURRENCY, AxisKind, CurveCell
from specbench_client.analysis.curves.crossover import MeasuredPlace, find_crossover
from specbench_client.analysis.curves.samples import LENGTH_DEFINITION, MeasuredSample, group_cells, measured_samples
from specbench_client.analysis.estimates.break_even import length_figure
from specbench_client.analysis.statistics.effects import verdicts
from specbench_client.documents.curves import CurvePoint, Curves, SpeedupCurve


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
        acceptance_length=length_figure(found.length, LENGTH_DEFINITION, found.drafts),
    )


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
