"""The headline of a run: advice in one to a few sentences that a person can act on.

Which conclusion a comparison allows is decided in `analysis.summary.cells`; here it is only put into words. A drafter
is recommended only at loads where its speed-up was found to be above 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from specbench_api.plan.expansion import lossy_arms
from specbench_api.plan.plan import Plan
from specbench_api.spec.engine import EngineKind
from specbench_client.analysis.decision.choice import MEASURE_BASELINE, complexity_of, is_simpler
from specbench_client.analysis.decision.request import worse_arms
from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL
from specbench_client.analysis.summary.cells import EvaluatedCell
from specbench_client.documents.figure import StatusFigure, Verdict
from specbench_client.documents.finding import Finding, doubting_checks, faults_by_arm, list_faults
from specbench_client.documents.recommendation import LoadChoice, UnknownCell, unknown_words
from specbench_client.documents.summary import Cell
from specbench_client.trust.check_type import list_names
from specbench_client.trust.checks.engine import runs_on_research_runtime

MAX_ARMS = 4
"""Arms that the headline names; the others are in the table."""
MAX_CAUSE_LENGTH = 300
"""Characters of an engine's own error message that the headline quotes."""


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

    @cached_property
    def lossy(self) -> Mapping[str, Sequence[str]]:
        """Arm → the options that make its verification lossy; it is never the arm to use."""
        return lossy_arms(self.plan)

    @cached_property
    def worse(self) -> Mapping[str, Sequence[str]]:
        """Arm → the loads at which its answers are worse than the baseline's; it is never the arm to use."""
        return worse_arms(each.cell for each in self.judged)


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


def headline_of(facts: HeadlineFacts) -> str:
    """Return the headline: advice for each arm, then their faults, then the doubts."""
    sentences = [*_failures(facts), *_advice(facts), *_faults(facts), *_doubts(facts)]
    return f"{_prefix(facts)}{' '.join(sentences)}"


def conclusions(judged: Sequence[EvaluatedCell]) -> list[tuple[Cell, Verdict]]:
    """Every compared cell with the conclusion that its speed-up allows; the baseline's cells are left out."""
    return [(each.cell, each.cell.claims.overall) for each in judged if each.cell.claims is not None]


def _prefix(facts: HeadlineFacts) -> str:
    """Return the caveat that precedes every figure; empty for a measurement of a serving engine."""
    if facts.simulated:
        return "Simulated, not a measurement: "
    found = any(finding.check == runs_on_research_runtime.name for finding in facts.findings)
    return "On a research runtime: " if found or facts.plan.engine.kind is EngineKind.TRANSFORMERS else ""


def _failures(facts: HeadlineFacts) -> list[str]:
    """Why engines failed: one sentence for each cause. The run as a whole failed if it measured nothing."""
    by_cause: dict[str, list[str]] = {}
    for arm, cause in facts.failures.items():
        by_cause.setdefault(" ".join(cause.split()).rstrip("."), []).append(arm)
    if not facts.judged:
        return [f"Failed: {_cut(cause)}." for cause in by_cause]
    return [f"{list_names(arms)} failed: {_cut(cause)}." for cause, arms in by_cause.items()]


def _cut(cause: str) -> str:
    return cause if len(cause) <= MAX_CAUSE_LENGTH else f"{cause[:MAX_CAUSE_LENGTH]}…"


def _advice(facts: HeadlineFacts) -> list[str]:
    """One sentence an arm: first the arms to use, then by the largest speed-up."""
    found = [_Comparison(cell, conclusion) for cell, conclusion in conclusions(facts.judged)]
    if not facts.judged:
        return [] if facts.failures else ["Nothing was measured."]
    several = len({each.cell.workload for each in facts.judged}) > 1
    if not facts.plan.has_baseline:
        hint = f"No speed-up can be stated: this run has no baseline ({MEASURE_BASELINE})."
        return [*_absolute_figures(facts, several=several)[:MAX_ARMS], hint]
    unusable = {*facts.lossy, *facts.worse, *faults_by_arm(facts.findings)}
    winners = _winners([each for each in found if each.cell.arm not in unusable], facts.choices)
    faster_ties = _faster_ties(found, winners, facts.choices)
    found = [each for each in found if each.conclusion is not Verdict.NOT_COMPARABLE]
    arms = list(dict.fromkeys(each.cell.arm for each in found))
    arms.sort(key=lambda arm: (arm not in winners.values(), -max(each.value for each in found if each.cell.arm == arm)))
    sentences = [
        _arm_sentence(
            arm, [each for each in found if each.cell.arm == arm], winners, faster_ties, facts, several=several
        )
        + _lossy_note(arm, facts.lossy)
        + _worse_note(arm, facts.worse)
        for arm in arms[:MAX_ARMS]
    ]
    more = [f"{len(arms) - MAX_ARMS} more arms are in the table."] if len(arms) > MAX_ARMS else []
    stated = {(each.cell.arm, *each.place) for each in found if each.cell.arm in arms[:MAX_ARMS]}
    words = unknown_words(_unknown(facts, stated), several=several)
    rest = [f"The{words[3:]}." if words.startswith("the baseline") else f"{words}."] if words else []
    return [*sentences, *more, *rest] or ["Only the baseline was measured."]


_SHOWN_LATENCIES = {"TTFT": "ttft_ms_p50", "TPOT": "tpot_ms_p50", "E2E": "e2e_ms_p50"}


def _absolute_figures(facts: HeadlineFacts, *, several: bool) -> list[str]:
    """Return for each arm throughput and latencies at the load with the highest throughput."""
    valid = [(each.cell.value(StatusFigure.OUTPUT_TPS), each.cell) for each in facts.judged if each.cell.valid]
    known = [(rate, cell) for rate, cell in valid if rate is not None]
    best = {(cell.arm, cell.workload): (rate, cell) for rate, cell in sorted(known, key=lambda each: each[0])}
    sentences = []
    for (arm, workload), (rate, cell) in best.items():
        latencies = {title: cell.value(name) for title, name in _SHOWN_LATENCIES.items()}
        shown = [f"{title} {value:.1f} ms" for title, value in latencies.items() if value is not None]
        medians = f"; p50: {', '.join(shown)}" if shown else ""
        place = f"{cell.level.words}{f' for {workload}' if several else ''}"
        sentences.append(f"{arm}: {rate:,.1f} tokens/s at {place}{medians}.")
    return sentences


def _unknown(facts: HeadlineFacts, stated: Collection[tuple[str, str, str]]) -> list[UnknownCell]:
    """Return what no sentence is about: unknown for the recommendation, or not comparable with the baseline."""
    cells = [
        UnknownCell(
            arm=cell.arm, workload=cell.workload, load=cell.level.label, why=cell.why_not_compared(facts.findings)
        )
        for cell, conclusion in conclusions(facts.judged)
        if conclusion is Verdict.NOT_COMPARABLE
    ]
    cells += [each for choice in facts.choices for each in choice.unknown]
    by_place = {(each.arm, each.workload, each.load): each for each in cells}
    return [each for place, each in by_place.items() if place not in stated]


def _winners(found: Sequence[_Comparison], choices: Sequence[LoadChoice]) -> dict[tuple[str, str], str]:
    """(workload, load) → the arm to use there, where any arm was found to be faster.

    It is the recommended arm if that one was found to be faster, else the one with the largest speed-up: headline and
    recommendation must not contradict each other where two arms are indistinguishable.
    """
    faster = [each for each in found if each.conclusion is Verdict.FASTER]
    chosen = {(choice.workload, choice.load, choice.arm) for choice in choices}
    faster.sort(key=lambda each: ((*each.place, each.cell.arm) in chosen, each.value))
    return {each.place: each.cell.arm for each in faster}


def _faster_ties(
    found: Sequence[_Comparison],
    winners: Mapping[tuple[str, str], str],
    choices: Sequence[LoadChoice],
) -> dict[tuple[str, str], list[str]]:
    """(workload, load) → the arms with a larger speed-up than the arm to use there, and indistinguishable from it."""
    values = {(each.place, each.cell.arm): each.value for each in found}
    tied = {(choice.workload, choice.load): choice.tied for choice in choices}
    return {
        place: [arm for arm in tied.get(place, ()) if values.get((place, arm), 0.0) > values[place, winner]]
        for place, winner in winners.items()
    }


def _arm_sentence(
    arm: str,
    mine: Sequence[_Comparison],
    winners: Mapping[tuple[str, str], str],
    faster_ties: Mapping[tuple[str, str], Sequence[str]],
    facts: HeadlineFacts,
    *,
    several: bool,
) -> str:
    """The advice about one arm. `several`: whether the run has several workloads, so that each must be named."""
    clauses: list[str] = []
    for conclusion, recommended, here in _groups(arm, mine, winners):
        workload = here[0].cell.workload
        begin = _begin(here[0], "it" if clauses else arm, recommended=recommended, first=not clauses)
        if recommended:
            levels = {each.cell.level.order for each in facts.judged if each.cell.workload == workload}
            rest = _use(here, sorted(levels)) + _why_not_faster(here, faster_ties, facts.plan)
        else:
            rest = _words(conclusion, here, first=not clauses)
        clauses.append(f"{begin}{f' for {workload}' if several else ''}{rest}")
    return f"{'; '.join(clauses)}."


def _lossy_note(arm: str, lossy: Mapping[str, Sequence[str]]) -> str:
    options = lossy.get(arm)
    return f" Its verification is lossy ({'; '.join(options)}), so {arm} is not recommended." if options else ""


def _worse_note(arm: str, worse: Mapping[str, Sequence[str]]) -> str:
    loads = worse.get(arm)
    at = f" at {list_names(list(dict.fromkeys(loads)))}" if loads else ""
    return f" Its answers are worse than the baseline's{at}, so {arm} is not recommended." if loads else ""


def _groups(
    arm: str, mine: Sequence[_Comparison], winners: Mapping[tuple[str, str], str]
) -> Iterator[tuple[Verdict, bool, list[_Comparison]]]:
    """Comparisons of one conclusion on one workload, and whether the arm is recommended for them.

    Where another arm gains more, this one is faster too, but not the one to use.
    """
    for conclusion in Verdict:
        group = [each for each in mine if each.conclusion is conclusion]
        for recommended in (True, False):
            those = [
                each
                for each in group
                if (conclusion is Verdict.FASTER and winners.get(each.place) == arm) == recommended
            ]
            for workload in dict.fromkeys(each.cell.workload for each in those):
                yield conclusion, recommended, [each for each in those if each.cell.workload == workload]


_OPENINGS = {
    Verdict.FASTER: "{subject} is faster than the baseline",
    Verdict.SLOWER: "{subject} is slower than the baseline",
    Verdict.INDISTINGUISHABLE: "{subject} is indistinguishable from the baseline",
    Verdict.UNCLEAR: "{subject} is unclear once corrected for the number of comparisons",
    Verdict.TOO_FEW_REPEATS: "{subject} is unknown",
    Verdict.NO_INTERVAL: "{subject} is unknown",
}
"""How a clause about an arm begins. The subject is the arm, or `it` after another clause."""


def _begin(one: _Comparison, subject: str, *, recommended: bool, first: bool) -> str:
    """Return the beginning of a clause about comparisons like this one. `first`: it begins its sentence."""
    if recommended:
        return f"Use {subject}" if first else "use it"
    if first and one.conclusion is Verdict.SLOWER:
        return f"Do not enable {subject}"
    return _OPENINGS[one.conclusion].format(subject=subject)


def _why_not_faster(
    here: Sequence[_Comparison], faster_ties: Mapping[tuple[str, str], Sequence[str]], plan: Plan
) -> str:
    """`, indistinguishable from eagle3 and simpler to run`, where an arm with a larger speed-up is not used."""
    arms = dict.fromkeys(arm for each in here for arm in faster_ties.get(each.place, ()))
    if not arms:
        return ""
    loads = [each.cell.level.label for each in here if faster_ties.get(each.place)]
    where = f" at {list_names(loads)}" if len(loads) < len(here) else ""
    simpler = " and simpler to run" if is_simpler(here[0].cell.arm, arms, complexity_of(plan)) else ""
    return f", indistinguishable from {list_names(list(arms))}{where}{simpler}"


def _use(here: Sequence[_Comparison], measured: Sequence[float]) -> str:
    """` up to concurrency 8: 1.69x [1.64, 1.72] at 1, 1.34x [1.31, 1.37] at 8`. `measured`: all loads, by any arm."""
    levels = [each.cell.level for each in here]
    if len(levels) == 1:
        return f" at {levels[0].words}: {_ratio(here[0].cell)}"
    ordered = sorted(levels, key=lambda level: level.order)
    lowest = [level.order for level in ordered] == measured[: len(levels)]
    where = f"up to {ordered[-1].words}" if lowest else f"at {_loads(here)}"
    return f" {where}: {', '.join(f'{_ratio(each.cell)} at {each.cell.level.label}' for each in here)}"


def _words(conclusion: Verdict, here: Sequence[_Comparison], *, first: bool) -> str:
    """The rest of a clause that recommends nothing. `first`: it begins its sentence."""
    it_is = "it is slower, " if conclusion is Verdict.SLOWER and first else ""
    begin, *rest = (each.cell for each in here)
    tail = "".join(f", {_ratio(cell)} at {cell.level.label}" for cell in rest)
    missing = dict.fromkeys(each.cell.speedup.missing or NO_INTERVAL for each in here if each.cell.speedup)
    why = f" ({'; '.join(missing)})" if conclusion in (Verdict.TOO_FEW_REPEATS, Verdict.NO_INTERVAL) else ""
    return f": {it_is}{_ratio(begin)} at {begin.level.words}{tail}{why}"


def _loads(here: Sequence[_Comparison]) -> str:
    """`concurrency 1, 2 and 8`."""
    first, *rest = (each.cell.level for each in here)
    return list_names([first.words, *(level.label for level in rest)])


def _ratio(cell: Cell) -> str:
    assert cell.speedup is not None
    return cell.speedup.factor


def _faults(facts: HeadlineFacts) -> list[str]:
    """The arms at fault with the checks that say so."""
    found = list_faults(facts.findings)
    return [f"At fault: {list_names(found)}; see findings."] if found else []


def _doubts(facts: HeadlineFacts) -> list[str]:
    """The checks that make the run untrustworthy, those that invalidate cells first."""
    if facts.trustworthy:
        return []
    names = doubting_checks(facts.findings)
    return [f"Not trustworthy: {', '.join(names)} (see findings)." if names else "Not trustworthy."]
