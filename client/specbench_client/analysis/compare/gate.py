"""The rule by which a gate decides.

Each tolerance in each cell is one test of one log ratio, turned so that more is better, against the limit that the
tolerance sets:

    Passed        the one-sided lower bound at the gate's confidence lies above the limit: a regression beyond the
                  tolerance is excluded (a test of non-inferiority)
    Failed        the one-sided upper bound lies below the limit, also after Holm's correction over all tests: a
                  regression beyond the tolerance is shown
    Inconclusive  neither

The gate passes only if every test does. An intersection-union test needs no correction for that: it wrongly passes no
more often than its single worst test (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling"). It
fails as soon as one test does, which among many tests happens by chance; hence Holm there and only there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_api.outcome.comparison import Compared, LackReason, Uncompared
from specbench_api.outcome.gate import AskedGate, GateReport, GateTest, Shown
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate, Tolerance
from specbench_client.analysis.compare.cells import Compares, Row, compare
from specbench_client.analysis.compare.comparison import APART, standings_of
from specbench_client.analysis.compare.estimate import Estimate, repeats_to_decide
from specbench_client.analysis.compare.metrics import Wanted
from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.statistics.holm import rejected

NAMED = 3
"""Cells that the message names; the others stand in the table."""


@dataclass(frozen=True)
class Trial:
    """One row against one tolerance. `limit` and `estimate`: logs, turned so that more is better."""

    row: Row
    tolerance: Tolerance
    limit: float
    estimate: Estimate | None
    why_not: str = ""
    """Why there is no estimate to decide by."""


def judge_gate(asked: AskedGate, before: Result, after: Result, created: str) -> GateReport:
    """Evaluate a gate. `created`: RFC 3339."""
    gate = asked.gate
    found = compare(before, after, [Wanted.of(tolerance) for tolerance in gate.asked])
    tests = list(_tests(gate, found.rows))
    shown = verdicts(tests, gate.confidence)
    documents = _documents(gate, tests, shown, found.rows)
    lacking = [*_lacking(gate, found.uncompared), *_unmatched(gate, found)]
    reason, message = _reason(gate, _Evidence(before, after, found.refused, documents, lacking))
    inconclusive_passes = reason is GateReason.INCONCLUSIVE and gate.inconclusive == "Pass"
    return GateReport(
        asked=asked.asked,
        created=created,
        gate=gate,
        passed=reason is GateReason.PASSED or inconclusive_passes,
        reason=reason,
        message=message,
        before=before.side,
        after=after.side,
        differences=found.differences,
        refused=found.refused,
        tests=sorted(documents, key=lambda test: _ORDER.index(test.verdict)),
        uncompared=found.uncompared,
        limits=[APART],
    )


_ORDER = (Shown.FAILED, Shown.INCONCLUSIVE, Shown.PASSED)


def verdicts(tests: Sequence[Trial], confidence: float) -> list[Shown]:
    """What each test shows."""
    p_values = [test.estimate.p_below(test.limit) if test.estimate else None for test in tests]
    failed = rejected(p_values, 1 - confidence)
    return [_shown(test, confidence, failed=is_failed) for test, is_failed in zip(tests, failed, strict=True)]


def _shown(test: Trial, confidence: float, *, failed: bool) -> Shown:
    if failed:
        return Shown.FAILED
    passed = test.estimate is not None and test.estimate.low(confidence) > test.limit
    return Shown.PASSED if passed else Shown.INCONCLUSIVE


def limit_of(tolerance: Tolerance, *, more_is_better: bool) -> float:
    """What after / before may come to: 0.95 where more is better and 5 % are tolerated, else 1.05."""
    share = tolerance.max_regression_percent / 100
    return 1 - share if more_is_better else 1 + share


def _tests(gate: Gate, rows: Sequence[Row]) -> Iterator[Trial]:
    for tolerance in gate.asked:
        yield from (_test(gate, tolerance, row) for row in rows if _is_of(tolerance, row))


def _test(gate: Gate, tolerance: Tolerance, row: Row) -> Trial:
    better, repeats = row.figure.more_is_better, row.found.repeats
    limit = float(np.log(limit_of(tolerance, more_is_better=better)))
    estimate, why_not = row.told, ""
    if row.found.estimate is None:
        why_not = "there is no interval: too few prompts, repeats or requests"
    elif min(repeats) < gate.min_repeats:
        why_not = f"{repeats[0]} repeats before and {repeats[1]} after: {gate.min_repeats} are needed on each side"
        estimate = None
    turned = estimate.mirrored() if estimate and not better else estimate
    return Trial(row, tolerance, limit if better else -limit, turned, why_not)


def _documents(gate: Gate, tests: Sequence[Trial], shown: Sequence[Shown], rows: Sequence[Row]) -> list[GateTest]:
    standings = {id(row): standing for row, standing in zip(rows, standings_of(rows), strict=True)}
    return [
        _document(gate, test, verdict, test.row.compared(standings[id(test.row)]))
        for test, verdict in zip(tests, shown, strict=True)
    ]


def _document(gate: Gate, test: Trial, verdict: Shown, compared: Compared) -> GateTest:
    low = high = None
    if test.estimate:
        plain = test.estimate if test.row.figure.more_is_better else test.estimate.mirrored()
        low, high = (float(np.exp(bound)) for bound in (plain.low(gate.confidence), plain.high(gate.confidence)))
    repeats, why = _undecided(gate, test) if verdict is Shown.INCONCLUSIVE else (None, "")
    return GateTest(
        compared=compared,
        max_regression_percent=test.tolerance.max_regression_percent,
        limit=limit_of(test.tolerance, more_is_better=test.row.figure.more_is_better),
        low=low,
        high=high,
        verdict=verdict,
        why=why,
        repeats_to_decide=repeats,
    )


def _undecided(gate: Gate, test: Trial) -> tuple[int | None, str]:
    """What would decide, and in words."""
    if test.estimate is None:
        return (gate.min_repeats if min(test.row.found.repeats) < gate.min_repeats else None), test.why_not
    if test.estimate.high(gate.confidence) < test.limit:
        return None, "beyond its tolerance by itself, and not clearly so among so many tests"
    needed = repeats_to_decide(test.estimate, test.limit, gate.confidence)
    if needed is not None:
        more = max(needed, max(test.row.found.repeats) + 1)
        return more, f"about {more} repeats on each side would decide, if the change is what it seems"
    if test.estimate.run_variance is None:
        return None, "more prompts would decide, more repeats would not"
    return None, "the change lies at the tolerance itself: no reasonable number of repeats would decide"


def _lacking(gate: Gate, uncompared: Sequence[Uncompared]) -> Iterator[str]:
    """What is asked for and was not compared. What only the later result has cannot have got worse, and is no lack."""
    wanted = [Wanted.of(tolerance) for tolerance in gate.asked]
    for each in uncompared:
        asked = any(figure.wants(each.arm, each.workload, is_baseline=False) for figure in wanted)
        if asked and each.reason is not LackReason.MISSING_BEFORE:
            yield f"{each.place} ({each.message})"


def _unmatched(gate: Gate, found: Compares) -> Iterator[str]:
    """Tolerances that no cell answers to: a mistyped filter must not pass for a test that was passed."""
    for tolerance in gate.asked:
        named = [*tolerance.arms, *tolerance.workloads]
        if named and found.rows and not any(_is_of(tolerance, row) for row in found.rows):
            yield f"the tolerance of {tolerance.label} for {', '.join(named)} meets no cell"


def _is_of(tolerance: Tolerance, row: Row) -> bool:
    wanted = Wanted.of(tolerance)
    return row.figure.label == wanted.figure.label and wanted.wants(row.key[0], row.key[1], is_baseline=False)


@dataclass(frozen=True)
class _Evidence:
    before: Result
    after: Result
    refused: Sequence[str]
    tests: Sequence[GateTest]
    lacking: Sequence[str]


def _reason(gate: Gate, evidence: _Evidence) -> tuple[GateReason, str]:
    """The first that applies, the gravest first, with its line."""
    if evidence.refused:
        return GateReason.NOT_COMPARABLE, "; ".join([*evidence.refused, *evidence.lacking[:NAMED]])
    doubted = [
        f"the {which} result: {result.summary.verdict}"
        for which, result in (("earlier", evidence.before), ("later", evidence.after))
        if not result.summary.trustworthy
    ]
    if gate.require_trustworthy and doubted:
        return GateReason.UNTRUSTWORTHY, "; ".join(doubted)
    failed, open_ = ([test for test in evidence.tests if test.verdict is kind] for kind in _ORDER[:2])
    if failed:
        return GateReason.REGRESSED, _named("are worse than tolerated", failed, len(evidence.tests))
    if evidence.lacking and gate.on_missing == "Fail":
        return GateReason.CELLS_MISSING, _listed("not compared", list(evidence.lacking))
    if open_ or not evidence.tests:
        told = _named("could be shown neither within the tolerance nor beyond it", open_, len(evidence.tests))
        return GateReason.INCONCLUSIVE, f"{told}: {open_[0].why}" if open_ else told
    return GateReason.PASSED, f"{len(evidence.tests)} of {len(evidence.tests)} tests are within their tolerance"


def _named(words: str, tests: Sequence[GateTest], total: int) -> str:
    return f"{len(tests)} of {total} tests {words}: " + _listed("", [_line(test) for test in tests])


def _listed(words: str, lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return (f"{words}: " if words else "") + "; ".join(lines[:NAMED]) + more


def _line(test: GateTest) -> str:
    each, ratio = test.compared, test.compared.ratio.value
    bounds = "" if test.low is None or test.high is None else f" [{test.low:.3f}, {test.high:.3f}]"
    return f"{each.metric} of {each.arm} on {each.workload} at {each.load}: {ratio:.3f}{bounds}, limit {test.limit:.3f}"
