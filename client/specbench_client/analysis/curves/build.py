"""Builds curves over one axis: points with their conclusions, crossovers, and predictions at requested places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.crossover import Crossover
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import SpeedupConclusion
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.curves.axes import AXIS_KINDS, AxisKind, CurveAxis
from specbench_client.analysis.curves.crossover import MeasuredPlace, find_crossover, joint_replicates
from specbench_client.analysis.curves.grouping import (
    NOT_KNOWN,
    CellGroup,
    CurveCell,
    dataset_of,
    group_cells,
    group_differences,
)
from specbench_client.analysis.estimates.break_even import length_figure
from specbench_client.analysis.estimates.point_rows import load_rows
from specbench_client.analysis.estimates.speedups import (
    OVER_PAIRS,
    SPEEDUP,
    PairedSpeedup,
    complete_pairs,
    conclusion,
    paired_speedup,
)
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.intervals import percentile_interval
from specbench_client.analysis.statistics.log_ratio import LogRatio, log_ratio
from specbench_client.analysis.statistics.p_values import holm_rejections
from specbench_client.documents.curves import (
    CurveAnswerBasis,
    CurveExclusion,
    CurvePoint,
    CurvePrediction,
    Curves,
    SpeedupCurve,
)
from specbench_client.metrics.decode_speed import later_tokens
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs, pair_requests
from specbench_client.metrics.tidy_frame import Mask, Values, numbers

LIMITS = (
    "Each speed-up is over the baseline of its own run; the runs of one curve were measured at different times.",
    "Between two measured points the curve is interpolated linearly, not measured.",
)


def build_curves(
    by: str, results: Sequence[StoredResult], left_out: Sequence[CurveExclusion], created: str, at: Sequence[float]
) -> Curves:
    """Build all curves over one axis.

    `by`: a name of AXIS_KINDS. `left_out`: runs that could not be read. `created`: RFC 3339. `at`: places to predict.
    """
    kind = AXIS_KINDS[by]
    groups, more = group_cells(kind, results)
    pairs = _pairs(groups)
    found = [
        (
            group,
            [
                measure_sample(sample)
                for sample in paired_samples(kind, [(cell, pairs[id(cell)]) for cell in group.cells])
            ],
        )
        for group in groups
    ]
    found.sort(key=lambda each: -len(each[1]))
    p_values = [each.compared.p_value for _, points in found for each in points]
    clear = iter(holm_rejections(p_values, 1 - LEVEL))
    drawn = [
        _curve(kind, group, points, [next(clear) for _ in points], group_differences(found[0][0], group), at=at)
        for group, points in found
    ]
    return Curves(
        created=created,
        axis=by,
        unit=kind.axis.unit,
        simulated=any(cell.result.summary.simulated for group in groups for cell in group.cells),
        curves=drawn,
        comparisons=sum(value is not None for value in p_values),
        left_out=[*left_out, *more],
        limits=[*LIMITS, kind.limit],
    )


def _pairs(groups: Sequence[CellGroup]) -> dict[int, Pairs]:
    """Return the pairs of every cell, by its id().

    The rows of one workload × load of one result are read at a time, and its baseline only once, to save memory.
    """
    slots: dict[tuple[int, str, str], list[CurveCell]] = {}
    for cell in (cell for group in groups for cell in group.cells):
        slots.setdefault((id(cell.result), *cell.key[1:]), []).append(cell)
    found: dict[int, Pairs] = {}
    for cells in slots.values():
        baseline = rows_in(cells[0].result, (BASELINE_NAME, *cells[0].key[1:]))
        found |= {id(cell): paired(cell, baseline) for cell in cells}
    return found


def _curve(
    kind: AxisKind,
    group: CellGroup,
    points: Sequence[MeasuredSample],
    clear: Sequence[bool],
    differs: Sequence[str],
    *,
    at: Sequence[float],
) -> SpeedupCurve:
    """Return one curve. `clear`: whether each speed-up is significant after correction; `at`: places to predict."""
    words = [
        conclusion(each.compared.figure, each.compared.p_value, clear=is_clear)
        for each, is_clear in zip(points, clear, strict=True)
    ]
    return SpeedupCurve(
        title=_title(kind, group.cells),
        same={name: value for name, value in group.same.items() if value != NOT_KNOWN},
        differs=list(differs),
        points=[_point(each, word) for each, word in zip(points, words, strict=True)],
        crossover=_crossover(kind, points, words),
        predictions=[predict_at(kind.axis, points, place) for place in at],
    )


def _point(found: MeasuredSample, word: SpeedupConclusion) -> CurvePoint:
    sample = found.sample
    return CurvePoint(
        place=sample.place,
        label=sample.label,
        arm=", ".join(dict.fromkeys(cell.arm.name for cell in sample.cells)),
        runs=list(dict.fromkeys(cell.result.uri for cell in sample.cells)),
        pairs=len(sample.pairs.rows),
        speedup=found.compared.figure,
        conclusion=word,
        acceptance_length=length_figure(found.length, LENGTH_DEFINITION, sample.drafts),
    )


def _crossover(kind: AxisKind, points: Sequence[MeasuredSample], words: Sequence[SpeedupConclusion]) -> Crossover:
    rungs, left_out = [], []
    for each, word in zip(points, words, strict=True):
        ratio = each.compared.ratio
        if ratio is not None and ratio.supports_claim:
            rungs.append(MeasuredPlace(each.sample.place, ratio))
        else:
            left_out.append(f"{kind.axis.words(each.sample.place)}: {word}")
    return find_crossover(kind.axis, rungs, left_out, points[0].seed)


def _title(kind: AxisKind, cells: Sequence[CurveCell]) -> str:
    arms = ", ".join(dict.fromkeys(cell.arm.name for cell in cells))
    workloads = ", ".join(dict.fromkeys(cell.workload.name for cell in cells))
    load = "" if "load" in kind.free else f" at {cells[0].level.words}"
    return f"{arms} on {workloads}{load}"


# A requested place is answered from a measurement, by interpolation between its neighbours, or not at all. Between two
# places the log of the figure is assumed to be straight over the axis's scale. The interval is that of the neighbours'
# joint replicates on this line: it contains their noise, but no deviation of the curve from the line.

SAME = 1e-9
"""Relative distance below which two places are one."""


def predict_at(axis: CurveAxis, points: Sequence[MeasuredSample], place: float) -> CurvePrediction:
    """Predict speed-up and acceptance length at one place. `points`: at least one, the smallest first."""
    here = next((each for each in points if abs(each.sample.place - place) <= SAME * max(1.0, abs(place))), None)
    if here is not None:
        length = length_figure(here.length, LENGTH_DEFINITION, here.sample.drafts)
        return _of(axis, place, CurveAnswerBasis.MEASURED, [here], (here.compared.figure, length))
    below = [each for each in points if each.sample.place < place]
    above = [each for each in points if each.sample.place > place]
    if not below or not above:
        return _refused(axis, points, place)
    ends = (below[-1], above[0])
    return _of(axis, place, CurveAnswerBasis.INTERPOLATED, ends, _between(axis, ends, place))


def _between(
    axis: CurveAxis, ends: tuple[MeasuredSample, MeasuredSample], place: float
) -> tuple[Figure | None, Figure | None]:
    low, high, here = (
        float(axis.scaled(np.array([each]))[0]) for each in (ends[0].sample.place, ends[1].sample.place, place)
    )
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
    between = [each.sample.place for each in ends]
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
    first, last = (axis.words(points[end].sample.place) for end in (0, -1))
    measured = f"{first} alone" if len(points) == 1 else f"{first} to {last}"
    message = f"{axis.words(place)}: no prediction, it is outside the measured range ({measured}): measure it there"
    return CurvePrediction(place=place, basis=CurveAnswerBasis.REFUSED, message=message)


# The pairs with the baseline at each place of a curve. On a declared axis (temperature, draft length, load) the place
# belongs to a whole cell. On a measured axis (a length) it belongs to each request: requests are sorted into classes
# around 1,024, 2,048, … (from 2^(k − 1/2) to 2^(k + 1/2)), so that prompts of a nominal length are in one class with
# any tokenizer. A class pools cells of the curve with different prompts or different limits.


@dataclass(frozen=True)
class PairedSample:
    """Pairs at one place of a curve. `cells`: where they come from."""

    place: float
    label: str
    pairs: Pairs
    cells: Sequence[CurveCell]

    @property
    def drafts(self) -> int:
        """Largest number of draft tokens per step of its arms."""
        return max(cell.arm.most_drafts for cell in self.cells)


def paired(cell: CurveCell, baseline: pd.DataFrame) -> Pairs:
    """Pair the cell's requests with these rows of the baseline."""
    return pair_requests(rows_in(cell.result, cell.key), baseline)


def rows_in(result: StoredResult, key: tuple[str, str, str]) -> pd.DataFrame:
    """Read the rows of a cell whose records are stored."""
    return load_rows(result.plan, result.points_of(key), result.records)


def paired_samples(kind: AxisKind, cells: Sequence[tuple[CurveCell, Pairs]]) -> list[PairedSample]:
    """Return the samples of one curve, the smallest place first; on a declared axis one per cell."""
    if kind.place is None:
        return _by_class(kind, cells)
    found = [
        PairedSample(place, f"{place:g}", pairs, [cell])
        for cell, pairs in cells
        if (place := kind.place(cell.arm, cell.workload, cell.level)) is not None
    ]
    return sorted(found, key=lambda sample: sample.place)


def _by_class(kind: AxisKind, cells: Sequence[tuple[CurveCell, Pairs]]) -> list[PairedSample]:
    named = [_named(index, cell, pairs) for index, (cell, pairs) in enumerate(cells)]
    rows = pd.concat(named, ignore_index=True)
    lengths = rows[kind.column + BASELINE].to_numpy(np.float64)
    known: Mask = np.asarray(lengths >= 1, dtype=np.bool_)
    classes = np.where(known, np.round(np.log2(np.where(known, lengths, 1.0))), -1.0)
    return list(_of_classes(rows, lengths, classes, [cell for cell, _ in cells]))


def _of_classes(
    rows: pd.DataFrame, lengths: Values, classes: Values, cells: Sequence[CurveCell]
) -> Iterator[PairedSample]:
    for each in np.unique(classes[classes >= 0]):
        mine = classes == each
        inside = rows[mine].reset_index(drop=True)
        place = float(np.exp(np.log(lengths[mine]).mean()))
        sources = [cells[index] for index in sorted(set(inside["cell"]))]
        yield PairedSample(place, f"about {2**each:,.0f}", Pairs(inside, len(inside), 0), sources)


def _named(index: int, cell: CurveCell, pairs: Pairs) -> pd.DataFrame:
    """Return the pairs with the index of their cell, and with prompt ids that differ between datasets."""
    prefix = dataset_of(cell)[:16]
    table = pairs.table
    return table.assign(cell=index, prompt_id=[f"{prefix}/{prompt}" for prompt in table["prompt_id"]])


LENGTH_DEFINITION = f"Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps of the arm, {OVER_PAIRS}"


@dataclass(frozen=True)
class MeasuredSample:
    """Speed-up and acceptance length at one place. `length`: None if the engine does not report its steps."""

    sample: PairedSample
    compared: PairedSpeedup
    length: LogRatio | None

    @property
    def seed(self) -> int:
        """Seed of its resamples."""
        return self.sample.cells[0].workload.sampling.seed


def measure_sample(sample: PairedSample) -> MeasuredSample:
    """Measure speed-up and acceptance length over the same pairs."""
    seed = sample.cells[0].workload.sampling.seed
    side = sample.pairs.side(ARM)
    steps = numbers(side, "steps")
    rows, parts = complete_pairs(sample.pairs, [later_tokens(side), np.where(steps >= 1, steps, np.nan)])
    return MeasuredSample(sample, paired_speedup(SPEEDUP, sample.pairs, seed), log_ratio(rows, parts, (1, -1), seed))
