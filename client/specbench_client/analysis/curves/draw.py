"""Curves over one axis: points with their words, crossovers, and what they say of places that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.claims import Standing
from specbench_api.outcome.crossover import Crossover
from specbench_api.outcome.curves import Curve, CurvePoint, Curves, LeftOut
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.crossover.crossing import crossover
from specbench_client.analysis.crossover.shape import Rung
from specbench_client.analysis.curves.against import AGAINST, Against
from specbench_client.analysis.curves.groups import Group, differences, grouped
from specbench_client.analysis.curves.identity import UNSEEN, Cell
from specbench_client.analysis.curves.measured import LENGTH_DEFINITION, Measured, measured
from specbench_client.analysis.curves.predict import predicted
from specbench_client.analysis.curves.samples import paired, rows_in, sampled
from specbench_client.analysis.estimates.break_even import length_figure
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.holm import rejected
from specbench_client.analysis.summary.claims import standing
from specbench_client.metrics.pairing import Pairs

LIMITS = (
    "Each speed-up is over the baseline of its own run; runs of one curve were measured at different times.",
    "Between two measured places the curve is taken to be straight: that is an assumption, not a measurement.",
)


def curves(
    by: str, results: Sequence[Result], left_out: Sequence[LeftOut], created: str, at: Sequence[float]
) -> Curves:
    """Draw them. `by`: a name of AGAINST. `left_out`: runs that could not be read. `created`: RFC 3339."""
    against = AGAINST[by]
    groups, more = grouped(against, results)
    pairs = _pairs(groups)
    found = [
        (group, [measured(sample) for sample in sampled(against, [(cell, pairs[id(cell)]) for cell in group.cells])])
        for group in groups
    ]
    found.sort(key=lambda each: -len(each[1]))
    p_values = [each.compared.p_value for _, points in found for each in points]
    clear = iter(rejected(p_values, 1 - LEVEL))
    drawing = _Drawing(against, at)
    drawn = [
        drawing.curve(group, points, [next(clear) for _ in points], differences(found[0][0], group))
        for group, points in found
    ]
    return Curves(
        created=created,
        axis=by,
        unit=against.axis.unit,
        simulated=any(cell.result.summary.simulated for group in groups for cell in group.cells),
        curves=drawn,
        comparisons=sum(value is not None for value in p_values),
        left_out=[*left_out, *more],
        limits=[*LIMITS, against.limit],
    )


def _pairs(groups: Sequence[Group]) -> dict[int, Pairs]:
    """Of every cell, by its id; the rows of one workload × load of one result are read at a time, its baseline once."""
    slots: dict[tuple[int, str, str], list[Cell]] = {}
    for cell in (cell for group in groups for cell in group.cells):
        slots.setdefault((id(cell.result), *cell.key[1:]), []).append(cell)
    found: dict[int, Pairs] = {}
    for cells in slots.values():
        baseline = rows_in(cells[0].result, (BASELINE_NAME, *cells[0].key[1:]))
        found |= {id(cell): paired(cell, baseline) for cell in cells}
    return found


@dataclass(frozen=True)
class _Drawing:
    """One curve after the other. `at`: places that were asked for."""

    against: Against
    at: Sequence[float]

    def curve(self, group: Group, points: Sequence[Measured], clear: Sequence[bool], differs: Sequence[str]) -> Curve:
        words = [
            standing(each.compared.figure, each.compared.p_value, clear=is_clear)
            for each, is_clear in zip(points, clear, strict=True)
        ]
        return Curve(
            title=_title(self.against, group.cells),
            same={name: value for name, value in group.same.items() if value != UNSEEN},
            differs=list(differs),
            points=[_point(each, word) for each, word in zip(points, words, strict=True)],
            crossover=_crossover(self.against, points, words),
            predictions=[predicted(self.against.axis, points, place) for place in self.at],
        )


def _point(found: Measured, word: Standing) -> CurvePoint:
    sample = found.sample
    return CurvePoint(
        place=sample.place,
        label=sample.label,
        arm=", ".join(dict.fromkeys(cell.arm.name for cell in sample.cells)),
        runs=list(dict.fromkeys(cell.result.uri for cell in sample.cells)),
        pairs=len(sample.pairs.rows),
        speedup=found.compared.figure,
        standing=word,
        acceptance_length=length_figure(found.length, LENGTH_DEFINITION, sample.drafts),
    )


def _crossover(against: Against, points: Sequence[Measured], words: Sequence[Standing]) -> Crossover:
    rungs, left_out = [], []
    for each, word in zip(points, words, strict=True):
        ratio = each.compared.ratio
        if ratio is not None and ratio.told:
            rungs.append(Rung(each.sample.place, ratio))
        else:
            left_out.append(f"{against.axis.words(each.sample.place)}: {word}")
    return crossover(against.axis, rungs, left_out, points[0].seed)


def _title(against: Against, cells: Sequence[Cell]) -> str:
    arms = ", ".join(dict.fromkeys(cell.arm.name for cell in cells))
    workloads = ", ".join(dict.fromkeys(cell.workload.name for cell in cells))
    load = "" if "load" in against.free else f" at {cells[0].level.words}"
    return f"{arms} on {workloads}{load}"
