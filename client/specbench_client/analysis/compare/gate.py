"""The decision rule of a gate.

Each tolerance in each cell is one test of one log ratio, oriented so that more is better, against the tolerance's
limit:

    Passed        the one-sided lower bound at the gate's confidence is above the limit: a regression beyond the
                  tolerance is excluded (a test of non-inferiority)
    Failed        the one-sided upper bound is below the limit, after Holm's correction over all tests: a regression
                  beyond the tolerance is shown
    Inconclusive  neither

The gate passes only if every test does. An intersection-union test needs no correction for that: it wrongly passes no
more often than its worst single test (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling"). It
fails as soon as one test does, which happens by chance among many tests; hence Holm's correction for failures only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate, GateMetric, GateRequest, Tolerance
from specbench_api.spec.status import TEXT_MAX
from specbench_client.analysis.compare.comparison import (
    APART,
    ComparisonRow,
    ResultComparison,
    change_verdicts,
    compare_results,
)
from specbench_client.analysis.compare.effects import repeats_to_decide
from specbench_client.analysis.compare.metrics import MetricSelection
from specbench_client.analysis.compare.stored_result import StoredResult
from specbench_client.analysis.statistics.effects import Effect
from specbench_client.analysis.statistics.significance import holm_rejections
from specbench_client.documents.comparison import (
    ComparedFigure,
    ComparisonGap,
    ComparisonGapReason,
    GateReport,
    GateTest,
    GateTestOutcome,
)
from specbench_client.documents.finding import doubting_checks, faults_by_arm, list_faults

NAMED = 3
"""Maximum number of cells listed in the message; the table has all of them."""


@dataclass(frozen=True)
class GateTrial:
    """One row against one tolerance. `limit` and `effect` are logs, oriented so that more is better."""

    row: ComparisonRow
    tolerance: Tolerance
    limit: float
    effect: Effect | None
    why_not: str = ""
    """Why there is no effect to decide by."""


def judge_gate(request: GateRequest, before: StoredResult, after: StoredResult, created: str) -> GateReport:
    """Evaluate a gate. `created`: RFC 3339."""
    gate = with_testable_defaults(request.gate, before, after)
    found = compare_results(before, after, [MetricSelection.of(tolerance) for tolerance in gate.effective_tolerances])
    tests = [
        _test(gate, tolerance, row)
        for tolerance in gate.effective_tolerances
        for row in found.rows
        if _matches(tolerance, row)
    ]
    shown = gate_outcomes(tests, gate.confidence)
    documents = _documents(gate, tests, shown, found.rows)
    reason, message = next(_reasons(gate, before, after, found, documents))
    inconclusive_passes = reason is GateReason.INCONCLUSIVE and gate.on_inconclusive == "Pass"
    return GateReport(
        gate_digest=request.gate_digest,
        created=created,
        gate=gate,
        passed=reason is GateReason.PASSED or inconclusive_passes,
        reason=reason,
        message=message[:TEXT_MAX],  # it becomes part of the run's status
        baseline=before.side.uri,
        before=before.side,
        after=after.side,
        differences=found.differences,
        refused=found.refused,
        tests=sorted(documents, key=lambda test: _ORDER.index(test.outcome)),
        uncompared=found.uncompared,
        limits=[APART],
    )


def with_testable_defaults(gate: Gate, before: StoredResult, after: StoredResult) -> Gate:
    """Return the gate; without tolerances and without baseline arms, as of `specbench measure`, it tests TPOT alone.

    The default tolerances include the speed-up, which needs a baseline in the same run. Without one the gate could
    never pass.
    """
    has_baseline = before.plan.has_baseline or after.plan.has_baseline
    if gate.tolerances or has_baseline:
        return gate
    return gate.model_copy(update={"tolerances": [Tolerance(metric=GateMetric.TPOT)]})


_ORDER = (GateTestOutcome.FAILED, GateTestOutcome.INCONCLUSIVE, GateTestOutcome.PASSED)


def gate_outcomes(tests: Sequence[GateTrial], confidence: float) -> list[GateTestOutcome]:
    """Return the outcome of each test."""
    p_values = [test.effect.p_below(test.limit) if test.effect else None for test in tests]
    failed = holm_rejections(p_values, 1 - confidence)
    return [_shown(test, confidence, failed=is_failed) for test, is_failed in zip(tests, failed, strict=True)]


def _shown(test: GateTrial, confidence: float, *, failed: bool) -> GateTestOutcome:
    if failed:
        return GateTestOutcome.FAILED
    passed = test.effect is not None and test.effect.low(confidence) > test.limit
    return GateTestOutcome.PASSED if passed else GateTestOutcome.INCONCLUSIVE


def limit_of(tolerance: Tolerance, *, more_is_better: bool) -> float:
    """Return the limit of after / before: 0.95 if more is better and 5 % are tolerated, else 1.05."""
    share = tolerance.max_regression_percent / 100
    return 1 - share if more_is_better else 1 + share


def _test(gate: Gate, tolerance: Tolerance, row: ComparisonRow) -> GateTrial:
    better, repeats = row.figure.more_is_better, row.result.repeats
    limit = float(np.log(limit_of(tolerance, more_is_better=better)))
    effect, why_not = row.improvement if row.result.effect.supports_claim else None, ""
    if min(repeats) < gate.min_repeats:
        why_not = (
            f"{repeats[0]} repeats before and {repeats[1]} after, but minRepeats is {gate.min_repeats} on each side;"
            f" measure again with spec.load.repeats: {gate.min_repeats} or --repeats {gate.min_repeats}"
        )
        effect = None
    elif row.result.effect.chosen is None:
        why_not = "there is no interval: too few prompts or requests"
    return GateTrial(row, tolerance, limit if better else -limit, effect, why_not)


def _documents(
    gate: Gate, tests: Sequence[GateTrial], shown: Sequence[GateTestOutcome], rows: Sequence[ComparisonRow]
) -> list[GateTest]:
    verdicts = {id(row): verdict for row, verdict in zip(rows, change_verdicts(rows), strict=True)}
    return [
        _document(gate, test, outcome, test.row.compared(verdicts[id(test.row)]))
        for test, outcome in zip(tests, shown, strict=True)
    ]


def _document(gate: Gate, test: GateTrial, outcome: GateTestOutcome, compared: ComparedFigure) -> GateTest:
    low = high = None
    if test.effect:
        plain = test.row.result.effect
        low, high = (float(np.exp(bound)) for bound in (plain.low(gate.confidence), plain.high(gate.confidence)))
    repeats, why = _undecided(gate, test) if outcome is GateTestOutcome.INCONCLUSIVE else (None, "")
    return GateTest(
        compared=compared,
        max_regression_percent=test.tolerance.max_regression_percent,
        limit=limit_of(test.tolerance, more_is_better=test.row.figure.more_is_better),
        low=low,
        high=high,
        outcome=outcome,
        why=why,
        repeats_to_decide=repeats,
    )


def _undecided(gate: Gate, test: GateTrial) -> tuple[int | None, str]:
    """Return the number of repeats that would decide, if any, and a sentence about it."""
    if test.effect is None:
        return (gate.min_repeats if min(test.row.result.repeats) < gate.min_repeats else None), test.why_not
    if test.effect.high(gate.confidence) < test.limit:
        return None, "worse than its tolerance on its own, but not significantly so among so many tests"
    needed = repeats_to_decide(test.effect, test.limit, gate.confidence)
    if needed is not None:
        more = max(needed, max(test.row.result.repeats) + 1)
        return more, f"about {more} repeats on each side would decide, if the estimated change is right"
    if test.effect.run_variance is None:
        return None, "more prompts would decide, but more repeats would not"
    return None, "the change is too close to the tolerance: no reasonable number of repeats would decide"


def _lacking(gate: Gate, uncompared: Sequence[ComparisonGap]) -> Iterator[str]:
    """Yield what the gate requires and what was not compared.

    Cells that only the later result has are not reported, because they cannot have regressed.
    """
    selections = [MetricSelection.of(tolerance) for tolerance in gate.effective_tolerances]
    for each in uncompared:
        required = any(one.includes(each.arm, each.workload, is_baseline=False) for one in selections)
        if required and each.reason is not ComparisonGapReason.MISSING_BEFORE:
            yield f"{each.place} ({each.message})"


def _new_faults(gate: Gate, before: StoredResult, after: StoredResult) -> list[str]:
    """Return the arms of the gate that are at fault in the later result only, with the checks that found it."""
    selections = [MetricSelection.of(tolerance) for tolerance in gate.effective_tolerances]
    known = faults_by_arm(before.summary.findings)
    return list_faults(
        finding
        for finding in after.summary.findings
        if finding.check not in known.get(finding.arm or "", [])
        and any(one.includes(finding.arm or "", finding.workload or "", is_baseline=False) for one in selections)
    )


def _unmatched(gate: Gate, found: ResultComparison) -> Iterator[str]:
    """Yield tolerances that match no cell, so that a mistyped filter does not count as passed."""
    for tolerance in gate.effective_tolerances:
        named = [*tolerance.arms, *tolerance.workloads]
        if named and found.rows and not any(_matches(tolerance, row) for row in found.rows):
            yield f"the tolerance of {tolerance.label} for {', '.join(named)} matches no cell"


def _matches(tolerance: Tolerance, row: ComparisonRow) -> bool:
    selection = MetricSelection.of(tolerance)
    return row.figure.label == selection.figure.label and selection.includes(row.key[0], row.key[1], is_baseline=False)


def _reasons(
    gate: Gate,
    before: StoredResult,
    after: StoredResult,
    found: ResultComparison,
    tests: Sequence[GateTest],
) -> Iterator[tuple[GateReason, str]]:
    """Yield the gate's reasons that apply with their messages, the most severe first; at least one."""
    lacking = [*_lacking(gate, found.uncompared), *_unmatched(gate, found)]
    if found.refused:
        yield GateReason.NOT_COMPARABLE, "; ".join([*found.refused, *lacking[:NAMED]])
    untrustworthy = [
        f"the {which} result is not trustworthy{_doubts(result)}"
        for which, result in (("earlier", before), ("later", after))
        if gate.require_trustworthy and not result.summary.trustworthy
    ]
    failed, open_ = ([test for test in tests if test.outcome is kind] for kind in _ORDER[:2])
    if failed:  # a regression is reported even if a result is untrustworthy as well
        regressed = _named("are worse than tolerated", failed, len(tests))
        yield GateReason.REGRESSED, "; ".join([regressed, *untrustworthy])
    faults = _new_faults(gate, before, after)
    if faults:
        message = _listed("at fault, and not in the earlier result", faults)
        yield GateReason.ARM_AT_FAULT, "; ".join([message, *untrustworthy])
    if untrustworthy:
        yield GateReason.UNTRUSTWORTHY, "; ".join(untrustworthy)
    if lacking and gate.on_missing == "Fail":
        yield GateReason.CELLS_MISSING, _listed("not compared", lacking)
    if not tests and not found.refused:
        yield GateReason.NOT_COMPARABLE, "nothing was tested: the results have no cell that can be compared"
    if open_:
        message = _named("are shown neither to be within the tolerance nor beyond it", open_, len(tests))
        yield GateReason.INCONCLUSIVE, f"{message}: {open_[0].why}"
    yield GateReason.PASSED, f"{len(tests)} of {len(tests)} tests are within their tolerance"


def _doubts(result: StoredResult) -> str:
    """Return the checks that make a result untrustworthy, in parentheses, those that invalidate cells first."""
    names = ", ".join(doubting_checks(result.summary.findings))
    return f" ({names})" if names else ""


def _named(statement: str, tests: Sequence[GateTest], total: int) -> str:
    return f"{len(tests)} of {total} tests {statement}: " + _listed("", [_line(test) for test in tests])


def _listed(title: str, lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return (f"{title}: " if title else "") + "; ".join(lines[:NAMED]) + more


def _line(test: GateTest) -> str:
    each, ratio = test.compared, test.compared.ratio.value
    bounds = "" if test.low is None or test.high is None else f" [{test.low:.3f}, {test.high:.3f}]"
    return f"{each.metric} of {each.place}: {ratio:.3f}{bounds}, limit {test.limit:.3f}"
