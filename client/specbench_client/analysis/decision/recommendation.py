"""The recommendation of a run: for each workload the choice at every load and overall, and a sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specbench_api.api_model import in_words
from specbench_api.errors import InvalidSpec, Problem
from specbench_api.plan.expansion import lossy_arms
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.decision.candidates import (
    MORE_IS_BETTER,
    CandidateCell,
    candidate_cells,
    gain_verdicts,
    sustained_load,
    unpaired_gain,
)
from specbench_client.analysis.decision.choice import Complexity, choose, complexity_of
from specbench_client.analysis.decision.costs import engine_cost
from specbench_client.analysis.decision.request import (
    RecommendationRequest,
    faulty_arms,
    not_known,
    ruled_out,
    why_none_drafts,
    worse_arms,
)
from specbench_client.documents.figure import Figure
from specbench_client.documents.finding import doubting_checks, faults_by_arm
from specbench_client.documents.recommendation import (
    ArmChoice,
    Attainment,
    LoadChoice,
    Objective,
    Recommendation,
    RecommendationAnswer,
    WorkloadChoice,
    unknown_words,
)
from specbench_client.documents.summary import RunSummary
from specbench_client.trust.check_type import list_names

# Limits that every reader of a recommendation must know.

SCOPE_NOTE = (
    "It applies to these prompts and their language, this model and its quantisation, this engine version and this"
    " hardware: other prompts and languages change acceptance; another quantisation, engine or machine changes the cost"
    " of a step."
)
BETWEEN = "Only measured loads are compared: nothing is known between two of them or beyond the largest."
PERCENTILES = (
    "Each target is judged by its own percentile over all requests: the share of requests that meet all of them at once"
    " can be smaller. A target counts as met by value if the value is within it, but the upper bound of its interval is"
    " not, or is missing."
)
ACROSS = (
    "An arm and the baseline that are best at different loads are compared by their own figures, which are not paired,"
    " each at the load where its figure is best."
)
COST = (
    "Cost is compared at the same load, where both meet the same targets. Prices are yours, lengths those of"
    " these prompts, and the engine is assumed to be as busy all the time as in this run."
)
SIMULATED = "Simulated: these results are not a measurement of any engine."
_UNIT = {Objective.THROUGHPUT: "throughput", Objective.LATENCY: "token rate", Objective.COST: "tokens for the money"}


def sentence_of(
    summary: RunSummary,
    request: RecommendationRequest,
    choices: Sequence[WorkloadChoice],
    lossy: Sequence[str],
    faulty: Mapping[str, str],
) -> str:
    """Return the answer as a sentence: first whether it is simulated, last whether it is untrustworthy.

    `lossy`: arms that are ruled out because their verification is lossy. `faulty`: why arms are at fault.
    """
    head = "Simulated, not a measurement: for" if summary.simulated else "For"
    where = f" with {list_names([target.words for target in request.targets])}" if request.targets else ""
    several = len(choices) > 1
    words = {cell.level.label: cell.level.words for cell in summary.cells}
    answers = [
        f"{f'on {each.workload}: ' if several else ''}{_workload_clause(each, request, words)}{_other_loads(each)}"
        for each in choices
    ]
    trust = "" if summary.trustworthy else " (the run is not trustworthy)"
    unusable = ((lossy, "lossy verification"), (list(worse_arms(summary.cells)), "worse answers"))
    omitted = [f"without {list_names(arms)} ({why})" for arms, why in unusable if arms]
    omitted += [f"without {arm} ({why})" for arm, why in faulty.items() if arm != BASELINE_NAME]
    held = "".join(f", {each}" for each in (*request.constraints, *omitted))
    return f"{head} {in_words(request.objective)}{where}{held}: {'; '.join(answers) or 'nothing was measured'}{trust}"


def limits_of(
    summary: RunSummary,
    request: RecommendationRequest,
    choices: Sequence[WorkloadChoice],
    doubted: Sequence[str],
    unknown: Sequence[str],
) -> list[str]:
    """Return the limits of every recommendation and of this one.

    `doubted`: checks with findings above Info; `unknown`: arms of which it is not known whether they fit.
    """
    across = any(each.load not in (None, each.baseline_load) and each.baseline_load for each in choices)
    found = [
        SIMULATED if summary.simulated else "",
        f"The run is not trustworthy ({', '.join(doubted)}), and neither is this recommendation: the run's report"
        " shows what to do."
        if not summary.trustworthy
        else "",
        *(f"{arm} is at fault: {', '.join(checks)}." for arm, checks in faults_by_arm(summary.findings).items()),
        BETWEEN,
        PERCENTILES if request.targets else "",
        ACROSS if across else "",
        COST if request.prices else "",
        f"It is not known whether {', '.join(unknown)} fits into the spare memory: not ruled out." if unknown else "",
        SCOPE_NOTE,
    ]
    return [each for each in found if each]


def _workload_clause(choice: WorkloadChoice, request: RecommendationRequest, words: dict[str, str]) -> str:
    match choice.answer:
        case RecommendationAnswer.DRAFTER:
            return f"use {choice.arm} at {words[str(choice.load)]}{_gain_text(choice, request, words)}"
        case RecommendationAnswer.NO_DRAFTER:
            return f"no drafter pays; use the baseline at {words[str(choice.load)]}"
        case RecommendationAnswer.NOTHING_MEETS:
            return "no measured arm and load meet the targets"
        case RecommendationAnswer.INCONCLUSIVE:
            return f"inconclusive: {choice.reason}"


def _other_loads(choice: WorkloadChoice) -> str:
    """Name other drafters that pay at other loads, for users of those loads, and what may be better than either."""
    paying = [
        each for each in choice.at_each_load if each.answer is RecommendationAnswer.DRAFTER and each.arm != choice.arm
    ]
    loads = {arm: [each.load for each in paying if each.arm == arm] for arm in dict.fromkeys(e.arm for e in paying)}
    notes = [f"{arm} pays at {', '.join(each)}" for arm, each in loads.items()]
    unknown = unknown_words([*choice.unknown, *(each for at in paying for each in at.unknown)])
    return (f" (but {'; '.join(notes)})" if notes else "") + (f"; {unknown}" if unknown else "")


def _gain_text(choice: WorkloadChoice, request: RecommendationRequest, words: dict[str, str]) -> str:
    gain = choice.gain
    if gain is None or gain.value is None:
        return f" ({choice.reason})"
    other = choice.baseline_load
    there = ""
    if other is None:
        there = "; there the baseline misses the targets"
    elif other != choice.load:
        there = f" at {words[other]}"
    return f", {gain.factor} the baseline's {_UNIT[request.objective]}{there}"


@dataclass(frozen=True)
class _Inputs:
    """The request and the candidates of one run."""

    request: RecommendationRequest
    complexity: Complexity
    entries: Sequence[CandidateCell]
    barred: Mapping[str, str] = field(default_factory=dict)
    """Arms that are ruled out, with the reasons."""
    at_fault: Collection[str] = ()
    """Those of which it is unknown whether they would pay without their fault."""
    none_drafts: str = ""
    """That no arm drafts; empty if one does."""


def recommend(plan: Plan, summary: RunSummary, request: RecommendationRequest) -> Recommendation:
    """Recommend from the summary alone. Raises InvalidSpec: no prices for the objective cost, or an unmeasured load."""
    _reject(summary, request)
    prices = request.prices
    costs = {arm.name: engine_cost(arm.name, plan, summary, prices) for arm in plan.arms} if prices else {}
    faulty = faulty_arms(summary)
    barred = ruled_out(plan, summary, request, faulty)
    entries = candidate_cells(plan, summary, request, costs, faulty)
    undrafted = why_none_drafts(plan, summary)
    complexity = {arm.name: complexity_of(arm) for arm in plan.arms}
    question = _Inputs(request, complexity, entries, barred, faulty, undrafted)
    workloads = list(dict.fromkeys(cell.workload for cell in summary.cells if request.takes(cell)))
    choices = [_of_workload(name, question) for name in workloads]
    return Recommendation(
        objective=request.objective,
        targets=list(request.targets),
        worth=request.worth,
        simulated=summary.simulated,
        trustworthy=summary.trustworthy,
        sentence=sentence_of(summary, request, choices, list(lossy_arms(plan)), faulty),
        choices=choices,
        candidates=[entry.candidate for entry in entries],
        prices="; ".join(dict.fromkeys(bill.words for bill in costs.values())),
        constraints=request.constraints,
        ruled_out=barred,
        limits=limits_of(
            summary, request, choices, doubting_checks(summary.findings), not_known(plan, summary, request)
        ),
    )


def _reject(summary: RunSummary, request: RecommendationRequest) -> None:
    problems = []
    if request.objective is Objective.COST and request.prices is None:
        remedy = "give --prices FILE, --gpu-price or --machine-price"
        problems.append(Problem("prices", "the objective cost needs prices, and there are no defaults", remedy))
    loads = list(dict.fromkeys(cell.level.label for cell in summary.cells))
    if request.load is not None and request.load not in loads:
        problems.append(
            Problem("load", f"{request.load!r} was not measured", f"measured: {', '.join(loads) or 'nothing'}")
        )
    if problems:
        raise InvalidSpec(problems)


def _of_workload(name: str, question: _Inputs) -> WorkloadChoice:
    request = question.request
    everywhere = [entry for entry in question.entries if entry.cell.workload == name]
    mine = [entry for entry in everywhere if request.takes(entry.cell) and entry.arm not in question.barred]
    best = [_best(arm, mine, request) for arm in dict.fromkeys(entry.arm for entry in mine)]
    baseline = next((entry for entry in best if entry.is_baseline and entry.eligible), None)
    entrants = _entrants(best, baseline, mine, request)
    choice = _chosen(entrants, question)
    chosen = next((entry for entry in entrants if entry.arm == choice.arm), None)
    arms = list(dict.fromkeys(entry.arm for entry in mine)) if request.targets else []
    return WorkloadChoice(
        **dict(choice),
        workload=name,
        load=chosen.cell.level.label if chosen else None,
        gain=chosen.candidate.gain if chosen else None,
        baseline_load=baseline.cell.level.label if baseline else None,
        at_each_load=_at_each_load(name, mine, question),
        sustained=[sustained_load([each for each in everywhere if each.arm == arm], request.targets) for arm in arms],
    )


def _at_each_load(name: str, mine: Sequence[CandidateCell], question: _Inputs) -> list[LoadChoice]:
    found = []
    for load in dict.fromkeys(entry.cell.level.label for entry in mine):
        there = [entry for entry in mine if entry.cell.level.label == load]
        there = [replace(entry, unjudged=_unjudged(entry.arm, there, question.request.worth)) for entry in there]
        found.append(LoadChoice(**dict(_chosen(there, question)), workload=name, load=load))
    return found


def _chosen(entrants: Sequence[CandidateCell], question: _Inputs) -> ArmChoice:
    """Choose among the arms that are not ruled out; if no drafter is left, none pays, unless one is at fault."""
    choice = choose(entrants, question.complexity, question.request.worth)
    if question.none_drafts and choice.answer is RecommendationAnswer.NO_DRAFTER:
        why = f"{question.none_drafts}, so whether a drafter pays is unknown"
        return choice.model_copy(update={"answer": RecommendationAnswer.INCONCLUSIVE, "arm": None, "reason": why})
    if not question.barred:
        return choice
    reasons = f"ruled out: {'; '.join(f'{arm} ({why})' for arm, why in question.barred.items())}"
    alone = bool(entrants) and all(each.is_baseline and each.eligible for each in entrants)
    if alone:
        reason = f"no drafter is left; {reasons}"
        if any(arm in question.at_fault for arm in question.barred):
            reason += "; keep the baseline until that is corrected"
            return choice.model_copy(update={"reason": reason})
        return choice.model_copy(
            update={"answer": RecommendationAnswer.NO_DRAFTER, "arm": BASELINE_NAME, "reason": reason}
        )
    return choice.model_copy(update={"reason": f"{choice.reason}; {reasons}"})


def _best(arm: str, entries: Sequence[CandidateCell], request: RecommendationRequest) -> CandidateCell:
    """Return the arm's best eligible load; without any, its first load, which has the reason."""
    mine = [entry for entry in entries if entry.arm == arm]
    sign = 1 if MORE_IS_BETTER[request.objective] else -1
    return max(mine, key=lambda entry: (entry.eligible, sign * _value(entry)))


def _value(entry: CandidateCell) -> float:
    figure = entry.candidate.value
    return figure.value if figure is not None and figure.value is not None else 0.0


def _entrants(
    best: Sequence[CandidateCell],
    baseline: CandidateCell | None,
    mine: Sequence[CandidateCell],
    request: RecommendationRequest,
) -> list[CandidateCell]:
    """Return each arm at its best load. At the baseline's own best load the gain is the paired one.

    At another load the figures of the objective are divided, unless the baseline was not measured there: otherwise an
    arm would win because the baseline is missing where it is best. Where the baseline is best at no load, arms at
    different loads are ranked by the objective itself.
    """
    across = {
        entry.arm: _across(entry, baseline, request)
        for entry in best
        if baseline is not None and not entry.is_baseline and entry.eligible and entry.cell.level != baseline.cell.level
    }
    known = {arm: gain for arm, gain in across.items() if _baseline_known(arm, best, mine)}
    cells = {entry.arm: entry.cell for entry in best}
    conclusions = dict(zip(known, gain_verdicts([(gain, cells[arm]) for arm, gain in known.items()]), strict=True))
    compared = [
        replace(entry.with_gain(known.get(entry.arm), conclusions.get(entry.arm)), loads=_loads(entry, baseline))
        if baseline is not None and entry.arm in across
        else entry
        for entry in best
    ]
    eligible = [entry for entry in best if entry.eligible]
    if baseline is None and len({entry.cell.level for entry in eligible}) > 1:  # their gains are over several baselines
        compared = [replace(entry, merit=_across(entry, eligible[0], request)) for entry in compared]
    return [replace(entry, unjudged=_unjudged(entry.arm, mine, request.worth)) for entry in compared]


def _baseline_known(arm: str, best: Sequence[CandidateCell], mine: Sequence[CandidateCell]) -> bool:
    """Return whether the baseline was judged at the load at which this arm is best."""
    level = next(entry.cell.level for entry in best if entry.arm == arm)
    return any(entry.is_baseline and entry.cell.level == level and entry.judged for entry in mine)


def _unjudged(arm: str, mine: Sequence[CandidateCell], worth: float) -> list[CandidateCell]:
    """Return the cells of this arm that could not be judged, or miss the targets by value only and may be worth it."""
    open_ones = (Attainment.UNKNOWN, Attainment.MISSED_BY_VALUE)
    return [
        entry
        for entry in mine
        if entry.arm == arm
        and (not entry.judged or (entry.candidate.attainment in open_ones and not entry.is_below(worth)))
    ]


def _across(entry: CandidateCell, baseline: CandidateCell, request: RecommendationRequest) -> Figure | None:
    mine, its = entry.candidate.value, baseline.candidate.value
    if mine is None or its is None:
        return None
    over, under = (mine, its) if MORE_IS_BETTER[request.objective] else (its, mine)
    loads = _loads(entry, baseline)
    return unpaired_gain(entry.cell, over, under, f"Gain in {in_words(request.objective)}{loads}; not paired")


def _loads(entry: CandidateCell, baseline: CandidateCell) -> str:
    return f" at {entry.cell.level.words} against the baseline at {baseline.cell.level.words}"
