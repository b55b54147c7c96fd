"""Runs whose figures are set by hand, so that the expected recommendation is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.load import Level
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.minimum_samples import too_few_repeats
from specbench_client.documents.summary import Cell, EndToEnd, RequestCounts, RunSummary
from specbench_testing.resources import run_of

BOOTSTRAP = "bootstrap, unit: prompt; 2000 resamples of 3 repeats, then of 40 prompts, expanded percentiles"
DRAFTERS: list[dict[str, Any]] = [
    {"name": "eagle3", "method": "eagle3", "model": "e", "numSpeculativeTokens": 3},
    {"name": "eagle3-long", "method": "eagle3", "model": "e", "numSpeculativeTokens": 7},
    {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 3, "promptLookupMax": 3},
]
TOKENS = 100.0
"""Mean output tokens of a request."""


def plan_of(drafters: Sequence[dict[str, Any]] = DRAFTERS, **spec: Any) -> Plan:
    """A plan with a baseline and these drafters."""
    edits = {"spec.drafters": list(drafters), "spec.load": {"concurrency": [1, 8, 32], "repeats": 3}}
    return expand(run_of({**edits, **{f"spec.{name}": value for name, value in spec.items()}}))


def figure(value: float | None, half: float | None = 0.03, unit: str = "ratio", method: str = BOOTSTRAP) -> Figure:
    """A figure whose interval extends by `half` on the log scale to both sides; None: no interval."""
    bounds = None
    if value is not None and half is not None:
        low, high = value * math.exp(-half), value * math.exp(half)
        bounds = FigureInterval(low=low, high=high, method=method)
    return Figure(value=value, unit=unit, definition="d", n=40, interval=bounds, source="both")


@dataclass(frozen=True)
class Given:
    """One cell. `gain`: its paired speed-up; `tpot`: its TPOT at every percentile, in ms."""

    arm: str
    load: int | float = 1
    tps: float | None = 100.0
    gain: float | None = None
    half: float | None = 0.03
    tpot: float = 20.0
    tpot_half: float | None = 0.02
    valid: bool = True
    repeats: int = 3
    findings: Mapping[str, Severity] = field(default_factory=dict)
    """Severity of each finding of this cell, by check."""
    workload: str = "chat"
    waits: bool = False
    """Whether the streams wait with their users, so that requests per hour are not known."""

    @property
    def cell(self) -> Cell:
        tpot_figures = {
            f"tpot_ms_{each}": figure(self.tpot, self.tpot_half, "ms") for each in ("pooled", "p50", "p95", "p99")
        }
        compared = self.arm != "none" and self.gain is not None
        hourly = figure(None if self.waits else 3600.0)
        gain = figure(self.gain, self.half).without_interval(too_few_repeats(self.repeats))
        whole = EndToEnd(
            speedup=figure(self.gain),
            median_speedup=figure(self.gain),
            requests_per_hour=hourly,
            baseline_requests_per_hour=hourly,
            cost_saved=hourly,
        )
        level = Level(concurrency=self.load) if isinstance(self.load, int) else Level(rate=self.load)
        return Cell(
            arm=self.arm,
            workload=self.workload,
            level=level,
            arrivals=ArrivalPattern(process="ClosedLoop"),
            points=[str(index) for index in range(self.repeats)],
            counts=RequestCounts(),
            figures={
                "output_tps": figure(self.tps, self.half, "tokens/s"),
                "output_tokens_mean": figure(TOKENS, 0.01, "tokens"),
                **tpot_figures,
            },
            speedup=gain if compared else None,
            tpot_speedup=gain if compared else None,
            end_to_end=whole if compared else None,
            compared_repeats=self.repeats if compared else None,
            valid=self.valid,
            findings=list(self.findings),
        )


def summary_of(*given: Given, simulated: bool = False, doubts: Sequence[str] = ()) -> RunSummary:
    """A run of these cells; `doubts`: checks with a warning about the whole run."""
    found = [Finding(check=name, severity=Severity.WARNING, message="") for name in doubts]
    found += [
        Finding(
            check=name,
            severity=severity,
            message="",
            arm=each.arm,
            workload=each.workload,
            load=each.cell.level.label,
        )
        for each in given
        for name, severity in each.findings.items()
    ]
    return RunSummary(
        namespace="local",
        name="small",
        uid="u",
        simulated=simulated,
        created="2026-01-01T00:00:00Z",
        points_total=9,
        points_measured=9,
        points_invalid=0,
        cells=[each.cell for each in given],
        findings=found,
        trustworthy=not any(finding.severity.is_doubt for finding in found),
        headline="",
    )
