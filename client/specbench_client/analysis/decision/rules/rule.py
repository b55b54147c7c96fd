"""What a rule is, and what a measured ratio says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specbench_api.outcome.facts import FactName
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import RuleCase, RuleReading, RuleVerdict
from specbench_api.outcome.summary import ArmSeen, Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import Drafter
from specbench_client.analysis.estimates.evidence import quotient

NOTHING = "no valid cell of this run falls under its condition"
ILLUSION = "Liu et al., Speculative Decoding: Performance or Illusion? (arXiv 2601.11580)"
SPEED_BENCH = "SPEED-Bench (arXiv 2604.09557)"
PRODUCTION = "Speculative Decoding Production Benchmark 2026 (youngju.dev, 4 March 2026)"
FREE_LUNCH = "Speculative decoding: a free lunch? (blog)"


@dataclass(frozen=True)
class Range:
    """Where a ratio lies, bounds included, and what that is called."""

    low: float
    high: float
    words: str

    def verdict(self, low: float, high: float) -> RuleVerdict:
        """Of an interval."""
        if self.low <= low and high <= self.high:
            return RuleVerdict.AGREES
        return RuleVerdict.CONTRADICTS if high < self.low or low > self.high else RuleVerdict.UNCLEAR


FASTER = Range(1.0, math.inf, "faster than the baseline")
SLOWER = Range(0.0, 1.0, "slower than the baseline")
NO_GAIN = Range(0.0, 1.05, "no gain of 5 % or more")
LARGER = Range(1.0, math.inf, "the first one is faster")


@dataclass(frozen=True)
class Subject:
    """One drafter's cell that was compared with the baseline."""

    plan: Plan
    cell: Cell
    drafter: Drafter
    seen: ArmSeen | None

    @property
    def concurrency(self) -> int | None:
        return self.cell.level.concurrency

    @property
    def acceptance(self) -> float | None:
        figure = self.cell.figures.get("acceptance_rate")
        return figure.value if figure else None

    @property
    def temperature(self) -> float:
        return self.plan.workload(self.cell.workload).sampling.temperature

    def number(self, name: FactName) -> float | None:
        """A fact of the arm's launches, where it is a number."""
        value = self.seen.facts[name].value if self.seen and name in self.seen.facts else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Rule:
    """One rule. `condition`: why a cell falls under it, or None; without one, `unmeasured` says why no run can tell."""

    name: str
    says: str
    source: str
    expects: Range = FASTER
    condition: Callable[[Subject], str | None] | None = None
    pairs: Callable[[Subject, Subject], str | None] | None = None
    """Two arms at one load: why the first should be faster than the second, or None."""
    unmeasured: str = ""

    def read(self, subjects: Sequence[Subject]) -> RuleReading:
        """The rule beside what was measured."""
        cases = [*self._alone(subjects), *self._paired(subjects)]
        verdict = over(cases)
        reason = (self.unmeasured or NOTHING) if verdict is RuleVerdict.NOT_APPLICABLE else ""
        return RuleReading(
            rule=self.name, says=self.says, source=self.source, verdict=verdict, reason=reason, cases=cases
        )

    def _alone(self, subjects: Sequence[Subject]) -> Iterator[RuleCase]:
        for subject in subjects:
            because = self.condition(subject) if self.condition else None
            figure = subject.cell.speedup
            if because is not None and figure is not None:
                yield self._case(subject.cell.arm, subject.cell, because, figure)

    def _paired(self, subjects: Sequence[Subject]) -> Iterator[RuleCase]:
        for first in subjects:
            for second in subjects:
                because = self.pairs(first, second) if self.pairs and _together(first, second) else None
                ratio = None
                if because is not None and first.cell.speedup and second.cell.speedup:
                    ratio = quotient(first.cell.speedup, second.cell.speedup, "")
                if because is not None and ratio is not None:
                    yield self._case(f"{first.cell.arm} over {second.cell.arm}", first.cell, because, ratio)

    def _case(self, arm: str, cell: Cell, because: str, figure: Figure) -> RuleCase:
        bounds = None if cell.too_few_repeats else figure.interval
        told = f" [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else f" ({cell.too_few_repeats or 'no interval'})"
        return RuleCase(
            arm=arm,
            workload=cell.workload,
            load=cell.level.label,
            because=because,
            says=self.expects.words,
            measured=f"{figure.value:.2f}x{told}",
            verdict=self.expects.verdict(bounds.low, bounds.high) if bounds else RuleVerdict.UNCLEAR,
        )


def subjects_of(plan: Plan, summary: RunSummary) -> list[Subject]:
    """Every valid cell of a drafter that was compared with the baseline."""
    seen = {each.arm: each for each in summary.arms_seen}
    drafters = {arm.name: arm.drafter for arm in plan.arms}
    return [
        Subject(plan, cell, drafter, seen.get(cell.arm))
        for cell in summary.cells
        if (drafter := drafters.get(cell.arm)) is not None
        if cell.valid and cell.speedup is not None and cell.speedup.value is not None
    ]


def _together(first: Subject, second: Subject) -> bool:
    places = [(each.cell.workload, each.cell.level) for each in (first, second)]
    return first.cell.arm != second.cell.arm and places[0] == places[1]


def over(cases: Sequence[RuleCase]) -> RuleVerdict:
    """Over all cases: contradicts where one does, agrees where each does."""
    found = {case.verdict for case in cases}
    if not found:
        return RuleVerdict.NOT_APPLICABLE
    if RuleVerdict.CONTRADICTS in found:
        return RuleVerdict.CONTRADICTS
    return RuleVerdict.AGREES if found == {RuleVerdict.AGREES} else RuleVerdict.UNCLEAR
