"""What a run's figures recommend: which arm at which load, under which targets, with its evidence and its limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from specbench_api.model import ApiModel
from specbench_api.outcome.comparison import Standing
from specbench_api.outcome.figure import Figure


class Objective(StrEnum):
    """What is to be best."""

    THROUGHPUT = "throughput"
    """Most output tokens a second of the engine."""
    LATENCY = "latency"
    """Least time per output token."""
    COST = "cost"
    """Least money per output token, at the user's own prices."""


class SloTarget(ApiModel):
    """One latency that may not be exceeded, at one percentile over requests."""

    metric: Literal["ttft_ms", "tpot_ms", "e2e_ms"]
    """Which latency."""
    percentile: Literal["p50", "p95", "p99"] = "p95"
    """At which percentile over requests."""
    limit_ms: Annotated[float, Field(gt=0)]
    """The most that it may be, in ms."""

    @property
    def figure(self) -> str:
        """Name of the figure that is judged."""
        return f"{self.metric}_{self.percentile}"

    @property
    def words(self) -> str:
        """`TPOT p95 ≤ 20 ms`."""
        return f"{self.metric.removesuffix('_ms').upper()} {self.percentile} ≤ {self.limit_ms:g} ms"


class Attainment(StrEnum):
    """Whether a cell meets every target, worst first in what it claims."""

    MET = "met"
    """Every target's upper bound lies within; or there is no target."""
    MET_BY_VALUE = "met by value"
    """Every value lies within, but a bound lies beyond, or there is none: not shown."""
    MISSED_BY_VALUE = "missed by value"
    """A value lies beyond, but its lower bound within, or there is none: not shown."""
    MISSED = "missed"
    """A target's lower bound lies beyond."""
    UNKNOWN = "unknown"
    """A figure was not to be had."""

    @property
    def within(self) -> bool:
        """Whether it may be recommended."""
        return self in (Attainment.MET, Attainment.MET_BY_VALUE)


class Answer(StrEnum):
    """What can be said of one question."""

    DRAFTER = "drafter pays"
    """One drafter is shown to be better than the baseline, and no simpler one is as good."""
    NO_DRAFTER = "no drafter pays"
    """Every drafter is shown to gain less than is worth while, or is ruled out by what was asked: the baseline."""
    CANNOT_TELL = "cannot tell"
    """Neither is shown."""
    NOTHING_MEETS = "nothing meets the targets"
    """No arm meets them at any load that was measured."""


class Candidate(ApiModel):
    """One arm at one load: what it gives, what that is against the baseline there, and whether it may be chosen."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    value: Figure | None = None
    """The objective's own figure."""
    gain: Figure | None = None
    """Against the baseline at the same load; above 1 is better, whatever the objective. None for the baseline."""
    standing: Standing | None = None
    """What can be said of the gain, after Holm's correction over all gains of the run; None where there is none."""
    attainment: Attainment = Attainment.MET
    """Whether it meets the targets."""
    excluded: str = ""
    """Why it can never be chosen; empty where it can."""
    doubts: list[str] = []
    """Names of the checks that found something here."""
    figures: dict[str, Figure] = {}
    """By name: requests an hour; with prices also cost and what is saved of it against the baseline there."""


class LoadChoice(ApiModel):
    """The answer at one load, where arms and baseline are paired."""

    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    answer: Answer
    """What can be said."""
    arm: str | None = None
    """The arm that is recommended; None where none is."""
    tied: list[str] = []
    """Other arms that are better than the baseline too, and not told apart from this one."""
    reason: str
    """Why, in words."""


class Sustained(ApiModel):
    """Up to which measured load an arm meets the targets. The loads between two measured ones are not known."""

    workload: str
    """Name of the workload."""
    arm: str
    """Name of the arm."""
    load: str | None = None
    """The largest load at which it and every smaller one meets them, by value; None where the smallest does not."""
    shown: str | None = None
    """The same by the upper bounds of the intervals."""
    missed_at: str | None = None
    """The first load that does not meet them; None where every measured one does, or where it cannot be judged."""
    reason: str = ""
    """What is missed there, with the figure; or why nothing can be said."""


class WorkloadChoice(ApiModel):
    """The answer for one workload over all its loads: each arm at the load where it is best."""

    workload: str
    """Name of the workload."""
    answer: Answer
    """What can be said."""
    arm: str | None = None
    """The arm that is recommended; None where none is."""
    load: str | None = None
    """At which load; None where no arm is recommended."""
    gain: Figure | None = None
    """Against the baseline at the load where that is best; None for the baseline itself."""
    baseline_load: str | None = None
    """The load at which the baseline is best; None where it has none that could be chosen."""
    tied: list[str] = []
    """Other arms that are better than the baseline too, and not told apart from this one."""
    reason: str
    """Why, in words."""
    at_each_load: list[LoadChoice] = []
    """The answer at every load."""
    sustained: list[Sustained] = []
    """Up to which load each arm meets the targets; empty where there are none."""


class RuleVerdict(StrEnum):
    """What the measurement says of a rule of thumb."""

    AGREES = "agrees"
    """The whole interval lies where the rule says."""
    CONTRADICTS = "contradicts"
    """The whole interval lies elsewhere."""
    UNCLEAR = "cannot tell"
    """The interval lies across, or there is none."""
    NOT_APPLICABLE = "not applicable"
    """Nothing of the run falls under its condition, or a run cannot measure it."""


class RuleCase(ApiModel):
    """One cell, or two beside each other, that falls under a rule's condition."""

    arm: str
    """Name of the arm; of two, `a over b`."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    because: str
    """How it falls under the condition, with the number."""
    says: str
    """What the rule says of it."""
    measured: str
    """What was measured: the cell's speed-up, or the two arms' over each other, with its interval."""
    verdict: RuleVerdict
    """What that says of the rule."""


class RuleReading(ApiModel):
    """One rule of the literature beside what was measured. Never instead of it."""

    rule: str
    """Name of the rule."""
    says: str
    """The rule."""
    source: str
    """Who says it."""
    verdict: RuleVerdict
    """Over all cases: contradicts where one does, agrees where each does."""
    reason: str = ""
    """Why it is not applicable."""
    cases: list[RuleCase] = []
    """What falls under it."""


class Recommendation(ApiModel):
    """What a run recommends. Evidence stands in the candidates, and each of them is a cell of the summary."""

    schema_version: Literal["specbench.io/recommendation/v1"] = "specbench.io/recommendation/v1"
    """Version of this document."""
    objective: Objective
    """What was to be best."""
    targets: list[SloTarget] = []
    """Latencies that were not to be exceeded."""
    worth: float
    """Gains below this ratio are not worth a drafter: `no drafter pays` is said where every upper bound lies below."""
    simulated: bool
    """True when any point was simulated: then nothing here speaks of an engine."""
    trustworthy: bool
    """Whether no check found a reason to doubt the run."""
    sentence: str
    """The answer in one sentence."""
    choices: list[WorkloadChoice]
    """The answer for each workload."""
    candidates: list[Candidate]
    """Every cell, in the summary's order."""
    prices: str = ""
    """At which prices; empty where there are none."""
    constraints: list[str] = []
    """What was not to be had, in words: no training, so much spare memory."""
    ruled_out: dict[str, str] = {}
    """Arms that the constraints leave out of every choice, each with the reason."""
    upkeep: list[str] = []
    """How each drafter was trained and when it must be again, where the price list tells."""
    limits: list[str]
    """What a reader must know."""
    rules_of_thumb: list[RuleReading] = []
    """Rules of thumb of the literature beside what was measured."""
