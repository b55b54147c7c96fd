"""The whole answer of `specbench oracle`, from what is known of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specbench_api.outcome.cost_model import DraftCost
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.oracle import BatchRoom, Charge, OracleReport, Policy, WhatIf
from specbench_client.analysis.oracle.answers import Answers
from specbench_client.analysis.oracle.course import PUBLISHED, Course, Drafter, combine, fixed, oracle
from specbench_client.analysis.oracle.limits import limits, too_short
from specbench_client.analysis.oracle.policies import AL, Line, Priced, Pricing, lengths, priced, row, speedup_words
from specbench_client.analysis.oracle.sampled import Ratio, Sampled, Words, best, figure, minus, sampled
from specbench_client.analysis.oracle.told import Both, Single
from specbench_client.metrics.frame import Values

HEADROOM = "speed-up of the oracle - of the best fixed draft length, or of none; the best of each resample"
COMPLEMENTARITY = "speed-up of the combined oracle (the winner pays) - of the better of the two by itself"
CENSORED = Words("ratio", "steps whose drafts were all accepted / steps, at the run's own draft length", "records")
COVERED = Words("ratio", "output tokens at which both speak of the same text / output tokens", "records")
TRUNCATED = Words("tokens/step", "1 + mean over the run's steps of min(accepted, drafts)", "records")


@dataclass(frozen=True)
class Named:
    """One drafter's answers, its name, and what drafting costs it."""

    name: str
    single: Single
    cost: DraftCost | None = None
    asked: int | None = None
    """Draft tokens a step of the run that these are of; None where positions were told one by one."""


@dataclass(frozen=True)
class Subject:
    """What is asked about. `second` and `both`: of two drafters alone; `both.first` is `second`'s, the cheaper one."""

    source: str
    main: Named
    second: Named | None = None
    both: Both | None = None
    simulated: bool = False
    sampled: bool = False
    """Answers were drawn at a temperature."""
    left_out: Mapping[str, int] = field(default_factory=dict)


def oracle_report(subject: Subject, drafts: Sequence[int], pricing: Pricing) -> OracleReport:
    """Walk every policy. `drafts`: the fixed draft lengths that are tried, and beside them that of the run itself."""
    main = subject.main
    drafts = [each for each in drafts if main.asked is None or each <= main.asked]
    own = [] if main.asked is None else [main.asked]
    alone = _alone(main, sorted({*drafts, *own}), pricing)
    pair = _pair(subject, pricing)
    further = _second(subject.second, pricing) if subject.second else []
    two = [main, subject.second] if subject.second else [main]
    censored = {each.name: _censored(each) for each in two if each.asked is not None}
    return OracleReport(
        source=subject.source,
        simulated=subject.simulated,
        drafters=[each.name for each in two],
        conventions="published" if pricing.rules == PUBLISHED else "specbench",
        answers=main.single.answers.count,
        tokens=main.single.answers.positions,
        left_out=dict(subject.left_out),
        covered=_covered(subject.both),
        covered_by=subject.both.compared_by if subject.both else None,
        censored=censored,
        what_if=_what_if(main, drafts) if main.asked is not None else [],
        step_cost=pricing.cost,
        rows=[row(line, pricing) for line in [*alone, *further, *pair.combined]],
        rooms=[_room(batch, alone, pair, pricing) for batch in pricing.priced],
        limits=[
            *limits(pricing, drawn=subject.sampled, two=subject.both is not None, split=main.asked is not None),
            *too_short(censored),
        ],
    )


@dataclass(frozen=True)
class _Pair:
    """Over the answers of both: the single oracles, and the combined ones."""

    singles: list[Priced]
    combined: list[Priced]


def _alone(main: Named, drafts: Sequence[int], pricing: Pricing) -> list[Priced]:
    answers, drafter = main.single.answers, _drafter(main)
    lines = [
        Line(Policy.FIXED, main.name, answers, fixed(answers, drafter, each, pricing.rules), each) for each in drafts
    ]
    return priced([*lines, _oracle(main.name, main.single, drafter, pricing)], pricing)


def _second(second: Named, pricing: Pricing) -> list[Priced]:
    return priced([_oracle(second.name, second.single, _drafter(second), pricing)], pricing)


def _oracle(name: str, single: Single, drafter: Drafter, pricing: Pricing) -> Line:
    return Line(Policy.ORACLE, name, single.answers, oracle(single.answers, drafter, pricing.rules))


def _pair(subject: Subject, pricing: Pricing) -> _Pair:
    both, second = subject.both, subject.second
    if both is None or second is None or not both.answers.count:
        return _Pair([], [])
    answers, main, rules = both.answers, subject.main, pricing.rules
    first, other = Drafter(second.name, both.first, second.cost), Drafter(main.name, both.second, main.cost)
    charges = [Charge.WINNER, Charge.BOTH, *([Charge.UNCHARGED] if rules == PUBLISHED else [])]
    singles = [Line(Policy.ORACLE, each.name, answers, oracle(answers, each, rules)) for each in (first, other)]
    name = f"{first.name}+{other.name}"
    combined = [
        Line(Policy.COMBINE, name, answers, combine(answers, first, other, charge, rules), None, charge)
        for charge in charges
    ]
    found = priced([*singles, *combined], pricing)
    return _Pair(found[:2], found[2:])


def _room(batch: int, alone: Sequence[Priced], pair: _Pair, pricing: Pricing) -> BatchRoom:
    """What is left to be won at a batch size, over the best fixed draft length or none at all."""
    words = speedup_words(pricing)
    *fixes, oracular = alone
    layout = oracular.line.answers.layout
    numbers = [Sampled(1.0, np.ones_like(oracular.length.samples)), *(each.speedups[batch] for each in fixes)]
    place, chosen = best(numbers)
    own = figure(numbers[place], layout, words) if place else figure(numbers[0], layout, _BASELINE)
    return BatchRoom(
        batch=batch,
        best_drafts=(fixes[place - 1].line.drafts or 0) if place else 0,
        best_fixed=own,
        headroom=figure(minus(oracular.speedups[batch], chosen), layout, Words(words.unit, HEADROOM, words.source)),
        complementarity=_complementarity(batch, pair, Words(words.unit, COMPLEMENTARITY, words.source)),
    )


_BASELINE = Words("ratio", "the baseline over itself", "by definition")


def _complementarity(batch: int, pair: _Pair, words: Words) -> Figure | None:
    if not pair.combined:
        return None
    layout = pair.combined[0].line.answers.layout
    better = best([each.speedups[batch] for each in pair.singles])[1]
    return figure(minus(pair.combined[0].speedups[batch], better), layout, words)


def _what_if(main: Named, drafts: Sequence[int]) -> list[WhatIf]:
    """From the run's own steps: cut each by itself, and walked again."""
    answers, drafter = main.single.answers, _drafter(main)
    own = fixed(answers, drafter, main.asked or 0)
    courses = [fixed(answers, drafter, each) for each in drafts]
    ratios = [
        ratio
        for each, course in zip(drafts, courses, strict=True)
        for ratio in (_truncated(main, own, each), lengths(answers, course)[0])
    ]
    numbers = sampled(ratios, answers.layout)
    split = Words(AL.unit, f"{AL.definition}; spans split", "walked again")
    return [
        WhatIf(
            drafts=each,
            truncated=figure(numbers[2 * index], answers.layout, TRUNCATED),
            span_split=figure(numbers[2 * index + 1], answers.layout, split),
        )
        for index, each in enumerate(drafts)
    ]


def _truncated(main: Named, own: Course, drafts: int) -> Ratio:
    emitted = np.minimum(main.single.reach.accepted[own.steps.place], drafts) + 1
    return _per_step(main.single.answers, own, emitted.astype(np.float64))


def _censored(named: Named) -> Figure:
    """Of the steps that the run took, those whose drafts were all accepted."""
    answers, asked = named.single.answers, named.asked or 0
    own = fixed(answers, _drafter(named), asked)
    full = named.single.reach.accepted[own.steps.place] >= asked
    ratio = _per_step(answers, own, full.astype(np.float64))
    return figure(sampled([ratio], answers.layout)[0], answers.layout, CENSORED)


def _per_step(answers: Answers, course: Course, values: Values) -> Ratio:
    """The mean of a value over steps."""
    return Ratio(course.steps.sums(answers, values), course.steps.sums(answers))


def _covered(both: Both | None) -> Figure | None:
    if both is None:
        return None
    prompts = len(set(both.answers.ids))
    words = {"unit": COVERED.unit, "definition": COVERED.definition, "source": COVERED.source}
    return Figure(value=both.covered, n=prompts, **words)


def _drafter(named: Named) -> Drafter:
    return Drafter(named.name, named.single.reach, named.cost)
