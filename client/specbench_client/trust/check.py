"""A check, its result and its findings, and the data that checks are evaluated on: of a point, a cell or a whole run.

A check gets nothing else: no store and no other file. To give checks a new piece of data, add a field to the evidence
and fill it where the evidence is constructed: `analysis.summary.point`, `.cells` or `.run`. Data that no function there
gets yet comes from whoever calls `summarise_point` (`drive.point`) or `summarise_run` (`stored_runs.conclude`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.load import Arrival, Level
from specbench_api.spec.workload import Workload
from specbench_client.columns import Mask, Values
from specbench_client.documents.breakdown import Reuse
from specbench_client.documents.figure import Figure
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.lossless import JudgedAnswers
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.documents.summary import (
    ArmEnvironment,
    ClientHealth,
    CounterDeltas,
    PointSummary,
    TokenCounters,
    Trend,
)
from specbench_client.metrics.acceptance import is_inferred
from specbench_client.metrics.divergence import Divergence
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import known_sum, numbers, sent_rows, steady_rows


@dataclass(frozen=True)
class CheckResult:
    """The number that a check found, and its message; `Check.findings` adds the check's name and the location."""

    severity: Severity
    message: str
    value: float | None = None
    threshold: float | None = None
    arm: str | None = None
    workload: str | None = None


CheckResults = Sequence[CheckResult]


Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class Check(Generic[Evidence]):
    """A check. `evaluate` is pure and returns nothing if all is well or if the data does not allow a decision."""

    name: str
    """CamelCase; used as the reason in `status`."""
    severities: tuple[Severity, ...]
    """The severities that this check can report."""
    description: str
    """What the check reports, in one sentence."""
    threshold: str
    """The value from which on the check reports a finding."""
    rationale: str
    """Why the threshold is where it is."""
    remedy: str
    """What the user should do about it."""
    evaluate: Callable[[Evidence], CheckResults]
    imported_remedy: str = ""
    """What to do if another benchmark measured the run, where that differs: there is no spec to change."""
    soak_remedy: str = ""
    """What to do in a soak test, where that differs: its windows follow each other and have a fixed length."""

    def remedy_for(self, *, imported: bool, soak: bool) -> str:
        """Return what to do about a finding. `imported`: see `Engine`."""
        special = self.imported_remedy if imported else self.soak_remedy if soak else ""
        return special or self.remedy

    def findings(self, evidence: Evidence, location: Mapping[str, object]) -> list[Finding]:
        """Evaluate the check; an arm or a workload in a result overrides that of the location (arm, workload, …)."""
        results = [vars(result).items() for result in self.evaluate(evidence)]
        known = [{name: value for name, value in fields if value is not None} for fields in results]
        return [Finding.model_validate({"check": self.name, **location, **each}) for each in known]


def check(
    *,
    name: str,
    severities: tuple[Severity, ...],
    threshold: str,
    rationale: str,
    remedy: str,
    imported_remedy: str = "",
    soak_remedy: str = "",
) -> Callable[[Callable[[Evidence], CheckResults]], Check[Evidence]]:
    """Make a check of the function that evaluates it, and whose docstring begins with the check's description."""

    def check_of(evaluate: Callable[[Evidence], CheckResults]) -> Check[Evidence]:
        description = (evaluate.__doc__ or "").partition("\n")[0]
        return Check(
            name, severities, description, threshold, rationale, remedy, evaluate, imported_remedy, soak_remedy
        )

    return check_of


def counted_rows(rows: Table, unit: str) -> str:
    """Return `37 requests (7 of them fillers)`: the user asked for the others."""
    fillers = int(rows.array("filler").sum())
    return f"{len(rows)} {unit}" + (f" ({fillers} of them fillers)" if fillers else "")


def list_names(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def name_some(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return at most `most` of the names, and how many more there are."""
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def report_impossible(kinds: Iterable[tuple[str, Mask]], what: str, consequence: str) -> CheckResults:
    """Report how many of the rows meet each impossible condition, which is given in words with a mask, shape (rows,).

    `what`: the number of rows and what they are.
    """
    broken = [(words, int(rows.sum())) for words, rows in kinds if rows.any()]
    if not broken:
        return []
    counted = "; ".join(f"{count} of {what} {words}" for words, count in broken)
    most = max(count for _, count in broken)
    return [CheckResult(Severity.INVALID, f"{counted}: {consequence}", value=most, threshold=1)]


@dataclass(frozen=True)
class PointEvidence:
    """One measured point: its tidy rows (without warm-up), the client's health and the engine's counters."""

    plan: Plan
    point: Point
    rows: Table
    health: ClientHealth
    counters: CounterDeltas | None

    @property
    def arm(self) -> Arm:
        return self.plan.arm(self.point.arm)

    @property
    def workload(self) -> Workload:
        return self.plan.workload(self.point.workload)

    @cached_property
    def monotonic_counters(self) -> TokenCounters | None:
        """The engine's counters; None if they are not known, or if the engine restarted and they decreased.

        A page may count our requests under several names, such as those of adapters: if the model's own counter has
        fewer tokens than the answers, the counters are those of all models.
        """
        counters = self.counters
        if counters is None or counters.restarted:
            return None
        received, most = known_sum(numbers(self.answered, "tokens")) or 0, len(self.answered)
        every = counters.all_models
        if every is not None and (counters.output_tokens or 0) + most < received <= (every.output_tokens or 0) + most:
            return every
        return counters

    @property
    def closed(self) -> bool:
        """Whether the load is a closed loop."""
        return self.point.level.concurrency is not None

    @property
    def arrival(self) -> Arrival:
        """The arrival process of conversations in an open loop."""
        return self.plan.load.arrival or Arrival()

    @property
    def steady_s(self) -> float | None:
        """Length of the steady state in seconds."""
        duration_s, share = self.health.duration_s, self.health.steady_share
        return None if duration_s is None or share is None else duration_s * share

    @property
    def drafts(self) -> int | None:
        """Maximum number of draft tokens per step (k); 0 for the baseline.

        For an external endpoint, which somebody else started, it is taken from the answers. If they do not report it,
        it is 0 where the engine's counters show that it does not draft, else None.
        """
        if self.plan.engine.is_external:
            drafted, steps = numbers(self.answered, "drafted_tokens"), numbers(self.answered, "draft_steps")
            a_step = drafted[steps > 0] / steps[steps > 0]
            known = a_step[np.isfinite(a_step)]
            if known.size:
                return math.ceil(float(known.max()))
            return 0 if self.counts_no_drafts else None
        drafter = self.arm.drafter
        return drafter.num_speculative_tokens if drafter else 0

    @property
    def counts_no_drafts(self) -> bool:
        """Whether the engine counts its tokens, but no draft, and reports none in its answers either."""
        counters = self.monotonic_counters
        if counters is None or counters.output_tokens is None or not is_inferred(self.answered).all():
            return False
        return not (counters.draft_steps or counters.drafted_tokens or counters.accepted_tokens)

    @cached_property
    def steady(self) -> Table:
        """The rows that enter figures."""
        return steady_rows(self.rows)

    @cached_property
    def answered(self) -> Table:
        """The rows without an error, from every phase."""
        return self.rows.among(self.rows.array("ok"))

    @cached_property
    def tried(self) -> Table:
        """The rows of requests that were sent: all except turns skipped after an error."""
        return sent_rows(self.rows)


@dataclass(frozen=True)
class CellEvidence:
    """One arm × workload × load over its repeats, with the paired baseline if there is one."""

    plan: Plan
    arm: Arm
    workload: Workload
    level: Level
    rows: Table
    baseline: Table | None
    pairs: Pairs | None
    speedup: Figure | None
    baseline_repeats: Values
    """The baseline's `stream_tps` in each of its repeats, shape (repeats,); empty without a baseline."""
    divergence: Divergence | None = None
    """How often answers differ from the baseline's; None without a baseline."""
    trends: Sequence[Trend] = ()
    """Figures over the windows of a soak test."""
    reuse: Reuse | None = None
    """Reuse of the prompt cache, see `Cell.reuse`."""
    speedup_without_stalls: Figure | None = None
    """The speed-up over the pairs of which neither request stalled; None if there is none, or none stalled."""

    @property
    def greedy(self) -> bool:
        return self.workload.greedy is True

    @property
    def is_speedup_claimed(self) -> bool:
        """Whether the interval of the speed-up excludes 1."""
        interval = self.speedup.interval if self.speedup else None
        return interval is not None and not interval.low <= 1 <= interval.high


@dataclass(frozen=True)
class AnswersEvidence:
    """The flawed answers of one cell, and whether their p-value is significant among those of all cells."""

    judged: JudgedAnswers
    significant: bool


@dataclass(frozen=True)
class RunEvidence:
    """The whole run: its plan, its measured points, and the points that are missing."""

    plan: Plan
    summaries: Sequence[PointSummary]
    missing: Sequence[str]
    """Hashes of the planned points that have no result."""
    prompts: Mapping[str, int]
    """Number of different prompts by workload: the smallest number in any of its cells."""
    simulated: bool
    launches: Sequence[LaunchRecord] = ()
    """The facts recorded about each launch that served a measured point."""
    coverage: Mapping[str, PromptCoverage] = field(default_factory=dict)
    """Prompt coverage by workload, for the workloads whose coverage was stored."""
    category_prompts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Like `prompts`, by workload and category, for workloads with several categories."""
    arm_environments: Sequence[ArmEnvironment] = ()
    """The facts in `launches`, summarised by arm."""
    spans: Mapping[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """Start and end of each measured point, by its hash."""
