"""One cell: an arm at one workload and load over its repeats, beside the paired baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from specbench_api.outcome.crossover import BreakEven
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.prediction import Prediction
from specbench_api.outcome.stepcost import StepObservation
from specbench_api.outcome.summary import Arrivals, Cell, PointSummary
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.load import Level
from specbench_api.spec.slo import Slo
from specbench_api.spec.workload import Workload
from specbench_client.analysis.estimates.break_even import break_even
from specbench_client.analysis.estimates.counts import counts_of
from specbench_client.analysis.estimates.end_to_end import end_to_end, named
from specbench_client.analysis.estimates.figures import Sample, figures_of, ratio_figures
from specbench_client.analysis.estimates.goodput import goodput_of
from specbench_client.analysis.estimates.speedup import SPEEDUP, TPOT_SPEEDUP, Compared, speedup
from specbench_client.analysis.prediction.explain import prediction
from specbench_client.analysis.prediction.independence import constant_acceptance
from specbench_client.analysis.slices.cell import slices_of
from specbench_client.analysis.statistics.log_ratio import LogRatio
from specbench_client.analysis.stepcost.observe import Place, observation
from specbench_client.metrics.acceptance import limited
from specbench_client.metrics.divergence import Divergence
from specbench_client.metrics.frame import Values, numbers, steady
from specbench_client.metrics.pace import STREAM_TPS
from specbench_client.metrics.pairing import Pairs, pair
from specbench_client.metrics.rows import Rows
from specbench_client.metrics.table import CATEGORY_RATIOS
from specbench_client.trust.checks.few_prompts import INTERVAL_FROM
from specbench_client.trust.evidence import CellEvidence, finding_of
from specbench_client.trust.table import CELL_CHECKS


@dataclass(frozen=True)
class Measured:
    """The rows of one arm at one workload and load, all repeats, and the summaries of their points."""

    plan: Plan
    arm: Arm
    workload: Workload
    level: Level
    rows: Rows
    points: tuple[PointSummary, ...]
    slo: Slo | None = None

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
    category_p_values: Mapping[str, float | None] = field(default_factory=dict)
    """Of the speed-up within each category."""
    category_prompts: Mapping[str, int] = field(default_factory=dict)
    """Different prompts of the steady rows of each category, where there are several categories."""
    ratio: LogRatio | None = None
    """Of the speed-up, with its resamples; None where nothing was compared."""
    break_even: BreakEven | None = None
    """None where nothing was compared."""
    observation: StepObservation | None = None
    """What it tells of the time of a step; None where it is invalid by itself."""


def judge(measured: Measured, baseline: Measured | None, diverged: Divergence | None = None) -> Judged:
    """Summarise a cell and compare it with the baseline; the baseline's own cell is given without one.

    `diverged`: how often its answers differ from the baseline's; None without one.
    """
    pairs = pair(measured.rows, baseline.rows) if baseline else None
    compared = speedup(SPEEDUP, pairs, measured.seed) if pairs else None
    evidence = _evidence(measured, baseline, pairs, compared, diverged)
    found = _findings(measured, evidence)
    on_points = [finding for point in measured.points for finding in point.findings]
    valid = not any(finding.severity is Severity.INVALID for finding in (*on_points, *found))
    by_category = _by_category(measured, pairs)
    cell = Cell(
        arm=measured.arm.name,
        workload=measured.workload.name,
        level=measured.level,
        arrivals=Arrivals.of(measured.plan.load),
        points=[point.hash for point in measured.points],
        windows=[point.window for point in measured.points],
        counts=counts_of(measured.rows),
        figures=figures_of(
            Sample(measured.rows, measured.seed),
            measured.arm.most_drafts,
            measured.plan.placement.engine_devices,
        ),
        speedup=compared.figure if compared else None,
        tpot_speedup=speedup(TPOT_SPEEDUP, pairs, measured.seed).figure if pairs else None,
        end_to_end=end_to_end(pairs, measured.level.concurrency, measured.seed) if pairs else None,
        compared_repeats=(compared.repeats or None) if compared else None,
        by_category={name: each.figures for name, each in by_category.items()},
        goodput=goodput_of(measured.rows, measured.slo, measured.seed) if measured.slo else None,
        slices=slices_of(measured.rows, measured.seed, measured.arm.most_drafts),
        prediction=_prediction(measured, pairs),
        valid=valid,
        findings=list(dict.fromkeys(finding.check for finding in (*on_points, *found))),
    )
    prompts = int(steady(measured.rows)["prompt_id"].nunique())
    return Judged(
        cell=cell,
        findings=tuple(found),
        p_value=compared.p_value if compared else None,
        prompts=prompts,
        category_p_values={name: each.p_value for name, each in by_category.items()} if pairs else {},
        category_prompts={name: each.prompts for name, each in by_category.items()},
        ratio=compared.ratio if compared else None,
        break_even=break_even(cell, pairs, measured.arm.most_drafts, measured.seed) if pairs else None,
        observation=observation(_place(measured), measured.rows) if valid else None,
    )


def _place(measured: Measured) -> Place:
    return Place(measured.plan.name, measured.arm, measured.workload.name, measured.level)


def _evidence(
    measured: Measured,
    baseline: Measured | None,
    pairs: Pairs | None,
    compared: Compared | None,
    diverged: Divergence | None,
) -> CellEvidence:
    return CellEvidence(
        plan=measured.plan,
        arm=measured.arm,
        workload=measured.workload,
        level=measured.level,
        rows=measured.rows,
        baseline=baseline.rows if baseline else None,
        pairs=pairs,
        speedup=compared.figure if compared else None,
        baseline_repeats=_repeats(baseline),
        divergence=diverged,
    )


def _findings(measured: Measured, evidence: CellEvidence) -> list[Finding]:
    return [finding_of(check.name, seen, measured.place) for check in CELL_CHECKS for seen in check.look(evidence)]


def _prediction(measured: Measured, pairs: Pairs | None) -> Prediction | None:
    """Without the batch's share, which needs the step costs of the whole run."""
    if pairs is None:
        return None
    drafts = measured.arm.most_drafts
    constant = constant_acceptance(steady(measured.rows), drafts)
    return prediction(pairs, drafts, measured.seed, constant)


def _repeats(baseline: Measured | None) -> Values:
    """The baseline's stream_tps of each repeat that has one."""
    if baseline is None:
        return np.empty(0)
    inside = steady(baseline.rows)
    repeats = numbers(inside, "repeat")
    rates = [STREAM_TPS.value(inside.among(repeats == repeat)) for repeat in np.unique(repeats)]
    return np.array([rate for rate in rates if rate], dtype=np.float64)


@dataclass(frozen=True)
class _OfCategory:
    """Figures of one category of a cell, the p-value of its speed-up, and how many different prompts it has."""

    figures: dict[str, Figure]
    p_value: float | None
    prompts: int

    @property
    def as_told(self) -> _OfCategory:
        """Without intervals where the prompts are too few for any: the ratios stay."""
        if self.prompts >= INTERVAL_FROM:
            return self
        bare = {name: figure.model_copy(update={"interval": None}) for name, figure in self.figures.items()}
        return _OfCategory(bare, None, self.prompts)


def _by_category(measured: Measured, pairs: Pairs | None) -> dict[str, _OfCategory]:
    """By category. With one category they would say the cell's own again, and are left out."""
    rows = steady(measured.rows)
    names = sorted({str(name) for name in rows["category"].unique() if name is not None})
    if len(names) < 2:
        return {}
    return {name: _of_category(name, measured, rows, pairs).as_told for name in names}


def _of_category(name: str, measured: Measured, rows: Rows, pairs: Pairs | None) -> _OfCategory:
    mine, seed = rows.among((rows["category"] == name).to_numpy(np.bool_)), measured.seed
    figures = ratio_figures(Sample(mine, seed), limited(CATEGORY_RATIOS, measured.arm.most_drafts))
    prompts = int(mine["prompt_id"].nunique())
    if pairs is None:
        return _OfCategory(figures, None, prompts)
    inside = pairs.of_category(name)
    compared = speedup(SPEEDUP, inside, seed)
    figures |= {SPEEDUP: compared.figure, TPOT_SPEEDUP: speedup(TPOT_SPEEDUP, inside, seed).figure}
    figures |= named(end_to_end(inside, measured.level.concurrency, seed))
    return _OfCategory(figures, compared.p_value, prompts)
