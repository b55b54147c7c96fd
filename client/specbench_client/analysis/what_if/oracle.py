"""Builds the report of `specbench analyze oracle` from the accepted drafts at each position of recorded answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specbench_client.analysis.what_if.answers import AnswerSet, DrafterAnswers, SharedAnswers
from specbench_client.analysis.what_if.policies import (
    SPEEDUP,
    FigureDescription,
    PolicyLine,
    PolicyWalk,
    PricedDrafter,
    PricedPolicy,
    Pricing,
    ResampledNumber,
    SummedRatio,
    best_of,
    cost_limit,
    difference,
    figure_of,
    oracle_row,
    price_policies,
    resample,
    walk_combined,
    walk_fixed,
    walk_oracle,
)
from specbench_client.columns import Values
from specbench_client.documents.figure import Figure
from specbench_client.documents.what_if import (
    BatchHeadroom,
    DraftCharge,
    DraftCost,
    DraftPolicy,
    OracleReport,
)

# The limits printed with every report.

_BOUND = (
    "an upper bound: it assumes that the number of accepted drafts is known in advance; an adaptive drafter reaches"
    " part of it"
)
_SAMPLED = "answers were sampled at a temperature: other draft lengths would have given other texts"
_SPLIT = (
    "the values of fixed lengths below the run's own, and of positions between its steps in a combination, are lower"
    " bounds (span-split). The headroom is therefore an upper bound"
)
CENSORED_MOST = 0.1
"""Largest share of steps with all drafts accepted that is not reported. At 6 % (n-gram, code, 20 drafts) span-split was
3 % low; at 76 % (the target itself, quantised, 10 drafts) it was 27 % below truncation, which is low too."""
_TOO_SHORT = (
    "{name}: {share:.0%} of its steps accepted every draft: its drafts are too short for this analysis, so the oracle,"
    " and above all fixed lengths by span-split, are far too low: measure again with longer drafts"
)
_TWO = "two drafters: only the text that both wrote is compared, which may be the easier part"


def oracle_limits(pricing: Pricing, *, drawn: bool, two: bool, split: bool) -> list[str]:
    """Return the limits that apply.

    `drawn`: answers were sampled at a temperature above 0. `two`: drafters were combined. `split`: positions come from
    the steps of a run.
    """
    return [
        _BOUND,
        cost_limit(pricing.cost),
        *([_SPLIT] if split else []),
        *([_SAMPLED] if drawn else []),
        *([_TWO] if two else []),
    ]


def short_draft_limits(censored: Mapping[str, Figure]) -> list[str]:
    """Return a limit for each drafter whose draft length truncated too many steps for span-split."""
    shares = {name: figure.value for name, figure in censored.items() if figure.value is not None}
    return [_TOO_SHORT.format(name=name, share=share) for name, share in shares.items() if share > CENSORED_MOST]


HEADROOM = FigureDescription(
    SPEEDUP.unit,
    "speed-up of the oracle - speed-up of the best fixed draft length or of none; the best of each resample",
    SPEEDUP.source,
)
COMPLEMENTARITY = FigureDescription(
    SPEEDUP.unit,
    "speed-up of the combined oracle (the winner pays) - speed-up of the better of the two oracles",
    SPEEDUP.source,
)
CENSORED = FigureDescription(
    "ratio", "steps whose drafts were all accepted / steps, at the run's own draft length", "records"
)
COVERED = FigureDescription(
    "ratio", "output tokens of which both drafters have the same text / output tokens", "records"
)


@dataclass(frozen=True)
class NamedDrafter:
    """One drafter: its name, its answers, and the cost of its drafting."""

    name: str
    single: DrafterAnswers
    cost: DraftCost | None = None
    run_drafts: int | None = None
    """Draft tokens per step of the run; None for a trace, which has the acceptance of every position."""


@dataclass(frozen=True)
class OracleSubject:
    """Input of a report. `second`, `both`: only for two drafters; `both.first` belongs to `second`, the cheaper one."""

    source: str
    main: NamedDrafter
    second: NamedDrafter | None = None
    both: SharedAnswers | None = None
    simulated: bool = False
    sampled: bool = False
    """Whether answers were sampled at a temperature above 0."""
    left_out: Mapping[str, int] = field(default_factory=dict)


def oracle_report(subject: OracleSubject, drafts: Sequence[int], pricing: Pricing) -> OracleReport:
    """Walk every policy and report it. `drafts`: fixed draft lengths to try, besides that of the run itself."""
    main = subject.main
    drafts = [each for each in drafts if main.run_drafts is None or each <= main.run_drafts]
    own = [] if main.run_drafts is None else [main.run_drafts]
    alone = _alone(main, sorted({*drafts, *own}), pricing)
    pair = _pair(subject, pricing)
    second = subject.second
    further = price_policies([_oracle(second)], pricing) if second else []
    two = [main, second] if second else [main]
    censored = {each.name: _censored(each) for each in two if each.run_drafts is not None}
    return OracleReport(
        source=subject.source,
        simulated=subject.simulated,
        drafters=[each.name for each in two],
        answers=main.single.answers.count,
        tokens=main.single.answers.positions,
        left_out=dict(subject.left_out),
        covered=_covered(subject.both),
        covered_by=subject.both.compared_by if subject.both else None,
        censored=censored,
        step_cost=pricing.cost,
        rows=[oracle_row(line) for line in [*alone, *further, *pair.combined]],
        rooms=[_room(batch, alone, pair) for batch in pricing.priced],
        limits=[
            *oracle_limits(
                pricing, drawn=subject.sampled, two=subject.both is not None, split=main.run_drafts is not None
            ),
            *short_draft_limits(censored),
        ],
    )


@dataclass(frozen=True)
class _Pair:
    """Oracles over the answers that two drafters share: each drafter alone, and combined."""

    singles: list[PricedPolicy]
    combined: list[PricedPolicy]


def _alone(main: NamedDrafter, drafts: Sequence[int], pricing: Pricing) -> list[PricedPolicy]:
    answers, drafter = main.single.answers, _drafter(main)
    lines = [
        PolicyLine(DraftPolicy.FIXED, main.name, answers, walk_fixed(answers, drafter, each), each) for each in drafts
    ]
    return price_policies([*lines, _oracle(main)], pricing)


def _oracle(named: NamedDrafter) -> PolicyLine:
    answers = named.single.answers
    return PolicyLine(DraftPolicy.ORACLE, named.name, answers, walk_oracle(answers, _drafter(named)))


def _pair(subject: OracleSubject, pricing: Pricing) -> _Pair:
    both, second = subject.both, subject.second
    if both is None or second is None or not both.answers.count:
        return _Pair([], [])
    answers, main = both.answers, subject.main
    first, other = PricedDrafter(second.name, both.first, second.cost), PricedDrafter(main.name, both.second, main.cost)
    singles = [
        PolicyLine(DraftPolicy.ORACLE, each.name, answers, walk_oracle(answers, each)) for each in (first, other)
    ]
    name = f"{first.name}+{other.name}"
    combined = [
        PolicyLine(DraftPolicy.COMBINE, name, answers, walk_combined(answers, first, other, charge), None, charge)
        for charge in DraftCharge
    ]
    found = price_policies([*singles, *combined], pricing)
    return _Pair(found[:2], found[2:])


def _room(batch: int, alone: Sequence[PricedPolicy], pair: _Pair) -> BatchHeadroom:
    """Return the headroom of the oracle at a batch size over the best fixed draft length, or over no drafting."""
    *fixes, oracular = alone
    layout = oracular.line.answers.layout
    numbers = [ResampledNumber(1.0, np.ones_like(oracular.length.samples)), *(each.speedups[batch] for each in fixes)]
    place, chosen = best_of(numbers)
    own = figure_of(numbers[place], layout, SPEEDUP) if place else figure_of(numbers[0], layout, _BASELINE)
    return BatchHeadroom(
        batch=batch,
        best_drafts=(fixes[place - 1].line.drafts or 0) if place else 0,
        best_fixed=own,
        headroom=figure_of(difference(oracular.speedups[batch], chosen), layout, HEADROOM),
        complementarity=_complementarity(batch, pair),
    )


_BASELINE = FigureDescription("ratio", "the baseline over itself", "by definition")


def _complementarity(batch: int, pair: _Pair) -> Figure | None:
    if not pair.combined:
        return None
    layout = pair.combined[0].line.answers.layout
    better = best_of([each.speedups[batch] for each in pair.singles])[1]
    return figure_of(difference(pair.combined[0].speedups[batch], better), layout, COMPLEMENTARITY)


def _censored(named: NamedDrafter) -> Figure:
    """Return the share of the run's steps whose drafts were all accepted."""
    answers, drafts = named.single.answers, named.run_drafts or 0
    own = walk_fixed(answers, _drafter(named), drafts)
    full = named.single.acceptance.accepted[own.steps.place] >= drafts
    ratio = _per_step(answers, own, full.astype(np.float64))
    return figure_of(resample([ratio], answers.layout)[0], answers.layout, CENSORED)


def _per_step(answers: AnswerSet, policy_walk: PolicyWalk, values: Values) -> SummedRatio:
    """Return the mean of a value over steps. `values`: shape (steps,)."""
    return SummedRatio(policy_walk.steps.sums(answers, values), policy_walk.steps.sums(answers))


def _covered(both: SharedAnswers | None) -> Figure | None:
    if both is None:
        return None
    prompts = len(set(both.answers.ids))
    words = {"unit": COVERED.unit, "definition": COVERED.definition, "source": COVERED.source}
    return Figure(value=both.covered, n=prompts, **words)


def _drafter(named: NamedDrafter) -> PricedDrafter:
    return PricedDrafter(named.name, named.single.acceptance, named.cost)
