"""One cell: an arm at one workload and load over its repeats, beside the paired baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.prediction import Prediction
from specbench_api.outcome.stepcost import StepObservation
from specbench_api.outcome.summary import Arrivals, Cell, PointSummary
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Workload
from specbench_client.analysis.counts import counts_of
from specbench_client.analysis.figures import Sample, figures_of, ratio_figures
from specbench_client.analysis.point import most_drafts
from specbench_client.analysis.prediction.explain import prediction
from specbench_client.analysis.prediction.independence import constant_acceptance
from specbench_client.analysis.speedup import SPEEDUP, TPOT_SPEEDUP, Compared, speedup
from specbench_client.analysis.stepcost.observe import Place, observation
from specbench_client.metrics.acceptance import limited
from specbench_client.metrics.frame import Values, steady
from specbench_client.metrics.pace import STREAM_TPS
from specbench_client.metrics.pairing import Pairs, pair
from specbench_client.metrics.table import CATEGORY_RATIOS
from specbench_client.trust.evidence import CellEvidence, finding_of
from specbench_client.trust.table import CELL_CHECKS


@dataclass(frozen=True)
class Measured:
    """The rows of one arm at one workload and load, all repeats, and the summaries of their points."""

    plan: Plan
    arm: Arm
    workload: Workload
    level: Level
    rows: pd.DataFrame
    points: tuple[PointSummary, ...]

    @property
    def seed(self) -> int:
        return self.workload.sampling.seed

    @property
    def place(self) -> dict[str, object]:
        """Where a finding about it was made."""
        return {"arm": self.arm.name, "workload": self.workload.name, "load": self.level.label}


@dataclass(frozen=True)
class Judged:
    """A cell, what was found about it beyond its points, and how clear its speed-up is."""

    cell: Cell
    findings: tuple[Finding, ...]
    p_value: float | None
    prompts: int
    """Different prompts of its steady rows."""
    observation: StepObservation | None = None
    """What it tells of the time of a step; None where it is invalid by itself."""


def judge(measured: Measured, baseline: Measured | None) -> Judged:
    """Summarise a cell and compare it with the baseline; the baseline's own cell is given without one."""
    pairs = pair(measured.rows, baseline.rows) if baseline else None
    compared = speedup(SPEEDUP, pairs, measured.seed) if pairs else None
    found = _findings(measured, baseline, pairs, compared)
    on_points = [finding for point in measured.points for finding in point.findings]
    cell = Cell(
        arm=measured.arm.name,
        workload=measured.workload.name,
        level=measured.level,
        arrivals=Arrivals.of(measured.plan.load),
        points=[point.hash for point in measured.points],
        windows=[point.window for point in measured.points],
        counts=counts_of(measured.rows),
        figures=figures_of(Sample(measured.rows, measured.seed), most_drafts(measured.arm)),
        speedup=compared.figure if compared else None,
        tpot_speedup=speedup(TPOT_SPEEDUP, pairs, measured.seed).figure if pairs else None,
        compared_repeats=(compared.repeats or None) if compared else None,
        by_category=_by_category(measured, pairs),
        prediction=_prediction(measured, pairs),
        valid=not any(finding.severity is Severity.INVALID for finding in (*on_points, *found)),
        findings=list(dict.fromkeys(finding.check for finding in (*on_points, *found))),
    )
    prompts = int(steady(measured.rows)["prompt_id"].nunique())
    place = Place(measured.plan.name, measured.arm, measured.workload.name, measured.level)
    p_value = compared.p_value if compared else None
    seen = observation(place, measured.rows) if cell.valid else None
    return Judged(cell, tuple(found), p_value, prompts, seen)


def _findings(
    measured: Measured, baseline: Measured | None, pairs: Pairs | None, compared: Compared | None
) -> list[Finding]:
    evidence = CellEvidence(
        plan=measured.plan,
        arm=measured.arm,
        workload=measured.workload,
        level=measured.level,
        rows=measured.rows,
        baseline=baseline.rows if baseline else None,
        pairs=pairs,
        speedup=compared.figure if compared else None,
        baseline_repeats=_repeats(baseline),
    )
    return [finding_of(check.name, seen, measured.place) for check in CELL_CHECKS for seen in check.look(evidence)]


def _prediction(measured: Measured, pairs: Pairs | None) -> Prediction | None:
    """Without the batch's share, which needs the step costs of the whole run."""
    if pairs is None:
        return None
    drafts = most_drafts(measured.arm)
    constant = constant_acceptance(steady(measured.rows), drafts)
    return prediction(pairs, drafts, measured.seed, constant)


def _repeats(baseline: Measured | None) -> Values:
    """The baseline's stream_tps of each repeat that has one."""
    if baseline is None:
        return np.empty(0)
    rates = [STREAM_TPS.value(rows) for _, rows in steady(baseline.rows).groupby("repeat")]
    return np.array([rate for rate in rates if rate], dtype=np.float64)


def _by_category(measured: Measured, pairs: Pairs | None) -> dict[str, dict[str, Figure]]:
    """Figures by category. With one category they would say the cell's own again, and are left out."""
    rows = steady(measured.rows)
    names = sorted({str(name) for name in rows["category"] if name is not None})
    if len(names) < 2:
        return {}
    return {name: _of_category(name, measured, rows, pairs) for name in names}


def _of_category(name: str, measured: Measured, rows: pd.DataFrame, pairs: Pairs | None) -> dict[str, Figure]:
    mine, seed = rows[(rows["category"] == name).to_numpy(bool)].reset_index(drop=True), measured.seed
    figures = ratio_figures(Sample(mine, seed), limited(CATEGORY_RATIOS, most_drafts(measured.arm)))
    if pairs is not None:
        inside = pairs.of_category(name)
        figures |= {each: speedup(each, inside, seed).figure for each in (SPEEDUP, TPOT_SPEEDUP)}
    return figures
