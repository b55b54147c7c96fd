"""Builds curves over one axis: points with their conclusions, crossovers, and predictions at requested places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.crossover import Crossover
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import SpeedupConclusion
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.axes import AXIS_KINDS, CONCURRENCY, AxisKind, CurveAxis, CurveCell
from specbench_client.analysis.curves.crossover import MeasuredPlace, find_crossover, joint_replicates
from specbench_client.analysis.curves.samples import LENGTH_DEFINITION, MeasuredSample, group_cells, measured_samples
from specbench_client.analysis.estimates.break_even import length_figure
from specbench_client.analysis.estimates.speedups import conclusion
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.intervals import percentile_interval
from specbench_client.analysis.statistics.log_ratio import LogRatio
from specbench_client.analysis.statistics.p_values import holm_rejections
from specbench_client.documents.curves import CurveAnswerBasis, CurvePoint, CurvePrediction, Curves, SpeedupCurve

INTERPOLATED_LIMIT = "Between two measured points the curve is interpolated linearly, not measured."


def build_curves(by: str, result: StoredResult, at: Sequence[float] = ()) -> Curves:
    """Build all curves of a run over one axis. `by`: a name of AXIS_KINDS. `at`: places to predict."""
    kind = AXIS_KINDS[by]
    groups, left_out = group_cells(kind, result)
    found = list(zip(groups, measured_samples(kind, result, groups), strict=True))
    found.sort(key=lambda each: -len(each[1]))
    p_values = [each.compared.p_value for _, points in found for each in points]
    clear = iter(holm_rejections(p_values, 1 - LEVEL))
    return Curves(
        axis=by,
        unit=kind.axis.unit,
        simulated=result.summary.simulated,
        curves=[_curve(kind, cells, points, [next(clear) for _ in points], at) for cells, points in found],
        comparisons=sum(value is not None for value in p_values),
        left_out=left_out,
        limits=[INTERPOLATED_LIMIT, kind.limit],
    )


def _curve(
    kind: AxisKind,
    cells: Sequence[CurveCell],
    points: Sequence[MeasuredSample],
    clear: Sequence[bool],
    at: Sequence[float],
) -> SpeedupCurve:
    """Return one curve. `clear`: whether each speed-up is significant after correction; `at`: places to predict."""
    words = [
        conclusion(each.compared.figure, each.compared.p_value, clear=is_clear)
        for each, is_clear in zip(points, clear, strict=True)
    ]
    return SpeedupCurve(
        title=_title(kind, cells),
        points=[_point(each, word) for each, word in zip(points, words, strict=True)],
        crossover=_crossover(kind, points, words),
        predictions=[predict_at(kind.axis, points, place) for place in at],
    )


def _point(found: MeasuredSample, word: SpeedupConclusion) -> CurvePoint:
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


def _crossover(kind: AxisKind, points: Sequence[MeasuredSample], words: Sequence[SpeedupConclusion]) -> Crossover:
    rungs, left_out = [], []
    for each, word in zip(points, words, strict=True):
        ratio = each.compared.ratio
        if ratio is not None and ratio.supports_claim:
            rungs.append(MeasuredPlace(each.place, ratio))
        else:
            left_out.append(f"{kind.axis.words(each.place)}: {word}")
    return find_crossover(kind.axis, rungs, left_out, points[0].seed)


def _title(kind: AxisKind, cells: Sequence[CurveCell]) -> str:
    arms = ", ".join(dict.fromkeys(cell.arm.name for cell in cells))
    workloads = ", ".join(dict.fromkeys(cell.workload.name for cell in cells))
    load = "" if kind.axis is CONCURRENCY else f" at {cells[0].level.words}"
    return f"{arms} on {workloads}{load}"


# A requested place is answered from a measurement, by interpolation between its neighbours, or not at all. Between two
# places the log of the figure is assumed to be straight over the axis's scale. The interval is that of the neighbours'
# joint replicates on this line: it contains their noise, but no deviation of the curve from the line.

SAME = 1e-9
"""Relative distance below which two places are one."""


def predict_at(axis: CurveAxis, points: Sequence[MeasuredSample], place: float) -> CurvePrediction:
    """Predict speed-up and acceptance length at one place. `points`: at least one, the smallest first."""
    here = next((each for each in points if abs(each.place - place) <= SAME * max(1.0, abs(place))), None)
    if here is not None:
        length = length_figure(here.length, LENGTH_DEFINITION, here.drafts)
        return _of(axis, place, CurveAnswerBasis.MEASURED, [here], (here.compared.figure, length))
    below = [each for each in points if each.place < place]
    above = [each for each in points if each.place > place]
    if not below or not above:
        return _refused(axis, points, place)
    ends = (below[-1], above[0])
    return _of(axis, place, CurveAnswerBasis.INTERPOLATED, ends, _between(axis, ends, place))


def _between(
    axis: CurveAxis, ends: tuple[MeasuredSample, MeasuredSample], place: float
) -> tuple[Figure | None, Figure | None]:
    low, high, here = (float(axis.scaled(np.array([each]))[0]) for each in (ends[0].place, ends[1].place, place))
    share = (here - low) / (high - low)
    seed = ends[0].seed
    speedups, lengths = [each.compared.ratio for each in ends], [each.length for each in ends]
    return (
        _interpolated(speedups, share, seed, ("ratio", "Speed-up")),
        _interpolated(lengths, share, seed, ("tokens/step", "Acceptance length, emitted and pooled")),
    )


def _interpolated(ends: Sequence[LogRatio | None], share: float, seed: int, what: tuple[str, str]) -> Figure | None:
    known = [each for each in ends if each is not None]
    if len(known) < len(ends):
        return None
    weights = np.array([1 - share, share])
    value = float(np.dot(weights, [each.value for each in known]))
    interval = None
    if all(each.supports_claim for each in known):
        samples = joint_replicates(known, seed) @ weights
        method = "interpolated: percentiles of both neighbours' joint replicates on the straight line between them"
        logs = percentile_interval(samples[np.isfinite(samples)], method)
        interval = logs.model_copy(update={"low": float(np.exp(logs.low)), "high": float(np.exp(logs.high))})
    unit, words = what
    return Figure(
        value=float(np.exp(value)),
        unit=unit,
        definition=f"{words}, interpolated: its log on the straight line between the two measured neighbours",
        n=min(each.prompts for each in known),
        interval=interval,
        source="both",
    )


def _of(
    axis: CurveAxis,
    place: float,
    basis: CurveAnswerBasis,
    ends: Sequence[MeasuredSample],
    figures: tuple[Figure | None, Figure | None],
) -> CurvePrediction:
    between = [each.place for each in ends]
    speedup, length = figures
    where = f"between {axis.words(between[0])} and {axis.words(between[-1])}" if len(between) > 1 else "there"
    return CurvePrediction(
        place=place,
        basis=basis,
        between=between,
        speedup=speedup,
        acceptance_length=length if length is not None and length.value is not None else None,
        message=f"{axis.words(place)}: {basis} {where}",
    )


def _refused(axis: CurveAxis, points: Sequence[MeasuredSample], place: float) -> CurvePrediction:
    first, last = (axis.words(points[end].place) for end in (0, -1))
    measured = f"{first} alone" if len(points) == 1 else f"{first} to {last}"
    message = f"{axis.words(place)}: no prediction, it is outside the measured range ({measured}): measure it there"
    return CurvePrediction(place=place, basis=CurveAnswerBasis.REFUSED, message=message)
