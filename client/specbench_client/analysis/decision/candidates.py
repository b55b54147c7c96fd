"""Every cell of a run as a candidate: the objective's figure, the gain over the baseline there, and its conclusion.

In a closed loop the gain is the paired speed-up: a stream sends its next request when the last one is answered, so the
ratio of stream rates equals that of throughputs. In an open loop the schedule sets the load, and throughput is compared
by the engine's own output tokens a second, which are not paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specbench_api.api_model import in_words
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.costs import (
    COST_PER_MILLION,
    EngineCost,
    cost_figures,
    requests_per_hour,
)
from specbench_client.analysis.decision.request import RecommendationRequest
from specbench_client.analysis.decision.slo_attainment import attainment, missed, why_by_value
from specbench_client.analysis.estimates.speedups import COST_SAVED, REQUESTS_PER_HOUR
from specbench_client.analysis.statistics.effects import figure_effect, figure_ratio, map_figure
from specbench_client.analysis.statistics.significance import verdicts
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.figure import Figure, StatusFigure, Verdict
from specbench_client.documents.finding import Severity
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.documents.recommendation import (
    Attainment,
    Candidate,
    Objective,
    SloTarget,
    Sustained,
    UnknownCell,
)
from specbench_client.documents.summary import Cell, RequestCounts, RunSummary
from specbench_client.metrics.time_per_token import STREAM_TPS

OBJECTIVE_FIGURES = {Objective.THROUGHPUT: str(StatusFigure.OUTPUT_TPS), Objective.LATENCY: "tpot_ms_pooled"}
MORE_IS_BETTER = {Objective.THROUGHPUT: True, Objective.LATENCY: False, Objective.COST: False}
UNPAIRED_RATE = "Output tokens a second of the engine over the baseline's at the same load; not paired"


@dataclass(frozen=True)
class CandidateCell:
    """A cell and its evaluation as a candidate."""

    cell: Cell
    candidate: Candidate
    why_by_value: str = ""
    """Why its targets are met or missed by value only, or why that is unknown; empty if neither."""
    loads: str = ""
    """Both loads of a gain over the baseline at another one; empty at the same load."""
    unjudged: Sequence[CandidateCell] = ()
    """Cells of its arm that could not be judged: a better one may be among them."""
    merit: Figure | None = None
    """What ranks arms at different loads if the baseline is at none of them, larger is better; None: the gain does."""

    @property
    def arm(self) -> str:
        return self.cell.arm

    def with_gain(self, gain: Figure | None, conclusion: Verdict | None) -> CandidateCell:
        """Return the cell with this gain and the conclusion about it."""
        return replace(self, candidate=self.candidate.model_copy(update={"gain": gain, "conclusion": conclusion}))

    @property
    def is_baseline(self) -> bool:
        return self.arm == BASELINE_NAME

    @property
    def eligible(self) -> bool:
        """Whether it is valid and meets the targets."""
        return not self.candidate.excluded and self.candidate.attainment.within

    @property
    def judged(self) -> bool:
        """Whether it is valid, and known to meet or to miss the targets."""
        return not self.candidate.excluded and self.candidate.attainment is not Attainment.UNKNOWN

    def is_below(self, ratio: float) -> bool:
        """Whether its gain is shown to be below this ratio."""
        bounds = self.candidate.gain.interval if self.candidate.gain else None
        return bounds is not None and bounds.high < ratio

    @property
    def unknown(self) -> UnknownCell:
        """The cell as one that may be better than the answer."""
        gain, place = self.candidate.gain, self.candidate
        about_targets = {
            Attainment.UNKNOWN: f"lacks a figure that a target needs: {self.why_by_value}",
            Attainment.MISSED_BY_VALUE: f"misses the targets by value only: {self.why_by_value}",
        }
        compared = [gain.factor, gain.missing] if gain else ["not compared with the baseline"]
        why = place.excluded or about_targets.get(place.attainment) or ", ".join(each for each in compared if each)
        return UnknownCell(arm=self.arm, workload=place.workload, load=place.load, why=why)


def candidate_cells(
    plan: Plan,
    summary: RunSummary,
    request: RecommendationRequest,
    bills: Mapping[str, EngineCost],
    faulty: Mapping[str, str],
) -> list[CandidateCell]:
    """Return the candidates in the summary's order; conclusions are after Holm's correction over all gains.

    `faulty`: why arms are at fault.
    """
    cells = _planned_cells(plan, summary)
    baselines = {_slot(cell): cell for cell in cells if cell.arm == BASELINE_NAME}
    found = [
        CandidateCell(
            cell,
            _candidate(cell, baselines.get(_slot(cell)), request, bills, summary, faulty=faulty),
            why_by_value(cell, request.targets),
        )
        for cell in cells
    ]
    drawn = gain_verdicts([(entry.candidate.gain, entry.cell) for entry in found])
    return [entry.with_gain(entry.candidate.gain, verdict) for entry, verdict in zip(found, drawn, strict=True)]


def _planned_cells(plan: Plan, summary: RunSummary) -> list[Cell]:
    """Return the cells, and an empty one for each that was planned where another arm was measured, and has no point."""
    there, slots = {(cell.arm, _slot(cell)) for cell in summary.cells}, {_slot(cell) for cell in summary.cells}
    lacking = {(point.arm, (point.workload, point.level.label)): point.level for point in plan.points}
    empty = [
        Cell(
            arm=arm,
            workload=slot[0],
            level=level,
            arrivals=ArrivalPattern.of(plan.load),
            points=[],
            counts=RequestCounts(),
            figures={},
            valid=False,
        )
        for (arm, slot), level in lacking.items()
        if slot in slots and (arm, slot) not in there
    ]
    return [*summary.cells, *empty]


def gain_verdicts(gains: Sequence[tuple[Figure | None, Cell]]) -> list[Verdict | None]:
    """Return the verdict on each gain; None without one. `gains`: each gain with its cell."""
    effects = [figure_effect(gain, _repeats(cell)) for gain, cell in gains]
    found = verdicts(effects, Verdict.BETTER, Verdict.WORSE)
    return [verdict if effect else None for effect, verdict in zip(effects, found, strict=True)]


def _candidate(
    cell: Cell,
    baseline: Cell | None,
    request: RecommendationRequest,
    bills: Mapping[str, EngineCost],
    summary: RunSummary,
    *,
    faulty: Mapping[str, str],
) -> Candidate:
    bill = bills.get(cell.arm)
    figures = dict[str, Figure]()
    if (hourly := requests_per_hour(cell)) is not None:
        figures[REQUESTS_PER_HOUR] = hourly
    if bill is not None:
        figures |= cost_figures(cell, bill)
    value = (
        figures.get(COST_PER_MILLION)
        if request.objective is Objective.COST
        else _objective_value(cell, request.objective)
    )
    compared = None if cell.arm == BASELINE_NAME or baseline is None or not baseline.valid else baseline
    gain = None
    if compared is not None and cell.valid:
        alike = all(attainment(each, request.targets).within for each in (cell, compared))
        cheaper = _cost_gain(cell, compared, bills) if bills and alike else None
        if request.objective is Objective.LATENCY:
            gain = cell.tpot_speedup
        else:
            gain = cheaper if request.objective is Objective.COST else _rate_gain(cell, compared)
        if cheaper is not None:
            definition = "Cost saved against the baseline at the same load: 1 - 1 / gain"
            figures[COST_SAVED] = map_figure(cheaper, lambda ratio: 1 - 1 / ratio, "ratio", definition)
    return Candidate(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        value=value,
        gain=gain,
        attainment=attainment(cell, request.targets),
        excluded=_excluded(cell, value, request, summary, faulty),
        doubts=list(
            dict.fromkeys(
                each.check for each in cell.own_findings(summary.findings) if each.severity is not Severity.INFO
            )
        ),
        figures=figures,
    )


def _objective_value(cell: Cell, objective: Objective) -> Figure | None:
    """Return the figure to rank by. Where nobody recorded when requests were sent, streams stand for throughput."""
    value = cell.figures.get(OBJECTIVE_FIGURES[objective])
    unknown = value is None or value.value is None
    if objective is Objective.THROUGHPUT and unknown and cell.level.concurrency is not None:
        return cell.figures.get(STREAM_TPS.name)
    return value


def _excluded(
    cell: Cell,
    value: Figure | None,
    request: RecommendationRequest,
    summary: RunSummary,
    faulty: Mapping[str, str],
) -> str:
    if not cell.valid:
        return cell.why_invalid(summary.findings)
    if cell.arm in faulty:
        return faulty[cell.arm]
    if not request.takes(cell):
        return f"not at the requested load {request.load}"
    if value is None or value.value is None:
        return f"its {in_words(request.objective)} was not measured"
    return ""


def _rate_gain(cell: Cell, baseline: Cell) -> Figure | None:
    """Return this arm's throughput over the baseline's at the same load."""
    if cell.level.concurrency is not None and not _streams_wait(cell):
        return cell.speedup
    mine, its = (each.figures.get(StatusFigure.OUTPUT_TPS) for each in (cell, baseline))
    return None if mine is None or its is None else unpaired_gain(cell, mine, its, UNPAIRED_RATE)


def unpaired_gain(cell: Cell, over: Figure, under: Figure, definition: str) -> Figure | None:
    """Return the cell's gain from two figures; like every comparison, without an interval over too few repeats."""
    gain = figure_ratio(over, under, definition)
    return gain and gain.without_interval(too_few_repeats(_repeats(cell)))


def _streams_wait(cell: Cell) -> bool:
    """Return whether the users of a closed loop wait too: then faster answers raise its throughput by less."""
    compared = cell.end_to_end
    return compared is not None and compared.speedup.value is not None and compared.requests_per_hour.value is None


def _cost_gain(cell: Cell, baseline: Cell, bills: Mapping[str, EngineCost]) -> Figure | None:
    """Return the baseline's cost of a token over this arm's at the same load, from the ratio of their throughputs."""
    rate = _rate_gain(cell, baseline)
    if rate is None or rate.value is None:
        return None
    definition = (
        "The baseline's cost of an output token over this arm's at the same load: the price of an hour of each over its"
        f" throughput; from the ratio: {rate.definition}"
    )
    mine, its = bills[cell.arm].hour, bills[baseline.arm].hour
    return map_figure(rate, lambda ratio: ratio * its / mine, "ratio", definition)


def _slot(cell: Cell) -> tuple[str, str]:
    return cell.workload, cell.level.label


def _repeats(cell: Cell) -> int:
    return len(cell.points) if cell.compared_repeats is None else cell.compared_repeats


def sustained_load(entries: Sequence[CandidateCell], targets: Sequence[SloTarget]) -> Sustained:
    """Return the largest measured load at which an arm meets the targets: by value, and as shown by its intervals.

    `entries`: of one arm on one workload. A load counts only if every smaller load meets the targets too.
    """
    ordered = sorted(entries, key=lambda entry: entry.cell.level.order)
    first = ordered[0].cell
    by_value = _meeting_prefix(ordered, (Attainment.MET, Attainment.MET_BY_VALUE))
    shown = _meeting_prefix(ordered, (Attainment.MET,))
    beyond = ordered[len(by_value)] if len(by_value) < len(ordered) else None
    judged = beyond is not None and beyond.cell.valid and beyond.candidate.attainment is not Attainment.UNKNOWN
    return Sustained(
        workload=first.workload,
        arm=first.arm,
        load=by_value[-1].cell.level.label if by_value else None,
        shown=shown[-1].cell.level.label if shown else None,
        missed_at=beyond.cell.level.label if beyond and judged else None,
        reason=_sustained_reason(beyond, targets)
        if beyond
        else "no measured load misses the targets: the limit is beyond the largest",
    )


def _meeting_prefix(ordered: Sequence[CandidateCell], accepted: Sequence[Attainment]) -> list[CandidateCell]:
    found = list[CandidateCell]()
    for entry in ordered:
        if not entry.cell.valid or entry.candidate.attainment not in accepted:
            break
        found.append(entry)
    return found


def _sustained_reason(beyond: CandidateCell, targets: Sequence[SloTarget]) -> str:
    if beyond.cell.valid:
        return missed(beyond.cell, targets)
    return f"unknown from {beyond.cell.level.label} on: {beyond.candidate.excluded}"
