"""The headline of a run: for each workload one sentence that a person can act on.

Which conclusion a comparison allows is decided in `analysis.summary.cells`; here it is only put into words. A drafter
is recommended only at loads where its speed-up was found to be above 1. The sentence is short: chart and table have the
other arms and loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from specbench_api.api_model import in_words
from specbench_api.plan.expansion import lossy_arms
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_client.analysis.decision.request import worse_arms
from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL
from specbench_client.analysis.summary.cells import EvaluatedCell
from specbench_client.documents.figure import TOO_WIDE, StatusFigure, Verdict
from specbench_client.documents.finding import Finding, doubting_checks, faults_by_arm
from specbench_client.documents.recommendation import (
    LoadChoice,
    RecommendationAnswer,
    UnknownCell,
    WorkloadChoice,
    unknown_words,
)
from specbench_client.documents.summary import NOT_MEASURED, Cell
from specbench_client.trust.check_type import list_names, name_some
from specbench_client.trust.checks.engine import runs_on_research_runtime

WORDS_MAX = 25
"""Words of the sentence about a workload at most, with the caveats before it."""
LOADS_OF_UNKNOWN = 1.5
"""How many shortenings the loads of what is unknown are worth: more than all intervals, less than the speed-ups."""
ARMS_NAMED = 2
"""Arms that a clause names where there is no room for all."""


@dataclass(frozen=True)
class HeadlineFacts:
    """Everything the headline is written from. `judged`: the cells, with their claims."""

    plan: Plan
    judged: Sequence[EvaluatedCell]
    findings: Sequence[Finding]
    trustworthy: bool
    simulated: bool
    failures: Mapping[str, str] = field(default_factory=dict)
    """Arm → why its engine failed, for arms that could not be measured completely."""
    choices: Sequence[LoadChoice] = ()
    """The run's recommendation at each load, which settles ties, and names the arms that may be better."""
    none_drafts: str = ""
    """That no arm but the baseline drafts; empty if one does."""
    within_targets: Sequence[WorkloadChoice] = ()
    """The recommendation of a run with latency targets, which speed-ups alone do not show; empty without targets."""


@dataclass(frozen=True)
class _Comparison:
    """One cell that was compared with the baseline, and what its speed-up allows to be concluded."""

    cell: Cell
    conclusion: Verdict

    @property
    def place(self) -> tuple[str, str]:
        """Workload and load, which identify the cells that compete with each other."""
        return self.cell.workload, self.cell.level.label

    @property
    def value(self) -> float:
        """The speed-up, for sorting; 0 where there is none to compare."""
        figure = self.cell.speedup
        return figure.value or 0.0 if self.cell.valid and figure else 0.0

    @property
    def ratio(self) -> str:
        """The speed-up with its interval."""
        return self.cell.speedup.factor if self.cell.speedup else ""


def headline_of(facts: HeadlineFacts) -> str:
    """Return a sentence for each workload: what to use, what is ruled out, and what is unknown."""
    workloads = list(dict.fromkeys(each.cell.workload for each in facts.judged))
    if not workloads:
        failed = f": {name_some(list(facts.failures), ARMS_NAMED)} failed" if facts.failures else ""
        return f"{_caveats(facts)}Nothing was measured{failed}."
    leads = [f"For {workload}: " if len(workloads) > 1 else "" for workload in workloads]
    undrafted = f"{facts.none_drafts[0].upper()}{facts.none_drafts[1:]}: " if facts.none_drafts else ""
    leads[0] = _caveats(facts) + undrafted + leads[0]
    return " ".join(_sentence(facts, *each) for each in zip(workloads, leads, strict=True))


def conclusions(judged: Sequence[EvaluatedCell]) -> list[tuple[Cell, Verdict]]:
    """Every compared cell with the conclusion that its speed-up allows; the baseline's cells are left out."""
    return [(each.cell, each.cell.claims.overall) for each in judged if each.cell.claims is not None]


def _caveats(facts: HeadlineFacts) -> str:
    """Return what precedes every figure; empty for a trustworthy measurement of a serving engine."""
    doubts = doubting_checks(facts.findings)
    more = f" +{len(doubts) - 1}" if len(doubts) > 1 else ""
    why = f" ({doubts[0]}{more})" if doubts else ""
    trust = "" if facts.trustworthy else f"Not trustworthy{why}: "
    if facts.simulated:
        return f"Simulated, not a measurement: {trust}"
    found = any(finding.check == runs_on_research_runtime.name for finding in facts.findings)
    research = found or facts.plan.engine.kind is EngineKind.TRANSFORMERS
    return f"On a research runtime: {trust}" if research else trust


def _sentence(facts: HeadlineFacts, workload: str, lead: str) -> str:
    """Return the sentence about a workload, after the caveats in `lead`."""
    cells = [each.cell for each in facts.judged if each.cell.workload == workload]
    if not facts.plan.has_baseline:
        ruled_out = _ruled_out(facts, cells)
        failed = f"{name_some(list(facts.failures), ARMS_NAMED)} failed" if facts.failures else ""
        invalid = [
            UnknownCell(arm=cell.arm, workload=workload, load=cell.level.label, why=cell.why_invalid(facts.findings))
            for cell in cells
            if not cell.valid
        ]
        gaps = [
            "; ".join(filter(None, (failed, clause)))
            for clause in (*_unknown_clauses(invalid), *([""] if failed else []))
        ]
        fastest = _fastest([cell for cell in cells if cell.arm not in ruled_out])
        return _fitting(lead, _ruled_out_clauses(ruled_out), gaps, fastest)
    found = [_Comparison(*each) for each in conclusions(facts.judged) if each[0].workload == workload]
    ruled_out = _ruled_out(facts, [each.cell for each in found])
    usable = [each for each in found if each.cell.arm not in ruled_out]
    targeted = next((each for each in facts.within_targets if each.workload == workload), None)
    if targeted is not None:
        return _fitting(
            lead,
            _ruled_out_clauses(ruled_out),
            _unknown_clauses(targeted.unknown),
            _within(targeted, cells, trustworthy=facts.trustworthy),
        )
    unknown = _unknown(facts, workload, usable)
    winners = _winners(usable, facts.choices)
    used = [each for each in usable if winners.get(each.place) == each.cell.arm]
    if used:
        answers = _use(used, sorted({cell.level.order for cell in cells}), trustworthy=facts.trustworthy)
    elif usable or unknown or ruled_out:
        answers = _none_faster(facts, workload, usable, settled=bool(usable) and not unknown)
    else:
        answers = ["Only the baseline was measured"]
    return _fitting(lead, _ruled_out_clauses(ruled_out), _unknown_clauses(unknown), answers)


def _fitting(lead: str, ruled_out: Sequence[str], unknown: Sequence[str], answers: Sequence[str]) -> str:
    """Return the sentence whose clauses are shortened as little as it must be.

    Each clause has its forms from the longest to the shortest. The shortest of all fit.
    """
    forms = product(*(enumerate(clause) for clause in (ruled_out, unknown, answers)))
    text = ""
    for each in sorted(forms, key=lambda chosen: _lost([shortened for shortened, _ in chosen])):
        without, gaps, answer = (clause for _, clause in each)
        text = f"{lead}{'; '.join(filter(None, (answer, without, gaps)))}."
        if len(text.split()) <= WORDS_MAX:
            break
    return text


def _lost(shortened: Sequence[int]) -> float:
    """Return what is lost by so many shortenings of each clause."""
    return sum(shortened) + LOADS_OF_UNKNOWN * (shortened[1] > 1)


def _ruled_out(facts: HeadlineFacts, cells: Sequence[Cell]) -> dict[str, str]:
    """Return the arms of these cells that are never the one to use, with the reasons."""
    reasons = {
        **{arm: ", ".join(checks) for arm, checks in faults_by_arm(facts.findings).items()},
        **dict.fromkeys(worse_arms(each.cell for each in facts.judged), "worse answers"),
        **dict.fromkeys(lossy_arms(facts.plan), "lossy verification"),
    }
    arms = {cell.arm for cell in cells}
    return {arm: why for arm, why in reasons.items() if arm in arms}


def _ruled_out_clauses(reasons: Mapping[str, str]) -> list[str]:
    if not reasons:
        return [""]
    names = [f"{arm} ({why})" for arm, why in reasons.items()]
    return [*(f"{list_names(each)} {_is(each)} ruled out" for each in (names, list(reasons))), ""]


def _unknown(facts: HeadlineFacts, workload: str, usable: Sequence[_Comparison]) -> list[UnknownCell]:
    """Return what may be better than the answer: unknown for the recommendation, or without a conclusion."""
    cells = [each for choice in facts.choices if choice.workload == workload for each in choice.unknown]
    for each in usable:
        why = each.cell.why_not_compared(facts.findings)
        if each.conclusion in (Verdict.TOO_FEW_REPEATS, Verdict.NO_INTERVAL) and each.cell.speedup:
            why = each.cell.speedup.missing or NO_INTERVAL
        if not why and each.cell.speedup and each.cell.speedup.is_too_wide and not each.conclusion.is_claim:
            why = TOO_WIDE
        if why:
            cells.append(UnknownCell(arm=each.cell.arm, workload=workload, load=each.cell.level.label, why=why))
    found = {(each.arm, each.load): each for each in cells}
    for place, cell in found.items():
        if cell.why == NOT_MEASURED and cell.arm in facts.failures:
            found[place] = cell.model_copy(update={"why": "failed"})
    return list(found.values())


def _unknown_clauses(cells: Sequence[UnknownCell]) -> list[str]:
    if not cells:
        return [""]
    arms = list(dict.fromkeys("the baseline" if each.arm == BASELINE_NAME else each.arm for each in cells))
    without_reasons = [each.model_copy(update={"why": ""}) for each in cells]
    count = f"{len(arms)} arms" if len(arms) > 1 else arms[0]
    shorter = [f"{names} {_is(arms)} unknown: measure again" for names in (name_some(arms, ARMS_NAMED), count)]
    return [unknown_words(cells), unknown_words(without_reasons), *shorter]


def _within(choice: WorkloadChoice, cells: Sequence[Cell], *, trustworthy: bool) -> list[str]:
    """Return what to use within the latency targets, with the gain and without: as advice only if it can be trusted."""
    arm = "the baseline" if choice.arm == BASELINE_NAME else choice.arm
    load = next((cell.level.words for cell in cells if cell.level.label == choice.load), "")
    advice = f"use {arm} at {load}" if trustworthy else f"{arm} looked best at {load}"
    answer = advice if arm else in_words(choice.answer)
    gain = f": {choice.gain.factor}" if choice.gain else ""
    return [f"With the latency targets: {answer}{each}" for each in (gain, "")]


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _winners(found: Sequence[_Comparison], choices: Sequence[LoadChoice]) -> dict[tuple[str, str], str]:
    """(workload, load) → the arm to use there, where any arm was found to be faster.

    It is the recommended arm if that one was found to be faster, else the one with the largest speed-up: headline and
    recommendation must not contradict each other where two arms are indistinguishable.
    """
    faster = [each for each in found if each.conclusion is Verdict.FASTER]
    chosen = {(choice.workload, choice.load, choice.arm) for choice in choices}
    faster.sort(key=lambda each: ((*each.place, each.cell.arm) in chosen, each.value))
    return {each.place: each.cell.arm for each in faster}


def _use(used: Sequence[_Comparison], measured: Sequence[float], *, trustworthy: bool) -> list[str]:
    """Return which arm to use where: with each speed-up, the least and the largest, without, and of one arm alone.

    `measured`: all loads, by any arm. It is advice only if the run can be trusted.
    """
    by_arm: dict[str, list[_Comparison]] = {}
    for each in sorted(used, key=lambda each: each.cell.level.order):
        by_arm.setdefault(each.cell.arm, []).append(each)
    places = {arm: f"{arm} {_where([each.cell.level for each in mine], measured)}" for arm, mine in by_arm.items()}
    forms = [
        [f"{places[arm]}: {ratios(mine)}" for arm, mine in by_arm.items()]
        for ratios in (_each_ratio, _range, _short_range)
    ]
    first, *others = places.values()
    forms += [[first, *others], [first, *(["others elsewhere"] if others else [])]]
    lead = "Use" if trustworthy else "Measured:"
    return [f"{lead} {', '.join(form)}" for form in forms]


def _where(levels: Sequence[Level], measured: Sequence[float]) -> str:
    """Return `at concurrency 1`, `up to concurrency 8`, `from concurrency 2 to 8` or `at 2 of 8 loads`."""
    first, last = levels[0], levels[-1]
    start = measured.index(first.order)
    if len(levels) == 1:
        return f"at {first.words}"
    if [level.order for level in levels] != measured[start : start + len(levels)]:
        return f"at {len(levels)} of {len(measured)} loads"
    return f"from {first.words} to {last.label}" if start else f"up to {last.words}"


def _each_ratio(mine: Sequence[_Comparison]) -> str:
    if len(mine) == 1:
        return mine[0].ratio
    return ", ".join(f"{each.ratio} at {each.cell.level.label}" for each in mine)


def _range(mine: Sequence[_Comparison]) -> str:
    return " to ".join(dict.fromkeys(most(mine, key=lambda each: each.value).ratio for most in (min, max)))


def _short_range(mine: Sequence[_Comparison]) -> str:
    values = [each.value for each in mine]
    return " to ".join(dict.fromkeys(f"{value:.2f}x" for value in (min(values), max(values))))


def _none_faster(facts: HeadlineFacts, workload: str, usable: Sequence[_Comparison], *, settled: bool) -> list[str]:
    """Return that no drafter is known to be faster, with the largest speed-up and without.

    `settled`: whether all of them are known.
    """
    answer = "No drafter is shown to be faster" if settled else "Inconclusive"
    if {each.answer for each in facts.choices if each.workload == workload} == {RecommendationAnswer.NO_DRAFTER}:
        answer = "No drafter pays"
    best = max(usable, key=lambda each: each.value, default=None)
    if best is None or not best.value:
        return [answer]
    return [f"{answer}: at best {best.cell.arm}, {best.ratio} at {best.cell.level.words}", answer]


_SHOWN_LATENCIES = {"TTFT": "ttft_ms_p50", "TPOT": "tpot_ms_p50", "E2E": "e2e_ms_p50"}


def _fastest(cells: Sequence[Cell]) -> list[str]:
    """Return throughput and latencies of the arm and load with the highest throughput, in a run without a baseline."""
    rates = [(cell.value(StatusFigure.OUTPUT_TPS), cell) for cell in cells if cell.valid]
    known = [(rate, cell) for rate, cell in rates if rate is not None]
    if not known:
        return ["No speed-up can be stated without a baseline"]
    rate, cell = max(known, key=lambda each: each[0])
    latencies = {title: cell.value(name) for title, name in _SHOWN_LATENCIES.items()}
    shown = [f"{title} {value:.1f} ms" for title, value in latencies.items() if value is not None]
    throughput = f"{cell.arm}: {rate:,.1f} tokens/s at {cell.level.words}"
    medians = f"; p50: {', '.join(shown)}" if shown else ""
    return [*(f"{throughput}{each}; no baseline, so no speed-up" for each in (medians, "")), throughput]
