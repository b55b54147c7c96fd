"""The rows of several points as one table, without acceptance that nothing confirms, and which points are compared.

TTFT or TPOT is left out of a load that an arm was measured at if chunks of one of its points were coalesced: what
remains would be that of fewer repeats than the other figures have.

A single invalid point does not cost an interleaved run its answer. A round, two repeats in which every arm is first
once (ABBA), is left out on both sides if something outside of the servers invalidated one of its points: as a whole,
so that a linear drift still cancels. A run that stops when it is decided measures another round instead, and so does
another run as often as --retries allows. If more than a third of the rounds is concerned, and not replaced, the cause
is not a single point: then nothing is left out, and the comparison is invalid.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.plan.plan import REPEATS_OF_ROUND, Plan, PlanCell, Point
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import REPEATS_MAX, ArmOrder
from specbench_client.documents.finding import Severity
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.documents.summary import PointSummary
from specbench_client.metrics.late_sends import without_waits_by_design
from specbench_client.metrics.metric_types import TimingFault
from specbench_client.metrics.rows import POINT, Table, collect_tables, has_text
from specbench_client.metrics.tidy_frame import PointRecords, iter_tidy, steady_rows, without_point_columns
from specbench_client.metrics.time_per_token import TPOT_MS_POOLED
from specbench_client.trust.checks.acceptance import acceptance_counter_mismatch
from specbench_client.trust.checks.client import chunks_coalesced, client_saturated
from specbench_client.trust.checks.comparison import repeats_apart
from specbench_client.trust.checks.draft_counters import DRAFTING_COLUMNS, acceptance_without, doubtful_rows
from specbench_client.trust.checks.load import concurrency_not_reached, foreign_traffic, rate_not_reached
from specbench_client.trust.checks.prompts import prompts_sent_again
from specbench_client.trust.evidence import PointEvidence

LEFT_OUT_SHARE = 1 / 3
"""Share of the rounds that may be left out: with one invalid repeat each, a twelfth of the repeats of two servers."""


@dataclass(frozen=True)
class RoundsLeftOut:
    """The rounds with a point that something outside of the servers spoiled, among those of a comparison.

    A point that its own server made invalid, for example because requests failed, is never left out: such points are
    often slow, and without them the server would look faster than it is.
    """

    invalid: frozenset[int]
    """The numbers of the rounds with a spoiled point."""
    measured: int
    """The number of rounds."""
    planned: int
    """The number of rounds of the plan, without those that were added because others are invalid."""
    broken: bool = False
    """Whether a server made one of its points invalid, so that the comparison stays invalid."""
    size: int = REPEATS_OF_ROUND
    """`Plan.repeats_of_round`."""

    @classmethod
    def of(cls, plan: Plan, points: Sequence[PointSummary]) -> RoundsLeftOut:
        """Return those of some points: of an arm and its baseline; none of a run whose repeats do not alternate."""
        by_arm = defaultdict[str, set[int]](set)
        for point in points:
            by_arm[point.arm].add(plan.round_of(point.repeat))
        in_common = set.intersection if plan.search else set.union  # an arm of a search may lack the later ones
        rounds = in_common(*by_arm.values()) if by_arm else set[int]()
        planned = math.ceil(plan.own_repeats / plan.repeats_of_round)
        spoiled = {plan.round_of(point.repeat) for point in points if _is_spoiled(point)}
        is_broken = any(is_invalid(point) and not _is_spoiled(point) for point in points)
        invalid = frozenset(spoiled & rounds if plan.load.order is ArmOrder.INTERLEAVED else ())
        return cls(invalid, len(rounds), planned, is_broken, plan.repeats_of_round)

    @property
    def few(self) -> bool:
        """Whether so few are invalid that they are left out, or others were measured instead of all of them."""
        return len(self.invalid) <= LEFT_OUT_SHARE * self.measured or not self.lacking

    @property
    def lacking(self) -> bool:
        """Whether fewer rounds are valid than were planned."""
        return self.measured - len(self.invalid) < self.planned

    def may_become_few(self, rounds: int) -> bool:
        """Whether so few may still be invalid after this many rounds; not if every round of two was until now."""
        spoiled = len(self.invalid)
        is_hopeful = spoiled < self.measured or self.size == 1
        return not self.broken and is_hopeful and spoiled <= LEFT_OUT_SHARE * rounds

    def kept(self, points: Sequence[PointSummary]) -> list[PointSummary]:
        """Return the points that are compared."""
        return [point for point in points if not (self.few and point.repeat // self.size in self.invalid)]


def cells_to_repeat(plan: Plan, points: Sequence[PointSummary], prompts: Mapping[str, float]) -> set[PlanCell]:
    """Return the cells of which another round may replace an invalid one, when all are measured: those of all arms.

    What counts is only what was found about the client, the network and the machine, and never a result. A point whose
    prompts were sent before an interruption counts only if another round has new ones. `prompts`: how many each
    workload has.
    """
    found = set[PlanCell]()
    for arm, workload, level in {(point.arm, point.workload, point.level) for point in points}:
        own = [
            each
            for each in points
            if each.arm in (arm, BASELINE_NAME)
            and (each.workload, each.level) == (workload, level)
            and (not is_sent_again(each) or prompts_of_another_round(plan) <= prompts[workload])
        ]
        rounds = RoundsLeftOut.of(plan, own)
        if rounds.invalid and rounds.lacking and not rounds.broken:
            found.update((each.name, workload, level) for each in plan.arms)
    return found


def prompts_of_another_round(plan: Plan) -> float:
    """Return how many prompts a run with another round needs to send none twice; infinite if their number is open."""
    rounds = math.ceil(plan.load.repeats / REPEATS_OF_ROUND) + 1
    return rounds * REPEATS_OF_ROUND * sum(plan.load.requested(level) or math.inf for level in plan.load.levels)


def why_no_rounds_are_added(plan: Plan) -> str:
    """Return why no round of a run can be measured again, whatever was found; empty if it can."""
    if plan.load.order is not ArmOrder.INTERLEAVED:
        return "it does not measure arms in turns (load.order: Interleaved)"
    if plan.search:
        return "its search measures again what may change its answer"
    if plan.stop is not None:
        return "it has ended by its stop rule (--until-sure)"
    if plan.own_repeats < MIN_REPEATS_TO_COMPARE:
        return f"it has fewer than {MIN_REPEATS_TO_COMPARE} repeats"
    if plan.load.repeats + REPEATS_OF_ROUND > REPEATS_MAX:
        return f"it would have more than {REPEATS_MAX} repeats"
    return ""


def is_invalid(point: PointSummary) -> bool:
    """Return whether a check of the point itself invalidated it."""
    return any(finding.severity is Severity.INVALID for finding in point.findings)


def is_sent_again(point: PointSummary) -> bool:
    """Return whether the server had prompts of the point in its cache, because they were sent before."""
    return any(finding.check == prompts_sent_again.name for finding in point.findings)


SPOILED_FROM_OUTSIDE = frozenset({client_saturated.name, foreign_traffic.name})
"""Checks whose cause is not the measured server."""
CONSEQUENCES = {
    client_saturated.name: {chunks_coalesced.name, concurrency_not_reached.name, rate_not_reached.name},
    foreign_traffic.name: {acceptance_counter_mismatch.name},
}
"""Checks that report what a late client or foreign traffic causes too: with those, the server is not their cause."""


def _is_spoiled(point: PointSummary) -> bool:
    """Return whether only something outside of the server spoiled the point: also a restart, or prompts sent again."""
    found = {finding.check for finding in point.findings}
    invalid = {finding.check for finding in point.findings if finding.severity is Severity.INVALID}
    causes = SPOILED_FROM_OUTSIDE.union(*(CONSEQUENCES[name] for name in invalid & CONSEQUENCES.keys()))
    if client_saturated.name in found:  # also if it was late for single requests only
        causes |= {chunks_coalesced.name}
    return (bool(invalid) or repeats_apart.name in found or is_sent_again(point)) and invalid <= causes


def load_rows(plan: Plan, points: Sequence[PointSummary], records: PointRecords) -> Table:
    """Return the tidy rows of these points, in order, without columns that only a single point's checks need.

    `records` maps the point's hash to its records. Many rows are on disk (`metrics.rows.collect_tables`).
    """
    rows = collect_tables(table for point in points for table in _tidy_rows(plan, point, records))
    doubtful, faulty = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.int8)
    faults = Counter[tuple[str, str, str]]()
    for point in points:
        mine = has_text(rows, POINT, point.hash)
        own = rows.among(mine)
        doubtful[mine] = doubtful_rows(_evidence(plan, point, own.table(DRAFTING_COLUMNS)))
        faults[_cell(point)] = max(faults[_cell(point)], timing_fault_of(point, own))
    for point in points:
        if faults[_cell(point)]:
            faulty[has_text(rows, POINT, point.hash)] = faults[_cell(point)]
    known = rows.assign(timing_fault=faulty) if faulty.any() else rows
    return known.assign(**acceptance_without(rows, doubtful).columns) if doubtful.any() else known


def _cell(point: PointSummary) -> tuple[str, str, str]:
    return point.arm, point.workload, point.level.label


def timing_fault_of(point: PointSummary, rows: Table) -> TimingFault:
    """Return why the point's summary lacks times although the point's rows, or a part of them, have them."""
    if not any(each.check == chunks_coalesced.name and each.severity is Severity.INVALID for each in point.findings):
        return TimingFault.NONE
    is_left_out = point.figures[TPOT_MS_POOLED.name].value is None
    return TimingFault.AT_ONCE if is_left_out and TPOT_MS_POOLED.value(steady_rows(rows)) else TimingFault.COALESCED


def _evidence(plan: Plan, summary: PointSummary, rows: Table) -> PointEvidence:
    point = Point(
        hash=summary.hash, arm=summary.arm, workload=summary.workload, level=summary.level, repeat=summary.repeat
    )
    return PointEvidence(plan, point, rows, summary.client_health, summary.counters)


def _tidy_rows(plan: Plan, point: PointSummary, records: PointRecords) -> Iterator[Table]:
    known = (without_point_columns(rows) for rows in iter_tidy(records[point.hash], point.hash))
    return (without_waits_by_design(rows, plan, point.workload) for rows in known)
