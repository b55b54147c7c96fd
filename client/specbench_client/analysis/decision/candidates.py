"""Every cell of a run as a candidate: the objective's figure, the gain over the baseline there, and its conclusion.

In a closed loop the gain is the paired speed-up: a stream sends its next request when the last one is answered, so the
ratio of stream rates equals that of throughputs. In an open loop the schedule sets the load, and throughput is compared
by the engine's own output tokens a second, which are not paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specbench_api.api_model import in_words
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.provenance import Fact, FactName
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.request import Prices, RecommendationRequest
from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL
from specbench_client.analysis.statistics.effects import figure_effect, figure_ratio, map_figure
from specbench_client.analysis.statistics.significance import verdicts
from specbench_client.documents.figure import Figure, StatusFigure, Verdict, too_few_repeats
from specbench_client.documents.finding import Severity
from specbench_client.documents.recommendation import (
    Attainment,
    Candidate,
    Objective,
    SloTarget,
    Sustained,
    UnknownCell,
)
from specbench_client.documents.summary import ArrivalPattern, Cell, RequestCounts, RunSummary
from specbench_client.metrics.time_per_token import STREAM_TPS
from specbench_client.trust.check_type import list_names

# Each latency target is judged by its own percentile over requests, and by the interval of that figure.

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


# Requests an hour, and money for a request and for a million output tokens, from an engine's throughput.
#
#     requests an hour  = output tokens a second x 3600 / mean output tokens of a request
#     cost of a request = price of an hour / requests an hour
#     cost of 1M tokens = cost of a request x 1e6 / mean output tokens of a request
#
# Comparisons with the baseline are meaningful only at the same load, and where both meet the same targets.


ANY_ARM = "*"


@dataclass(frozen=True)
class EngineCost:
    """What one arm costs. `hour`: price of its engine for an hour, with all GPUs, the drafter's included."""

    hour: float
    currency: str
    words: str


def engine_costs(plan: Plan, summary: RunSummary, prices: Prices) -> dict[str, EngineCost]:
    """Return the cost of each arm by name. Raises InvalidSpec: a price or a number of GPUs is missing."""
    return {arm.name: _engine_cost(arm.name, plan, summary, prices) for arm in plan.arms}


def _engine_cost(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> EngineCost:
    if prices.machine_hour is not None:
        words = f"{prices.machine_hour:g} {prices.currency} per hour for all that one engine runs on"
        return EngineCost(prices.machine_hour, prices.currency, words)
    product, count = _gpus(arm, plan, summary, prices)
    if count is None:
        remedy = "give --gpus N, or --machine-price for an engine without GPUs; in a price list: gpus or machineHour"
        raise InvalidSpec(
            [Problem("prices.gpus", f"it is not known how many GPUs the engine of arm {arm} has", remedy)]
        )
    price = prices.gpu_hour.get(product, prices.gpu_hour.get(ANY_ARM))
    if price is None:
        hardware = product or "a GPU of unknown product"
        remedy = f"add {product or ANY_ARM!r} to gpuHour, or give --gpu-price"
        raise InvalidSpec([Problem("prices.gpuHour", f"has no price for {hardware}", remedy)])
    of_what = product or ("GPU" if count == 1 else "GPUs")
    words = f"{price:g} {prices.currency} per GPU-hour x {count} {of_what}"
    return EngineCost(price * count, prices.currency, words)


def _gpus(arm: str, plan: Plan, summary: RunSummary, prices: Prices) -> tuple[str, int | None]:
    """Return product and number of GPUs: as requested, else as reported by launches, else as given."""
    seen: Mapping[FactName, Fact] = {}
    for each in summary.arm_environments:
        if each.arm == arm:
            seen = each.facts
    product, counted = (seen.get(name) for name in (FactName.GPU, FactName.GPU_COUNT))
    # A median of launches that differ need not be whole.
    whole = int(counted.number) if counted and counted.number and counted.number == int(counted.number) else 0
    count = plan.placement.engine_devices or whole or prices.gpus
    return (product.value if product and isinstance(product.value, str) else ""), count or None


REQUESTS_PER_HOUR = "requests_per_hour"
COST_PER_REQUEST = "cost_per_request"
COST_PER_MILLION = "cost_per_million_output_tokens"
COST_SAVED = "cost_saved"
LENGTH = "output_tokens_mean"
_HOUR_S, _MILLION = 3600.0, 1e6


def requests_per_hour(cell: Cell) -> Figure | None:
    """Return requests an hour; None without throughput or lengths. The interval is that of the throughput alone."""
    rate, length = cell.figures.get(StatusFigure.OUTPUT_TPS), cell.value(LENGTH)
    if rate is None or not rate.value or not length:
        return None
    definition = "Requests an hour: output_tps x 3600 / output_tokens_mean, the load held as it was"
    return map_figure(rate, lambda tps: tps * _HOUR_S / length, "requests/h", definition)


def cost_figures(cell: Cell, bill: EngineCost) -> dict[str, Figure]:
    """Return the costs of a request and of a million output tokens, by name; empty without throughput or lengths."""
    hourly, length = requests_per_hour(cell), cell.value(LENGTH)
    if hourly is None or not length:
        return {}
    definition = f"{bill.words} / requests_per_hour"
    request = map_figure(hourly, lambda rate: bill.hour / rate, bill.currency, f"Cost of one: {definition}")
    million = map_figure(
        hourly,
        lambda rate: bill.hour / rate * _MILLION / length,
        bill.currency,
        f"Cost of a million output tokens: {definition} x 1e6 / output_tokens_mean",
    )
    return {COST_PER_REQUEST: request, COST_PER_MILLION: million}
