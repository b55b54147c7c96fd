"""What a check may look at: a point, a cell with its paired baseline, or the whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from specbench_api.outcome.coverage import Coverage
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.launched import Launched
from specbench_api.outcome.summary import ArmSeen, Counters, PointSummary, SelfWatch
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Arrival, Level, Process
from specbench_api.spec.workload import Workload
from specbench_client.metrics.divergence import Divergence
from specbench_client.metrics.frame import SKIPPED, Values, numbers
from specbench_client.metrics.pairing import Pairs
from specbench_client.metrics.rows import Rows


@dataclass(frozen=True)
class PointEvidence:
    """One measured point: its tidy rows (warm-up left out), and what client and engine saw."""

    plan: Plan
    point: Point
    rows: pd.DataFrame
    watch: SelfWatch
    counters: Counters | None

    @property
    def arm(self) -> Arm:
        return self.plan.arm(self.point.arm)

    @property
    def closed(self) -> bool:
        """Whether it was a closed loop."""
        return self.point.level.concurrency is not None

    @property
    def arrival(self) -> Arrival:
        """How conversations were to arrive in an open loop."""
        return self.plan.load.arrival or Arrival()

    @property
    def arrival_cv(self) -> float | None:
        """Coefficient of variation of the gaps between two arrivals; None for a trace, whose gaps are no process."""
        shapes = {Process.CONSTANT: math.inf, Process.POISSON: 1.0, Process.GAMMA: self.arrival.burstiness}
        shape = shapes.get(self.arrival.process)
        return None if shape is None else 1 / math.sqrt(shape)

    @property
    def steady_s(self) -> float | None:
        """Length of the steady state."""
        duration_s, share = self.watch.duration_s, self.watch.steady_share
        return None if duration_s is None or share is None else duration_s * share

    @property
    def drafts(self) -> int | None:
        """Most draft tokens of a step; 0 for the baseline.

        Of an endpoint that somebody else started: as its answers tell, and None where they do not.
        """
        if self.plan.engine.kind is EngineKind.EXTERNAL:
            drafted, steps = numbers(self.answered, "drafted_tokens"), numbers(self.answered, "draft_steps")
            a_step = drafted[steps > 0] / steps[steps > 0]
            known = a_step[np.isfinite(a_step)]
            return math.ceil(known.max()) if known.size else None
        drafter = self.arm.drafter
        return drafter.num_speculative_tokens if drafter else 0

    @cached_property
    def answered(self) -> pd.DataFrame:
        """The rows without error, of any phase."""
        return self.rows[self.rows["ok"].to_numpy(bool)]

    @cached_property
    def tried(self) -> pd.DataFrame:
        """The rows of requests that were really tried: all but turns skipped after an error."""
        return self.rows[(self.rows["error_class"] != SKIPPED).to_numpy(bool)]


@dataclass(frozen=True)
class CellEvidence:
    """One arm × workload × load over its repeats, with the paired baseline where there is one."""

    plan: Plan
    arm: Arm
    workload: Workload
    level: Level
    rows: Rows
    baseline: Rows | None
    pairs: Pairs | None
    speedup: Figure | None
    baseline_repeats: Values
    """The baseline's stream_tps in each of its repeats; empty without a baseline."""
    divergence: Divergence | None = None
    """How often answers differ from the baseline's; None without a baseline."""

    @property
    def greedy(self) -> bool:
        return self.workload.sampling.temperature == 0


@dataclass(frozen=True)
class RunEvidence:
    """The run: its plan, what was measured, and what is missing."""

    plan: Plan
    summaries: Sequence[PointSummary]
    missing: Sequence[str]
    prompts: Mapping[str, int]
    """Different prompts by workload: the fewest that any of its cells rests on."""
    simulated: bool
    launches: Sequence[Launched] = ()
    """What was seen of the launches that served a measured point."""
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    """By workload, as far as it was kept."""
    category_prompts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By workload and category, where a workload has several: as `prompts`."""
    arms_seen: Sequence[ArmSeen] = ()
    """What `launches` come to for each arm."""


@dataclass(frozen=True)
class Seen:
    """What a check saw: the number, and the words. Who and where is added by the one who asked."""

    severity: Severity
    message: str
    value: float | None = None
    threshold: float | None = None
    arm: str | None = None
    workload: str | None = None


def finding_of(name: str, seen: Seen, place: Mapping[str, object]) -> Finding:
    """Return the finding of a check at a place (arm, workload, load, point); `seen` may narrow it."""
    narrowed = {key: value for key, value in (("arm", seen.arm), ("workload", seen.workload)) if value is not None}
    return Finding.model_validate(
        {
            "check": name,
            "severity": seen.severity,
            "message": seen.message,
            "value": seen.value,
            "threshold": seen.threshold,
            **place,
            **narrowed,
        }
    )
