"""Summarises a run: every cell over its repeats, compared with the paired baseline, checked, with a headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from specbench_api.outcome.provenance import Fact, FactName, LaunchRecord
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_api.spec.slo import Slo
from specbench_api.spec.workload import Workload
from specbench_client.analysis.curves.axes import CONCURRENCY, RATE
from specbench_client.analysis.curves.crossover import MeasuredPlace, find_crossover
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import RecommendationRequest, targets_of, why_none_drafts
from specbench_client.analysis.estimates.point_rows import (
    RoundsLeftOut,
    is_invalid,
    is_sent_again,
    load_rows,
    prompts_of_another_round,
)
from specbench_client.analysis.lossless.losslessness import losslessness
from specbench_client.analysis.stepcost.model import step_costs
from specbench_client.analysis.summary.cells import (
    EvaluatedCell,
    MeasuredCell,
    evaluate_cell,
    with_answers_checked,
    with_claims,
    without_comparison,
)
from specbench_client.analysis.summary.headline import HeadlineFacts, headline_of
from specbench_client.analysis.summary.search import with_pooled_variance
from specbench_client.analysis.summary.stop_rule import decided_after
from specbench_client.analysis.summary.trends import windows_after_decay, with_divided_rounds
from specbench_client.documents.curves import ArmCrossover
from specbench_client.documents.figure import Figure
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.prompt_coverage import PromptCoverage
from specbench_client.documents.summary import ArmEnvironment, PointSummary, RunSummary
from specbench_client.metrics.divergence import divergence
from specbench_client.metrics.tidy_frame import PointRecords
from specbench_client.trust.checks.comparison import baseline_invalid, missing_points
from specbench_client.trust.checks.prompts import prompts_sent_again
from specbench_client.trust.evidence import RunEvidence, Spans
from specbench_client.trust.registry import RUN_CHECKS, rank

# The environment of each arm's launches, and how much of the KV cache its drafter takes.

SHOWN_FACTS = (
    FactName.ENGINE_VERSION,
    FactName.DRAFTER_AT_WORK,
    FactName.GPU,
    FactName.GPU_COUNT,
    FactName.CPU,
    FactName.DTYPE,
    FactName.QUANTIZATION,
    FactName.MAX_MODEL_LEN,
    FactName.KV_CACHE_TOKENS,
    FactName.KV_BYTES_PER_TOKEN,
    FactName.WEIGHTS_BYTES,
    FactName.DRAFTER_WEIGHTS_BYTES,
    FactName.GPU_MEMORY_USED_BYTES,
)
"""Facts that a reader of a comparison needs: the engine, the machine, and the memory that the drafter takes."""
KV_CACHE_LOST = (
    "KV cache of the baseline that this arm lacks: 1 - its tokens over the baseline's, each the median over launches"
)


def arm_environments(plan: Plan, launches: Sequence[LaunchRecord]) -> list[ArmEnvironment]:
    """Return one environment for each arm that was launched, in the plan's order."""
    by_arm = {arm.name: [launch for launch in launches if launch.arm == arm.name] for arm in plan.arms}
    facts = {
        arm: {name: _fact_over_launches(name, mine) for name in SHOWN_FACTS} for arm, mine in by_arm.items() if mine
    }
    whole = facts[BASELINE_NAME][FactName.KV_CACHE_TOKENS] if BASELINE_NAME in facts else None
    return [
        ArmEnvironment(
            arm=arm,
            launches=[launch.launch for launch in by_arm[arm]],
            facts=seen,
            kv_cache_lost=None if arm == BASELINE_NAME else _kv_cache_lost(seen, whole, len(by_arm[arm])),
        )
        for arm, seen in facts.items()
    ]


def _fact_over_launches(name: FactName, launches: Sequence[LaunchRecord]) -> Fact:
    """Return one fact over an arm's launches: the median of numbers, else the common value, else why it is unknown."""
    reported = [fact for launch in launches if (fact := launch.facts[name]).value is not None]
    if not reported:
        return launches[0].facts[name]
    values, source = [fact.value for fact in reported], str(reported[0].source)
    numbers = [fact.number for fact in reported if fact.number is not None]
    if all(value == values[0] for value in values):
        return reported[0]
    if len(numbers) == len(values):
        return Fact.observed(median(numbers), f"{source}; the median of {len(numbers)} launches")
    return Fact.unknown(f"its launches differ: {', '.join(dict.fromkeys(map(str, values)))}")


def _kv_cache_lost(seen: dict[FactName, Fact], whole: Fact | None, launches: int) -> Figure:
    mine, full = seen[FactName.KV_CACHE_TOKENS].number, None if whole is None else whole.number
    value = 1 - mine / full if mine is not None and full else None
    return Figure(
        value=value, unit="ratio", definition=KV_CACHE_LOST, n=0 if value is None else launches, source="engine"
    )


# The load up to which each arm pays.


def crossovers(plan: Plan, judged: Sequence[EvaluatedCell], findings: Sequence[Finding]) -> list[ArmCrossover]:
    """Find the crossovers of every arm and workload that was compared.

    `judged`: cells with their final findings. `findings`: those of the whole run, points included.
    """
    compared = [each for each in judged if each.cell.arm != BASELINE_NAME]
    keys = dict.fromkeys((each.cell.arm, each.cell.workload) for each in compared)
    of_each = {key: [each for each in compared if (each.cell.arm, each.cell.workload) == key] for key in keys}
    return [_load_crossovers(plan, mine, findings) for mine in of_each.values()]


def _load_crossovers(plan: Plan, judged: Sequence[EvaluatedCell], findings: Sequence[Finding]) -> ArmCrossover:
    cell = judged[0].cell
    axis = RATE if plan.load.concurrency is None else CONCURRENCY
    rungs, left_out = [], []
    for each in judged:
        level = each.cell.level
        place = level.concurrency or level.rate
        why = each.cell.why_not_compared(findings)
        if not why and each.cell.speedup and not (each.effect and each.effect.supports_claim):
            why = each.cell.speedup.missing
        if place is None:
            left_out.append(f"{level.words}: it has no number for the axis")
        elif why or each.effect is None:
            left_out.append(f"{level.words}: {why}")
        else:
            rungs.append(MeasuredPlace(float(place), each.effect))
    seed = plan.workload(cell.workload).sampling.seed
    return ArmCrossover(arm=cell.arm, workload=cell.workload, crossover=find_crossover(axis, rungs, left_out, seed))


def summarise_run(
    plan: Plan,
    summaries: Sequence[PointSummary],
    records: PointRecords,
    created: str,
    launches: Sequence[LaunchRecord] = (),
    *,
    coverage: Mapping[str, PromptCoverage] | None = None,
    slo: Slo | None = None,
    failures: Mapping[str, str] | None = None,
    spans: Mapping[str, tuple[datetime, datetime]] | None = None,
) -> RunSummary:
    """Summarise a run from its measured points.

    `summaries`: one for each point with a manifest, in any order. `records`: the point's hash → its records in parts;
    each is read once, one workload × load after the other, so that a lazy mapping keeps memory small, and once more
    where texts are stored and answers differ. `created`: RFC 3339. `launches`: records of the launches that served
    these points. `coverage`: by workload. `slo`: targets of the goodput. `failures`: arm → why its engine failed.
    `spans`: start and end of each point by its hash.
    """
    judged = evaluate_cells(plan, summaries, records, slo, spans)
    return summarise_cells(
        plan, summaries, judged, created, launches, coverage=coverage, slo=slo, failures=failures, spans=spans
    )


def evaluate_cells(
    plan: Plan,
    summaries: Sequence[PointSummary],
    records: PointRecords,
    slo: Slo | None = None,
    spans: Mapping[str, tuple[datetime, datetime]] | None = None,
) -> list[EvaluatedCell]:
    """Evaluate every measured cell, by workload and load; parameters as of `summarise_run`."""
    slots = _slots(plan, _in_order(plan, summaries, spans))
    found = [each for slot in slots for each in _evaluate_slot(plan, slot, records, slo, spans or {})]
    return with_claims(with_answers_checked(with_pooled_variance(found) if plan.search else found))


def summarise_cells(
    plan: Plan,
    summaries: Sequence[PointSummary],
    judged: Sequence[EvaluatedCell],
    created: str,
    launches: Sequence[LaunchRecord] = (),
    *,
    coverage: Mapping[str, PromptCoverage] | None = None,
    slo: Slo | None = None,
    failures: Mapping[str, str] | None = None,
    spans: Mapping[str, tuple[datetime, datetime]] | None = None,
) -> RunSummary:
    """Summarise a run from its evaluated cells; parameters as of `summarise_run`."""
    measured = _in_order(plan, summaries, spans)
    there = {summary.hash for summary in measured}
    ended = decided_after(plan, there, judged)
    left_out = windows_after_decay(plan, measured)
    planned = [each for each in plan.points if (ended is None or each.repeat < ended) and each.hash not in left_out]
    missing = [point.hash for point in planned if point.hash not in there]
    costs = step_costs((plan.arm(each.cell.arm), each.observation) for each in judged if each.observation)
    cells = [each.cell for each in judged]
    incomplete = {point.arm for point in planned if point.hash not in there}
    causes = {arm: cause for arm, cause in (failures or {}).items() if arm in incomplete}
    simulated = any(summary.simulated for summary in measured)
    compared = {point for each in judged for point in each.cell.points}
    replaced = _with_rounds_replaced(plan, measured)
    on_points = [
        finding
        if summary.hash in compared
        else _left_out(plan, finding, summary, is_replaced=(summary.workload, summary.level) in replaced)
        for summary in measured
        for finding in summary.findings
    ]
    on_cells = [finding for each in judged for finding in each.findings]
    counts = _prompts(plan, judged)
    by_category = {workload: _category_prompts(workload, judged) for workload in counts}
    environments = arm_environments(plan, launches)
    evidence = RunEvidence(
        plan, measured, missing, counts, simulated, launches, coverage or {}, by_category, environments
    )
    # Without any measured point, the other checks would only report properties of the plan.
    checks = RUN_CHECKS if measured else (missing_points,)
    on_run = [finding for check in checks for finding in check.findings(evidence, {})]
    findings = sorted([*on_run, *on_cells, *on_points], key=rank)
    trustworthy = bool(measured) and not any(finding.severity.is_doubt for finding in findings)
    summary = RunSummary(
        namespace=plan.namespace,
        name=plan.name,
        uid=plan.uid,
        simulated=simulated,
        created=created,
        points_total=len(planned),
        points_measured=len(measured),
        points_invalid=len(_invalid(judged, measured)),
        missing=missing,
        decided_after=ended,
        cells=cells,
        arm_environments=environments,
        coverage=dict(coverage or {}),
        crossovers=crossovers(plan, judged, findings) if plan.has_baseline else [],
        slo=slo,
        step_costs=costs,
        findings=findings,
        trustworthy=trustworthy,
        failures=causes,
        headline="",
    )
    request = RecommendationRequest(targets=targets_of(slo))
    recommendation = recommend(plan, summary, request)
    at_each_load = [each for choice in recommendation.choices for each in choice.at_each_load]
    within = recommendation.choices if request.targets else ()
    facts = HeadlineFacts(
        plan,
        judged,
        findings,
        trustworthy,
        simulated,
        causes,
        at_each_load,
        none_drafts=why_none_drafts(plan, summary),
        within_targets=within,
    )
    return summary.model_copy(update={"recommendation": recommendation, "headline": headline_of(facts)})


def _in_order(
    plan: Plan, summaries: Sequence[PointSummary], spans: Mapping[str, tuple[datetime, datetime]] | None
) -> list[PointSummary]:
    """Return the summaries of the plan's points, in the plan's order, with findings about what divides them."""
    by_hash = {summary.hash: summary for summary in summaries}
    return with_divided_rounds(
        plan, [by_hash[point.hash] for point in plan.points if point.hash in by_hash], spans or {}
    )


@dataclass(frozen=True)
class _Slot:
    """One workload at one load, within which arms are compared."""

    workload: Workload
    level: Level
    points: tuple[PointSummary, ...]

    def without(self, rounds: RoundsLeftOut) -> _Slot:
        """Return the slot with the points that are compared."""
        return replace(self, points=tuple(rounds.kept(self.points)))


def _slots(plan: Plan, measured: Sequence[PointSummary]) -> list[_Slot]:
    places = [(workload, level) for workload in plan.workloads for level in plan.load.levels]
    slots = [
        _Slot(
            workload, level, tuple(each for each in measured if (each.workload, each.level) == (workload.name, level))
        )
        for workload, level in places
    ]
    return [slot for slot in slots if slot.points]


def _evaluate_slot(
    plan: Plan, slot: _Slot, records: PointRecords, slo: Slo | None, spans: Spans
) -> list[EvaluatedCell]:
    """Evaluate the baseline first; where it is invalid, no comparison with it is valid.

    Rows of only one arm and the baseline are stored at a time, whatever the number of arms.
    """
    arms = sorted((arm for arm in plan.arms if _points_of(arm, slot)), key=lambda arm: not arm.is_baseline)
    theirs = _points_of(arms[0], slot) if arms[0].is_baseline else ()
    own, others = RoundsLeftOut.of(plan, theirs), arms[bool(theirs) :]
    by_arm = [RoundsLeftOut.of(plan, [*theirs, *_points_of(arm, slot)]) for arm in others]
    baseline = (
        _measured(plan, arms[0], _used(slot.without(own), own, by_arm), records, slo, spans=spans) if theirs else None
    )
    judged = [evaluate_cell(baseline, None)] if baseline else []
    spent = any(
        is_sent_again(each) and not each.client_health.interrupted_before
        for each in slot.points
        if plan.round_of(each.repeat) == plan.round_of(slot.points[-1].repeat)
    )
    for arm, rounds in zip(others, by_arm, strict=True):
        # What the baseline lacks is left out on both sides, also where more is invalid than may be left out.
        compared = slot.without(rounds) if plan.search else slot.without(own).without(rounds) if own.few else slot
        measured = _measured(plan, arm, compared, records, slo, spans=spans)
        cell = _losslessness(measured, baseline, records) if baseline else evaluate_cell(measured, None)
        on_cell = any(finding.severity is Severity.INVALID for finding in cell.findings)
        judged.append(
            replace(
                cell,
                may_become_valid=not on_cell and rounds.may_become_few(plan.load.repeats // plan.repeats_of_round),
                prompts_spent=spent,
            )
        )
    broken = any(each.cell.arm == BASELINE_NAME and not each.cell.valid for each in judged)
    return [_without_baseline(each) if broken and each.cell.arm != BASELINE_NAME else each for each in judged]


def _used(slot: _Slot, own: RoundsLeftOut, by_arm: Sequence[RoundsLeftOut]) -> _Slot:
    """Return the slot with the baseline's points that an arm is compared with: those of its row in the results."""
    if not (own.few and by_arm):
        return slot
    used = {point.hash for rounds in by_arm for point in rounds.kept(slot.points)}
    return replace(slot, points=tuple(point for point in slot.points if point.hash in used))


def _measured(
    plan: Plan, arm: Arm, slot: _Slot, records: PointRecords, slo: Slo | None, *, spans: Spans
) -> MeasuredCell:
    points = _points_of(arm, slot)
    rows = load_rows(plan, points, records)
    return MeasuredCell(plan, arm, slot.workload, slot.level, rows, points, slo, spans)


def _points_of(arm: Arm, slot: _Slot) -> tuple[PointSummary, ...]:
    return tuple(point for point in slot.points if point.arm == arm.name)


def _losslessness(measured: MeasuredCell, baseline: MeasuredCell, records: PointRecords) -> EvaluatedCell:
    """Compare with the baseline. Divergence is counted once, for the check and for losslessness."""
    diverged = divergence(measured.rows, baseline.rows)
    judged = evaluate_cell(measured, baseline, diverged)
    workload = measured.workload
    # Where the server chooses the temperature, no test applies: equal and different answers are both expected.
    known = workload.greedy is not None
    result = losslessness(diverged, measured.rows, baseline.rows, records, workload.sampling) if known else None
    return replace(judged, cell=judged.cell.model_copy(update={"lossless": result}))


def _without_baseline(judged: EvaluatedCell) -> EvaluatedCell:
    cell = judged.cell
    finding = Finding(
        check=baseline_invalid.name,
        severity=Severity.INVALID,
        message="the baseline of this comparison is invalid: see its own findings",
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
    )
    return without_comparison(judged, [finding])


def _prompts(plan: Plan, judged: Sequence[EvaluatedCell]) -> dict[str, int]:
    """Return the number of different prompts of each measured workload: the smallest of any cell."""
    counts = {
        workload.name: [each.prompts for each in judged if each.cell.workload == workload.name]
        for workload in plan.workloads
    }
    return {name: min(of_cells) for name, of_cells in counts.items() if of_cells}


def _category_prompts(workload: str, judged: Sequence[EvaluatedCell]) -> dict[str, int]:
    """Return the number of different prompts by category: the smallest of any cell."""
    counts = [each.category_prompts for each in judged if each.cell.workload == workload]
    names = sorted({name for count in counts for name in count})
    return {name: min(count.get(name, 0) for count in counts) for name in names}


def _with_rounds_replaced(plan: Plan, measured: Sequence[PointSummary]) -> set[tuple[str, Level]]:
    """Return the workloads and levels with as many valid rounds of all arms as were planned."""
    missing = {point.hash for point in plan.points} - {point.hash for point in measured}
    incomplete = {(point.workload, point.level) for point in plan.points if point.hash in missing}
    slots = [slot for slot in _slots(plan, measured) if not RoundsLeftOut.of(plan, slot.points).lacking]
    return {(slot.workload.name, slot.level) for slot in slots} - incomplete


def _left_out(plan: Plan, finding: Finding, point: PointSummary, *, is_replaced: bool) -> Finding:
    """Return the finding of a point that is left out of its comparison, so that it affects no figure."""
    if finding.severity is Severity.INFO:
        return finding
    what = f"{plan.round_in_words(point.repeat)} {'is' if plan.search else 'are'} left out on both sides"
    if is_replaced:
        what += ", and were measured again"
    elif finding.check == prompts_sent_again.name and plan.stop is None and plan.load.requested(point.level):
        what += f"; another round needs {prompts_of_another_round(plan):g} different prompts"
    return finding.model_copy(update={"severity": Severity.INFO, "message": f"{finding.message}; {what}"})


def _invalid(judged: Sequence[EvaluatedCell], measured: Sequence[PointSummary]) -> set[str]:
    """Return points that a check of their own or of their cell made invalid; the baseline's affect no other point."""
    own = {point.hash for point in measured if is_invalid(point)}
    for each in judged:
        severities = {finding.severity for finding in each.findings if finding.check != baseline_invalid.name}
        own |= set(each.cell.points) if Severity.INVALID in severities else set()
    return own
