"""Published rules of thumb, and whether the measured speed-ups of a run agree with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.provenance import FactName
from specbench_api.outcome.recommendation import RuleCase, RuleReading, RuleVerdict
from specbench_api.outcome.summary import ArmEnvironment, Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import Drafter, Method
from specbench_client.analysis.decision.request import Constraints
from specbench_client.analysis.estimates.figure_ratios import figure_ratio

NO_CELL = "no valid cell of this run falls under its condition"
ILLUSION = "Liu et al., Speculative Decoding: Performance or Illusion? (arXiv 2601.11580)"
SPEED_BENCH = "SPEED-Bench (arXiv 2604.09557)"
PRODUCTION = "Speculative Decoding Production Benchmark 2026 (youngju.dev, 4 March 2026)"
FREE_LUNCH = "Speculative decoding: a free lunch? (blog)"


@dataclass(frozen=True)
class RatioRange:
    """An expected range of a ratio, bounds included, and its name."""

    low: float
    high: float
    words: str

    def verdict(self, low: float, high: float) -> RuleVerdict:
        """Compare a measured interval with the range."""
        if self.low <= low and high <= self.high:
            return RuleVerdict.AGREES
        return RuleVerdict.CONTRADICTS if high < self.low or low > self.high else RuleVerdict.UNCLEAR


FASTER = RatioRange(1.0, math.inf, "faster than the baseline")
SLOWER = RatioRange(0.0, 1.0, "slower than the baseline")
NO_GAIN = RatioRange(0.0, 1.05, "no gain of 5 % or more")
LARGER = RatioRange(1.0, math.inf, "the first one is faster")


@dataclass(frozen=True)
class RuleCell:
    """The cell that the speed-ups of a case come from."""

    workload: str
    load: str


def rule_case(
    arms: str, where: RuleCell, because: str, expects: RatioRange, ratio: Figure, *, too_few_repeats: str = ""
) -> RuleCase:
    """Compare one measured ratio with the range that a rule expects. `because`: why the rule applies to it."""
    bounds = None if too_few_repeats else ratio.interval
    interval = f" [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else f" ({too_few_repeats or 'no interval'})"
    return RuleCase(
        arm=arms,
        workload=where.workload,
        load=where.load,
        because=because,
        predicted=expects.words,
        measured=f"{ratio.value:.2f}x{interval}",
        verdict=expects.verdict(bounds.low, bounds.high) if bounds else RuleVerdict.UNCLEAR,
    )


@dataclass(frozen=True)
class DrafterCell:
    """One drafter's cell that was compared with the baseline."""

    plan: Plan
    cell: Cell
    drafter: Drafter
    seen: ArmEnvironment | None

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
        """Return a fact of the arm's launches; None if it is not a number."""
        value = self.seen.facts[name].value if self.seen and name in self.seen.facts else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class RuleOfThumb:
    """One rule. `condition` returns why it applies to a cell, or None; `unmeasured`: why no run can test it."""

    name: str
    statement: str
    source: str
    expects: RatioRange = FASTER
    condition: Callable[[DrafterCell], str | None] | None = None
    pairs: Callable[[DrafterCell, DrafterCell], str | None] | None = None
    """Returns why the first of two arms at one load should be faster than the second, or None."""
    unmeasured: str = ""

    def read(self, subjects: Sequence[DrafterCell]) -> RuleReading:
        """Compare the rule with the measurements."""
        cases = [*self._alone(subjects), *self._paired(subjects)]
        return self.reading(cases, self.unmeasured or NO_CELL)

    def reading(self, cases: Sequence[RuleCase], why_none: str) -> RuleReading:
        """Return the reading over these cases. `why_none`: the reason if there are none."""
        return RuleReading(
            rule=self.name,
            statement=self.statement,
            source=self.source,
            verdict=overall_verdict(cases),
            reason="" if cases else why_none,
            cases=list(cases),
        )

    def _alone(self, subjects: Sequence[DrafterCell]) -> Iterator[RuleCase]:
        for subject in subjects:
            because = self.condition(subject) if self.condition else None
            figure = subject.cell.speedup
            if because is not None and figure is not None:
                yield self._case(subject.cell.arm, subject.cell, because, figure)

    def _paired(self, subjects: Sequence[DrafterCell]) -> Iterator[RuleCase]:
        for first in subjects:
            for second in subjects:
                because = self.pairs(first, second) if self.pairs and _are_comparable(first, second) else None
                ratio = None
                if because is not None and first.cell.speedup and second.cell.speedup:
                    ratio = figure_ratio(first.cell.speedup, second.cell.speedup, "")
                if because is not None and ratio is not None:
                    yield self._case(f"{first.cell.arm} over {second.cell.arm}", first.cell, because, ratio)

    def _case(self, arm: str, cell: Cell, because: str, figure: Figure) -> RuleCase:
        where = RuleCell(cell.workload, cell.level.label)
        return rule_case(arm, where, because, self.expects, figure, too_few_repeats=cell.too_few_repeats)


def drafter_cells(plan: Plan, summary: RunSummary) -> list[DrafterCell]:
    """Return every valid cell of a drafter that was compared with the baseline."""
    seen = {each.arm: each for each in summary.arm_environments}
    drafters = {arm.name: arm.drafter for arm in plan.arms}
    return [
        DrafterCell(plan, cell, drafter, seen.get(cell.arm))
        for cell in summary.cells
        if (drafter := drafters.get(cell.arm)) is not None
        if cell.valid and cell.speedup is not None and cell.speedup.value is not None
    ]


def _are_comparable(first: DrafterCell, second: DrafterCell) -> bool:
    places = [(each.cell.workload, each.cell.level) for each in (first, second)]
    return first.cell.arm != second.cell.arm and places[0] == places[1]


def overall_verdict(cases: Sequence[RuleCase]) -> RuleVerdict:
    """Return the verdict over all cases: one contradiction contradicts, and all must agree to agree."""
    verdicts = {case.verdict for case in cases}
    if not verdicts:
        return RuleVerdict.NOT_APPLICABLE
    if RuleVerdict.CONTRADICTS in verdicts:
        return RuleVerdict.CONTRADICTS
    return RuleVerdict.AGREES if verdicts == {RuleVerdict.AGREES} else RuleVerdict.UNCLEAR


# Rules that a run can measure.

_BIG_TREE = 21
_PRACTICAL = 16
"""The smallest batch above 1 that the source measured."""


def _accepted(low: float, high: float, least: int = 1) -> Callable[[DrafterCell], str | None]:
    """Accepted share from `low` to below `high`, with at least `least` draft tokens a step."""

    def condition(subject: DrafterCell) -> str | None:
        rate, drafts = subject.acceptance, subject.drafter.num_speculative_tokens
        if rate is None or not low <= rate < high or drafts < least:
            return None
        return f"{rate:.0%} of the drafts accepted" + (f", {drafts} a step" if least > 1 else "")

    return condition


def _streams(low: int, high: float) -> Callable[[DrafterCell], str | None]:
    def condition(subject: DrafterCell) -> str | None:
        streams = subject.concurrency
        return f"concurrency {streams}" if streams is not None and low <= streams <= high else None

    return condition


def _hot(subject: DrafterCell) -> str | None:
    return f"temperature {subject.temperature:g}" if subject.temperature > 1 else None


def _big_tree(subject: DrafterCell) -> str | None:
    nodes, streams = subject.drafter.num_draft_tokens, subject.concurrency
    if nodes is None or streams is None or nodes < _BIG_TREE or streams < 64:
        return None
    return f"{nodes} nodes at concurrency {streams}"


def _size(subject: DrafterCell) -> str | None:
    target, draft = subject.number(FactName.WEIGHTS_BYTES), subject.number(FactName.DRAFTER_WEIGHTS_BYTES)
    if subject.drafter.method is not Method.DRAFT_MODEL or not target or not draft:
        return None
    return f"1/{target / draft:.0f} of the target's weights" if 10 <= target / draft <= 50 else None


def _length(first: DrafterCell, second: DrafterCell) -> str | None:
    mine, its = first.drafter, second.drafter
    if not _same_drafter(mine, its) or _is_tree(mine) or _is_tree(its):
        return None
    lengths = mine.num_speculative_tokens, its.num_speculative_tokens
    return f"{lengths[0]} against {lengths[1]} drafts" if 5 <= lengths[0] <= 7 and not 5 <= lengths[1] <= 7 else None


def _chain(first: DrafterCell, second: DrafterCell) -> str | None:
    mine, its, streams = first.drafter, second.drafter, first.concurrency
    if not _same_drafter(mine, its) or _is_tree(mine) or not _is_tree(its) or (streams or 0) < _PRACTICAL:
        return None
    return f"chain against tree at concurrency {streams}"


def _all_round(first: DrafterCell, second: DrafterCell) -> str | None:
    if first.drafter.method is not Method.EAGLE3 or second.drafter.method is Method.EAGLE3:
        return None
    return f"eagle3 against {second.drafter.method}"


def _same_drafter(one: Drafter, other: Drafter) -> bool:
    return (one.method, one.model, one.algorithm) == (other.method, other.model, other.algorithm)


def _is_tree(drafter: Drafter) -> bool:
    return (drafter.eagle_topk or 1) > 1 or drafter.num_draft_tokens is not None


MEASURED = (
    RuleOfThumb(
        "acceptance-under-55",
        "Below 55 % of the drafts accepted, do not enable it",
        FREE_LUNCH,
        NO_GAIN,
        _accepted(0, 0.55),
    ),
    RuleOfThumb(
        "acceptance-55-to-60",
        "Between 55 and 60 % it breaks even",
        FREE_LUNCH,
        RatioRange(0.95, 1.05, "within 5 % of the baseline"),
        _accepted(0.55, 0.60),
    ),
    RuleOfThumb("acceptance-over-65", "Above 65 % it gains", FREE_LUNCH, FASTER, _accepted(0.65, math.inf)),
    RuleOfThumb(
        "acceptance-60-with-5-drafts",
        "From 60 % with five drafts or more, two to three times as fast (its own formula gives 2.4 tokens a step)",
        FREE_LUNCH,
        RatioRange(2.0, 3.0, "2x to 3x"),
        _accepted(0.60, math.inf, least=5),
    ),
    RuleOfThumb("temperature-over-1", "Above temperature 1, disable it", PRODUCTION, NO_GAIN, _hot),
    RuleOfThumb("concurrency-32", "From concurrency 32 no gain", PRODUCTION, NO_GAIN, _streams(32, 63)),
    RuleOfThumb("concurrency-64", "From concurrency 64 a loss", PRODUCTION, SLOWER, _streams(64, math.inf)),
    RuleOfThumb(
        "concurrency-1-to-10",
        "Up to concurrency 10 two to three times as fast",
        FREE_LUNCH,
        RatioRange(2.0, 3.0, "2x to 3x"),
        _streams(1, 10),
    ),
    RuleOfThumb(
        "concurrency-10-to-30",
        "From concurrency 10 to 30, 1.3 to 1.8 times as fast",
        FREE_LUNCH,
        RatioRange(1.3, 1.8, "1.3x to 1.8x"),
        _streams(11, 30),
    ),
    RuleOfThumb(
        "big-tree-at-64",
        "A tree of 21 nodes is slower than the baseline by batch 64",
        ILLUSION,
        SLOWER,
        _big_tree,
    ),
    RuleOfThumb(
        "draft-model-size",
        "A draft model has a tenth to a fiftieth of the target's size",
        FREE_LUNCH,
        FASTER,
        _size,
    ),
    RuleOfThumb(
        "draft-length-5-to-7", "Five to seven drafts are best, more are wasted", PRODUCTION, LARGER, pairs=_length
    ),
    RuleOfThumb("chain-over-tree", "Chains beat trees at practical batches", ILLUSION, LARGER, pairs=_chain),
    RuleOfThumb("eagle3-all-round", "EAGLE-3 is the best all-round drafter", SPEED_BENCH, LARGER, pairs=_all_round),
)


# The decision tree of the literature, with the user's constraints, and its choice compared with the run.

DECISION_TREE = "decision-tree"
ROOMY_GB = 10
"""Above this spare memory the tree chooses EAGLE-3."""
_STATEMENT = (
    "Targets change often: draft model or prompt lookup; more than 10 GB spare: EAGLE-3; can train: Medusa-2; else a"
    " draft model"
)
_DRAFT_MODEL = (Method.DRAFT_MODEL,)


def decision_tree(constraints: Constraints) -> RuleOfThumb:
    """Return the rule that an arm of the method at which the tree ends is faster than every other arm."""
    methods, lacks = _followed(constraints)
    if not methods:
        return RuleOfThumb(DECISION_TREE, _STATEMENT, PRODUCTION, unmeasured=f"the tree needs {lacks}")
    names = " or ".join(methods)
    return RuleOfThumb(DECISION_TREE, f"{_STATEMENT}. Here: {names}", PRODUCTION, LARGER, pairs=_prefers(methods))


def _followed(constraints: Constraints) -> tuple[tuple[Method, ...], str]:
    """Return the methods at which the tree ends; or none, and the option that it needs."""
    if constraints.target_changes is None:
        return (), "--target-changes"
    if constraints.target_changes == "often":
        return (Method.DRAFT_MODEL, Method.NGRAM), ""
    if constraints.spare_memory_gb is None:
        return (), "--spare-memory-gb"
    if constraints.spare_memory_gb > ROOMY_GB:
        return (Method.EAGLE3,), ""
    if constraints.can_train is None:
        return (), "--can-train"
    return (Method.MEDUSA,) if constraints.can_train else _DRAFT_MODEL, ""


def _prefers(methods: tuple[Method, ...]) -> Callable[[DrafterCell, DrafterCell], str | None]:
    def because(first: DrafterCell, second: DrafterCell) -> str | None:
        if first.drafter.method not in methods or second.drafter.method in methods:
            return None
        return f"{first.drafter.method} against {second.drafter.method}"

    return because


# Rules that one run cannot measure, each with an alternative.

HIGH_OVERLAP = RuleOfThumb(
    "ngram-at-high-overlap",
    "Where BLEU-4 of prompt and output is above 0.6, n-gram beats EAGLE",
    ILLUSION,
    unmeasured="a summary contains no texts: `specbench analyze ngram` tests it on a run with texts (--keep-text)",
)
UNMEASURED = (
    HIGH_OVERLAP,
    RuleOfThumb(
        "latency-over-perplexity",
        "A drafter's latency matters more than its perplexity",
        FREE_LUNCH,
        unmeasured="no perplexity is measured; two drafters as arms of one run show which is faster",
    ),
    RuleOfThumb(
        "data-mix-over-size",
        "The mix of a drafter's training data matters more than its size",
        FREE_LUNCH,
        unmeasured="how a drafter was trained is not in a run; two of them as arms show which is faster",
    ),
    RuleOfThumb(
        "slo-table",
        "P95 TPOT under 20 ms or cheapest: EAGLE-3 with 5 drafts; under 35 ms: draft model or Medusa; most throughput:"
        " EAGLE-3 with 7 drafts at concurrency 8 or less",
        PRODUCTION,
        unmeasured="the winners of one setup; find yours with --slo-tpot-ms and --objective",
    ),
    RuleOfThumb(
        "checklist",
        "Look at workload, batch, output length, acceptance, 2 to 8 GB of memory, and framework",
        FREE_LUNCH,
        unmeasured="a checklist and not a prediction: the report lists each item for this run",
    ),
    RuleOfThumb(
        "method-by-use",
        "Draft models for large targets, n-gram for editing, MTP where the target brings it",
        SPEED_BENCH,
        unmeasured="a comparison of targets and workloads, so of several runs; within one, see speed-ups by category",
    ),
    RuleOfThumb(
        "switch-by-load",
        "Switch drafts on and off by load",
        PRODUCTION,
        unmeasured="a design and not a prediction: the answer at each load shows where a drafter pays",
    ),
    RuleOfThumb(
        "memory-constrained",
        "Short of memory: self-speculation or n-gram; frequent target updates: what needs no training",
        FREE_LUNCH,
        unmeasured="a constraint of yours: --can-train no and --spare-memory-gb rule the other arms out",
    ),
)


NO_CONSTRAINTS = Constraints()
RULES: tuple[RuleOfThumb, ...] = (*MEASURED, decision_tree(NO_CONSTRAINTS), *UNMEASURED)


def read_rules(plan: Plan, summary: RunSummary, constraints: Constraints = NO_CONSTRAINTS) -> list[RuleReading]:
    """Compare each rule with the run, in the table's order. `constraints`: what the decision tree needs."""
    subjects = drafter_cells(plan, summary)
    rules = [decision_tree(constraints) if rule.name == DECISION_TREE else rule for rule in RULES]
    return [rule.read(subjects) for rule in rules]
