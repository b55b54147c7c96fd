"""Builds the report of `specbench analyze oracle` from the accepted drafts at each position of recorded answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specbench_client.analysis.what_if.answers import DrafterAnswers
from specbench_client.analysis.what_if.policies import (
    SPEEDUP,
    FigureDescription,
    PolicyWalk,
    PricedPolicy,
    Pricing,
    ResampledNumber,
    SummedRatio,
    best_of,
    cost_limit,
    cut_steps,
    difference,
    figure_of,
    price_policies,
    resample,
    walk_fixed,
    walk_oracle,
)
from specbench_client.documents.figure import Figure
from specbench_client.documents.what_if import (
    BatchHeadroom,
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
    "the values of fixed lengths below the run's own are lower bounds, the larger of two: each step cut to the length,"
    " which is exact if acceptance does not depend on where a step begins, and span-split, which is exact if drafts"
    " depend on the text alone. The headroom over one of them is an upper bound"
)
LOWER_BOUND = "lower bound"
UPPER_BOUND = "upper bound"
CENSORED_MOST = 0.1
"""Largest share of steps with all drafts accepted that is not reported. At 6 % (n-gram, code, 20 drafts) span-split was
3 % low; at 76 % (the target itself, quantised, 10 drafts) it was 27 % below truncation, which is low too."""
_TOO_SHORT = (
    "{share:.0%} of the steps accepted every draft: the drafts are too short for this analysis, so the oracle is far"
    " too low: measure again with longer drafts"
)
HEADROOM = FigureDescription(
    SPEEDUP.unit,
    "speed-up of the oracle - speed-up of the best fixed draft length or of none; the best of each resample",
    SPEEDUP.source,
)
CENSORED = FigureDescription(
    "ratio", "steps whose drafts were all accepted / steps, at the run's own draft length", "records", 0.0, 1.0
)
_BASELINE = FigureDescription("ratio", "the baseline over itself", "by definition")


@dataclass(frozen=True)
class OracleSubject:
    """Input of a report: a drafter with its answers and the cost of its drafting."""

    source: str
    drafter: str
    single: DrafterAnswers
    cost: DraftCost | None = None
    run_drafts: int | None = None
    """Draft tokens per step of the run; None for a trace, which has the acceptance of every position."""
    simulated: bool = False
    sampled: bool = False
    """Whether answers were sampled at a temperature above 0."""
    left_out: Mapping[str, int] = field(default_factory=dict)


def oracle_report(subject: OracleSubject, drafts: Sequence[int], pricing: Pricing) -> OracleReport:
    """Walk every policy and report it. `drafts`: fixed draft lengths to try, besides that of the run itself."""
    answers, own = subject.single.answers, subject.run_drafts
    lengths = sorted({*drafts} if own is None else {own, *(each for each in drafts if each <= own)})
    acceptance, cost = subject.single.acceptance, subject.cost
    fixed = [(DraftPolicy.FIXED, each, _walk_of_length(subject, each)) for each in lengths]
    oracle = (DraftPolicy.ORACLE, None, walk_oracle(answers, acceptance, cost))
    priced = price_policies(answers, [*fixed, oracle], pricing)
    censored = None if own is None else _censored(subject, own)
    return OracleReport(
        source=subject.source,
        simulated=subject.simulated,
        drafter=subject.drafter,
        answers=answers.count,
        tokens=answers.positions,
        left_out=dict(subject.left_out),
        censored=censored,
        step_cost=pricing.cost,
        rows=[each.row(answers.layout, LOWER_BOUND if _is_bound(subject, each.drafts) else "") for each in priced],
        rooms=[_room(subject, batch, priced) for batch in pricing.priced],
        limits=list(oracle_limits(subject, pricing, censored)),
    )


def oracle_limits(subject: OracleSubject, pricing: Pricing, censored: Figure | None) -> list[str]:
    """Return the limits that apply; one of them if the run's drafts cut too many steps for span-split."""
    share = censored.value if censored else None
    return [
        _BOUND,
        cost_limit(pricing.cost),
        *([_SPLIT] if subject.run_drafts is not None else []),
        *([_SAMPLED] if subject.sampled else []),
        *([_TOO_SHORT.format(share=share)] if share is not None and share > CENSORED_MOST else []),
    ]


def _is_bound(subject: OracleSubject, drafts: int | None) -> bool:
    """Return whether a fixed draft length is below the run's own."""
    return drafts is not None and subject.run_drafts is not None and drafts < subject.run_drafts


def _walk_of_length(subject: OracleSubject, drafts: int) -> PolicyWalk:
    """Return the walk with a fixed draft length; below the run's own, that of the larger lower bound."""
    answers, acceptance, cost = subject.single.answers, subject.single.acceptance, subject.cost
    split = walk_fixed(answers, acceptance, drafts, cost)
    if subject.run_drafts is None or not _is_bound(subject, drafts):
        return split
    cut = cut_steps(walk_fixed(answers, acceptance, subject.run_drafts, cost), drafts)
    return max(split, cut, key=lambda each: float(each.steps.emitted.mean()))


def _room(subject: OracleSubject, batch: int, priced: Sequence[PricedPolicy]) -> BatchHeadroom:
    """Return the headroom of the oracle at a batch size over the best fixed draft length, or over no drafting."""
    *fixes, oracular = priced
    layout = subject.single.answers.layout
    numbers = [ResampledNumber(1.0, np.ones_like(oracular.length.samples)), *(each.speedups[batch] for each in fixes)]
    place, chosen = best_of(numbers)
    best = (fixes[place - 1].drafts or 0) if place else 0
    is_bound = place > 0 and _is_bound(subject, best)
    fixed = figure_of(numbers[place], layout, SPEEDUP if place else _BASELINE)
    headroom = figure_of(difference(oracular.speedups[batch], chosen), layout, HEADROOM)
    return BatchHeadroom(
        batch=batch,
        best_drafts=best,
        best_fixed=fixed.without_interval(LOWER_BOUND if is_bound else ""),
        headroom=headroom.without_interval(UPPER_BOUND if is_bound else ""),
    )


def _censored(subject: OracleSubject, drafts: int) -> Figure:
    """Return the share of the run's steps whose drafts were all accepted."""
    answers, acceptance = subject.single.answers, subject.single.acceptance
    steps = walk_fixed(answers, acceptance, drafts).steps
    full = (acceptance.accepted[steps.place] >= drafts).astype(np.float64)
    ratio = SummedRatio(steps.sums(answers, full), steps.sums(answers))
    return figure_of(resample([ratio], answers.layout)[0], answers.layout, CENSORED)
