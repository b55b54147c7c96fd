"""The data that checks are evaluated on: of a point, a cell, its answers or a whole run.

A check gets nothing else: no store and no other file. To give checks a new piece of data, add a field to the evidence
and fill it where the evidence is constructed: `analysis.summary.point`, `.cells` or `.run`. Data that no function there
gets yet comes from whoever calls `summarise_point` (`drive.point`) or `summarise_run` (`stored_runs.conclude`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from specbench_api.outcome.provenance import LaunchRecord
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.load import Arrival, Level
from specbench_api.spec.workload import Workload
from specbench_client.documents.breakdown import Reuse
from specbench_client.documents.figure import Figure
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
from specbench_client.metrics.acceptance import drafts_per_step, is_inferred
from specbench_client.metrics.divergence import Divergence
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import known_sum, numbers, sent_rows, steady_rows

Spans = Mapping[str, tuple[datetime, datetime]]
"""Start and end of points by their hashes."""


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
        it is 0 where the engine has counters of drafts that did not increase, else None.
        """
        if self.plan.engine.is_external:
            reported = drafts_per_step(self.answered)
            has_none = reported is None and self.counts_no_drafts and self._has_draft_counters
            return 0 if has_none else reported
        drafter = self.arm.drafter
        return drafter.num_speculative_tokens if drafter else 0

    @property
    def counts_no_drafts(self) -> bool:
        """Whether the engine counts its tokens, but no draft, and reports none in its answers either."""
        counters = self.monotonic_counters
        if counters is None or counters.output_tokens is None or not is_inferred(self.answered).all():
            return False
        return not (counters.draft_steps or counters.drafted_tokens or counters.accepted_tokens)

    @property
    def _has_draft_counters(self) -> bool:
        """Whether the engine counts drafts; one that counts none may still draft."""
        counters = self.monotonic_counters or TokenCounters()
        return (counters.draft_steps, counters.drafted_tokens, counters.accepted_tokens) != (None, None, None)

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
    divergence: Divergence | None = None
    """How often answers differ from the baseline's; None without a baseline."""
    trends: Sequence[Trend] = ()
    """Figures over the windows of a soak test."""
    reuse: Reuse | None = None
    """Reuse of the prompt cache, see `Cell.reuse`."""
    speedup_without_stalls: Figure | None = None
    """The speed-up over the pairs of which neither request stalled; None if there is none, or none stalled."""
    spans: Spans = field(default_factory=dict)
    """Start and end of each measured point, by its hash."""
    load_per_core: float | None = None
    """The highest load average of the client's machine after any of the points, by its cores; None if unknown."""

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
