"""Courses made into rows: tokens a step and, where a step's cost is known, the speed-up at each batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.cost_model import CostModel
from specbench_api.outcome.oracle import Charge, OracleRow, Policy
from specbench_client.analysis.oracle.answers import Answers
from specbench_client.analysis.oracle.course import OURS, PUBLISHED, Course, Rules
from specbench_client.analysis.oracle.sampled import Ratio, Sampled, Words, figure, sampled
from specbench_client.analysis.oracle.seconds import course_seconds, plain_seconds
from specbench_client.metrics.frame import Values

AL = Words("tokens/step", "(output tokens - 1) / steps, pooled over steps", "walked again")
AL_MEAN = Words("tokens/step", "(output tokens - 1) / steps of each answer, mean over answers", "walked again")
SPEEDUP = Words(
    "ratio",
    "seconds without a drafter / seconds on this course, both sums over all answers, by the step cost; each answer as a"
    " batch of copies of itself",
    "step-cost model",
)
SPEEDUP_PUBLISHED = Words(
    "ratio",
    "mean over answers of tokens / seconds on this course, over the same mean without a drafter, by the step cost",
    "step-cost model",
)


@dataclass(frozen=True)
class Pricing:
    """With what courses are priced: batch sizes, a step's cost, and by whose rules."""

    batches: tuple[int, ...] = ()
    cost: CostModel | None = None
    rules: Rules = OURS

    @property
    def priced(self) -> tuple[int, ...]:
        """The batch sizes that have a speed-up."""
        return self.batches if self.cost else ()


@dataclass(frozen=True)
class Line:
    """One course over some answers, with what it is."""

    policy: Policy
    drafter: str
    answers: Answers
    course: Course
    drafts: int | None = None
    charge: Charge | None = None


@dataclass(frozen=True)
class Priced:
    """A line with its numbers and their resamples. `speedups`: by batch size."""

    line: Line
    length: Sampled
    length_mean: Sampled
    speedups: dict[int, Sampled]


def priced(lines: Sequence[Line], pricing: Pricing) -> list[Priced]:
    """Lines over the same answers: one draw of resamples serves all of them."""
    found = []
    width = 2 + len(pricing.priced)
    ratios = [ratio for line in lines for ratio in _ratios(line, pricing)]
    numbers = sampled(ratios, lines[0].answers.layout) if lines else []
    for index, line in enumerate(lines):
        own = numbers[index * width : (index + 1) * width]
        found.append(Priced(line, own[0], own[1], dict(zip(pricing.priced, own[2:], strict=True))))
    return found


def row(line: Priced, pricing: Pricing) -> OracleRow:
    """As it is printed."""
    what, layout = line.line, line.line.answers.layout
    words = speedup_words(pricing)
    return OracleRow(
        policy=what.policy,
        drafter=what.drafter,
        drafts=what.drafts,
        charge=what.charge,
        acceptance_length=figure(line.length, layout, AL),
        acceptance_length_mean=figure(line.length_mean, layout, AL_MEAN),
        speedups={str(batch): figure(number, layout, words) for batch, number in line.speedups.items()},
    )


def speedup_words(pricing: Pricing) -> Words:
    """By whose definition a speed-up is one."""
    return SPEEDUP_PUBLISHED if pricing.rules == PUBLISHED else SPEEDUP


def lengths(answers: Answers, course: Course) -> tuple[Ratio, Ratio]:
    """Tokens a step: pooled, and as the mean over answers."""
    tokens = (answers.output_tokens - 1).astype(np.float64)
    steps = course.steps.sums(answers)
    return Ratio(tokens, steps), Ratio(tokens / steps, np.ones_like(steps))


def _ratios(line: Line, pricing: Pricing) -> list[Ratio]:
    cost = pricing.cost
    speedups = [_speedup(line, cost, batch, pricing.rules) for batch in pricing.priced] if cost else []
    return [*lengths(line.answers, line.course), *speedups]


def _speedup(line: Line, cost: CostModel, batch: int, rules: Rules) -> Ratio:
    plain = plain_seconds(line.answers, cost, batch)
    taken = course_seconds(line.answers, line.course, cost, batch)
    return published_ratio(line.answers, plain, taken) if rules == PUBLISHED else Ratio(plain, taken)


def published_ratio(answers: Answers, plain: Values, taken: Values) -> Ratio:
    """The published definition: throughputs are averaged over answers before they are divided."""
    return Ratio(answers.output_tokens / taken, answers.output_tokens / plain)
