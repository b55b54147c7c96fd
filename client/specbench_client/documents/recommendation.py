"""What a run's figures recommend: which arm at which load, under which targets, with evidence and limits."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from specbench_api.api_model import ApiModel
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.latency_percentiles import Percentile
from specbench_client.documents.figure import CellReference, Figure, Verdict


class Objective(StrEnum):
    """What to optimise."""

    THROUGHPUT = "Throughput"
    """Maximum output tokens per second of the engine."""
    LATENCY = "Latency"
    """Minimum time per output token."""
    COST = "Cost"
    """Minimum cost per output token, at the user's prices."""


class SloTarget(ApiModel):
    """A maximum latency at one percentile over requests."""

    metric: Literal["ttft_ms", "tpot_ms", "e2e_ms"]
    """The latency."""
    percentile: Percentile = "p95"
    """The percentile over requests."""
    limit_ms: Annotated[float, Field(gt=0)]
    """The maximum, in ms."""

    @property
    def figure(self) -> str:
        """Name of the figure that is compared with the limit."""
        return f"{self.metric}_{self.percentile}"

    @property
    def words(self) -> str:
        """Label: `TPOT p95 ≤ 20 ms`."""
        return f"{self.metric.removesuffix('_ms').upper()} {self.percentile} ≤ {self.limit_ms:g} ms"


class Attainment(StrEnum):
    """Whether a cell meets every target."""

    MET = "Met"
    """Every figure's upper bound is within its target, or there are no targets."""
    MET_BY_VALUE = "MetByValue"
    """Every value is within its target, but some upper bound is not, or is missing: not proven."""
    MISSED_BY_VALUE = "MissedByValue"
    """Some value is beyond its target, but its lower bound is not, or is missing: not proven."""
    MISSED = "Missed"
    """Some figure's lower bound is beyond its target."""
    UNKNOWN = "Unknown"
    """Some figure is missing."""

    @property
    def within(self) -> bool:
        """Whether the cell may be recommended."""
        return self in (Attainment.MET, Attainment.MET_BY_VALUE)


class RecommendationAnswer(StrEnum):
    """Answer to one question."""

    DRAFTER = "DrafterPays"
    """One drafter is shown to be better than the baseline, and no simpler one is as good."""
    NO_DRAFTER = "NoDrafterPays"
    """Use the baseline: every drafter is shown to gain too little, or is ruled out."""
    INCONCLUSIVE = "Inconclusive"
    """Neither is shown."""
    NOTHING_MEETS = "NothingMeetsTheTargets"
    """Every arm is shown to miss the targets at every load."""


class Candidate(CellReference):
    """One arm at one load: its figure, its gain over the baseline there, and whether it may be chosen."""

    value: Figure | None = None
    """The figure to optimise."""
    gain: Figure | None = None
    """Gain over the baseline at the same load; above 1 is better for every objective. None for the baseline; without an
    interval if there are too few repeats."""
    conclusion: Verdict | None = None
    """Conclusion about the gain, after Holm's correction over all gains of the run; None without a gain."""
    attainment: Attainment = Attainment.MET
    """Whether it meets the targets."""
    excluded: str = ""
    """Why it cannot be chosen; empty if it can."""
    doubts: list[str] = []
    """Names of the checks that reported a finding above Info here."""
    figures: dict[str, Figure] = {}
    """Figures by name: requests per hour; with prices also the cost, and the saving against the baseline at the same
    load."""


class UnknownCell(CellReference):
    """A planned cell that may be better than the answer: measured again, it could change it."""

    why: str
    """Why it is unknown: it was not measured, is invalid, or its figures do not decide."""


def unknown_words(cells: Iterable[UnknownCell]) -> str:
    """Return `eagle3, mtp are unknown at 1, 8 (not measured): measure again`; empty without cells."""
    loads: dict[tuple[str, str], dict[str, None]] = {}
    for each in cells:
        loads.setdefault((each.arm, each.why), {})[each.load] = None
    arms: dict[tuple[str, str], list[str]] = {}
    for (arm, why), at in loads.items():
        arms.setdefault((", ".join(at), why), []).append("the baseline" if arm == BASELINE_NAME else arm)
    clauses = [
        f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} unknown at {at}{_after_place(why)}"
        for (at, why), names in arms.items()
    ]
    return f"{'; '.join(clauses)}: measure again" if clauses else ""


def _after_place(why: str) -> str:
    """Return a reason in brackets, unless it contains some."""
    return f", {why}" if "(" in why else why and f" ({why})"


class ArmChoice(ApiModel):
    """The choice among arms, each at one load: a drafter, no drafter, or inconclusive."""

    answer: RecommendationAnswer
    """The answer."""
    arm: str | None = None
    """The recommended arm; None if there is none."""
    tied: list[str] = []
    """Other arms that are better than the baseline and indistinguishable from the recommended one."""
    unknown: list[UnknownCell] = []
    """Cells that may be better than the answer. Without any, no cell that was planned can be."""
    reason: str
    """Explanation in a sentence, without what is unknown."""

    @property
    def why(self) -> str:
        """The whole explanation."""
        return "; ".join(part for part in (self.reason, unknown_words(self.unknown)) if part)


class LoadChoice(ArmChoice):
    """Recommendation at one load, where arms and baseline are paired."""

    workload: str
    """Name of the workload."""
    load: str
    """Label of the load level."""


class Sustained(ApiModel):
    """The highest measured load at which an arm meets the targets. Loads between measured ones are unknown."""

    workload: str
    """Name of the workload."""
    arm: str
    """Name of the arm."""
    load: str | None = None
    """The highest load such that it and every lower one meet the targets by value; None if the lowest does not."""
    shown: str | None = None
    """The same, by the upper bounds of the confidence intervals."""
    missed_at: str | None = None
    """The lowest load that does not meet the targets; None if every measured one does, or if it is unknown."""
    reason: str = ""
    """What is missed there, with the figure; or why nothing is known."""


class WorkloadChoice(ArmChoice):
    """Recommendation for one workload over all its loads, with each arm at its best load."""

    workload: str
    """Name of the workload."""
    load: str | None = None
    """The load at which it is best; None if no arm is recommended."""
    gain: Figure | None = None
    """Gain over the baseline at the baseline's best load; None for the baseline itself."""
    baseline_load: str | None = None
    """The load at which the baseline is best; None if it cannot be chosen at any load."""
    at_each_load: list[LoadChoice] = []
    """The recommendation at each load."""
    sustained: list[Sustained] = []
    """Highest load at which each arm meets the targets; empty without targets."""


class Recommendation(ApiModel):
    """The recommendation of a run. Its evidence is in `candidates`, each of which is a cell of the summary."""

    schema_version: Literal["specbench.io/recommendation/v3"] = "specbench.io/recommendation/v3"
    """Version of this document."""
    objective: Objective
    """What was optimised."""
    targets: list[SloTarget] = []
    """Latency targets that had to be met."""
    worth: float
    """Smallest gain that is worth a drafter, as a ratio: with every upper bound below, the answer is `no drafter pays`.
    """
    simulated: bool
    """Whether any point was simulated; the recommendation then does not apply to a real engine."""
    trustworthy: bool
    """Whether no check found a reason to doubt the run."""
    sentence: str
    """The recommendation in one sentence."""
    choices: list[WorkloadChoice]
    """The recommendation for each workload."""
    candidates: list[Candidate]
    """Every cell, in the order of the summary, then the planned ones without a measured point."""
    prices: str = ""
    """The prices used; empty if none."""
    constraints: list[str] = []
    """The user's constraints: no training, limited spare memory."""
    ruled_out: dict[str, str] = {}
    """Arms that lossy verification or the constraints exclude, each with the reason."""
    limits: list[str]
    """Caveats that apply to the recommendation."""
