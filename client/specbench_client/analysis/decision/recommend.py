"""A run's recommendation: for each workload the choice at every load and over all of them, and in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.recommendation import (
    Answer,
    Attainment,
    LoadChoice,
    Objective,
    Recommendation,
    WorkloadChoice,
)
from specbench_api.outcome.summary import RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.asked import Asked
from specbench_client.analysis.decision.bills import bills
from specbench_client.analysis.decision.candidates import MORE_IS_BETTER, Entry, entries_of, standings
from specbench_client.analysis.decision.choose import Choice, Entrant, choose
from specbench_client.analysis.decision.constraints import not_known, ruled_out, upkeep, words_of
from specbench_client.analysis.decision.rules.table import readings
from specbench_client.analysis.decision.simplicity import simplest_first
from specbench_client.analysis.decision.sustained import sustained
from specbench_client.analysis.decision.words import limits_of, sentence_of
from specbench_client.analysis.estimates.evidence import quotient


@dataclass(frozen=True)
class _Question:
    """What is asked of which run."""

    asked: Asked
    simplest: Sequence[str]
    entries: Sequence[Entry]
    barred: Mapping[str, str] = field(default_factory=dict)
    """Arms that the constraints rule out, each with the reason."""


def recommend(plan: Plan, summary: RunSummary, asked: Asked) -> Recommendation:
    """Recommend from the summary alone. Raises InvalidSpec: no prices for cost, or a load that is not there."""
    _refuse(summary, asked)
    costs = bills(plan, summary, asked.prices) if asked.prices else {}
    barred = ruled_out(plan, summary, asked)
    question = _Question(asked, simplest_first(plan), entries_of(summary, asked, costs), barred)
    workloads = list(dict.fromkeys(cell.workload for cell in summary.cells if asked.takes(cell)))
    choices = [_of_workload(name, question) for name in workloads]
    doubted = [finding for finding in summary.findings if finding.severity is not Severity.NOTE]
    return Recommendation(
        objective=asked.objective,
        targets=list(asked.targets),
        worth=asked.worth,
        simulated=summary.simulated,
        trustworthy=summary.trustworthy,
        sentence=sentence_of(summary, asked, choices),
        choices=choices,
        candidates=[entry.candidate for entry in question.entries],
        prices="; ".join(dict.fromkeys(bill.words for bill in costs.values())),
        constraints=words_of(asked.constraints),
        ruled_out=barred,
        upkeep=upkeep(plan, asked.prices),
        limits=limits_of(summary, asked, choices, _names(doubted), not_known(plan, summary, asked)),
        rules_of_thumb=readings(plan, summary, asked.constraints),
    )


def _names(findings: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.check for finding in findings))


def _refuse(summary: RunSummary, asked: Asked) -> None:
    problems = []
    if asked.objective is Objective.COST and asked.prices is None:
        remedy = "give --prices FILE, --gpu-price or --machine-price"
        problems.append(Problem("prices", "the objective cost needs prices, and none are shipped", remedy))
    loads = list(dict.fromkeys(cell.level.label for cell in summary.cells))
    if asked.load is not None and asked.load not in loads:
        problems.append(
            Problem("load", f"{asked.load!r} was not measured", f"measured: {', '.join(loads) or 'nothing'}")
        )
    if problems:
        raise InvalidSpec(problems)


def _of_workload(name: str, question: _Question) -> WorkloadChoice:
    asked = question.asked
    everywhere = [entry for entry in question.entries if entry.cell.workload == name]
    mine = [entry for entry in everywhere if asked.takes(entry.cell) and entry.cell.arm not in question.barred]
    best = [_best(arm, mine, asked) for arm in dict.fromkeys(entry.cell.arm for entry in mine)]
    baseline = next((entry for entry in best if entry.is_baseline and entry.eligible), None)
    choice = _chosen(_entrants(best, baseline, mine, asked), question)
    chosen = next((entry for entry in best if entry.cell.arm == choice.arm), None)
    arms = list(dict.fromkeys(entry.cell.arm for entry in mine)) if asked.targets else []
    return WorkloadChoice(
        workload=name,
        answer=choice.answer,
        arm=choice.arm,
        load=chosen.cell.level.label if chosen else None,
        gain=choice.gain,
        baseline_load=baseline.cell.level.label if baseline else None,
        tied=list(choice.tied),
        reason=choice.reason,
        at_each_load=_at_each_load(name, mine, question),
        sustained=[sustained([each for each in everywhere if each.cell.arm == arm], asked.targets) for arm in arms],
    )


def _at_each_load(name: str, mine: Sequence[Entry], question: _Question) -> list[LoadChoice]:
    found = []
    for load in dict.fromkeys(entry.cell.level.label for entry in mine):
        there = [entry for entry in mine if entry.cell.level.label == load]
        entrants = [Entrant(entry, entry.candidate.gain, entry.candidate.standing) for entry in there]
        choice = _chosen(entrants, question)
        found.append(_load_choice(name, load, choice))
    return found


def _chosen(entrants: Sequence[Entrant], question: _Question) -> Choice:
    """Choose among those that the constraints leave; where they leave no drafter, that is the answer."""
    choice = choose(entrants, question.simplest, question.asked.worth)
    if not question.barred:
        return choice
    told = f"ruled out: {'; '.join(f'{arm} ({why})' for arm, why in question.barred.items())}"
    alone = bool(entrants) and all(each.entry.is_baseline and each.eligible for each in entrants)
    if alone:
        return Choice(Answer.NO_DRAFTER, BASELINE_NAME, f"no drafter is left; {told}")
    return replace(choice, reason=f"{choice.reason}; {told}")


def _load_choice(workload: str, load: str, choice: Choice) -> LoadChoice:
    return LoadChoice(
        workload=workload,
        load=load,
        answer=choice.answer,
        arm=choice.arm,
        tied=list(choice.tied),
        reason=choice.reason,
    )


def _best(arm: str, entries: Sequence[Entry], asked: Asked) -> Entry:
    """The arm's best load of those that may be chosen; without one, the first: it says why not."""
    mine = [entry for entry in entries if entry.cell.arm == arm]
    sign = 1 if MORE_IS_BETTER[asked.objective] else -1
    return max(mine, key=lambda entry: (entry.eligible, sign * _value(entry)))


def _value(entry: Entry) -> float:
    figure = entry.candidate.value
    return figure.value if figure is not None and figure.value is not None else 0.0


def _entrants(best: Sequence[Entry], baseline: Entry | None, mine: Sequence[Entry], asked: Asked) -> list[Entrant]:
    """Each arm at its best load. At the baseline's own best load the gain is the paired one, with its standing.

    At another load the two objectives' figures are divided, unless it is not known what the baseline gives there: else
    an arm would win because the baseline was lost where it is best.
    """
    across = {
        entry.cell.arm: _across(entry, baseline, asked)
        for entry in best
        if baseline is not None and not entry.is_baseline and entry.eligible and _elsewhere(entry, baseline)
    }
    known = {arm: gain for arm, gain in across.items() if _baseline_known(arm, best, mine)}
    cells = {entry.cell.arm: entry.cell for entry in best}
    told = dict(zip(known, standings([(gain, cells[arm]) for arm, gain in known.items()]), strict=True))
    found = []
    for entry in best:
        arm, whole = entry.cell.arm, _whole(entry.cell.arm, mine)
        if arm in across:
            found.append(Entrant(entry, known.get(arm), told.get(arm), whole=whole))
        else:
            found.append(Entrant(entry, entry.candidate.gain, entry.candidate.standing, whole=whole))
    return found


def _elsewhere(entry: Entry, baseline: Entry) -> bool:
    return entry.cell.level != baseline.cell.level


def _baseline_known(arm: str, best: Sequence[Entry], mine: Sequence[Entry]) -> bool:
    """Whether the baseline was judged at the load at which this arm is best."""
    level = next(entry.cell.level for entry in best if entry.cell.arm == arm)
    return any(entry.is_baseline and entry.cell.level == level and _judged(entry) for entry in mine)


def _whole(arm: str, mine: Sequence[Entry]) -> bool:
    """Whether the arm was judged at every load that was measured on this workload."""
    levels = {entry.cell.level.label for entry in mine}
    return {entry.cell.level.label for entry in mine if entry.cell.arm == arm and _judged(entry)} == levels


def _judged(entry: Entry) -> bool:
    return not entry.candidate.excluded and entry.candidate.attainment is not Attainment.UNKNOWN


def _across(entry: Entry, baseline: Entry, asked: Asked) -> Figure | None:
    mine, its = entry.candidate.value, baseline.candidate.value
    if mine is None or its is None:
        return None
    over, under = (mine, its) if MORE_IS_BETTER[asked.objective] else (its, mine)
    loads = f"{entry.cell.level.words} against the baseline at {baseline.cell.level.words}"
    return quotient(over, under, f"Gain in {asked.objective} at {loads}; not paired")
