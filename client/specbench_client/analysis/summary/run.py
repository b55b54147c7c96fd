"""The answer of a run: every cell over its repeats, compared with the paired baseline, checked, and put in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specbench_api.outcome.coverage import Coverage
from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.launched import Launched
from specbench_api.outcome.summary import PointSummary, RunSummary
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_api.spec.slo import Slo
from specbench_api.spec.workload import Workload
from specbench_client.analysis.decision.asked import Asked, targets_of
from specbench_client.analysis.decision.recommend import recommend
from specbench_client.analysis.estimates.energy import Power, with_energy
from specbench_client.analysis.estimates.rows import Parts, rows_laid_down
from specbench_client.analysis.lossless.judge import losslessness
from specbench_client.analysis.prediction.occupancy import explained
from specbench_client.analysis.stepcost.families import step_costs
from specbench_client.analysis.summary.cell import Judged, Measured, judge
from specbench_client.analysis.summary.claims import with_claims
from specbench_client.analysis.summary.crossovers import crossovers
from specbench_client.analysis.summary.seen import arms_seen
from specbench_client.analysis.summary.verdict import Verdict, verdict_of
from specbench_client.metrics.divergence import divergence
from specbench_client.shelf import MemoryShelf, Shelves
from specbench_client.trust.evidence import RunEvidence, finding_of
from specbench_client.trust.table import BASELINE_INVALID, RUN_CHECKS


def summarise_run(
    plan: Plan,
    summaries: Sequence[PointSummary],
    records: Mapping[str, Parts],
    created: str,
    launches: Sequence[Launched] = (),
    *,
    coverage: Mapping[str, Coverage] | None = None,
    slo: Slo | None = None,
    power: Power | None = None,
    shelves: Shelves = MemoryShelf,
) -> RunSummary:
    """Summarise a run from its measured points.

    `summaries`: one a point with a manifest, in any order. `records`: the point's hash → its records in parts; each is
    asked for once, one workload × load after the other, so a lazy mapping keeps memory small; and once more where texts
    were kept and answers differ. `created`: RFC 3339.
    `launches`: what was seen of the launches that served these points, as far as it was kept. `coverage`: by workload.
    `slo`: by which goodput is judged. `power`: samples while the points were measured, where there are some.
    `shelves`: where the rows of an arm lie while it is compared; in memory, if nothing else is said.
    """
    judged = judged_cells(plan, summaries, records, slo, shelves)
    return answer(plan, summaries, judged, created, launches, coverage=coverage, slo=slo, power=power)


def judged_cells(
    plan: Plan,
    summaries: Sequence[PointSummary],
    records: Mapping[str, Parts],
    slo: Slo | None = None,
    shelves: Shelves = MemoryShelf,
) -> list[Judged]:
    """Judge every cell of which anything was measured, by workload and load; parameters as of `summarise_run`."""
    slots = _slots(plan, _in_order(plan, summaries))
    return with_claims([each for slot in slots for each in _judge_slot(plan, slot, Kept(records, shelves), slo)])


def answer(
    plan: Plan,
    summaries: Sequence[PointSummary],
    judged: Sequence[Judged],
    created: str,
    launches: Sequence[Launched] = (),
    *,
    coverage: Mapping[str, Coverage] | None = None,
    slo: Slo | None = None,
    power: Power | None = None,
) -> RunSummary:
    """Say of judged cells what they come to together; parameters as of `summarise_run`."""
    measured = _in_order(plan, summaries)
    there = {summary.hash for summary in measured}
    missing = [point.hash for point in plan.points if point.hash not in there]
    costs = step_costs((plan.arm(each.cell.arm), each.observation) for each in judged if each.observation)
    cells = explained([each.cell for each in judged], costs)
    simulated = any(summary.simulated for summary in measured)
    on_points = [finding for summary in measured for finding in summary.findings]
    on_cells = [finding for each in judged for finding in each.findings]
    counts = _prompts(plan, judged)
    by_category = {workload: _category_prompts(workload, judged) for workload in counts}
    seen = arms_seen(plan, launches)
    evidence = RunEvidence(plan, measured, missing, counts, simulated, launches, coverage or {}, by_category, seen)
    findings = [*_run_findings(evidence), *on_cells, *on_points]
    trustworthy = bool(measured) and all(finding.severity is Severity.NOTE for finding in findings)
    summary = RunSummary(
        namespace=plan.namespace,
        name=plan.name,
        uid=plan.uid,
        simulated=simulated,
        created=created,
        points_total=len(plan.points),
        points_measured=len(measured),
        points_invalid=len(_invalid(judged, on_points)),
        missing=missing,
        cells=with_energy(cells, measured, power) if power else cells,
        arms_seen=seen,
        coverage=dict(coverage or {}),
        crossover=crossovers(plan, judged),
        slo=slo,
        step_costs=costs,
        findings=sorted(findings, key=lambda finding: list(Severity).index(finding.severity)),
        trustworthy=trustworthy,
        verdict=verdict_of(Verdict(plan, judged, findings, trustworthy, simulated)),
    )
    return summary.model_copy(update={"recommendation": recommend(plan, summary, Asked(targets=targets_of(slo)))})


def _in_order(plan: Plan, summaries: Sequence[PointSummary]) -> list[PointSummary]:
    """Those of the plan's points, in its order."""
    by_hash = {summary.hash: summary for summary in summaries}
    return [by_hash[point.hash] for point in plan.points if point.hash in by_hash]


@dataclass(frozen=True)
class _Slot:
    """One workload at one load: what is compared with one another."""

    workload: Workload
    level: Level
    points: tuple[PointSummary, ...]


def _slots(plan: Plan, measured: Sequence[PointSummary]) -> list[_Slot]:
    places = [(workload, level) for workload in plan.workloads for level in plan.load.levels]
    slots = [
        _Slot(workload, level, tuple(each for each in measured if _at(each) == (workload.name, level)))
        for workload, level in places
    ]
    return [slot for slot in slots if slot.points]


def _at(summary: PointSummary) -> tuple[str, Level]:
    return summary.workload, summary.level


@dataclass(frozen=True)
class Kept:
    """The records of all points, and where tidy rows are laid down."""

    records: Mapping[str, Parts]
    shelves: Shelves


def _judge_slot(plan: Plan, slot: _Slot, kept: Kept, slo: Slo | None) -> list[Judged]:
    """Judge the baseline first; where it is invalid, no comparison with it is valid.

    Rows of one arm are laid down beside the baseline's, whatever the number of arms.
    """
    arms = sorted((arm for arm in plan.arms if _points_of(arm, slot)), key=lambda arm: not arm.is_baseline)
    baseline = _measured(plan, arms[0], slot, kept, slo) if arms[0].is_baseline else None
    judged = [judge(baseline, None)] if baseline else []
    for arm in arms[len(judged) :]:
        measured = _measured(plan, arm, slot, kept, slo)
        judged.append(_beside(measured, baseline, kept.records) if baseline else judge(measured, None))
    broken = any(each.cell.arm == BASELINE_NAME and not each.cell.valid for each in judged)
    return [_without_baseline(each) if broken and each.cell.arm != BASELINE_NAME else each for each in judged]


def _measured(plan: Plan, arm: Arm, slot: _Slot, kept: Kept, slo: Slo | None) -> Measured:
    points = _points_of(arm, slot)
    rows = rows_laid_down(plan, points, kept.records, kept.shelves())
    return Measured(plan, arm, slot.workload, slot.level, rows, points, slo)


def _points_of(arm: Arm, slot: _Slot) -> tuple[PointSummary, ...]:
    return tuple(point for point in slot.points if point.arm == arm.name)


def _beside(measured: Measured, baseline: Measured, records: Mapping[str, Parts]) -> Judged:
    """Judge beside the baseline. How often answers differ is counted once, for the check and for losslessness."""
    diverged = divergence(measured.rows, baseline.rows)
    judged = judge(measured, baseline, diverged)
    told = losslessness(diverged, measured.rows, baseline.rows, records, measured.workload.sampling)
    return replace(judged, cell=judged.cell.model_copy(update={"lossless": told}))


def _without_baseline(judged: Judged) -> Judged:
    cell = judged.cell
    finding = Finding(
        check=BASELINE_INVALID,
        severity=Severity.INVALID,
        message="the baseline of this comparison is invalid, see its own findings: there is nothing to compare with",
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
    )
    names = [*cell.findings, BASELINE_INVALID]
    spoilt = cell.model_copy(update={"valid": False, "findings": names})
    return replace(judged, cell=spoilt, findings=(*judged.findings, finding), p_value=None)


def _run_findings(evidence: RunEvidence) -> list[Finding]:
    return [finding_of(check.name, seen, {}) for check in RUN_CHECKS for seen in check.look(evidence)]


def _prompts(plan: Plan, judged: Sequence[Judged]) -> dict[str, int]:
    """Different prompts by workload, where anything was measured."""
    prompts = {workload.name: _fewest_prompts(workload.name, judged) for workload in plan.workloads}
    return {name: count for name, count in prompts.items() if count is not None}


def _fewest_prompts(workload: str, judged: Sequence[Judged]) -> int | None:
    return min((each.prompts for each in judged if each.cell.workload == workload), default=None)


def _category_prompts(workload: str, judged: Sequence[Judged]) -> dict[str, int]:
    """Different prompts by category: the fewest that any cell has of it."""
    counts = [each.category_prompts for each in judged if each.cell.workload == workload]
    names = sorted({name for count in counts for name in count})
    return {name: min(count.get(name, 0) for count in counts) for name in names}


def _invalid(judged: Sequence[Judged], on_points: Sequence[Finding]) -> set[str]:
    """Points that a check of their own or of their cell made invalid. A broken baseline spoils no other point."""
    own = {str(finding.point) for finding in on_points if finding.severity is Severity.INVALID}
    for each in judged:
        severities = {finding.severity for finding in each.findings if finding.check != BASELINE_INVALID}
        own |= set(each.cell.points) if Severity.INVALID in severities else set()
    return own
