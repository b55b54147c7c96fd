"""Evaluates the cells of a run: an arm at one workload and load over its repeats, compared with the paired baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.load import Level
from specbench_api.spec.slo import Slo
from specbench_api.spec.workload import Workload
from specbench_client.analysis.breakdown.breakdown import breakdown_of_cell
from specbench_client.analysis.breakdown.reuse import reuse_of
from specbench_client.analysis.estimates.cell_figures import (
    SampleRows,
    counts_of,
    figures_of,
    goodput_of,
    ratio_figures,
    with_counted_acceptance,
)
from specbench_client.analysis.estimates.point_rows import is_sent_again
from specbench_client.analysis.estimates.speedups import (
    SPEEDUP,
    TPOT_SPEEDUP,
    end_to_end,
    figures_by_name,
    paired_speedup,
)
from specbench_client.analysis.explanation.factors import explain_speedup
from specbench_client.analysis.lossless.losslessness import judged_answers
from specbench_client.analysis.statistics.bootstrap import NO_INTERVAL
from specbench_client.analysis.statistics.effects import Effect
from specbench_client.analysis.statistics.significance import holm_rejections, verdicts
from specbench_client.analysis.stepcost.model import observe_cell
from specbench_client.analysis.summary.trends import trends_of
from specbench_client.documents.arrival_pattern import ArrivalPattern
from specbench_client.documents.breakdown import Reuse, ReuseMissing
from specbench_client.documents.explanation import StepObservation
from specbench_client.documents.figure import Figure, counted
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.summary import Cell, Claims, PointSummary
from specbench_client.metrics.acceptance import limit_to_drafts, most_drafts_reported
from specbench_client.metrics.catalog import CATEGORY_RATIOS
from specbench_client.metrics.divergence import Divergence
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import Table, distinct_texts, has_text
from specbench_client.metrics.tidy_frame import steady_rows
from specbench_client.trust.checks.answers import SIGNIFICANCE
from specbench_client.trust.checks.load import without_stalls
from specbench_client.trust.checks.prompts import INTERVAL_FROM
from specbench_client.trust.evidence import AnswersEvidence, CellEvidence, Spans
from specbench_client.trust.registry import ANSWER_CHECKS, CELL_CHECKS


@dataclass(frozen=True)
class MeasuredCell:
    """The rows of one arm at one workload and load over all repeats, and the summaries of its points."""

    plan: Plan
    arm: Arm
    workload: Workload
    level: Level
    rows: Table
    points: tuple[PointSummary, ...]
    slo: Slo | None = None
    spans: Spans = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return self.workload.sampling.seed

    @property
    def streams(self) -> int | None:
        """Requests in flight at any time; None if their number is not constant."""
        return None if self.workload.waits else self.level.concurrency

    @cached_property
    def most_drafts(self) -> int:
        """Maximum draft tokens per step: of an endpoint, those that its answers report; 0 if it is not known."""
        return self.arm.most_drafts or most_drafts_reported(self.rows)

    @property
    def place(self) -> dict[str, object]:
        """Location for findings: arm, workload and load."""
        return {"arm": self.arm.name, "workload": self.workload.name, "load": self.level.label}


@dataclass(frozen=True)
class EvaluatedCell:
    """A cell, the findings about it beyond those of its points, and the evidence for its speed-up."""

    cell: Cell
    findings: tuple[Finding, ...]
    effect: Effect | None
    """Its speed-up; None where nothing was compared."""
    prompts: int
    """Number of different prompts in its steady rows."""
    category_effects: Mapping[str, Effect | None] = field(default_factory=dict)
    """Speed-up within each category."""
    category_prompts: Mapping[str, int] = field(default_factory=dict)
    """Number of different prompts in the steady rows of each category; empty with one category."""
    may_become_valid: bool = False
    """Whether only single turns of a run with a stop rule made it invalid, so that more repeats may make it valid."""
    prompts_spent: bool = False
    """Whether the last round sent prompts that a server had in its cache, as further ones would."""
    observation: StepObservation | None = None
    """Its observation of step times; None if the cell itself is invalid."""


def evaluate_cell(
    measured: MeasuredCell, baseline: MeasuredCell | None, diverged: Divergence | None = None
) -> EvaluatedCell:
    """Summarise a cell and compare it with the baseline; the baseline's own cell is evaluated without one.

    `diverged`: how often its answers differ from the baseline's; None without one.
    """
    pairs = pair_requests(measured.rows, baseline.rows, measured.plan) if baseline else None
    compared = paired_speedup(SPEEDUP, pairs, measured.seed) if pairs else None
    trends = trends_of(measured.points) if measured.plan.soaks else []
    reuse, reuse_missing = _reuse(measured, baseline, pairs)
    smooth = without_stalls(pairs) if pairs else None
    evidence = CellEvidence(
        plan=measured.plan,
        arm=measured.arm,
        workload=measured.workload,
        level=measured.level,
        rows=measured.rows,
        baseline=baseline.rows if baseline else None,
        pairs=pairs,
        # Checks use the interval over prompts with any number of repeats.
        speedup=compared.figure.model_copy(update={"interval": compared.effect and compared.effect.interval()})
        if compared
        else None,
        divergence=diverged,
        trends=tuple(trends),
        reuse=reuse,
        speedup_without_stalls=paired_speedup(SPEEDUP, smooth, measured.seed).figure if smooth else None,
        spans=measured.spans,
        load_per_core=max(
            (
                each.client_health.load_per_core or 0.0
                for each in (*measured.points, *(baseline.points if baseline else ()))
            ),
            default=None,
        ),
    )
    found = [finding for check in CELL_CHECKS for finding in check.findings(evidence, measured.place)]
    on_points = [finding for point in measured.points for finding in point.findings]
    valid = not any(finding.severity is Severity.INVALID for finding in (*on_points, *found))
    by_category = _by_category(measured, pairs)
    sample, gpus = SampleRows(measured.rows, measured.seed), measured.plan.placement.engine_devices
    figures = figures_of(sample, measured.arm.most_drafts, gpus)
    cell = Cell(
        arm=measured.arm.name,
        workload=measured.workload.name,
        level=measured.level,
        arrivals=ArrivalPattern.of(measured.plan.load),
        points=[point.hash for point in measured.points],
        windows=[point.window for point in measured.points],
        counts=counts_of(measured.rows),
        figures=with_counted_acceptance(figures, [point.counters for point in measured.points]),
        speedup=compared.figure if compared else None,
        tpot_speedup=paired_speedup(TPOT_SPEEDUP, pairs, measured.seed).figure if pairs else None,
        end_to_end=end_to_end(pairs, measured.streams, measured.seed) if pairs else None,
        compared_repeats=compared.effect.repeats if compared and compared.effect else None,
        by_category={name: each.figures for name, each in by_category.items()},
        goodput=goodput_of(measured.rows, measured.slo, measured.seed) if measured.slo else None,
        breakdown=breakdown_of_cell(measured.rows, measured.seed, measured.most_drafts),
        prediction=explain_speedup(pairs, measured.arm.most_drafts, measured.seed) if pairs else None,
        trends=trends,
        reuse=reuse,
        reuse_missing=reuse_missing,
        judged=judged_answers(pairs, baseline.rows) if pairs and baseline else None,
        valid=valid,
        findings=list(dict.fromkeys(finding.check for finding in (*on_points, *found))),
    )
    prompts = len(distinct_texts(steady_rows(measured.rows), "prompt_id"))
    return EvaluatedCell(
        cell=cell,
        findings=tuple(found),
        effect=compared.effect if compared else None,
        prompts=prompts,
        category_effects={name: each.effect for name, each in by_category.items()} if pairs else {},
        category_prompts={name: each.prompts for name, each in by_category.items()},
        observation=observe_cell(measured.arm, measured.workload.name, measured.level, measured.rows)
        if valid
        else None,
    )


def _reuse(
    measured: MeasuredCell, baseline: MeasuredCell | None, pairs: Pairs | None
) -> tuple[Reuse | None, ReuseMissing | None]:
    # If one server alone got prompts again after an interruption, it reuses more than the other one.
    again = [
        {each.repeat for each in cell.points if each.client_health.interrupted_before and is_sent_again(each)}
        for cell in (measured, baseline)
        if cell
    ]
    if pairs is None or measured.plan.prompt_cache is PromptCache.DISABLED or again[0] != again[-1]:
        return None, None
    found = reuse_of(pairs, measured.seed)
    return (found, None) if isinstance(found, Reuse) else (None, found)


@dataclass(frozen=True)
class _CategoryFigures:
    """Figures of one category of a cell, its speed-up, and how many different prompts it has."""

    figures: dict[str, Figure]
    effect: Effect | None
    prompts: int

    @property
    def reportable(self) -> _CategoryFigures:
        """The same figures, without intervals if there are too few prompts for any."""
        if self.prompts >= INTERVAL_FROM:
            return self
        why = f"{counted(self.prompts, 'prompt')}: {NO_INTERVAL}"
        bare = {name: each.without_interval(each.missing or why) for name, each in self.figures.items()}
        return _CategoryFigures(bare, self.effect and replace(self.effect, chosen=None), self.prompts)


def _by_category(measured: MeasuredCell, pairs: Pairs | None) -> dict[str, _CategoryFigures]:
    """Return figures by category; empty with a single category, whose figures are those of the cell."""
    rows = steady_rows(measured.rows)
    names = distinct_texts(rows, "category")
    if len(names) < 2:
        return {}
    return {name: _of_category(name, measured, rows, pairs).reportable for name in names}


def _of_category(name: str, measured: MeasuredCell, rows: Table, pairs: Pairs | None) -> _CategoryFigures:
    mine, seed = rows.among(has_text(rows, "category", name)), measured.seed
    figures = ratio_figures(SampleRows(mine, seed), limit_to_drafts(CATEGORY_RATIOS, measured.most_drafts))
    prompts = len(distinct_texts(mine, "prompt_id"))
    if pairs is None:
        return _CategoryFigures(figures, None, prompts)
    inside = pairs.of_category(name)
    compared = paired_speedup(SPEEDUP, inside, seed)
    tpot = paired_speedup(TPOT_SPEEDUP, inside, seed)
    figures |= {SPEEDUP: compared.figure, TPOT_SPEEDUP: tpot.figure}
    figures |= figures_by_name(end_to_end(inside, measured.streams, seed))
    return _CategoryFigures(figures, compared.effect, prompts)


def with_answers_checked(judged: Sequence[EvaluatedCell]) -> list[EvaluatedCell]:
    """Return the cells with findings about their answers, after Holm's correction over all cells."""
    found = [each.cell.judged for each in judged]
    p_values = [answers.p_value if answers and answers.pairs else None for answers in found]
    significant = holm_rejections(p_values, SIGNIFICANCE)
    return [_with_answers_checked(each, clear=clear) for each, clear in zip(judged, significant, strict=True)]


def _with_answers_checked(judged: EvaluatedCell, *, clear: bool) -> EvaluatedCell:
    cell = judged.cell
    if cell.judged is None:
        return judged
    evidence = AnswersEvidence(cell.judged, clear)
    place = {"arm": cell.arm, "workload": cell.workload, "load": cell.level.label}
    return without_comparison(judged, [each for check in ANSWER_CHECKS for each in check.findings(evidence, place)])


def without_comparison(judged: EvaluatedCell, findings: Sequence[Finding]) -> EvaluatedCell:
    """Return the cell with further findings because of which its comparison does not count."""
    if not findings:
        return judged
    names = list(dict.fromkeys([*judged.cell.findings, *(finding.check for finding in findings)]))
    cell = judged.cell.model_copy(update={"valid": False, "findings": names})
    return replace(judged, cell=cell, findings=(*judged.findings, *findings))


# The conclusion that each comparison of a run allows. A cell is `faster` or `slower` only if the interval excludes 1
# and still does after Holm's correction for the number of comparisons: among twenty, one excludes 1 by chance. If the
# interval contains 1, it is `indistinguishable`; an invalid cell is not compared at all. With fewer than three repeats
# there is no conclusion, only the ratio and the number of repeats: with a run-to-run noise of 3 % the interval of one
# run excludes 1 in two of three runs without any difference.
#
# Cells are one family of comparisons and the categories of all cells another, so that looking at categories does not
# weaken the conclusions about cells, and the luckiest of eleven categories at five loads is not declared a winner.


def with_claims(judged: Sequence[EvaluatedCell]) -> list[EvaluatedCell]:
    """Return the cells in their order, those of all arms but the baseline with their claims."""
    compared = [each for each in judged if each.cell.arm != BASELINE_NAME]
    effects = [each.effect if each.cell.valid else None for each in compared]
    by_category = [
        effect if each.cell.valid else None for each in compared for effect in each.category_effects.values()
    ]
    overall, of_category = verdicts(effects), iter(verdicts(by_category))
    found = (
        Claims(
            overall=verdict,
            comparisons=_count_comparisons(effects),
            by_category={name: next(of_category) for name in each.category_effects},
            category_comparisons=_count_comparisons(by_category),
        )
        for each, verdict in zip(compared, overall, strict=True)
    )
    return [
        each
        if each.cell.arm == BASELINE_NAME
        else replace(each, cell=each.cell.model_copy(update={"claims": next(found)}))
        for each in judged
    ]


def _count_comparisons(effects: Sequence[Effect | None]) -> int:
    return sum(each is not None and each.supports_claim for each in effects)
