"""What a check may look at: a point, a cell with its paired baseline, or the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.summary import Counters, PointSummary, SelfWatch
from specbench_api.plan.plan import Arm, Plan, Point
from specbench_api.spec.workload import Workload
from specbench_client.metrics.frame import SKIPPED, Values
from specbench_client.metrics.pairing import Pairs


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
    def drafts(self) -> int:
        """Most draft tokens of a step; 0 for the baseline."""
        drafter = self.arm.drafter
        return drafter.num_speculative_tokens if drafter else 0

    @property
    def answered(self) -> pd.DataFrame:
        """The rows without error, of any phase."""
        return self.rows[self.rows["ok"].to_numpy(bool)]

    @property
    def tried(self) -> pd.DataFrame:
        """The rows of requests that were really tried: all but turns skipped after an error."""
        return self.rows[(self.rows["error_class"] != SKIPPED).to_numpy(bool)]


@dataclass(frozen=True)
class CellEvidence:
    """One arm × workload × concurrency over its repeats, with the paired baseline where there is one."""

    plan: Plan
    arm: Arm
    workload: Workload
    concurrency: int
    rows: pd.DataFrame
    baseline: pd.DataFrame | None
    pairs: Pairs | None
    speedup: Figure | None
    baseline_repeats: Values
    """The baseline's stream_tps in each of its repeats; empty without a baseline."""

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
    """Return the finding of a check at a place (arm, workload, concurrency, point); `seen` may narrow it."""
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
