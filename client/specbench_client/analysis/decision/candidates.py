"""Every cell of a run as a candidate: the objective's figure, the gain over the baseline there, and its standing.

The gain is the paired speed-up where the load is closed: streams that are answered sooner ask sooner, so the ratio of
stream rates is that of throughputs. In an open loop the load is the schedule's, and throughput is compared by the
engine's own output tokens a second, which are not paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.outcome.comparison import Standing
from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.recommendation import Candidate, Objective
from specbench_api.outcome.summary import REPEATS_TO_TELL, Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.asked import Asked
from specbench_client.analysis.decision.attainment import attainment
from specbench_client.analysis.decision.bills import Bill
from specbench_client.analysis.decision.costs import (
    COST_PER_MILLION,
    COST_SAVED,
    REQUESTS_GAINED,
    REQUESTS_PER_HOUR,
    cost_figures,
    cost_gain,
    gained,
    requests_per_hour,
    saved,
)
from specbench_client.analysis.estimates.evidence import freedom_of, p_value, quotient
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.holm import rejected

FIGURES = {Objective.THROUGHPUT: str(Headline.OUTPUT_TPS), Objective.LATENCY: "tpot_ms_pooled"}
MORE_IS_BETTER = {Objective.THROUGHPUT: True, Objective.LATENCY: False, Objective.COST: False}
UNPAIRED_RATE = "Output tokens a second of the engine over the baseline's at the same load; not paired"


@dataclass(frozen=True)
class Entry:
    """A cell, and what is thought of it."""

    cell: Cell
    candidate: Candidate

    @property
    def is_baseline(self) -> bool:
        return self.cell.arm == BASELINE_NAME

    @property
    def eligible(self) -> bool:
        """Whether it may be chosen as far as its validity and the targets go."""
        return not self.candidate.excluded and self.candidate.attainment.within


def entries_of(summary: RunSummary, asked: Asked, bills: Mapping[str, Bill]) -> list[Entry]:
    """In the summary's order. Standings are after Holm's correction over all gains, as in the run's verdict."""
    baselines = {_slot(cell): cell for cell in summary.cells if cell.arm == BASELINE_NAME}
    found = [Entry(cell, _candidate(cell, baselines.get(_slot(cell)), asked, bills)) for cell in summary.cells]
    told = standings([(entry.candidate.gain, entry.cell) for entry in found])
    return [
        Entry(entry.cell, entry.candidate.model_copy(update={"standing": standing}))
        for entry, standing in zip(found, told, strict=True)
    ]


def standings(gains: Sequence[tuple[Figure | None, Cell]]) -> list[Standing | None]:
    """What can be said of each gain against 1; each with the cell that it is of."""
    p_values = [_p(gain, cell) for gain, cell in gains]
    clear = rejected(p_values, 1 - LEVEL)
    return [_standing(gain, cell, clear=each) for (gain, cell), each in zip(gains, clear, strict=True)]


def _candidate(cell: Cell, baseline: Cell | None, asked: Asked, bills: Mapping[str, Bill]) -> Candidate:
    bill = bills.get(cell.arm)
    figures = dict[str, Figure]()
    if (hourly := requests_per_hour(cell)) is not None:
        figures[REQUESTS_PER_HOUR] = hourly
    if bill is not None:
        figures |= cost_figures(cell, bill)
    value = figures.get(COST_PER_MILLION) if asked.objective is Objective.COST else cell.figures.get(_figure(asked))
    compared = None if cell.arm == BASELINE_NAME or baseline is None or not baseline.valid else baseline
    gain = None
    if compared is not None and cell.valid:
        alike = all(attainment(each, asked.targets).within for each in (cell, compared))
        gain = _gain(cell, compared, asked, bills) if alike or asked.objective is not Objective.COST else None
        figures |= _beside(cell, compared, bills if alike else {})
    return Candidate(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        value=value,
        gain=gain,
        attainment=attainment(cell, asked.targets),
        excluded=_excluded(cell, value, asked),
        doubts=list(cell.findings),
        figures=figures,
    )


def _figure(asked: Asked) -> str:
    return FIGURES[asked.objective]


def _excluded(cell: Cell, value: Figure | None, asked: Asked) -> str:
    if not cell.valid:
        return f"invalid ({', '.join(cell.findings)})"
    if not asked.takes(cell):
        return f"not at the load that was asked for, {asked.load}"
    if value is None or value.value is None:
        return f"its {asked.objective} was not to be had"
    return ""


def _rate_gain(cell: Cell, baseline: Cell) -> Figure | None:
    """This arm's throughput over the baseline's at the same load."""
    if cell.level.concurrency is not None:
        return cell.speedup
    mine, its = (each.figures.get(Headline.OUTPUT_TPS) for each in (cell, baseline))
    return None if mine is None or its is None else quotient(mine, its, UNPAIRED_RATE)


def _gain(cell: Cell, baseline: Cell, asked: Asked, bills: Mapping[str, Bill]) -> Figure | None:
    if asked.objective is Objective.LATENCY:
        return cell.tpot_speedup
    rate = _rate_gain(cell, baseline)
    if asked.objective is Objective.THROUGHPUT or rate is None:
        return rate
    return _cost_gain(rate, cell, baseline, bills)


def _cost_gain(rate: Figure, cell: Cell, baseline: Cell, bills: Mapping[str, Bill]) -> Figure | None:
    hourly = requests_per_hour(baseline)
    return cost_gain(rate, bills[cell.arm], bills[baseline.arm], hourly.value if hourly else None)


def _beside(cell: Cell, baseline: Cell, bills: Mapping[str, Bill]) -> dict[str, Figure]:
    """Requests an hour gained and cost saved, beside the gain."""
    rate, hourly, found = _rate_gain(cell, baseline), requests_per_hour(baseline), dict[str, Figure]()
    if rate is None or rate.value is None:
        return found
    more = gained(rate, hourly) if hourly is not None else None
    if more is not None:
        found[REQUESTS_GAINED] = more
    gain = _cost_gain(rate, cell, baseline, bills) if bills else None
    return found if gain is None else {**found, COST_SAVED: saved(gain)}


def _slot(cell: Cell) -> tuple[str, str]:
    return cell.workload, cell.level.label


def _p(gain: Figure | None, cell: Cell) -> float | None:
    if gain is None or gain.value is None or not cell.valid or _repeats(cell) < REPEATS_TO_TELL:
        return None
    return p_value(gain, freedom_of(gain, _repeats(cell), len(cell.by_category)))


def _repeats(cell: Cell) -> int:
    return len(cell.points) if cell.compared_repeats is None else cell.compared_repeats


def _standing(gain: Figure | None, cell: Cell, *, clear: bool) -> Standing | None:
    if gain is None or gain.value is None:
        return None
    if _repeats(cell) < REPEATS_TO_TELL:
        return Standing.TOO_FEW_REPEATS
    bounds = gain.interval
    if bounds is None:
        return Standing.NO_INTERVAL
    if bounds.low <= 1 <= bounds.high:
        return Standing.INDISTINGUISHABLE
    if not clear:
        return Standing.UNCLEAR
    return Standing.BETTER if bounds.low > 1 else Standing.WORSE
